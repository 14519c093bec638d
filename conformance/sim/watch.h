// A connector's table with an observer in every slot: what the line promises about jobs, holds,
// verdicts, offers and resets is checked at every call, and calls are repeated and cancelled where
// that is legal.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <kvc/kvc.h>
#include <kvc/kvc_fault.h>
#include <kvc/kvc_layerwise.h>

#include "conformance/sim/tally.h"
#include "conformance/sim/world.h"
#include "host_stub/loader/loader.h"
#include "plugin/core/prng.h"

namespace kvc::sim {

// What is made wrong on purpose, to show that the simulation notices.
enum class Sabotage : std::uint8_t {
  none,
  skip_load_copies,  // loads write to memory that the engine does not read
  lose_a_report,     // one report of a rank never arrives
  miscount_offers,   // one row of boundary_stats is one too high
  flip_a_byte,       // one byte of a device block of a live request changes
  skip_layer_waits,  // the forward waits for no layer of a load in step
};

// Threads:    the one that drives the engine; one Watch at a time in a process (the slots of a C
//             table carry no state of their own).
// Owns:       the record of all jobs. Invariants: the first broken rule stays in error().
class Watch {
 public:
  Watch(const host::LoadedConnector& real, const World& world, Sabotage sabotage);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // The connector to give to the engine.
  [[nodiscard]] host::LoadedConnector connector() const { return shown_; }
  // No more calls of the simulation's own: the world comes to its end.
  void calm() { calm_ = true; }
  // A broken invariant is injected from now on: answers of the connector are no longer judged.
  void expect_poison() { poisoned_ = true; }
  // At quiescence: every job has ended, every load has its verdict.
  void check_quiet();
  void fail(std::string text);
  // Requests whose load is in no plan yet, and the number of rules of kvc.h broken on purpose.
  [[nodiscard]] std::vector<std::uint64_t> waiting_loads() const;
  [[nodiscard]] std::uint64_t rules_broken() const { return rules_broken_; }

  [[nodiscard]] const std::string& error() const { return error_; }
  // Of all calls and answers so far. The same for the same seed.
  [[nodiscard]] std::uint64_t hash() const { return hash_; }
  [[nodiscard]] const kvc_test_api* faults() const { return faults_; }
  [[nodiscard]] Tally& tally() { return tally_; }

 private:
  struct Job {
    std::int32_t kind = 0;
    std::uint64_t request = 0;
    bool planned = false;
    bool ended = false;
    bool judged = false;       // a load that has its verdict
    bool in_step = false;      // one that its request's forward reads layer by layer
    bool holds_known = false;  // else the list also named blocks of other jobs
    std::uint64_t resets = 0;  // resets before it was handed out
    std::vector<std::int64_t> held;
  };
  struct Slots;  // the functions of the table

  void note(const char* slot, std::initializer_list<std::uint64_t> values);
  void after_sched(const char* slot, kvc_status status);
  void balance(const char* slot, const char* row, const kvc_offer_counts& counts);
  void verify(const char* slot);
  Job& hand_out(kvc_job id, std::int32_t kind, std::uint64_t request);
  void hold(Job& job, const kvc_list& held);
  void saw_plan(const kvc_plan& plan);
  void saw_complete(const kvc_complete_out& out);
  void saw_in_step(const kvc_load_in_step& in, kvc_status status);
  void saw_layer(std::uint64_t step, std::uint64_t layer, kvc_status status, const kvc_fence& out);
  void saw_lookup(const kvc_lookup_in& in, kvc_status status, const kvc_lookup_out& out);
  kvc_status lookup(const kvc_lookup_in& in, kvc_lookup_out& out);
  void redirect(kvc_region& region);
  // The step's hand-offs, sometimes with one that comes too late or breaks a rule.
  kvc_list disturbed_handoffs(const kvc_step& step);

  static Watch* current;
  const kvc_plugin_api real_;
  host::LoadedConnector shown_;
  const World& world_;
  const Sabotage sabotage_;
  const kvc_test_api* faults_ = nullptr;
  const kvc_layerwise_api* layers_ = nullptr;  // once the engine asked for it
  Prng draw_;
  kvc_sched* sched_ = nullptr;
  std::map<kvc_job, Job> jobs_;
  std::vector<std::uint64_t> over_;  // requests that ended, tracked or not
  std::vector<kvc_handoff> handoffs_;
  std::uint64_t rules_broken_ = 0;
  std::vector<std::vector<std::uint8_t>> elsewhere_;  // memory of skip_load_copies
  std::uint64_t resets_ = 0;
  std::uint64_t stored_since_reset_ = 0;
  std::uint64_t calls_ = 0;
  std::uint64_t hash_ = 0x9E3779B97F4A7C15U;
  bool calm_ = false;
  bool poisoned_ = false;
  bool printing_ = false;
  std::string error_;
  Tally tally_;
};

}  // namespace kvc::sim
