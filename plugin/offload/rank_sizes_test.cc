#include "plugin/offload/rank_sizes.h"

#include <boost/test/unit_test.hpp>
#include <vector>

namespace kvc {
namespace {

// Two groups whose blocks have different bytes.
Geometry two_groups() {
  GeometryOptions o;
  o.groups = {group_spec(GroupKind::full, Tokens{16}), group_spec(GroupKind::full, Tokens{32})};
  o.hash_unit = {16};
  o.scheduler_block = {32};
  return Geometry::make(std::move(o)).value();
}

using Classes = std::vector<SlotClass>;

Classes right() { return {{0, 0b01, 2, {64}, 0}, {1, 0b10, 1, {128}, 0}}; }

RankInfo info(std::uint32_t rank, const Classes& classes, std::uint64_t pages = 10) {
  return {rank, pages, classes, {}};
}

// Rank 1 of two has these classes, or both have: set_ranks is refused with all the words.
void refused(const Classes& zero, const Classes& one, const std::vector<const char*>& words) {
  const std::vector<RankInfo> infos{info(0, zero), info(1, one)};
  const auto settled = settle_ranks(two_groups(), 2, infos);
  BOOST_REQUIRE_MESSAGE(!settled.ok(), "accepted, but expected: " << words.front());
  BOOST_TEST((settled.error().code == Code::arg));
  for (const char* word : words) {
    BOOST_TEST(settled.error().text.find(word) != std::string::npos,
               "no \"" << word << "\" in: " << settled.error().text);
  }
}

BOOST_AUTO_TEST_SUITE(rank_sizes)

// Field report 119: sides that disagree about the layout never meet.
BOOST_AUTO_TEST_CASE(ranks_that_disagree_about_classes_are_refused_with_both) {
  Classes other = right();
  other.pop_back();
  refused(right(), other, {"rank 0 has 2 classes", "rank 1 has 1"});
  other = right();
  other[1].class_id = 7;
  refused(right(), other, {"class 1 of rank 0", "class 7 of rank 1"});
  other = right();
  other[1].group_mask = 0b11;
  refused(right(), other, {"rank 0 has groups 0x2", "rank 1 has 0x3"});
  other = right();
  other[0].slots_per_page = 3;
  refused(right(), other, {"class 0", "2 slots per page on rank 0", "3 on rank 1"});
}

BOOST_AUTO_TEST_CASE(classes_of_another_layout_are_refused_though_the_ranks_agree) {
  Classes other = right();
  other[1].group_mask = 0b100;
  refused(other, other, {"group 1", "no class"});
  other = right();
  other[1].group_mask = 0b11;
  refused(other, other, {"group 0", "two classes"});
  other = right();
  other[1].slots_per_page = 0;
  refused(other, other, {"class 1", "0 slots per page"});
  other[1].slots_per_page = std::uint64_t{1} << 32U;
  refused(other, other, {"class 1", "4294967296 slots per page"});
  other[1].slots_per_page = UINT64_MAX;
  refused(other, other, {"class 1"});
  refused({}, {}, {"0 classes", "1 to 64"});
}

BOOST_AUTO_TEST_CASE(every_rank_is_there_once) {
  const Classes classes = right();
  const auto text = [&](const std::vector<RankInfo>& infos) {
    const auto settled = settle_ranks(two_groups(), 2, infos);
    return settled.ok() ? std::string() : settled.error().text;
  };
  BOOST_TEST(text({info(0, classes)}).find("rank 1 of 2 is missing") != std::string::npos);
  BOOST_TEST(text({info(0, classes), info(0, classes)}).find("twice") != std::string::npos);
  BOOST_TEST(text({info(0, classes), info(2, classes)}).find("rank 2 of 2") != std::string::npos);
  BOOST_TEST(text({info(0, classes), info(1, classes, 1)}).find("1 pages on rank 1") !=
             std::string::npos);
  BOOST_TEST(text({info(0, classes), info(1, classes)}) == "");
}

// The bytes of a block are each rank's own; inventories belong to persistent tiers.
BOOST_AUTO_TEST_CASE(block_bytes_may_differ_between_ranks_and_inventories_are_not_read) {
  const Classes zero = right();
  Classes one = right();
  for (SlotClass& c : one) c.bytes_per_block = {c.bytes_per_block.n * 2};
  const std::vector<std::uint8_t> garbage(100, 0xA5);
  std::vector<RankInfo> infos{info(1, one, 7), info(0, zero)};
  infos[1].inventory = garbage;
  const auto settled = settle_ranks(two_groups(), 2, infos);
  BOOST_REQUIRE(settled.ok());
  BOOST_TEST(settled.value().sizes.pages == 7u);
  BOOST_REQUIRE(settled.value().usable.size() == 2u);
  BOOST_TEST(settled.value().usable[0].usable_slots == 14u);
  BOOST_TEST(settled.value().usable[0].bytes_per_block.n == 64u);
  BOOST_TEST(settled.value().usable[1].usable_slots == 7u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
