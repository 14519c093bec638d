// Random protocol operations with chunks of every size on small pools: no wrong byte, nothing
// silent, nothing leaks (design 2.5), every load exactly the needed set.
#include <cstdlib>
#include <string>

#include "plugin/offloading/tests/offloading_rig.h"
#include "plugin/tests/seed.h"

using namespace kvc;
using namespace kvc::test;

namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// The worlds of all seeds together must load; one seed alone may not.
void run(WorldOptions options) {
  options.make = make_offloading;
  const std::uint64_t first = seed_or(1);
  const std::uint64_t last = only_seed().value_or(from_environment("KVC_SEEDS", 40));
  std::uint64_t loads = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    Prng draw(seed * 7919);
    options.blocks_per_chunk = static_cast<std::uint32_t>(draw.between(1, 5));
    options.device_cache = draw.chance(1, 2);
    options.decode_blocks = draw.chance(3, 4);
    BOOST_TEST_CONTEXT(options.blocks_per_chunk << " blocks per chunk, device cache "
                                                << options.device_cache << "\n"
                                                << repeat_command(seed)) {
      ByteWorld world(options, seed);
      for (int i = 0; i < 250; ++i) world.act();
      world.settle();
      loads += world.loads_checked();
    }
  }
  BOOST_TEST((only_seed() || loads > 20), "only " << loads << " loads");
}

}  // namespace

BOOST_AUTO_TEST_SUITE(offloading_property)

BOOST_AUTO_TEST_CASE(full_attention) {
  WorldOptions o;
  o.layout = {{full(16)}, 16, 16, 1};
  run(o);
}

BOOST_AUTO_TEST_CASE(hinted_requests) {
  for (const bool failures : {false, true}) {
    WorldOptions o;
    o.layout = {{full(16)}, 16, 16, 1};
    o.hints = true;
    o.failures = failures;
    run(o);
    o.layout = {{full(64), state(64)}, 16, 64, 1};
    o.slots = 16;
    run(o);
  }
}

BOOST_AUTO_TEST_CASE(full_attention_on_two_ranks) {
  WorldOptions o;
  o.layout = {{full(16)}, 16, 16, 1};
  o.ranks = 2;
  run(o);
}

BOOST_AUTO_TEST_CASE(full_attention_over_context_parallel_ranks) {
  WorldOptions o;
  o.layout = {{sharded(8)}, 16, 16, 2};
  o.ranks = 2;
  run(o);
}

BOOST_AUTO_TEST_CASE(two_sizes_of_blocks) {
  WorldOptions o;
  o.layout = {{full(16), full(32)}, 16, 32, 1};
  o.slots = 24;
  o.device_blocks = 96;
  run(o);
}

// Hits end at 48 tokens, and a chunk of two blocks of 16 at 32.
BOOST_AUTO_TEST_CASE(sizes_of_which_none_divides_the_other) {
  WorldOptions o;
  o.layout = {{full(16), full(24)}, 8, 48, 1};
  o.slots = 24;
  o.device_blocks = 96;
  run(o);
}

BOOST_AUTO_TEST_CASE(windows) {
  WorldOptions o;
  o.layout = {{full(16), sliding(16, 48)}, 16, 16, 1};
  o.slots = 24;
  o.device_blocks = 96;
  run(o);
}

BOOST_AUTO_TEST_CASE(windows_alone) {
  WorldOptions o;
  o.layout = {{sliding(16, 64), sliding(16, 96)}, 16, 16, 1};
  o.slots = 24;
  o.device_blocks = 96;
  run(o);
}

BOOST_AUTO_TEST_CASE(windows_beside_wider_attention) {
  WorldOptions o;
  o.layout = {{full(32), sliding(8, 40)}, 8, 32, 1};
  o.slots = 32;
  o.device_blocks = 128;
  run(o);
}

BOOST_AUTO_TEST_CASE(chunked_local_attention) {
  WorldOptions o;
  o.layout = {{full(16), group_spec(GroupKind::chunked, Tokens{16}, Tokens{64})}, 16, 16, 1};
  o.slots = 24;
  o.device_blocks = 96;
  run(o);
}

BOOST_AUTO_TEST_CASE(states_and_fine_tails) {
  WorldOptions o;
  o.layout = {{full(64), state(64)}, 16, 64, 1};
  o.slots = 16;
  run(o);
}

BOOST_AUTO_TEST_CASE(states_beside_smaller_attention) {
  WorldOptions o;
  o.layout = {{full(16), state(64)}, 16, 64, 1};
  o.slots = 24;
  o.device_blocks = 96;
  run(o);
}

BOOST_AUTO_TEST_CASE(three_states_and_two_attention_groups) {
  WorldOptions o;
  o.layout = {{full(32), full(64), state(64), state(64), state(64)}, 16, 64, 1};
  o.slots = 24;
  o.device_blocks = 128;
  run(o);
}

BOOST_AUTO_TEST_SUITE_END()
