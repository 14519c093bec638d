// Lazy mode through the C ABI: candidates with real bytes (R-670..R-672, CW-12).
#include <boost/test/unit_test.hpp>

#include "plugin/edge/tests/abi_host.h"

namespace kvc::abi_test {

BOOST_AUTO_TEST_SUITE(lazy_mode)

namespace {

Setup lazy(std::vector<Group> groups = {full(16)}) {
  Setup s;
  s.groups = std::move(groups);
  s.connector_toml = "mode = \"lazy\"";
  s.max_batch = 256;
  return s;
}

// The request computes `upto` tokens and ends; its blocks are free and keep their bytes. A copy of
// it as it was.
Request ran(World& w, std::uint64_t id, Tokens tokens, std::uint64_t upto) {
  w.begin(id, std::move(tokens));
  w.take(id, 0);
  w.compute(id, upto);
  BOOST_CHECK(w.step().jobs.empty());
  const Request r = w.request(id);
  BOOST_CHECK_EQUAL(w.end(id), 0U);
  return r;
}

void name_all(World& w, const Request& r) {
  for (std::uint32_t g = 0; g < r.tables.size(); ++g) {
    const std::uint64_t b = w.block_tokens(g);
    for (std::uint64_t p = 0; p < r.tables[g].size() && (p + 1) * b <= r.computed; ++p) {
      if (r.tables[g][p] != 0) w.name_candidate(r, g, r.tables[g][p], (p + 1) * b);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_table_says_that_it_can_use_candidates) {
  BOOST_CHECK_NE(Library::under_test().api().caps & KVC_CAP_CANDIDATES, 0U);
}

BOOST_AUTO_TEST_CASE(candidates_come_back_byte_for_byte_in_every_layout) {
  std::vector<Setup> setups = {lazy(), lazy({full(16), sliding(16, 40)}),
                               lazy({full(16), chunked(16, 64)}), lazy({full(32), state_all(32)})};
  setups.push_back(lazy({full(32), state_align(32)}));
  setups.back().h = 16;
  setups.push_back(lazy({full(16, KVC_GROUP_CAP_SHARDED), state_align(32)}));
  setups.back().h = 16;
  setups.back().cp = 2;
  for (const Setup& setup : setups) {
    World w(setup);
    const Tokens tokens = tokens_of(1, 129);
    const Request r = ran(w, 1, tokens, 128);
    BOOST_CHECK_EQUAL(w.counts().all_offers.published, 0U);
    name_all(w, r);
    const std::uint64_t named = w.candidates.size();
    BOOST_CHECK_GT(named, 0U);
    const Planned plan = w.plan();
    BOOST_REQUIRE_EQUAL(plan.stores.size(), 1U);
    BOOST_CHECK_EQUAL(w.pending().held_blocks, named);
    w.submit(plan);
    w.pump();
    w.complete(w.reports());
    BOOST_CHECK_EQUAL(w.counts().all_offers.stored, named);
    w.begin(2, tokens);
    BOOST_CHECK_EQUAL(w.load(2), 128U);
    w.end(2);
    w.drain();
    w.check_quiet();
    BOOST_CHECK(!w.logged(KVC_LOG_PEER_FAULT, ""));
  }
}

BOOST_AUTO_TEST_CASE(wrong_candidates_are_named_and_the_rest_is_stored) {
  World w(lazy({full(16), scratch(16)}));
  const Request r = ran(w, 1, tokens_of(1, 65), 64);
  const std::int64_t block = r.tables[0][0];
  w.name_candidate(r, 1, block, 16);
  w.name_candidate(r, 9, block, 16);
  w.name_candidate(r, 0, w.setup().null_block, 16);
  w.name_candidate(r, 0, -7, 16);
  w.name_candidate(r, 0, INT64_MAX, 16);
  w.name_candidate(r, 0, block, 16);
  w.candidates.back().end_tokens = 0;
  w.name_candidate(r, 0, block, 16);
  w.candidates.back().end_tokens = 15;
  w.name_candidate(r, 0, block, 16);
  w.candidates.back().end_tokens = UINT64_MAX - 15;
  w.name_candidate(r, 0, r.tables[0][1], 32);
  w.step();
  const kvc_offer_counts c = w.counts().all_offers;
  BOOST_CHECK_EQUAL(c.dropped_bad_offer, 8U);
  BOOST_CHECK_EQUAL(c.stored, 1U);
  for (const char* rule : {"candidate-group", "candidate-block", "candidate-end"}) {
    BOOST_CHECK_MESSAGE(w.logged(KVC_LOG_PEER_FAULT, rule), rule);
  }
  w.check_quiet();
}

BOOST_AUTO_TEST_CASE(the_engines_own_answers_decide_which_keys_are_true) {
  Setup s = lazy();
  s.host_caps |= KVC_HOST_BLOCK_QUERY;
  World w(s);
  const Request r = ran(w, 1, tokens_of(1, 65), 64);
  const std::vector<std::uint8_t> keys = w.keys_of(r, 4);
  const auto key = [&](std::uint64_t i) {
    return std::vector<std::uint8_t>(keys.begin() + static_cast<std::ptrdiff_t>(i * 16),
                                     keys.begin() + static_cast<std::ptrdiff_t>(i * 16 + 16));
  };
  w.device_keys[{0, r.tables[0][0]}] = {key(0), 16};
  w.device_keys[{0, r.tables[0][1]}] = {key(1), 48};
  name_all(w, r);
  w.step();
  const kvc_offer_counts c = w.counts().all_offers;
  BOOST_CHECK_EQUAL(c.stored, 1U);
  BOOST_CHECK_EQUAL(c.dropped_bad_offer, 1U);
  BOOST_CHECK_EQUAL(c.skipped_not_hashed, 2U);
}

BOOST_AUTO_TEST_CASE(a_held_candidate_is_refused_and_its_bytes_stay) {
  World w(lazy());
  const Request r = ran(w, 1, tokens_of(1, 33), 32);
  w.name_candidate(r, 0, r.tables[0][0], 16);
  const Planned plan = w.plan();
  BOOST_CHECK(w.held(r.tables[0][0]));
  // The engine breaks its word: the block is held.
  w.name_candidate(r, 0, r.tables[0][0], 32);
  BOOST_CHECK(w.plan().stores.empty());
  BOOST_CHECK(w.logged(KVC_LOG_PEER_FAULT, "candidate-held"));
  w.submit(plan);
  w.pump();
  w.complete(w.reports());
  w.begin(2, tokens_of(1, 33));
  BOOST_CHECK_EQUAL(w.load(2), 16U);
  w.end(2, KVC_END_STOP, 32);
  w.drain();
  w.check_quiet();
}

BOOST_AUTO_TEST_CASE(a_device_hit_on_a_candidate_that_is_being_stored_is_legal) {
  World w(lazy());
  const Request r = ran(w, 1, tokens_of(1, 33), 32);
  name_all(w, r);
  const Planned plan = w.plan();
  // The next request has the same blocks from the device, computes and ends before the copy.
  w.begin(2, tokens_of(1, 33));
  BOOST_CHECK_EQUAL(w.lookup(2, 32).tokens, 0U);
  w.take(2, 0);
  w.schedule(2, 32);
  w.plan();
  w.end(2, KVC_END_STOP, 32);
  w.submit(plan);
  w.pump();
  w.complete(w.reports());
  BOOST_CHECK_EQUAL(w.counts().all_offers.stored, 2U);
  BOOST_CHECK_EQUAL(w.hit(tokens_of(1, 33)), 32U);
  w.check_quiet();
}

BOOST_AUTO_TEST_CASE(an_engine_without_a_prefix_cache_is_refused) {
  Setup s = lazy();
  World w(lazy());
  std::string text;
  kvc_host_api host = w.host();
  host.self = reinterpret_cast<kvc_host*>(&text);
  host.caps = KVC_HOST_STEPPED | KVC_HOST_NO_DEVICE_CACHE;
  host.log = [](kvc_host* h, std::int32_t, kvc_bytes line) noexcept {
    reinterpret_cast<std::string*>(h)->append(reinterpret_cast<const char*>(line.data), line.size);
  };
  host.wake = nullptr;
  const kvc_open open = w.open_struct();
  kvc_sched* sched = nullptr;
  BOOST_CHECK_EQUAL(w.api().open_scheduler(&host, &open, &sched), KVC_E_UNSUPPORTED);
  BOOST_CHECK(sched == nullptr);
  for (const char* part : {"mode = \"lazy\"", "prefix cache", "\"eager\""}) {
    BOOST_CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  }
}

BOOST_AUTO_TEST_CASE(the_gates_stand_in_stats_and_explain) {
  Setup s = lazy({full(32), state_align(32)});
  s.h = 16;
  World w(s);
  BOOST_CHECK_EQUAL(w.logged_times("fine_hits is off"), 1U);
  BOOST_CHECK_EQUAL(w.logged_times("store_when_filled is off"), 1U);
  const std::string all = w.explain();
  BOOST_CHECK(all.find("the owner forbids hits inside scheduler blocks of 32") !=
              std::string::npos);
  BOOST_CHECK(all.find("\"mode\":\"lazy\"") != std::string::npos);
  BOOST_CHECK_EQUAL(w.stat("gate_off_now"), 2U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvc::abi_test
