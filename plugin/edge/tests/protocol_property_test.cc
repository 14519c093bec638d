// Random engines over the real library (conformance/rig/life.h), with the slow check of its whole
// structure after every call.
//
// One seed again: KVC_SEED=<n> build/<preset>/bin/kvc_protocol_property_test
#include <boost/test/unit_test.hpp>

#include "conformance/rig/life.h"
#include "plugin/edge/tests/abi_host.h"
#include "plugin/tests/seed.h"

namespace kvc::abi_test {

BOOST_AUTO_TEST_SUITE(protocol_property)

namespace {

// How many lives: fewer where sanitizers slow everything down.
#if defined(KVC_SANITIZED)
constexpr std::uint64_t lives = 40;
#else
constexpr std::uint64_t lives = 300;
#endif

}  // namespace

BOOST_AUTO_TEST_CASE(random_engines_get_right_bytes_balanced_counts_and_no_leaks) {
  const std::optional<std::uint64_t> only = test::only_seed();
  const std::uint64_t from = only.value_or(1);
  const std::uint64_t count = only ? 1 : lives;
  std::uint64_t loads = 0;
  for (std::uint64_t seed = from; seed < from + count; ++seed) {
    BOOST_TEST_INFO_SCOPE(test::repeat_command(seed));
    SeededChoices choices(seed);
    Life life(choices, random_setup(choices, true), Library::under_test(), boost_judge(), true);
    life.run(150);
    loads += life.loads();
  }
  // The worlds are not idle: most lives load something.
  if (!only) BOOST_CHECK_GT(loads, lives);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvc::abi_test
