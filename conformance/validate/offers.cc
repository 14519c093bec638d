// Counters and queries: KVC-P-110 to 115, 131.
#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "conformance/validate/checks.h"
#include "host_stub/loader/status_text.h"
#include "host_stub/tools/run_report.h"

namespace kvc::validate {
namespace {

constexpr std::size_t counts = host::OfferRow::outcomes;
static_assert(sizeof(kvc_offer_counts) == counts * sizeof(std::uint64_t));
constexpr std::size_t pending_row = 2;

std::array<std::uint64_t, counts> rows(const kvc_offer_counts& c) {
  std::array<std::uint64_t, counts> values{};
  __builtin_memcpy(values.data(), &c, sizeof c);
  return values;
}

void check_row(const Check& c, const char* row, const kvc_offer_counts& now,
               const kvc_offer_counts* before) {
  const auto values = rows(now);
  std::uint64_t sum = 0;
  for (std::size_t i = 1; i < counts; ++i) sum += values[i];
  if (sum != values[0]) {
    c.find("KVC-P-110", fmt::format("boundary_stats.{}: published {}, the outcomes sum to {}", row,
                                    values[0], sum));
  }
  if (before == nullptr) return;
  const auto last = rows(*before);
  for (std::size_t i = 0; i < counts; ++i) {
    if (i == pending_row || values[i] >= last[i]) continue;
    c.find("KVC-P-111", fmt::format("boundary_stats.{}.{} fell from {} to {}", row,
                                    host::OfferRow::names[i], last[i], values[i]));
  }
}

}  // namespace

bool is_utf8(const ByteString& text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t n = lead < 0x80          ? 1
                          : (lead >> 5U) == 6  ? 2
                          : (lead >> 4U) == 14 ? 3
                          : (lead >> 3U) == 30 ? 4
                                               : 0;
    if (n == 0 || i + n > text.size()) return false;
    for (std::size_t k = 1; k < n; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) >> 6U) != 2) return false;
    }
    i += n;
  }
  return true;
}

void check_balance(const Check& c, Counters& counters, const kvc_boundary_stats& now) {
  const bool known = counters.known;
  check_row(c, "handoffs", now.handoffs, known ? &counters.last.handoffs : nullptr);
  check_row(c, "all_offers", now.all_offers, known ? &counters.last.all_offers : nullptr);
  counters.last = now;
  counters.known = true;
}

void check_stats(const Check& c, Counters& counters, const StatsOut& out) {
  FlatSet<std::string> seen;
  for (const StatRow& row : out.rows) {
    const std::string key = row.name + "{" + row.labels + "}";
    if (row.name.empty() || !is_utf8(key)) {
      c.find("KVC-P-111", fmt::format("stats has a row with no name, value {}", row.value));
      continue;
    }
    if (!seen.insert(key).second) c.find("KVC-P-111", "stats has two rows " + key);
    const auto [it, fresh] = counters.stats.try_emplace(key, row.value);
    const bool may_fall = row.name.ends_with("_now");
    if (!fresh && row.value < it->second && !may_fall) {
      c.find("KVC-P-111", fmt::format("stats {} fell from {} to {}", key, it->second, row.value));
    }
    it->second = row.value;
  }
}

// Only while no scheduler call runs: the snapshot is of the end of the last one.
void check_pending(const Check& c, const PendingOut& out) {
  const Model& m = c.model;
  if (out.load_jobs != m.open_loads || out.store_jobs != m.open_stores) {
    c.find("KVC-P-112", fmt::format("has_pending says {} loads and {} stores, {} and {} are open",
                                    out.load_jobs, out.store_jobs, m.open_loads, m.open_stores));
  } else if ((out.held_blocks != 0) != (!m.holds.empty()) && m.open_ends == 0 &&
             out.quarantined_blocks == 0) {
    c.find("KVC-P-112", fmt::format("has_pending says {} held blocks, open jobs hold {}",
                                    out.held_blocks, m.holds.size()));
  }
}

void check_explain(const Check& c, const RoomIn& in, kvc_status status, const TextOut& out) {
  const bool known = in.request == 0 || c.model.used_ids.contains(in.request);
  if (status == KVC_OK && !known) {
    c.find("KVC-P-113", fmt::format("explain of unknown request {} answered 0", in.request));
  }
  if (status == KVC_E_ARG && (in.request == 0 || c.model.live.contains(in.request))) {
    const Request* const r = c.model.find(in.request);
    if (r == nullptr || r->tracked) {
      c.find("KVC-P-113",
             fmt::format("explain of request {} answered {}", in.request, host::Said{status}));
    }
  }
  if (status != KVC_OK || out.text.empty()) return;
  if (!is_utf8(out.text) || !nlohmann::json::accept(out.text)) {
    c.find("KVC-P-113", fmt::format("explain of request {} gave {} bytes that are no JSON",
                                    in.request, out.text.size()));
  }
}

void check_events(const Check& c, std::uint64_t cap, kvc_status status, const EventsOut& out) {
  if (status < 0) return;
  if (out.count > cap) {
    c.find("KVC-P-114", fmt::format("take_events with room for {} gave {}", cap, out.count));
    return;
  }
  if (status == KVC_MORE && out.count < cap) {
    c.find("KVC-P-114",
           fmt::format("take_events answered KVC_MORE with {} of {} events", out.count, cap));
  }
  for (const Event& e : out.events) {
    const bool kind = e.kind >= KVC_EVENT_STORED && e.kind <= KVC_EVENT_CLEARED;
    const bool key = e.kind == KVC_EVENT_CLEARED || e.key.size() == c.model.layout.key_bytes;
    const bool range = e.kind != KVC_EVENT_STORED || e.begin < e.end;
    if (kind && key && range) continue;
    c.find("KVC-P-114", fmt::format("an event of kind {}: group {}, tokens {} to {}, key of {} "
                                    "bytes",
                                    e.kind, e.group, e.begin, e.end, e.key.size()));
  }
}

void check_log_lines(const Check& c, std::uint64_t cap, kvc_status status, const TextOut& out) {
  if (status < 0) return;
  if (out.needed > cap || (out.needed != 0 && (out.text.empty() || out.text.back() != '\n'))) {
    c.find("KVC-P-115", fmt::format("take_log with room for {} bytes gave {}, whose last line does "
                                    "not end",
                                    cap, out.needed));
  } else if (!is_utf8(out.text)) {
    c.find("KVC-P-115", "take_log gave lines that are no UTF-8");
  }
}

void check_quiet(const Check& c, const kvc_boundary_stats& now, const kvc_pending& pending) {
  const Model& m = c.model;
  if (!m.live.empty() || !m.jobs.empty()) return;
  if (now.all_offers.pending != 0 || now.handoffs.pending != 0) {
    c.find("KVC-P-131", fmt::format("no request and no job is open, and {} offers are pending",
                                    now.all_offers.pending));
  }
  if (pending.load_jobs + pending.store_jobs + pending.held_blocks != 0) {
    c.find("KVC-P-131", fmt::format("no request and no job is open, and has_pending says {} loads, "
                                    "{} stores, {} blocks",
                                    pending.load_jobs, pending.store_jobs, pending.held_blocks));
  }
}

}  // namespace kvc::validate
