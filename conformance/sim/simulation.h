// Runs a world: the host engine, the connector's library and the trouble of one seed, in stepped
// mode and virtual time, and judges everything that can be judged from outside.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "conformance/sim/tally.h"
#include "conformance/sim/watch.h"
#include "conformance/sim/world.h"
#include "host_stub/loader/loader.h"

namespace kvc::sim {

// The prompts of a world and the outputs that are right for them.
struct Script {
  std::vector<std::vector<host::TokenId>> prompts;
  std::vector<std::vector<host::TokenId>> outputs;
};

// Runs the requests one after the other in an engine without connector, without device cache and
// with an unlimited pool. The model is deterministic: whatever a connector does, outputs are these.
[[nodiscard]] Script reference(const World& world);

struct Knobs {
  Sabotage sabotage = Sabotage::none;
  // Named fault points to arm before the connector opens: the visit that fails. Empty: none.
  std::string point;
  std::uint64_t nth = 0;
  std::uint64_t fail_alloc = UINT64_MAX;  // this allocation from the host fails
};

struct Outcome {
  std::string error;       // empty: everything held
  std::uint64_t hash = 0;  // of every call and answer
  bool refused = false;    // open failed, with a text
  bool gave_up = false;    // the engine gave the connector up
  bool tripped = false;    // the fault of the knobs happened
  Tally tally;
};

[[nodiscard]] Outcome run_world(const host::LoadedConnector& connector, const World& world,
                                const Script& script, const Knobs& knobs = {});

}  // namespace kvc::sim
