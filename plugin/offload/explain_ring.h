// What happened to the last 256 requests: written by scheduler calls, read by any thread (design
// 2.3 explain).
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "plugin/core/counters.h"
#include "plugin/core/hint.h"
#include "plugin/offload/cost_gate.h"
#include "plugin/offload/scheduler_role.h"

namespace kvc {

enum class RequestPhase : std::uint8_t { waiting, loading, running, over };

struct ExplainRecord {
  RequestId id = 0;
  RequestPhase phase = RequestPhase::waiting;
  Tokens prompt;
  Tokens confirmed;
  std::uint64_t admissions = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t lookups = 0;
  std::uint64_t attached = 0;  // LATER answers
  Tokens last_total;
  Tokens last_device;
  Tokens last_external;
  Why last_why = Why::none;
  GateDecision gate = GateDecision::none;  // of the cost gate, the last one; with what it expected
  std::uint64_t gate_load_us = 0;
  std::uint64_t gate_recompute_us = 0;
  Tokens gate_left_on_disk;  // of the last lookup: tokens on disk that were not worth reading
  Tokens lost_no_state;      // of the last lookup: what full attention alone could serve beyond it
  Tokens lost_to_drafts;
  std::uint64_t loads = 0;
  std::uint64_t loads_ok = 0;
  std::uint64_t loads_failed = 0;
  Tokens loaded;
  Hint hint;
  std::uint64_t pins = 0;  // taken for it, with the longest one
  Tokens pinned;
  OfferCounts offers;
};

[[nodiscard]] std::string_view name_of(Why why);
[[nodiscard]] std::string_view name_of(RequestPhase phase);
// Appends the record as a JSON object.
void append_json(std::string& out, const ExplainRecord& record);
// Appends a JSON string, quoted and escaped; bytes that are not UTF-8 become '?'.
void append_json_string(std::string& out, std::string_view text);

// Threads:    enter and put: scheduler role; the rest: any. No lock: a reader repeats while a
// record
//             is being written, which is a few stores long.
// Owns:       256 records. Invariants: a record is replaced by the request that began 256 later.
class ExplainRing {
 public:
  static constexpr std::size_t records = 256;

  // A request began; the ticket names its record.
  std::uint64_t enter(const ExplainRecord& record);
  // Nothing if the record was replaced meanwhile.
  void put(std::uint64_t ticket, const ExplainRecord& record);
  // As put, where nothing but the confirmed tokens changed.
  void put_confirmed(std::uint64_t ticket, Tokens confirmed);
  // A put will come soon.
  void expect_put(std::uint64_t ticket) const { ring_[ticket % records].expect_publish(); }
  void expect_put_confirmed(std::uint64_t ticket) const {
    ring_[ticket % records].expect_replace();
  }
  [[nodiscard]] bool find(RequestId id, ExplainRecord& out) const;
  // Oldest first, but for requests that begin meanwhile; returns how many.
  std::size_t copy(std::array<ExplainRecord, records>& out) const;

 private:
  std::array<Snapshot<ExplainRecord>, records> ring_;
  std::atomic<std::uint64_t> entered_{0};
};

}  // namespace kvc
