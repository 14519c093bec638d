// What one seed stands for: a layout, sizes, requests, and how much trouble there is.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "host_stub/engine/options.h"
#include "plugin/core/prng.h"

namespace kvc::sim {

// One request of a world. Its prompt is the first `shared` tokens of the system prompt `base`, or
// the whole conversation so far of `parent` (prompt and outputs), and then `own` tokens of its own.
struct RequestPlan {
  static constexpr std::size_t no_parent = SIZE_MAX;
  std::size_t parent = no_parent;
  std::uint64_t base = 0;
  std::uint64_t shared = 0;
  std::uint64_t own = 0;
  std::uint64_t origin = 0;  // of the own tokens: the same origin, the same tokens
  host::RequestSpec spec;
};

// Chances per step, of 1000, where nothing else is said.
struct Trouble {
  std::uint64_t copy_fault = 0;  // arms one failing copy, any direction, any side
  std::uint64_t stall = 0;       // copies stop for 1 to stall_steps_max steps
  std::uint64_t stall_steps_max = 1;
  bool small_budgets = false;       // ranks get 0..3 units of work a step
  std::uint64_t delay_report = 0;   // of each report: kept back for some collects
  std::uint64_t repeat_report = 0;  // of each report: delivered again, now or later
  bool shuffle_reports = false;
  bool shuffle_copies = false;    // ready copies run in an order drawn from the seed
  std::uint64_t accept_less = 0;  // of each hit: a part or nothing of it is taken
  std::uint64_t abort = 0;
  std::uint64_t preempt = 0;
  std::uint64_t reset = 0;
  std::uint64_t invalidate = 0;  // of each reset
  std::uint64_t empty_device_cache = 0;
  std::uint64_t repeat_lookup = 0;  // of each lookup: asked before, otherwise, and again
  std::uint64_t cancel_lookup = 0;  // of each accepted hit: its lease is cancelled first
  std::uint64_t poison_step = 0;    // a broken invariant is injected in about this step; 0: never
  bool poison_after = false;        // after the call took effect
  std::uint64_t late_handoff = 0;   // a state of a request that is preempted or over is handed off
  std::uint64_t bad_handoff = 0;    // one that breaks a rule of kvc.h
  std::uint64_t abort_waiting = 0;  // of each load that waits for a plan: its request is aborted
  std::uint64_t disk_fault = 0;     // arms a failing, full or hanging call of the disk tier
  std::uint64_t close_step = 0;     // everything is destroyed in this step as it is; 0: never
};

struct World {
  std::uint64_t seed = 0;
  std::string layout;           // for messages
  bool lazy = false;            // the connector's mode
  host::EngineOptions options;  // without hooks
  std::vector<RequestPlan> requests;
  Trouble trouble;
  bool flat_index = false;  // the connector's index
  std::uint64_t blocks_per_chunk = 1;
  bool disk = false;              // the connector has a disk tier
  std::uint64_t step_ns_max = 1;  // the clock moves by up to so much a step
  std::uint64_t burst = 1;        // requests that arrive together at most
};

// The world gets a disk tier in this folder, and its trouble, drawn from the seed.
void add_disk(World& world, const std::string& folder);

// Layout, sizes and options in a few lines, for people.
[[nodiscard]] std::string describe(const World& world);

// The same world for the same seed, on every machine. `connector`: "simple_cpu", or "offloading":
// the same worlds, but none of them lazy, and with chunks.
[[nodiscard]] World draw_world(std::uint64_t seed, std::string_view connector = "simple_cpu");

}  // namespace kvc::sim
