#include "plugin/offload/rank_layout.h"

#include <boost/test/unit_test.hpp>
#include <vector>

namespace kvc {
namespace {

// Real memory for addresses; nothing is read.
std::uint8_t memory[1 << 16];

RankRegion region(std::size_t at, std::uint64_t size, std::uint64_t stride, std::uint64_t block,
                  std::uint64_t mask) {
  RankRegion r;
  r.base = memory + at;
  r.size_bytes = {size};
  r.stride_bytes = {stride};
  r.block_bytes = {block};
  r.group_mask = mask;
  return r;
}

RankLayoutOptions options(std::uint32_t groups, std::uint64_t blocks) {
  RankLayoutOptions o;
  o.groups = groups;
  o.cacheable_mask = (std::uint64_t{1} << groups) - 1;
  o.device_blocks = blocks;
  o.host_bytes = {1000};
  return o;
}

void refused(const std::vector<RankRegion>& regions, const RankLayoutOptions& o, Code code,
             const std::vector<const char*>& words) {
  const auto made = RankLayout::make(regions, o);
  BOOST_REQUIRE_MESSAGE(!made.ok(), "accepted, but expected: " << words.front());
  BOOST_TEST((made.error().code == code), made.error().text);
  for (const char* word : words) {
    BOOST_TEST(made.error().text.find(word) != std::string::npos,
               "no \"" << word << "\" in: " << made.error().text);
  }
}

BOOST_AUTO_TEST_SUITE(rank_layout)

BOOST_AUTO_TEST_CASE(groups_with_equal_bytes_share_a_class_and_overlays_count_for_all) {
  // Groups 0 and 1 overlay one region of 64 bytes; group 2 has two regions of 32; group 3 one
  // of 16.
  const std::vector<RankRegion> regions{
      region(0, 640, 64, 64, 0b0011), region(1024, 320, 32, 32, 0b0100),
      region(2048, 480, 48, 32, 0b0100), region(4096, 160, 16, 16, 0b1000)};
  RankLayoutOptions o = options(4, 10);
  o.host_bytes = {650};
  const auto made = RankLayout::make(regions, o);
  BOOST_REQUIRE(made.ok());
  const RankLayout& l = made.value();
  BOOST_REQUIRE(l.classes().size() == 2u);
  BOOST_TEST(l.classes()[0].class_id == 0u);
  BOOST_TEST(l.classes()[0].group_mask == 0b0111u);
  BOOST_TEST(l.classes()[0].bytes_per_block.n == 64u);
  BOOST_TEST(l.classes()[0].slots_per_page == 1u);
  BOOST_TEST(l.classes()[1].slots_per_page == 4u);
  BOOST_TEST(l.page_bytes().n == 64u);
  BOOST_TEST(l.classes()[1].group_mask == 0b1000u);
  BOOST_TEST(l.classes()[1].bytes_per_block.n == 16u);
  BOOST_TEST(l.pages() == 10u);
  BOOST_REQUIRE(l.pieces(2).size() == 2u);
  BOOST_TEST(l.pieces(2)[1].slot_offset == 32u);
  BOOST_TEST(l.address(l.pieces(2)[1], 3) == memory + 2048 + 3 * 48);
  BOOST_TEST(l.address(l.pieces(1)[0], 9) == memory + 9 * 64);
}

BOOST_AUTO_TEST_CASE(a_group_that_is_not_cacheable_needs_no_region_and_gets_no_class) {
  RankLayoutOptions o = options(2, 10);
  o.cacheable_mask = 0b10;
  const auto made = RankLayout::make(std::vector{region(0, 640, 64, 64, 0b10)}, o);
  BOOST_REQUIRE(made.ok());
  BOOST_TEST(made.value().class_of(0) == RankLayout::no_class);
  BOOST_TEST(made.value().class_of(1) == 0u);
}

BOOST_AUTO_TEST_CASE(the_pool_is_sized_in_bytes_or_in_blocks_of_the_largest_group) {
  const std::vector<RankRegion> one{region(0, 640, 64, 64, 1)};
  RankLayoutOptions o = options(1, 10);
  BOOST_TEST(RankLayout::make(one, o).value().pages() == 15u);
  o.host_blocks = 7;
  BOOST_TEST(RankLayout::make(one, o).value().pages() == 7u);
  o.host_unlimited = true;
  BOOST_TEST(RankLayout::make(one, o).value().pages() == UINT64_MAX);
}

BOOST_AUTO_TEST_CASE(more_slots_than_numbers_is_an_error_with_what_was_asked_and_what_is_possible) {
  const std::vector<RankRegion> one{region(0, 640, 64, 64, 1)};
  RankLayoutOptions o = options(1, 10);
  o.host_blocks = RankLayout::slots_max;
  BOOST_TEST(RankLayout::make(one, o).value().pages() == RankLayout::slots_max);
  o.host_blocks = RankLayout::slots_max + 1;
  refused(one, o, Code::arg,
          {"(2147483648 blocks)", "2147483648 slots of 64 bytes", "at most 2147483647"});
  o.host_blocks = 0;
  o.host_bytes = {std::uint64_t{1} << 40U};
  refused(one, o, Code::arg,
          {"1099511627776 bytes holds 17179869184 slots of 64 bytes", "at most 2147483647",
           "137438953408 bytes per rank"});
}

BOOST_AUTO_TEST_CASE(fewer_than_two_slots_is_an_error_with_the_numbers) {
  RankLayoutOptions o = options(1, 10);
  o.host_bytes = {127};
  refused({region(0, 640, 64, 64, 1)}, o, Code::arg,
          {"127 bytes", "64 bytes", "1 slot of", "128 bytes per rank"});
  o.host_bytes = {0};
  refused({region(0, 640, 64, 64, 1)}, o, Code::arg, {"0 slots"});
  o.host_blocks = 1;
  refused({region(0, 640, 64, 64, 1)}, o, Code::arg, {"1 slot of"});
  o.host_blocks = UINT64_MAX;
  refused({region(0, 640, 64, 64, 1)}, o, Code::arg, {"overflow"});
}

BOOST_AUTO_TEST_CASE(each_bad_region_is_refused_by_name_and_number) {
  const RankLayoutOptions o = options(2, 10);
  const RankRegion fine = region(0, 640, 64, 64, 0b11);
  RankRegion r = fine;
  r.base = nullptr;
  refused({r}, o, Code::arg, {"region 0", "null base"});
  refused({fine, region(1024, 640, 63, 64, 1)}, o, Code::arg, {"region 1", "63", "64"});
  refused({region(0, 640, 64, 0, 1)}, o, Code::arg, {"0 bytes"});
  refused({region(0, 639, 64, 64, 1)}, o, Code::arg, {"639", "10 blocks", "640"});
  refused({region(0, 640, UINT64_MAX / 2, 64, 1)}, o, Code::arg, {"overflow"});
  refused({region(0, UINT64_MAX, 64, 64, 1)}, o, Code::arg, {"address space"});
  refused({region(0, 640, 64, 64, 0)}, o, Code::arg, {"no group"});
  refused({region(0, 640, 64, 64, 0b100)}, o, Code::arg, {"0x4", "2 of the model"});
  refused({region(0, 640, 64, 64, 0b01)}, o, Code::arg, {"group 1", "no region"});
  refused({}, o, Code::arg, {"group 0", "no region"});
  r = fine;
  r.device = static_cast<DeviceKind>(2);
  r.layer = 12;
  refused({r}, o, Code::unsupported, {"layer 12", "device kind 2"});
  RankRegion other = region(1024, 640, 64, 64, 1);
  other.device = DeviceKind::cuda;
  other.ordinal = 3;
  refused({fine, other}, o, Code::unsupported, {"regions 0 and 1", "kind 1 number 3"});
}

BOOST_AUTO_TEST_CASE(bad_options_are_refused) {
  const std::vector<RankRegion> one{region(0, 640, 64, 64, 1)};
  refused(one, options(0, 10), Code::arg, {"0 groups"});
  RankLayoutOptions o = options(1, 10);
  o.groups = 65;
  refused(one, o, Code::arg, {"65 groups"});
  refused(one, options(1, 0), Code::arg, {"0 device blocks"});
  o = options(1, 10);
  o.cacheable_mask = 0b10;
  refused(one, o, Code::arg, {"0x2"});
}

BOOST_AUTO_TEST_CASE(the_last_block_needs_no_padding_behind_it) {
  // Two layers side by side in blocks of 64 bytes: the second region ends with its last block.
  const auto made = RankLayout::make(
      std::vector{region(0, 608, 64, 32, 1), region(32, 608, 64, 32, 1)}, options(1, 10));
  BOOST_REQUIRE(made.ok());
  BOOST_TEST(made.value().block_bytes(0).n == 64u);
  BOOST_TEST(made.value().in_range(0, 9));
  BOOST_TEST(!made.value().in_range(0, 10));
}

// Two regions of layer 4, one of layer 2; the slot is laid out by regions, whatever the layers.
BOOST_AUTO_TEST_CASE(pieces_of_a_group_come_by_layer_and_keep_their_place_in_the_slot) {
  std::vector<RankRegion> regions{region(0, 640, 64, 16, 0b01), region(16, 624, 64, 16, 0b01),
                                  region(32, 608, 64, 16, 0b11)};
  regions[0].layer = regions[2].layer = 4;
  regions[1].layer = 2;
  const RankLayout l = RankLayout::make(regions, options(2, 10)).value();
  BOOST_REQUIRE(l.layers().size() == 2u);
  BOOST_TEST(l.layers()[0] == 2u);
  BOOST_TEST(l.layers()[1] == 4u);
  BOOST_REQUIRE(l.pieces(0, 0).size() == 1u);
  BOOST_TEST(l.pieces(0, 0)[0].region == 1u);
  BOOST_TEST(l.pieces(0, 0)[0].slot_offset == 16u);
  BOOST_REQUIRE(l.pieces(0, 1).size() == 2u);
  BOOST_TEST(l.pieces(0, 1)[1].slot_offset == 32u);
  BOOST_TEST(l.pieces(0).size() == 3u);
  BOOST_TEST(l.pieces(1, 0).empty());
  BOOST_TEST(l.pieces(1, 1).size() == 1u);
}

BOOST_AUTO_TEST_CASE(regions_of_one_group_must_not_share_bytes) {
  const RankLayoutOptions o = options(2, 10);
  const auto both = [&](const RankRegion& a, const RankRegion& b) { return std::vector{a, b}; };
  refused(both(region(0, 640, 64, 64, 0b11), region(0, 640, 64, 64, 0b01)), o, Code::arg,
          {"regions 0 and 1"});
  refused(both(region(0, 640, 64, 32, 0b11), region(31, 640, 64, 32, 0b01)), o, Code::arg,
          {"share bytes"});
  refused(both(region(31, 640, 64, 32, 0b11), region(0, 640, 64, 32, 0b01)), o, Code::arg,
          {"share bytes"});
  refused(both(region(0, 640, 64, 32, 0b11), region(40, 640, 64, 32, 0b01)), o, Code::arg,
          {"share bytes"});
  refused(both(region(0, 640, 64, 16, 0b11), region(40, 1280, 128, 16, 0b01)), o, Code::arg,
          {"share bytes"});
  BOOST_TEST(
      RankLayout::make(both(region(0, 640, 64, 64, 0b01), region(0, 640, 64, 64, 0b10)), o).ok());
  BOOST_TEST(
      RankLayout::make(both(region(0, 640, 64, 32, 0b11), region(32, 640, 64, 32, 0b01)), o).ok());
  BOOST_TEST(
      RankLayout::make(both(region(96, 640, 64, 32, 0b11), region(0, 640, 64, 32, 0b01)), o).ok());
  BOOST_TEST(
      RankLayout::make(both(region(0, 640, 64, 64, 0b11), region(640, 640, 64, 64, 0b01)), o).ok());
}

BOOST_AUTO_TEST_CASE(the_null_block_and_everything_outside_is_out_of_range) {
  RankLayoutOptions o = options(1, 10);
  o.null_block = 4;
  const RankLayout l = RankLayout::make(std::vector{region(0, 6400, 64, 64, 1)}, o).value();
  for (BlockId b = 0; b < 10; ++b) BOOST_TEST(l.in_range(0, b) == (b != 4));
  for (const BlockId b : {BlockId{-1}, BlockId{10}, BlockId{99}, INT64_MAX, INT64_MIN})
    BOOST_TEST(!l.in_range(0, b));
}

BOOST_AUTO_TEST_CASE(a_growing_device_pool_is_bounded_by_its_smallest_region) {
  RankLayoutOptions o = options(1, UINT64_MAX);
  const RankLayout l =
      RankLayout::make(std::vector{region(0, 640, 64, 64, 1), region(1024, 300, 32, 32, 1)}, o)
          .value();
  BOOST_TEST(l.in_range(0, 8));
  BOOST_TEST(!l.in_range(0, 9));  // 9 * 32 + 32 > 300
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
