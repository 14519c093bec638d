#include "plugin/core/host_arena.h"

#include <boost/test/unit_test.hpp>
#include <cstring>

namespace kvc {
namespace {

BOOST_AUTO_TEST_SUITE(host_arena)

BOOST_AUTO_TEST_CASE(a_fixed_arena_is_zeroed_page_aligned_and_never_moves) {
  auto made = HostArena::create({.unit_bytes = {1000}, .units_max = 33, .prefault = true});
  BOOST_REQUIRE(made.ok());
  HostArena& arena = *made.value();
  BOOST_TEST(arena.units_usable() == 33u);
  BOOST_TEST(reinterpret_cast<std::uintptr_t>(arena.unit(0)) % 4096 == 0u);
  BOOST_TEST(arena.mapped().n == 36864u);  // 33,000 bytes in pages of 4,096
  for (std::uint64_t u = 0; u < 33; ++u) {
    BOOST_TEST(arena.unit(u) == arena.unit(0) + u * 1000);
    for (std::uint64_t i = 0; i < 1000; ++i) BOOST_REQUIRE((arena.unit(u)[i] == std::byte{0}));
    std::memset(arena.unit(u), static_cast<int>(u + 1), 1000);
  }
  BOOST_TEST((arena.unit(32)[999] == std::byte{33}));
  BOOST_TEST((arena.unit(31)[999] == std::byte{32}));
}

BOOST_AUTO_TEST_CASE(slabs_are_mapped_when_they_are_asked_for_and_units_do_not_cross_them) {
  auto made = HostArena::create({.unit_bytes = {4096}, .units_max = 1000, .units_per_slab = 8});
  BOOST_REQUIRE(made.ok());
  HostArena& arena = *made.value();
  BOOST_TEST(arena.units_usable() == 0u);
  BOOST_TEST(arena.mapped().n == 0u);
  BOOST_TEST(arena.grow_to(1).ok());
  BOOST_TEST(arena.units_usable() == 8u);
  std::byte* first = arena.unit(0);
  first[0] = std::byte{7};
  BOOST_TEST(arena.grow_to(17).ok());
  BOOST_TEST(arena.units_usable() == 24u);
  BOOST_TEST(arena.slab_count() == 3u);
  BOOST_TEST(arena.unit(0) == first);
  BOOST_TEST((first[0] == std::byte{7}));
  BOOST_TEST(arena.unit(16) == arena.slab_base(2));
  BOOST_TEST((arena.unit(16)[4095] == std::byte{0}));
  BOOST_TEST(arena.grow_to(5).ok());
  BOOST_TEST(arena.units_usable() == 24u);
}

BOOST_AUTO_TEST_CASE(impossible_sizes_are_errors_that_name_the_numbers) {
  auto none = HostArena::create({.unit_bytes = {0}, .units_max = 4});
  BOOST_REQUIRE(!none.ok());
  BOOST_TEST((none.error().code == Code::arg));
  auto wraps = HostArena::create({.unit_bytes = {1ull << 40}, .units_max = 1ull << 40});
  BOOST_REQUIRE(!wraps.ok());
  BOOST_TEST((wraps.error().code == Code::arg));
  BOOST_TEST(wraps.error().text.find("1099511627776") != std::string::npos);
  // 2^62 bytes are addressable as a number but no system maps them.
  auto big = HostArena::create({.unit_bytes = {1ull << 32}, .units_max = 1ull << 30});
  BOOST_REQUIRE(!big.ok());
  BOOST_TEST((big.error().code == Code::full));
  BOOST_TEST(big.error().text.find("4611686018427387904") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(growing_beyond_the_limit_is_refused_and_keeps_what_is_there) {
  auto made = HostArena::create({.unit_bytes = {16}, .units_max = 10, .units_per_slab = 4});
  BOOST_REQUIRE(made.ok());
  HostArena& arena = *made.value();
  BOOST_TEST(arena.grow_to(10).ok());
  Status s = arena.grow_to(11);
  BOOST_TEST((s.code == Code::full));
  BOOST_TEST(s.text.find("10 units") != std::string::npos);
  BOOST_TEST((arena.unit(9)[15] == std::byte{0}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
