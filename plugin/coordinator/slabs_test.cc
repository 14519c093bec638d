#include "plugin/coordinator/slabs.h"

#include <boost/test/unit_test.hpp>

namespace kvc {
namespace {

BOOST_AUTO_TEST_SUITE(slabs)

BOOST_AUTO_TEST_CASE(what_memory_cannot_hold_is_refused) {
  SlabArray<std::uint64_t> array;
  BOOST_TEST(!array.size_for(std::uint64_t{1} << 58U));
  BOOST_TEST(array.capacity() == 0U);
  BOOST_TEST(!array.ensure(std::uint64_t{1} << 58U));
}

BOOST_AUTO_TEST_CASE(an_array_of_no_elements_is_made_and_may_grow) {
  SlabArray<std::uint64_t> array;
  BOOST_TEST(array.size_for(0));
  BOOST_TEST(array.ensure(5));
  array[4] = 7;
  BOOST_TEST(array.ensure(Slabs::per_slab + 1));
  BOOST_TEST(array[4] == 7U);
  BOOST_TEST(array[Slabs::per_slab] == 0U);
}

#if !defined(KVC_ABORT_ON_CHECK)
BOOST_AUTO_TEST_CASE(a_sized_array_does_not_grow) {
  SlabArray<std::uint64_t> array;
  BOOST_TEST(array.size_for(4));
  BOOST_TEST(array.capacity() == 4U);
  BOOST_TEST(array.ensure(4));
  BOOST_CHECK_THROW(static_cast<void>(array.ensure(5)), BrokenInvariant);
}
#endif

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
