#include "plugin/offload/disk/format.h"

#include <boost/test/unit_test.hpp>
#include <numeric>

#include "plugin/offload/tests/format_bytes.h"
#include "plugin/offload/wire.h"
#include "plugin/tests/seed.h"

namespace kvc::disk {
namespace {

using format_test::Buffer;

Key key_with(std::uint8_t first) {
  Key key{};
  std::iota(key.begin(), key.begin() + 16, first);
  return key;
}

const std::uint8_t example_namespace[] = {'m', 'o', 'd', 'e', 'l', '-', 'a'};

Owner example_owner() {
  Owner owner;
  owner.namespace_digest = digest_of(example_namespace);
  owner.namespace_bytes = sizeof example_namespace;
  owner.hash_id = 5;
  owner.rank = 3;
  owner.key_bytes = 16;
  return owner;
}

Identity example_identity() { return {1, true, 32, key_with(0x10), key_with(0x80)}; }

BlockHeader example_header() { return {example_identity(), example_owner(), 2, 9, 12, 16}; }

Record example_record() { return {PlaceState::live, example_identity(), 7, 2, 9, 12}; }

Buffer example_place() {
  Buffer place(place_bytes(16), 0xff);
  std::iota(place.begin() + block_header_bytes, place.begin() + block_header_bytes + 16,
            std::uint8_t{0xe0});
  seal_block(example_header(), place);
  return place;
}

Buffer record_of(const Record& record) {
  Buffer bytes(record_bytes);
  write_record(record, bytes);
  return bytes;
}

Buffer example_inventory() {
  Buffer bytes(inventory_bytes(1));
  write_inventory_entry({example_identity(), 9},
                        std::span(bytes).subspan(inventory_header_bytes, inventory_entry_bytes));
  seal_inventory({2, 5, 4, 3, 1}, bytes);
  return bytes;
}

BOOST_AUTO_TEST_SUITE(disk_format)

BOOST_AUTO_TEST_CASE(everything_reads_back_what_was_written) {
  const Superblock block{example_owner(), 2};
  Buffer super(superblock_bytes);
  write_superblock(block, super);
  const auto read = read_superblock(super);
  BOOST_REQUIRE(read.ok());
  BOOST_TEST((read.value() == block));

  const auto header = read_block(example_place());
  BOOST_REQUIRE(header.ok());
  BOOST_TEST((header.value() == example_header()));

  const auto record = read_record(record_of(example_record()), 7);
  BOOST_REQUIRE(record.ok());
  BOOST_TEST((record.value() == example_record()));
  const auto empty = read_record(Buffer(record_bytes), 7);
  BOOST_REQUIRE(empty.ok());
  BOOST_TEST((empty.value().state == PlaceState::empty));

  const Buffer inventory = example_inventory();
  const auto view = InventoryView::read(inventory);
  BOOST_REQUIRE(view.ok());
  BOOST_TEST(view.value().piece().entries_all == 5u);
  BOOST_TEST(view.value().piece().first == 4u);
  BOOST_TEST((view.value().entry(0) == InventoryEntry{example_identity(), 9}));
}

BOOST_AUTO_TEST_CASE(the_page_of_the_format_shows_these_bytes) {
  Buffer super(superblock_bytes);
  write_superblock({example_owner(), 2}, super);
  const Buffer place = example_place();
  Buffer all(super.begin(), super.begin() + superblock_header_bytes);
  for (const Buffer& more :
       {record_of(example_record()), Buffer(place.begin(), place.begin() + block_header_bytes + 16),
        example_inventory()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  const Buffer page = format_test::hex_example("disk.md");
  BOOST_TEST(all == page, boost::test_tools::per_element());
  // What the page leaves out is zero.
  BOOST_TEST(std::all_of(super.begin() + superblock_header_bytes, super.end(),
                         [](std::uint8_t b) { return b == 0; }));
  BOOST_TEST(std::all_of(place.begin() + block_header_bytes + 16, place.end(),
                         [](std::uint8_t b) { return b == 0; }));
}

BOOST_AUTO_TEST_CASE(a_place_holds_header_and_payload_in_whole_pages) {
  BOOST_TEST(place_bytes(1) == 4096u);
  BOOST_TEST(place_bytes(4096 - 256) == 4096u);
  BOOST_TEST(place_bytes(4096 - 255) == 8192u);
  BOOST_TEST(place_bytes(1 << 20) == (1u << 20) + 4096u);
}

// A resealed change is refused by the name of its field.
template <class Read>
void refuses(Buffer bytes, std::size_t at, std::uint8_t value, std::size_t sum, Read read,
             const char* word) {
  bytes[at] = value;
  if (sum != 0) wire::put(bytes.data() + sum, wire::checksum(bytes, sum));
  const auto got = read(bytes);
  const std::string text = got.ok() ? "accepted" : got.error().text;
  BOOST_TEST(text.find(word) != std::string::npos, "byte " << at << ": " << text);
}

BOOST_AUTO_TEST_CASE(each_damaged_field_is_refused_by_name) {
  Buffer super(superblock_bytes);
  write_superblock({example_owner(), 2}, super);
  const auto read_super = [](const Buffer& b) { return read_superblock(b); };
  refuses(super, 0, 0, 64, read_super, "magic");
  refuses(super, 4, 2, 64, read_super, "version 2");
  refuses(super, 16, 0, 64, read_super, "generation 0");
  refuses(super, 17, 1, 0, read_super, "checksum");
  refuses(super, 4000, 1, 0, read_super, "checksum");
  refuses(super, 80, 1, 64, read_super, "reserved");
  BOOST_TEST((read_superblock(super).ok()));
  super[4] = 2;
  BOOST_TEST((read_superblock(super).error().code == Code::unsupported));

  Buffer whole = example_place();
  whole.resize(block_header_bytes + 16);  // the checksum ends with the payload
  const auto read_place = [](const Buffer& b) { return read_block(b); };
  BOOST_TEST(read_place(whole).ok());
  refuses(whole, 0, 0, 88, read_place, "magic");
  refuses(whole, 4, 9, 88, read_place, "version");
  refuses(whole, 9, 7, 88, read_place, "named in the header");
  refuses(whole, 64, 17, 88, read_place, "payload of 16 bytes (17 valid)");
  refuses(whole, 72, 15, 88, read_place, "payload of 15 bytes");
  refuses(whole, 160, 2, 88, read_place, "flags");
  refuses(whole, 160, 0, 88, read_place, "parent key");
  refuses(whole, 200, 1, 88, read_place, "reserved");
  refuses(whole, 260, 1, 0, read_place, "checksum");
  refuses(example_place(), 4095, 1, 0, read_place, "behind the payload");

  const Buffer record = record_of(example_record());
  const auto read_seven = [](const Buffer& b) { return read_record(b, 7); };
  refuses(record, 0, 0, 8, read_seven, "magic");
  refuses(record, 4, 9, 8, read_seven, "version");
  refuses(record, 6, 4, 8, read_seven, "state 4");
  refuses(record, 56, 8, 8, read_seven, "that of place 8");
  refuses(record, 52, 0, 8, read_seven, "parent key");
  refuses(record, 70, 0, 0, read_seven, "checksum");
  BOOST_TEST(!read_record(record, 6).ok());

  const Buffer inventory = example_inventory();
  const auto read_inventory = [](const Buffer& b) { return InventoryView::read(b); };
  refuses(inventory, 0, 0, 48, read_inventory, "magic");
  refuses(inventory, 28, 2, 48, read_inventory, "160 bytes for 2 entries");
  refuses(inventory, 32, 4, 48, read_inventory, "entries 4 to 5 of 4");
  refuses(inventory, 64 + 24, 1, 48, read_inventory, "reserved");
  refuses(inventory, 64 + 4, 3, 48, read_inventory, "flags");
  BOOST_TEST(!InventoryView::read({}).ok());
}

BOOST_AUTO_TEST_CASE(random_damage_is_survived_and_never_accepted) {
  const std::uint64_t seed = test::seed_or(771);
  std::mt19937_64 rng(seed);
  Buffer whole = example_place();
  whole.resize(block_header_bytes + 16);
  const Buffer record = record_of(example_record());
  const Buffer inventory = example_inventory();
  for (int round = 0; round < 20'000; ++round) {
    BOOST_TEST_CONTEXT("round " << round << "; " << test::repeat_command(seed)) {
      const Buffer b = format_test::mutated(whole, rng);
      // Zeroes behind it are what a place has there.
      const bool longer = b.size() > whole.size() &&
                          std::equal(whole.begin(), whole.end(), b.begin()) &&
                          std::all_of(b.begin() + static_cast<std::ptrdiff_t>(whole.size()),
                                      b.end(), [](std::uint8_t x) { return x == 0; });
      if (b != whole && !longer) BOOST_REQUIRE(!read_block(b).ok());
      Buffer r = format_test::mutated(record, rng);
      r.resize(record_bytes);
      const auto read = read_record(r, 7);
      if (r != record) BOOST_REQUIRE(!read.ok() || read.value().state == PlaceState::empty);
      Buffer i = format_test::mutated(inventory, rng);
      if (i != inventory) BOOST_REQUIRE(!InventoryView::read(i).ok());
      if (i.size() >= inventory_header_bytes) {
        wire::put(i.data() + 8, std::uint64_t{i.size()});
        wire::put(i.data() + 48, wire::checksum(i, 48));
        static_cast<void>(InventoryView::read(i));
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::disk
