#include "host_stub/engine/candidates.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "host_stub/engine/engine.h"
#include "host_stub/engine/key_chain.h"
#include "host_stub/engine/test_engine.h"

using kvc::BlockId;
using kvc::BlockPool;
using kvc::Code;
using namespace kvc::host;
using namespace kvc::host::testing;

namespace {

using Ids = std::vector<BlockId>;

// A pool whose blocks all got a key, one each, and were given up in order; and their candidates.
struct Pool {
  explicit Pool(std::uint64_t blocks, std::uint64_t window, bool may_store = true)
      : pool(std::move(BlockPool::make({{blocks}, engine_key_bytes, 0, 0})).value()),
        candidates(pool) {
    candidates.enable(window);
    ids.resize(blocks - 1);
    BOOST_REQUIRE((pool.allocate(ids) == Code::ok));
    candidates.allocated(ids);
    keys.resize(blocks * engine_key_bytes);
    for (const BlockId b : ids) {
      std::memcpy(&keys[b * engine_key_bytes], &b, sizeof b);
      key(b);
      give_up(b, may_store);
    }
  }
  void key(BlockId b) {
    BOOST_REQUIRE(
        (pool.insert_key(b, {0, &keys[b * engine_key_bytes], {16}, {16}, nullptr}) == Code::ok));
  }
  void give_up(BlockId b, bool may_store = true) {
    candidates.given_up(b, may_store);
    BOOST_REQUIRE((pool.free(Ids{b}) == Code::ok));
  }
  // What one step names; `take` of the first of them are stored.
  Ids step(std::size_t take, bool refused = false, std::uint64_t most = 1000,
           std::uint64_t stuck = 0) {
    Ids named;
    for (const kvc_candidate& c : candidates.collect(stuck, most)) {
      named.push_back(static_cast<BlockId>(c.block));
      BOOST_TEST(std::memcmp(c.key, &keys[named.back() * engine_key_bytes], engine_key_bytes) == 0);
      BOOST_TEST(c.end_tokens == 16U);
      BOOST_TEST(pool.references(named.back()) == 0U);
    }
    const Ids taken(named.begin(),
                    named.begin() + static_cast<std::ptrdiff_t>(std::min(take, named.size())));
    BOOST_REQUIRE((pool.touch(taken) == Code::ok));
    candidates.taken(taken);
    candidates.settle(refused);
    return named;
  }
  // The store of these blocks is over.
  void release(Ids blocks) {
    const std::span<const BlockId> back = candidates.released(blocks);
    BOOST_REQUIRE((pool.free(blocks) == Code::ok));
    BOOST_REQUIRE((pool.free_to_mark(back) == Code::ok));
    BOOST_TEST(pool.verify().ok());
  }
  Ids queue() const {
    Ids out;
    for (BlockId b = pool.first_free(); b != kvc::no_block; b = pool.next_free(b)) out.push_back(b);
    return out;
  }

  BlockPool pool;
  Candidates candidates;
  Ids ids;
  std::vector<std::byte> keys;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(host_candidates)

BOOST_AUTO_TEST_CASE(the_front_of_the_queue_is_named_once_and_in_order) {
  Pool p(9, 3);
  BOOST_TEST(p.step(0) == (Ids{1, 2, 3}));
  BOOST_TEST(p.step(0) == Ids{});
  // Two are evicted: two more come to the front.
  Ids taken(2);
  BOOST_REQUIRE((p.pool.allocate(taken) == Code::ok));
  p.candidates.allocated(taken);
  BOOST_TEST(p.step(0) == (Ids{4, 5}));
}

BOOST_AUTO_TEST_CASE(blocks_on_their_way_count_as_named_and_go_back_to_their_place) {
  Pool p(9, 3);
  BOOST_TEST(p.step(3) == (Ids{1, 2, 3}));
  BOOST_TEST(p.candidates.held() == 3U);
  BOOST_TEST(p.step(3) == Ids{});
  p.release({3, 1, 2});  // deepest first, say: the queue has its own order
  BOOST_TEST(p.candidates.held() == 0U);
  BOOST_TEST(p.queue() == (Ids{1, 2, 3, 4, 5, 6, 7, 8}));
  BOOST_TEST(p.step(3) == Ids{});
}

BOOST_AUTO_TEST_CASE(blocks_that_nobody_knows_the_end_of_do_not_stand_in_the_way) {
  Pool p(9, 3);
  p.step(3);
  BOOST_TEST(p.step(0, false, 1000, 2) == (Ids{4, 5}));
}

// T-7, CW-12.
BOOST_AUTO_TEST_CASE(a_block_that_is_used_and_freed_again_hides_nothing) {
  Pool p(9, 3);
  p.step(0);
  BOOST_REQUIRE((p.pool.touch(Ids{3}) == Code::ok));
  p.candidates.used(Ids{3});
  BOOST_TEST(p.step(0) == (Ids{4}));
  p.give_up(3);
  BOOST_REQUIRE((p.pool.touch(Ids{1, 2, 4}) == Code::ok));
  BOOST_TEST(p.step(0) == (Ids{5, 6, 7}));
  for (const BlockId b : {1U, 2U, 4U}) p.give_up(b);
  BOOST_TEST(p.queue() == (Ids{5, 6, 7, 8, 3, 1, 2, 4}));
  Ids all;
  for (int i = 0; i < 8; ++i) {
    Ids one(1);
    BOOST_REQUIRE((p.pool.allocate(one) == Code::ok));
    p.candidates.allocated(one);
    for (const BlockId b : p.step(0)) all.push_back(b);
  }
  BOOST_TEST(all == (Ids{8, 3, 1, 2, 4}));
}

BOOST_AUTO_TEST_CASE(a_held_block_that_is_used_goes_to_the_end_of_the_queue) {
  Pool p(6, 2);
  BOOST_TEST(p.step(2) == (Ids{1, 2}));
  BOOST_REQUIRE((p.pool.touch(Ids{1}) == Code::ok));
  p.candidates.used(Ids{1});
  BOOST_TEST(p.candidates.held() == 1U);
  p.release({2, 1});
  p.give_up(1);
  BOOST_TEST(p.queue() == (Ids{2, 3, 4, 5, 1}));
}

BOOST_AUTO_TEST_CASE(the_refused_are_named_again_first_and_only_while_they_are_there) {
  Pool p(9, 4);
  BOOST_TEST(p.step(1, true) == (Ids{1, 2, 3, 4}));
  BOOST_REQUIRE((p.pool.touch(Ids{3}) == Code::ok));
  p.candidates.used(Ids{3});
  BOOST_TEST(p.step(0, true) == (Ids{2, 4, 5}));
  BOOST_TEST(p.step(0, true, 2) == (Ids{2, 4}));
  BOOST_TEST(p.step(0, false, 2) == (Ids{2, 4}));
  BOOST_TEST(p.step(0) == (Ids{5}));
  BOOST_TEST(p.step(0) == Ids{});
}

BOOST_AUTO_TEST_CASE(what_a_request_may_not_store_is_not_named) {
  Pool p(5, 10, false);
  BOOST_TEST(p.step(0) == Ids{});
  // Somebody who may store uses it.
  BOOST_REQUIRE((p.pool.touch(Ids{2}) == Code::ok));
  p.candidates.used(Ids{2});
  p.give_up(2);
  BOOST_TEST(p.step(0) == (Ids{2}));
}

BOOST_AUTO_TEST_CASE(after_a_reset_all_is_named_again_or_nothing_that_is_stale) {
  Pool p(5, 3);
  BOOST_TEST(p.step(2) == (Ids{1, 2, 3}));
  p.candidates.forget(false);
  BOOST_TEST(p.candidates.held() == 0U);
  p.release({1, 2});  // doomed copies: to the end of the queue, to be named in their turn
  BOOST_TEST(p.queue() == (Ids{3, 4, 1, 2}));
  BOOST_TEST(p.step(0) == (Ids{3, 4, 1}));
  p.candidates.forget(true);
  BOOST_TEST(p.step(0) == Ids{});
}

BOOST_AUTO_TEST_CASE(a_pool_that_grows_evicts_nothing_and_names_nothing) {
  BlockPool pool = std::move(BlockPool::make({{0}, engine_key_bytes, 0, 0})).value();
  Candidates candidates(pool);
  candidates.enable(10);
  BOOST_TEST(!candidates.enabled());
  BOOST_TEST(candidates.collect(0, 10).empty());
}

// What a step of 8,192 tokens and a load of the longest request can take.
BOOST_AUTO_TEST_CASE(the_window_covers_a_step_and_a_load) {
  EngineOptions o = options_for(hybrid_model(), mixed_rows());
  const auto engine = engine_for(o);
  const CandidateLimits small{128, 4, 640};
  // full 64: 3 in a step, 10 in a load; states: 2 for each of 4 requests, 1 in a load.
  BOOST_TEST(candidate_window(engine->geometry(), small) == 3U + 8U + 11U);
  const CandidateLimits wide{1280, 4, 640};
  BOOST_TEST(candidate_window(engine->geometry(), wide) == 2 * (21U + 8U));
}

BOOST_AUTO_TEST_SUITE_END()
