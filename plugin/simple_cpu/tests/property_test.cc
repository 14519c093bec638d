// Random protocol operations on small pools: no wrong byte, nothing silent, nothing leaks (design
// 2.5). After every call the rig checks that offers balance and that verify() finds nothing.
#include <cstdlib>
#include <string>

#include "plugin/simple_cpu/tests/byte_world.h"
#include "plugin/tests/seed.h"

using namespace kvc;
using namespace kvc::test;

namespace {

// KVC_SEED repeats one seed, KVC_SEEDS sets how many are run.
std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::uint64_t run(const WorldOptions& options, std::uint64_t acts, std::uint64_t* pins = nullptr) {
  const std::uint64_t first = seed_or(1);
  const std::uint64_t last = only_seed().value_or(from_environment("KVC_SEEDS", 40));
  std::uint64_t loads = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    BOOST_TEST_CONTEXT(repeat_command(seed)) {
      ByteWorld world(options, seed);
      for (std::uint64_t i = 0; i < acts; ++i) world.act();
      world.settle();
      loads += world.loads_checked();
      if (pins != nullptr) *pins += world.pins_checked();
    }
  }
  return loads;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(simple_cpu_property)

// The worlds of all seeds together must load; one seed alone may not.
bool enough_loads(std::uint64_t loads) { return only_seed() || loads > 20; }

BOOST_AUTO_TEST_CASE(full_attention) {
  WorldOptions o;
  o.layout = {{full(16)}, 16, 16, 1};
  BOOST_TEST(enough_loads(run(o, 250)));
}

BOOST_AUTO_TEST_CASE(full_attention_on_two_ranks) {
  WorldOptions o;
  o.layout = {{full(16)}, 16, 16, 1};
  o.ranks = 2;
  BOOST_TEST(enough_loads(run(o, 250)));
}

// Loads take half a minute and more in these worlds, and a token to compute a second: some pay.
BOOST_AUTO_TEST_CASE(full_attention_behind_a_cost_gate) {
  WorldOptions o;
  o.layout = {{full(16)}, 16, 16, 1};
  o.cost_gate = {CostGateMode::on, 1};
  BOOST_TEST(enough_loads(run(o, 250)));
}

BOOST_AUTO_TEST_CASE(windows_behind_a_cost_gate_that_measures_prefill) {
  WorldOptions o;
  o.layout = {{full(16), sliding(16, 48)}, 16, 16, 1};
  o.slots = 24;
  o.device_blocks = 96;
  o.cost_gate = {CostGateMode::on, 0};
  BOOST_TEST(enough_loads(run(o, 250)));
}

BOOST_AUTO_TEST_CASE(windows) {
  WorldOptions o;
  o.layout = {{full(16), sliding(16, 48)}, 16, 16, 1};
  o.slots = 24;
  o.device_blocks = 96;
  BOOST_TEST(enough_loads(run(o, 250)));
}

BOOST_AUTO_TEST_CASE(chunked_local_attention) {
  WorldOptions o;
  o.layout = {{full(16), group_spec(GroupKind::chunked, Tokens{16}, Tokens{64})}, 16, 16, 1};
  o.slots = 24;
  o.device_blocks = 96;
  BOOST_TEST(enough_loads(run(o, 250)));
}

BOOST_AUTO_TEST_CASE(states_and_fine_tails) {
  WorldOptions o;
  o.layout = {{full(64), state(64)}, 16, 64, 1};
  o.slots = 16;
  BOOST_TEST(enough_loads(run(o, 250)));
}

// kvc.hints/1: priorities, times to live, pins.
BOOST_AUTO_TEST_CASE(hinted_requests) {
  for (const Layout& layout :
       {Layout{{full(16)}, 16, 16, 1}, Layout{{full(16), sliding(16, 48)}, 16, 16, 1},
        Layout{{full(64), state(64)}, 16, 64, 1}}) {
    WorldOptions o;
    o.layout = layout;
    o.slots = layout.groups.size() > 1 ? 24 : 12;
    o.device_blocks = 96;
    o.hints = true;
    BOOST_TEST(enough_loads(run(o, 250)));
  }
}

BOOST_AUTO_TEST_CASE(pinned_prefixes_are_found_until_they_are_unpinned) {
  for (const Layout& layout :
       {Layout{{full(16)}, 16, 16, 1}, Layout{{full(16), sliding(16, 48)}, 16, 16, 1},
        Layout{{full(64), state(64)}, 16, 64, 1}}) {
    for (const bool lazy : {false, true}) {
      WorldOptions o;
      o.layout = layout;
      o.slots = layout.groups.size() > 1 ? 24 : 12;
      o.device_blocks = 96;
      o.failures = false;
      o.lazy = lazy;
      o.hints = true;
      std::uint64_t pins = 0;
      BOOST_TEST(enough_loads(run(o, 250, &pins)));
      BOOST_TEST((only_seed() || pins > (lazy ? 2U : 20U)),
                 (lazy ? "lazy, " : "") << layout.groups.size() << " groups: " << pins << " pins");
    }
  }
}

BOOST_AUTO_TEST_CASE(lazy_full_attention) {
  WorldOptions o;
  o.layout = {{full(16)}, 16, 16, 1};
  o.lazy = true;
  BOOST_TEST(enough_loads(run(o, 250)));
}

BOOST_AUTO_TEST_CASE(lazy_windows_on_two_ranks) {
  WorldOptions o;
  o.layout = {{full(16), sliding(16, 48)}, 16, 16, 1};
  o.slots = 32;
  o.device_blocks = 96;
  o.ranks = 2;
  o.lazy = true;
  BOOST_TEST(enough_loads(run(o, 250)));
}

BOOST_AUTO_TEST_CASE(lazy_states) {
  WorldOptions o;
  o.layout = {{full(16), state(32)}, 16, 32, 1};
  o.slots = 32;
  o.device_blocks = 96;
  o.lazy = true;
  BOOST_TEST(enough_loads(run(o, 250)));
}

BOOST_AUTO_TEST_CASE(three_states_and_two_attention_groups) {
  WorldOptions o;
  o.layout = {{full(32), full(64), state(64), state(64), state(64)}, 16, 64, 1};
  o.slots = 24;
  o.device_blocks = 128;
  BOOST_TEST(enough_loads(run(o, 250)));
}

BOOST_AUTO_TEST_SUITE_END()
