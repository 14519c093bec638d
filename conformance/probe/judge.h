// The engine's side of the line, seen by a connector that misbehaves: what only such a connector
// can provoke (KVC-H-004, 005, 024, 046, 047, 060..064 of conformance/rules).
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <kvc/kvc.h>

#include "conformance/rules/rules.h"

namespace kvc::probe {

// One block that a job of the probe holds.
struct HeldBlock {
  std::uint32_t group = 0;
  std::int64_t block = 0;
  std::uint64_t position = 0;
};

// Threads:    one caller at a time.
// Owns:       its record of requests, jobs and findings.
// Invariants: a job's blocks count as held from the call that named them until its end is handed to
//             the engine.
class Judge {
 public:
  // `log` gets each finding as a line (KVC_LOG_PEER_FAULT).
  explicit Judge(const kvc_host_api& host, const kvc_open& open);

  // Every call of the engine but close and queries. False: the handle was poisoned before
  // (KVC-H-005).
  bool called(const char* slot);
  void answered_fatal(const char* slot);
  void answered_unknown() { ++unknown_answers_; }
  void acted() { ++acted_; }
  // The script of another handle of this engine may make it give the connector up.
  void may_be_given_up() { contradicted_ = true; }
  // The probe broke the contract: an engine may give it up at any moment from now on.
  void contradicted() {
    acted();
    contradicted_ = true;
  }

  void begin(const kvc_request& in, bool tracked);
  // `honest`: what the connector behind the probe would have offered.
  void looked_up(const kvc_lookup_in& in, bool later, std::uint64_t honest);
  void allocated(const kvc_alloc_in& in);
  // Its allocation was refused: it may run without.
  void refused_allocation(std::uint64_t request);
  void opened_load(std::uint64_t request, kvc_job job, const std::vector<HeldBlock>& held);
  void step(const kvc_step& in);
  void opened_store(kvc_job job, const std::vector<HeldBlock>& held);
  // Of request_end, whose list also has what older jobs hold.
  void opened_last_store(kvc_job job, const std::vector<HeldBlock>& held);
  void ended(kvc_job job);       // the engine was told
  void never_ends(kvc_job job);  // it will not be
  void verdict(std::uint64_t request, bool ok);
  void end(const kvc_end_in& in);
  void closing();

  [[nodiscard]] std::uint64_t acts() const { return acted_; }
  [[nodiscard]] const std::vector<std::string>& findings() const { return findings_; }
  // Writes what was found to the file; false: it cannot be written.
  [[nodiscard]] bool write(const std::string& path) const;

 private:
  struct Known {
    bool tracked = true;
    bool waits = false;  // its newest lookup answered KVC_LATER
    std::uint64_t waits_since = 0;
    std::uint64_t offered = 0;
    std::uint64_t device = 0;
    kvc_job load = 0;                         // without verdict
    bool must_allocate = true;                // it began, was preempted, or its load failed
    std::uint64_t allocated_at = UINT64_MAX;  // steps before its newest allocation
  };
  struct Hold {
    kvc_job job = 0;
    std::uint64_t request = 0;  // of loads; 0: stores
    HeldBlock block;
  };

  void find(rules::RuleId rule, const std::string& text);
  void check_new_blocks(const kvc_alloc_in& in, std::uint64_t from_tokens);
  void check_table(std::uint64_t request, const kvc_table& table);
  [[nodiscard]] bool by_position(std::uint32_t group) const;

  // Something that the probe keeps back: do the others go on?
  struct Blocked {
    bool is = false;
    bool others = false;
    std::uint64_t request = 0;
    std::uint64_t scheduled = 0;
  };
  void block(Blocked& blocked, std::uint64_t request);
  void check_goes_on(const Blocked& blocked, rules::RuleId rule, const char* what);

  kvc_host_api host_{};
  std::vector<kvc_group> groups_;
  std::vector<std::uint64_t> spans_;
  std::uint64_t hash_unit_ = 1;
  std::uint64_t device_blocks_ = 0;
  bool rank_verdicts_ = false;
  std::map<std::uint64_t, Known> known_;
  std::set<std::uint64_t> used_;
  std::multimap<std::int64_t, Hold> holds_;
  std::map<kvc_job, std::uint64_t> loads_;  // open ones, their requests
  std::string fatal_slot_;
  std::uint64_t steps_ = 0;
  std::uint64_t scheduled_ = 0;  // elements of step records
  std::uint64_t unknown_answers_ = 0;
  std::uint64_t lost_blocks_ = 0;  // of jobs that never end
  Blocked later_;
  Blocked load_;
  std::uint64_t acted_ = 0;
  bool contradicted_ = false;
  std::vector<std::string> findings_;
};

}  // namespace kvc::probe
