#include "plugin/core/zeroed.h"

#include <sys/mman.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cerrno>
#include <cstring>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "plugin/tests/seed.h"

namespace kvc {
namespace {

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

bool all_are(const Zeroed& memory, std::size_t bytes, int value) {
  return std::all_of(memory.get(), memory.get() + bytes,
                     [value](std::byte b) { return b == std::byte(value); });
}

// Whether the page at `p` belongs to any mapping.
bool mapped(const std::byte* p) {
  unsigned char resident = 0;
  auto* const page = const_cast<std::byte*>(p) - reinterpret_cast<std::uintptr_t>(p) % (4 * KiB);
  return ::mincore(page, 1, &resident) == 0 || errno != ENOMEM;
}

bool shared(std::size_t bytes) { return zeroed_deleter(bytes).from == ZeroedFrom::chunk; }

BOOST_AUTO_TEST_SUITE(zeroed)

BOOST_AUTO_TEST_CASE(memory_of_every_size_is_zero_and_usable_to_its_end) {
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, 16 * KiB - 1, 16 * KiB, 16 * KiB + 1, 2 * MiB, 4 * MiB - 1,
        4 * MiB, 4 * MiB + 1, 17 * MiB}) {
    const Zeroed memory = make_zeroed(bytes);
    BOOST_TEST_CONTEXT(bytes << " bytes") {
      BOOST_REQUIRE(memory != nullptr);
      BOOST_TEST(all_are(memory, bytes, 0));
      std::memset(memory.get(), 0xa5, bytes);
      BOOST_TEST(all_are(memory, bytes, 0xa5));
    }
  }
}

BOOST_AUTO_TEST_CASE(large_pieces_begin_on_huge_pages_and_shared_ones_on_lines) {
  const Zeroed large = make_zeroed(5 * MiB);
  BOOST_TEST(reinterpret_cast<std::uintptr_t>(large.get()) % (2 * MiB) == 0U);
  const Zeroed first = make_zeroed(16 * KiB + 1);
  const Zeroed second = make_zeroed(16 * KiB + 1);
  if (!shared(16 * KiB + 1)) return;
  BOOST_TEST(reinterpret_cast<std::uintptr_t>(first.get()) % 64 == 0U);
  BOOST_TEST(reinterpret_cast<std::uintptr_t>(second.get()) % 64 == 0U);
}

BOOST_AUTO_TEST_CASE(a_size_that_no_machine_has_gives_nothing) {
  BOOST_TEST((make_zeroed(SIZE_MAX) == nullptr));
  BOOST_TEST((make_zeroed(SIZE_MAX - 4096) == nullptr));
  BOOST_TEST((make_zeroed(std::size_t{1} << 60U) == nullptr));
  BOOST_CHECK_THROW(static_cast<void>(PagedAllocator<std::uint64_t>().allocate(SIZE_MAX / 4)),
                    std::bad_alloc);
  BOOST_CHECK_THROW(static_cast<void>(PagedAllocator<std::uint64_t>().allocate(SIZE_MAX / 16)),
                    std::bad_alloc);
}

BOOST_AUTO_TEST_CASE(a_chunk_goes_back_to_the_system_with_its_last_piece) {
  if (!shared(1 * MiB)) return;
  std::vector<Zeroed> pieces;
  for (int i = 0; i < 40; ++i) pieces.push_back(make_zeroed(1 * MiB));
  const std::byte* const early = pieces[0].get();
  const std::byte* const late = pieces[39].get();
  BOOST_TEST(mapped(early));
  pieces.erase(pieces.begin(), pieces.begin() + 39);
  BOOST_TEST(!mapped(early));
  BOOST_TEST(mapped(late));
  pieces.clear();
  BOOST_TEST(!mapped(late));
}

BOOST_AUTO_TEST_CASE(pieces_stay_apart_whatever_the_order_of_taking_and_giving_back) {
  const std::uint64_t seed = kvc::test::seed_or(1);
  std::mt19937_64 random(seed);
  struct Piece {
    Zeroed memory;
    std::size_t bytes;
    int value;
  };
  std::vector<Piece> pieces;
  for (int i = 0; i < 2000; ++i) {
    if (!pieces.empty() && random() % 2 == 0) {
      const std::size_t at = random() % pieces.size();
      BOOST_REQUIRE_MESSAGE(all_are(pieces[at].memory, pieces[at].bytes, pieces[at].value),
                            kvc::test::repeat_command(seed));
      std::swap(pieces[at], pieces.back());
      pieces.pop_back();
    }
    const std::size_t bytes = random() % (200 * KiB);
    Zeroed memory = make_zeroed(bytes);
    BOOST_REQUIRE(memory != nullptr);
    BOOST_REQUIRE(all_are(memory, bytes, 0));
    const int value = 1 + i % 255;
    std::memset(memory.get(), value, bytes);
    pieces.push_back({std::move(memory), bytes, value});
  }
  for (const Piece& p : pieces) BOOST_REQUIRE(all_are(p.memory, p.bytes, p.value));
}

BOOST_AUTO_TEST_CASE(threads_share_chunks) {
  const auto work = [](int value) {
    for (int i = 0; i < 50; ++i) {
      std::vector<Zeroed> pieces;
      for (int k = 0; k < 20; ++k) {
        pieces.push_back(make_zeroed(40 * KiB));
        if (!all_are(pieces.back(), 40 * KiB, 0)) return false;
        std::memset(pieces.back().get(), value, 40 * KiB);
      }
      for (const Zeroed& p : pieces)
        if (!all_are(p, 40 * KiB, value)) return false;
    }
    return true;
  };
  bool other = false;
  std::thread thread([&] { other = work(1); });
  BOOST_TEST(work(2));
  thread.join();
  BOOST_TEST(other);
}

BOOST_AUTO_TEST_CASE(vectors_of_any_length_keep_what_they_hold) {
  PagedVector<std::uint64_t> numbers;
  for (std::uint64_t i = 0; i < 1'000'000; ++i) numbers.push_back(i);
  for (std::uint64_t i = 0; i < 1'000'000; ++i) BOOST_REQUIRE(numbers[i] == i);
  numbers.clear();
  numbers.shrink_to_fit();
  BOOST_TEST(numbers.capacity() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
