#include "plugin/offload/explain_ring.h"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>

namespace kvc {

std::string_view name_of(Why why) {
  switch (why) {
    case Why::none:
      return "none";
    case Why::miss:
      return "miss";
    case Why::local_unaligned:
      return "local_unaligned";
    case Why::no_ranks:
      return "no_ranks";
    case Why::no_read:
      return "no_read";
    case Why::load_failed:
      return "load_failed";
    case Why::reset:
      return "reset";
    case Why::cost_gate:
      return "cost_gate";
    case Why::attached:
      return "attached";
    case Why::not_tracked:
      return "not_tracked";
  }
  return "unknown";
}

std::string_view name_of(RequestPhase phase) {
  switch (phase) {
    case RequestPhase::waiting:
      return "waiting";
    case RequestPhase::loading:
      return "loading";
    case RequestPhase::running:
      return "running";
    case RequestPhase::over:
      return "over";
  }
  return "unknown";
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", byte);
    } else {
      out += byte < 0x80 ? c : '?';
    }
  }
  out += '"';
}

namespace {

void append_offers(std::string& out, const OfferCounts& o) {
  fmt::format_to(std::back_inserter(out),
                 "{{\"published\":{},\"stored\":{},\"pending\":{},\"skipped_already_cached\":{},"
                 "\"skipped_in_flight\":{},\"skipped_not_hashed\":{},\"dropped_pool_full\":{},"
                 "\"dropped_request_gone\":{},\"dropped_null_block\":{},\"dropped_bad_offer\":{},"
                 "\"dropped_no_parent\":{},\"dropped_parent_failed\":{},\"dropped_copy_failed\":{},"
                 "\"dropped_leased\":{},\"dropped_hold_budget\":{},\"dropped_reset\":{},"
                 "\"dropped_plan_full\":{}}}",
                 o.published, o.stored, o.pending, o.skipped_already_cached, o.skipped_in_flight,
                 o.skipped_not_hashed, o.dropped_pool_full, o.dropped_request_gone,
                 o.dropped_null_block, o.dropped_bad_offer, o.dropped_no_parent,
                 o.dropped_parent_failed, o.dropped_copy_failed, o.dropped_leased,
                 o.dropped_hold_budget, o.dropped_reset, o.dropped_plan_full);
}

}  // namespace

void append_json(std::string& out, const ExplainRecord& r) {
  fmt::format_to(
      std::back_inserter(out),
      "{{\"request\":{},\"phase\":\"{}\",\"prompt_tokens\":{},\"confirmed_tokens\":{},"
      "\"admissions\":{},\"preemptions\":{},\"lookups\":{},\"attached_answers\":{},"
      "\"last_lookup\":{{\"total_tokens\":{},\"device_tokens\":{},\"external_tokens\":{},"
      "\"why\":\"{}\",\"tokens_lost_no_state\":{},\"draft_dropped_tokens\":{}}},"
      "\"loads\":{{\"jobs\":{},\"ok\":{},\"failed\":{},\"tokens\":{}}},\"offers\":",
      r.id, name_of(r.phase), r.prompt.n, r.confirmed.n, r.admissions, r.preemptions, r.lookups,
      r.attached, r.last_total.n, r.last_device.n, r.last_external.n, name_of(r.last_why),
      r.lost_no_state.n, r.lost_to_drafts.n, r.loads, r.loads_ok, r.loads_failed, r.loaded.n);
  append_offers(out, r.offers);
  if (r.gate != GateDecision::none) {
    fmt::format_to(std::back_inserter(out),
                   ",\"cost_gate\":{{\"decision\":\"{}\",\"load_us\":{},\"recompute_us\":{},"
                   "\"left_on_disk_tokens\":{}}}",
                   name_of(r.gate), r.gate_load_us, r.gate_recompute_us, r.gate_left_on_disk.n);
  }
  if (r.hint != Hint{} || r.pins != 0) {
    fmt::format_to(std::back_inserter(out),
                   ",\"hints\":{{\"priority\":{},\"ttl_ms\":{},\"pins\":{},"
                   "\"pinned_tokens\":{},\"prefetch\":{}}}",
                   r.hint.priority, r.hint.ttl_ns / 1'000'000, r.pins, r.pinned.n, r.hint.prefetch);
  }
  out += '}';
}

std::uint64_t ExplainRing::enter(const ExplainRecord& record) {
  const std::uint64_t ticket = entered_.load(std::memory_order_relaxed);
  ring_[ticket % records].publish(record);
  entered_.store(ticket + 1, std::memory_order_release);
  return ticket;
}

void ExplainRing::put(std::uint64_t ticket, const ExplainRecord& record) {
  const std::uint64_t entered = entered_.load(std::memory_order_relaxed);
  if (ticket + records >= entered) ring_[ticket % records].publish(record);
}

void ExplainRing::put_confirmed(std::uint64_t ticket, Tokens confirmed) {
  const std::uint64_t entered = entered_.load(std::memory_order_relaxed);
  if (ticket + records < entered) return;
  ring_[ticket % records].replace_word(offsetof(ExplainRecord, confirmed), confirmed.n);
}

bool ExplainRing::find(RequestId id, ExplainRecord& out) const {
  if (id == 0) return false;
  for (const Snapshot<ExplainRecord>& record : ring_) {
    out = record.read();
    if (out.id == id) return true;
  }
  return false;
}

std::size_t ExplainRing::copy(std::array<ExplainRecord, records>& out) const {
  const std::uint64_t entered = entered_.load(std::memory_order_acquire);
  const std::uint64_t first = entered > records ? entered - records : 0;
  for (std::uint64_t t = first; t < entered; ++t) out[t - first] = ring_[t % records].read();
  return static_cast<std::size_t>(entered - first);
}

}  // namespace kvc
