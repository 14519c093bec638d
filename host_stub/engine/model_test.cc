#include "host_stub/engine/model.h"

#include <set>

#include <boost/test/unit_test.hpp>

#include "host_stub/engine/key_chain.h"

using namespace kvc;
using namespace kvc::host;

namespace {

// Full attention and one state group over `cp` ranks, each with its own memory.
struct Small {
  explicit Small(std::uint32_t cp, std::uint64_t interleave = 1, std::uint64_t bytes_per_token = 8)
      : geometry(make_geometry(cp, interleave)) {
    for (std::uint32_t r = 0; r < cp; ++r) {
      memory.push_back(
          RankMemory::make({40}, Model::layer_bytes(geometry, bytes_per_token), {}).value());
    }
    model = std::make_unique<Model>(geometry, ModelShape{bytes_per_token, 1000, 7, cp}, memory);
    for (TokenId t = 0; t < 100; ++t) tokens.push_back(t * t + 3);
    model->extend(model->root(""), tokens, prefix);
    for (BlockId b = 1; b <= 20; ++b) table.push_back(b);
  }
  static Geometry make_geometry(std::uint32_t cp, std::uint64_t interleave) {
    GeometryOptions options;
    options.groups = {group_spec(GroupKind::full, {8}), group_spec(GroupKind::state, {8})};
    options.groups[0].sharded = cp > 1;
    options.hash_unit = {8};
    options.scheduler_block = {8 * cp};
    options.context_parallel = cp;
    options.cp_interleave = {interleave};
    return Geometry::make(options).value();
  }
  std::byte& byte(std::uint32_t rank, BlockId block, std::size_t offset) {
    return memory[rank]->block(block)[offset];
  }

  Geometry geometry;
  std::vector<std::unique_ptr<RankMemory>> memory;
  std::unique_ptr<Model> model;
  std::vector<TokenId> tokens;
  std::vector<std::uint64_t> prefix;
  std::vector<BlockId> table;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(model)

BOOST_AUTO_TEST_CASE(what_is_read_back_does_not_depend_on_chunks_blocks_ranks_or_interleave) {
  Small one(1);
  one.model->write_tokens(0, one.table, one.prefix, 0, 100);
  const std::uint64_t expected = one.model->read_tokens(0, one.table, 3, 97);
  for (const auto& [cp, interleave] : {std::pair{1U, 1U}, {2U, 1U}, {4U, 1U}, {2U, 4U}, {4U, 2U}}) {
    Small s(cp, interleave);
    std::reverse(s.table.begin(), s.table.end());
    for (std::uint64_t t = 0; t < 100; t += 7) {
      s.model->write_tokens(0, s.table, s.prefix, t, std::min<std::uint64_t>(100, t + 7));
    }
    BOOST_TEST(s.model->read_tokens(0, s.table, 3, 97) == expected);
    for (std::uint64_t p = 0; p * 8 * cp < 100; ++p) {
      BOOST_TEST(!s.model->verify_tokens(0, p, s.table[p], s.prefix, 100).has_value());
    }
  }
}

BOOST_AUTO_TEST_CASE(any_wrong_byte_of_the_tokens_read_changes_the_hash_and_is_named) {
  for (const std::uint32_t cp : {1U, 2U}) {
    Small s(cp, 1, 16);
    s.model->write_tokens(0, s.table, s.prefix, 0, 32);
    const std::uint64_t right = s.model->read_tokens(0, s.table, 0, 32);
    for (std::uint32_t rank = 0; rank < cp; ++rank) {
      for (std::size_t offset = 0; offset < 8 * 16; ++offset) {
        std::byte& b = s.byte(rank, s.table[1], offset);
        b ^= std::byte{0x10};
        BOOST_TEST(s.model->read_tokens(0, s.table, 0, 32) != right);
        const auto wrong = s.model->verify_tokens(0, 1, s.table[1], s.prefix, 32);
        BOOST_REQUIRE(wrong.has_value());
        BOOST_TEST(wrong->token == 8 * cp + offset / 16 * cp + rank);
        BOOST_TEST(wrong->rank == rank);
        BOOST_TEST(wrong->block == s.table[1]);
        b ^= std::byte{0x10};
      }
    }
    BOOST_TEST(s.model->read_tokens(0, s.table, 0, 32) == right);
  }
}

BOOST_AUTO_TEST_CASE(two_tokens_that_change_places_change_the_hash) {
  Small s(1);
  s.model->write_tokens(0, s.table, s.prefix, 0, 32);
  const std::uint64_t right = s.model->read_tokens(0, s.table, 0, 32);
  std::swap_ranges(s.memory[0]->block(s.table[0]), s.memory[0]->block(s.table[0]) + 8,
                   s.memory[0]->block(s.table[2]));
  BOOST_TEST(s.model->read_tokens(0, s.table, 0, 32) != right);
  std::swap(s.table[1], s.table[2]);
  BOOST_TEST(s.model->verify_tokens(0, 1, s.table[1], s.prefix, 32).has_value());
}

BOOST_AUTO_TEST_CASE(a_state_is_read_back_whole_and_a_stale_one_is_named) {
  for (const std::uint32_t cp : {1U, 4U}) {
    Small s(cp);
    for (std::uint32_t r = 0; r < cp; ++r) s.model->store_state(1, 5, r, s.prefix[19]);
    const std::uint64_t right = s.model->read_state(1, 5);
    BOOST_TEST(!s.model->verify_state(1, 2, 5, s.prefix, 20).has_value());
    BOOST_TEST(s.model->load_state(1, 5, cp - 1) == s.prefix[19]);
    const auto stale = s.model->verify_state(1, 2, 5, s.prefix, 21);
    BOOST_REQUIRE(stale.has_value());
    BOOST_TEST(stale->text().find("group 1 position 2 block 5 token 21 rank 0") == 0U);
    for (std::size_t offset = 0; offset < 64; ++offset) {
      s.byte(cp - 1, 5, offset) ^= std::byte{1};
      BOOST_TEST(s.model->read_state(1, 5) != right);
      BOOST_TEST(s.model->verify_state(1, 2, 5, s.prefix, 20)->rank == cp - 1);
      s.byte(cp - 1, 5, offset) ^= std::byte{1};
    }
  }
}

BOOST_AUTO_TEST_CASE(states_are_equal_over_rank_counts_when_they_hold_the_same_prefix) {
  Small one(1);
  one.model->store_state(1, 5, 0, one.prefix[50]);
  Small four(4);
  for (std::uint32_t r = 0; r < 4; ++r) four.model->store_state(1, 9, r, four.prefix[50]);
  BOOST_TEST(one.model->read_state(1, 5) == four.model->read_state(1, 9));
}

BOOST_AUTO_TEST_CASE(growing_memory_keeps_its_base_and_refuses_beyond_its_range) {
  auto memory = RankMemory::make({0}, {4096}, {1 << 20}).value();
  const std::byte* base = memory->base();
  BOOST_TEST(memory->ensure({3}));
  memory->block(2)[4095] = std::byte{9};
  BOOST_TEST(memory->ensure({256}));
  BOOST_TEST(memory->base() == base);
  BOOST_TEST((memory->block(2)[4095] == std::byte{9}));
  BOOST_TEST(!memory->ensure({257}));
}

BOOST_AUTO_TEST_CASE(keys_are_chained_append_only_and_differ_by_salt_and_seed) {
  std::vector<TokenId> tokens(40);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * 31);
  KeyChain chain(8, 1, "");
  BOOST_TEST(chain.extend(std::span(tokens).first(23)) == 2U);
  BOOST_TEST(chain.extend(tokens) == 3U);
  KeyChain whole(8, 1, "");
  whole.extend(tokens);
  BOOST_TEST(std::memcmp(chain.data(), whole.data(), 5 * engine_key_bytes) == 0);
  std::set<std::string> all;
  const auto add = [&](const KeyChain& c) {
    for (std::uint64_t i = 0; i < c.count(); ++i) {
      all.emplace(reinterpret_cast<const char*>(c.view().at(i)), engine_key_bytes);
    }
  };
  add(whole);
  KeyChain salted(8, 1, "tenant");
  salted.extend(tokens);
  add(salted);
  KeyChain seeded(8, 2, "");
  seeded.extend(tokens);
  add(seeded);
  tokens[0] ^= 1U;
  KeyChain other(8, 1, "");
  other.extend(tokens);
  add(other);
  BOOST_TEST(all.size() == 20U);
}

BOOST_AUTO_TEST_SUITE_END()
