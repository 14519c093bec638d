// Cases of chunks, tails, admission and limits in the numbers of spec offloading.md section 9 and
// of the field reports (docs/offloading_cases.md).
#include <algorithm>
#include <string>
#include <vector>

#include "plugin/offloading/tests/offloading_rig.h"

using namespace kvc;
using namespace kvc::test;

namespace {

// One copy of a plan without its slot and block.
using Place = std::pair<std::uint32_t, std::uint64_t>;
using Places = std::vector<Place>;

Places places_of(const std::vector<PlanCopyOf>& jobs, JobKind kind) {
  Places out;
  for (const PlanCopyOf& job : jobs) {
    if (job.kind != kind) continue;
    for (const PlanCopy& c : job.copies) out.emplace_back(c.group, c.position);
  }
  return out;
}

Places range(std::uint32_t group, std::uint64_t first, std::uint64_t behind) {
  Places out;
  for (std::uint64_t p = first; p < behind; ++p) out.emplace_back(group, p);
  return out;
}

Places operator+(Places a, const Places& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void check(const Places& found, const Places& expected) {
  const auto text = [](const Places& places) {
    std::string out;
    for (const Place& p : places) {
      out += "(" + std::to_string(p.first) + "," + std::to_string(p.second) + ")";
    }
    return out;
  };
  BOOST_TEST(found == expected, text(found) << " instead of " << text(expected));
}

struct Offloading : Rig {
  explicit Offloading(Layout layout_in, std::uint32_t chunk = 1, std::uint64_t slots = 32,
                      SimpleCpuSchedulerOptions options = {})
      : Rig(std::move(layout_in), slots, with(options, chunk), limits_of(), make_offloading) {}

  static SimpleCpuSchedulerOptions with(SimpleCpuSchedulerOptions options, std::uint32_t chunk) {
    options.blocks_per_chunk = chunk;
    return options;
  }
  // The stores of one step of a request.
  Places stores(RequestId id, std::uint64_t confirmed, const Tables& tables,
                const std::vector<Handoff>& handoffs = {}) {
    return places_of(step({{id, confirmed, tables}}, {}, handoffs), JobKind::store);
  }
  // The copies of a load of what the last lookup offered; it ends.
  Places load(RequestId id, std::uint64_t accepted, const Tables& tables) {
    BOOST_REQUIRE(alloc(id, accepted, tables) != 0);
    const Places out = places_of(step(), JobKind::load);
    finish_all();
    return out;
  }
  // A request with a state group last: attention everywhere, the state at every boundary given.
  void serve_states(RequestId id, const TokenIds& prompt, BlockId first,
                    const std::vector<std::uint64_t>& boundaries) {
    begin(id, prompt);
    Tables tables = fresh_tables(prompt.size(), first);
    const auto state_group = static_cast<std::uint32_t>(tables.size() - 1);
    BlockId next = first + 500;
    Tables passed = tables;
    passed.back().clear();
    alloc(id, 0, passed);
    for (const std::uint64_t b : boundaries) {
      step({{id, b, passed}}, {}, {{state_group, id, next++, Tokens{b}}});
    }
    step({{id, prompt.size(), passed}});
    end(id, prompt.size(), passed);
    drain();
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(offloading_cases)

// The figure of the report that partial tails were built for: blocks of 784 tokens, keys of 8.
BOOST_AUTO_TEST_CASE(a_tail_inside_a_block_of_784_raises_the_hit_from_784_to_896) {
  const Layout layout{{full(784), state(784)}, 8, 784, 1};
  for (const std::uint32_t chunk : {1u, 2u, 4u}) {
    Offloading with(layout, chunk);
    with.serve_states(1, tokens_of(1, 900), 1, {784, 896});
    with.begin(2, tokens_of(1, 900));
    BOOST_TEST(with.hit(2) == 896u);
    // Without the state at the tail there is only that of the block.
    Offloading without(layout, chunk);
    without.serve_states(1, tokens_of(1, 900), 1, {784});
    without.begin(2, tokens_of(1, 900));
    BOOST_TEST(without.hit(2) == 784u);
  }
}

// OW-12: tails with mixed block sizes, over context parallel ranks and with draft groups.
BOOST_AUTO_TEST_CASE(tails_need_no_equal_blocks_no_single_rank_and_no_lack_of_drafts) {
  GroupSpec draft = full(784);
  draft.draft = true;
  const std::vector<Layout> layouts = {{{full(16), state(784)}, 16, 784, 1},
                                       {{full(112), full(784), state(784)}, 16, 784, 1},
                                       {{sharded(392), state(784)}, 8, 784, 2},
                                       {{full(784), draft, state(784)}, 8, 784, 1}};
  for (const Layout& layout : layouts) {
    for (const std::uint32_t chunk : {1u, 3u}) {
      Offloading rig(layout, chunk, 256);
      rig.serve_states(1, tokens_of(1, 900), 1, {784, 896});
      rig.begin(2, tokens_of(1, 900));
      BOOST_TEST(rig.hit(2) == 896u);
    }
  }
}

// Case 006, O-330: what is loaded for a tail, and where.
BOOST_AUTO_TEST_CASE(a_tail_is_loaded_into_the_block_that_it_ends_in) {
  Offloading rig({{full(16), state(16)}, 4, 16, 1});
  rig.serve_states(1, tokens_of(1, 30), 1, {16, 28});
  rig.begin(2, tokens_of(1, 30));
  BOOST_TEST(rig.hit(2) == 28u);
  check(rig.load(2, 28, {{31, 32}, {null_block, 41}}), range(0, 0, 2) + range(1, 1, 2));
}

// OW-01: a load up to a tail leaves no hole in what the request stores later.
BOOST_AUTO_TEST_CASE(a_partial_load_leaves_no_hole) {
  for (const std::uint32_t chunk : {1u, 2u}) {
    Offloading rig({{full(16), state(16)}, 4, 16, 1}, chunk);
    rig.serve_states(1, tokens_of(1, 30), 1, {16, 28});
    const TokenIds longer = tokens_of(1, 100);
    rig.begin(2, longer);
    BOOST_TEST(rig.hit(2) == 28u);
    Tables tables = rig.fresh_tables(100, 100);
    Tables loaded = tables;
    loaded[0].resize(2);
    loaded[1] = {null_block, 300};
    const JobId job = rig.alloc(2, 28, loaded);
    rig.step();
    rig.finish(job);
    tables[1].clear();
    for (const std::uint64_t end : {std::uint64_t{64}, std::uint64_t{96}}) {
      rig.step({{2, end, tables}}, {}, {{1, 2, static_cast<BlockId>(400 + end), Tokens{end}}});
    }
    rig.end(2, 96, tables);
    rig.drain();
    rig.begin(3, longer);
    BOOST_TEST(rig.hit(3) == 96u);
  }
}

// Case 029, 042: chunks of three blocks.
BOOST_AUTO_TEST_CASE(only_complete_chunks_and_the_tail_are_stored) {
  Offloading rig({{full(4)}, 4, 4, 1}, 3);
  rig.begin(1, tokens_of(1, 36));
  const Tables tables = rig.fresh_tables(48, 1);
  rig.alloc(1, 0, tables);
  check(rig.stores(1, 11, tables), {});
  check(rig.stores(1, 12, tables), range(0, 0, 3));
  // The prompt's tail at 32 tokens is a part of the third chunk, which comes when it is full.
  check(rig.stores(1, 32, tables), range(0, 3, 6) + range(0, 6, 8));
  check(rig.stores(1, 36, tables), range(0, 6, 9));
  rig.extend(1, tokens_of(7, 8));
  check(rig.stores(1, 44, tables), {});
  rig.finish_all();
  rig.check();
  BOOST_TEST(rig.stat("host_published_now") == 4u);
  BOOST_TEST(rig.stat("store_blocks") == 11u);
}

// Case 029: two chunks of which the first is on the device; and the first block of one.
BOOST_AUTO_TEST_CASE(a_load_begins_inside_a_chunk) {
  Offloading rig({{full(4)}, 4, 4, 1}, 3);
  rig.serve(1, tokens_of(1, 28), 1);
  rig.begin(2, tokens_of(1, 28));
  BOOST_TEST(rig.hit(2, 12) == 12u);
  check(rig.load(2, 12, rig.fresh_tables(24, 100)), range(0, 3, 6));
  rig.begin(3, tokens_of(1, 28));
  BOOST_TEST(rig.hit(3, 4) == 20u);
  check(rig.load(3, 20, rig.fresh_tables(24, 200)), range(0, 1, 6));
  rig.begin(4, tokens_of(1, 28));
  BOOST_TEST(rig.hit(4, 8) == 16u);
  check(rig.load(4, 8, rig.fresh_tables(16, 300)), range(0, 2, 4));
}

// OW-28: never a hole.
BOOST_AUTO_TEST_CASE(a_chunk_with_a_released_block_is_not_stored) {
  Offloading rig({{full(16), sliding(16, 48)}, 16, 16, 1}, 3);
  rig.begin(1, tokens_of(1, 96));
  Tables tables = rig.fresh_tables(96, 1);
  rig.alloc(1, 0, tables);
  tables[1][1] = null_block;
  check(rig.stores(1, 96, tables), range(0, 0, 6) + range(1, 3, 6));
  BOOST_TEST(rig.offers().dropped_null_block == 1u);
}

// O-012 to O-018 and design 3: the geometry of each group.
BOOST_AUTO_TEST_CASE(every_group_has_chunks_of_its_own) {
  const Geometry g =
      tier_geometry_of(
          geometry_of({{full(16), full(32), sliding(16, 40), sliding(16, 400), state(64),
                        group_spec(GroupKind::chunked, Tokens{16}, Tokens{96})},
                       8,
                       64,
                       1}),
          4)
          .value();
  const std::vector<std::uint64_t> tokens = {64, 128, 32, 64, 64, 48};
  for (GroupId i = 0; i < g.groups(); ++i) BOOST_TEST(g.block_tokens(i).n == tokens[i]);
  BOOST_TEST(g.hit_alignment().n == 64u);
  BOOST_TEST(!g.keeps_tails());
  const auto has = [&](const std::string& feature) {
    return std::any_of(g.gates().begin(), g.gates().end(),
                       [&](const Gate& gate) { return gate.feature == feature; });
  };
  BOOST_TEST(has("whole_chunks"));
  BOOST_TEST(has("tails_in_chunks"));
}

// Every gate stands in explain (OW-24).
BOOST_AUTO_TEST_CASE(explain_says_which_tails_are_missing_and_why) {
  Offloading rig({{full(16), sliding(16, 40)}, 16, 16, 1}, 4);
  const Result<std::string> text = rig.role->explain(0);
  BOOST_REQUIRE(text.ok());
  for (const char* part : {"\"connector\":\"offloading\"", "\"blocks_per_chunk\":4",
                           "\"feature\":\"tails_in_chunks\"", "group 1 (sliding, 16 tokens"}) {
    BOOST_TEST(text.value().find(part) != std::string::npos, part);
  }
}

// Case 036, O-383: blocks of 12 and of 16 tokens, keys of 4. Nothing hits but at multiples of 48,
// so nothing is stored before (docs/offloading_cases.md).
BOOST_AUTO_TEST_CASE(groups_of_12_and_16_tokens_load_what_48_tokens_need) {
  Offloading rig({{full(12), full(16)}, 4, 48, 1});
  rig.begin(1, tokens_of(1, 97));
  const Tables tables = rig.fresh_tables(97, 1);
  rig.alloc(1, 0, tables);
  check(rig.stores(1, 25, tables), {});
  check(rig.stores(1, 48, tables), range(0, 0, 4) + range(1, 0, 3));
  check(rig.stores(1, 96, tables), range(0, 4, 8) + range(1, 3, 6));
  rig.finish_all();
  rig.begin(2, tokens_of(1, 97));
  BOOST_TEST(rig.hit(2) == 96u);
  BOOST_TEST(rig.hit(2, 48) == 48u);
  check(rig.load(2, 48, rig.fresh_tables(96, 200)), range(0, 4, 8) + range(1, 3, 6));
}

// Case 050: the windows that a hit can need, and their load.
BOOST_AUTO_TEST_CASE(windows_beside_wider_attention_store_and_load_their_last_blocks) {
  struct Case {
    std::uint64_t extra;
    Places stored;
    Places loaded;
  };
  const Places attention = range(0, 0, 2);
  const std::vector<Case> cases = {
      {0, attention + range(1, 2, 4) + range(1, 6, 8), attention + range(1, 6, 8)},
      {1, attention + range(1, 2, 4) + range(1, 6, 8), attention + range(1, 6, 8)},
      {3, attention + range(1, 1, 4) + range(1, 5, 8), attention + range(1, 5, 8)}};
  for (const Case& c : cases) {
    GroupSpec window = sliding(4, 8);
    window.extra_retained = Tokens{c.extra};
    Offloading rig({{full(16), window}, 4, 16, 1});
    rig.begin(1, tokens_of(1, 33));
    const Tables tables = rig.fresh_tables(33, 1);
    rig.alloc(1, 0, tables);
    check(rig.stores(1, 33, tables), c.stored);
    rig.finish_all();
    rig.begin(2, tokens_of(1, 34));
    BOOST_TEST(rig.hit(2) == 32u);
    Tables fresh = rig.fresh_tables(32, 100);
    for (std::uint64_t p = 0; p < 8; ++p) {
      if (std::find(c.loaded.begin(), c.loaded.end(), Place{1, p}) == c.loaded.end()) {
        fresh[1][p] = null_block;
      }
    }
    check(rig.load(2, 32, fresh), c.loaded);
  }
}

// Cases 065, 067: windows of some chunks over what is there (H) and what is not (M), from the left;
// a run that begins at the prefix's start is a window whatever it lacks in front.
BOOST_AUTO_TEST_CASE(windows_and_prefixes_are_found_as_the_peer_finds_them) {
  struct Case {
    std::uint64_t window;  // in blocks; 0: full attention
    const char* held;
    std::uint64_t found;
  };
  const std::vector<Case> cases = {
      {0, "HH", 2},    {0, "MM", 0},    {0, "HHM", 2},   {0, "MH", 0},
      {0, "", 0},      {2, "HHMM", 2},  {2, "HH", 2},    {1, "MMM", 0},
      {2, "MHH", 3},   {2, "MHHM", 3},  {3, "HHM", 2},   {1, "MHH", 3},
      {2, "MHHMH", 3}, {2, "HHMHH", 5}, {4, "HMHHH", 1}, {2, "HHMHM", 2}};
  for (const Case& c : cases) {
    const std::string held = c.held;
    // Windows that reach back over whole blocks: w - 1 tokens are so many blocks.
    const GroupSpec group = c.window == 0 ? full(16) : sliding(16, c.window * 16 + 1);
    const Geometry geometry = geometry_of({{group}, 16, 16, 1});
    EventRing events(0);
    HostTier tier(geometry, key_bytes, {.chained = false}, events);
    TierSizes sizes;
    sizes.pages = 64;
    sizes.slots_per_page = {1};
    sizes.class_of_group.fill(0);
    BOOST_REQUIRE(tier.resize(sizes, 8).ok());
    const std::vector<std::uint8_t> bytes = keys_of(tokens_of(1, 200), 16);
    const KeyView keys{reinterpret_cast<const std::byte*>(bytes.data()), key_bytes, 12};
    const RunId run = tier.open_run();
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (held[i] != 'H') continue;
      const Tokens end{(i + 1) * 16};
      Refusal refusal = Refusal::none;
      const SlotId slot =
          tier.reserve(0, block_key(keys, end, Tokens{16}), keys, end, run, no_slot, refusal);
      BOOST_REQUIRE(slot != no_slot);
      BOOST_REQUIRE(tier.publish(slot, 0));
    }
    Hit hit;
    const Tokens most{held.size() * 16};
    BOOST_CHECK(kvc::lookup(geometry, tier.index(), keys, Tokens{}, most, hit) == Code::ok);
    BOOST_TEST(hit.tokens.n == c.found * 16, "window of " << c.window << ", " << held);
  }
}

// Case 044, O-030.
BOOST_AUTO_TEST_CASE(a_store_limit_ends_in_whole_chunks) {
  const std::vector<std::pair<std::uint64_t, Places>> cases = {
      {UINT64_MAX, range(0, 0, 9)}, {0, {}}, {24, range(0, 0, 6)}};
  for (const auto& [limit, stored] : cases) {
    Offloading rig({{full(4)}, 4, 4, 1}, 3);
    const TokenIds prompt = tokens_of(1, 37);
    const std::vector<std::uint8_t> keys = keys_of(prompt, 4);
    RequestBegin in;
    in.request = 1;
    in.prompt = Tokens{37};
    in.keys = keys.data();
    in.key_count = keys.size() / key_bytes;
    in.store_limit = Tokens{limit};
    BOOST_REQUIRE(rig.role->request_begin(in).ok());
    const Tables tables = rig.fresh_tables(37, 1);
    rig.alloc(1, 0, tables);
    check(rig.stores(1, 36, tables), stored);
  }
}

// Case 045: 24 tokens of prompt and 48 of output.
BOOST_AUTO_TEST_CASE(with_store_decode_blocks_off_only_the_prompt_is_stored) {
  SimpleCpuSchedulerOptions options;
  options.store_decode_blocks = false;
  Offloading rig({{full(4)}, 4, 4, 1}, 3, 32, options);
  rig.begin(1, tokens_of(1, 24));
  const Tables tables = rig.fresh_tables(72, 1);
  rig.alloc(1, 0, tables);
  // The tail of the prompt is at 20 tokens: two blocks of the second chunk.
  check(rig.stores(1, 24, tables), range(0, 0, 6) + range(0, 3, 5));
  rig.extend(1, tokens_of(9, 48));
  check(rig.stores(1, 71, tables), {});
  check(places_of({}, JobKind::store), {});
  BOOST_TEST(rig.end(1, 71, tables) == 0u);
}

// K14-138: what was stored stays; the rest is declined, and a hit never crosses a hole.
BOOST_AUTO_TEST_CASE(a_request_larger_than_the_pool_keeps_its_head) {
  Offloading rig({{full(16)}, 16, 16, 1}, 1, 4);
  rig.serve(1, tokens_of(1, 97), 1);
  rig.begin(2, tokens_of(1, 97));
  BOOST_TEST(rig.hit(2) == 64u);
}

// K14-139, 053: who may not write stores on no path, and reads.
BOOST_AUTO_TEST_CASE(a_request_that_may_not_write_stores_nothing_and_reads) {
  Offloading rig({{full(16), state(16)}, 4, 16, 1});
  rig.serve_states(1, tokens_of(1, 30), 1, {16, 28});
  const OfferCounts before = rig.offers();
  rig.begin(2, tokens_of(1, 60), false, true);
  BOOST_TEST(rig.hit(2) == 28u);
  const Tables tables{rig.fresh_tables(60, 100)[0], {}};
  rig.alloc(2, 0, tables);
  check(rig.stores(2, 56, tables, {{1, 2, 600, Tokens{48}}, {1, 2, 601, Tokens{56}}}), {});
  BOOST_TEST(rig.end(2, 60, tables, {{1, 2, 602, Tokens{60}}}) == 0u);
  BOOST_TEST(rig.offers().published == before.published);
}

// O-240: from the second offer on, parents before children, states with their sets.
BOOST_AUTO_TEST_CASE(a_store_threshold_stores_what_comes_again) {
  SimpleCpuSchedulerOptions options;
  options.store_threshold = 2;
  for (const std::uint32_t chunk : {1u, 3u}) {
    Offloading rig({{full(16), state(16)}, 4, 16, 1}, chunk, 32, options);
    rig.serve_states(1, tokens_of(1, 62), 1, {48, 60});
    BOOST_TEST(rig.stat("host_published_now") == 0u);
    BOOST_TEST(rig.offers().published == 0u);
    const std::uint64_t passed = rig.stat("stores_below_threshold");
    BOOST_TEST(passed == (chunk == 1 ? 6u : 4u));  // blocks or chunks, the tail, two states
    rig.serve_states(2, tokens_of(1, 62), 100, {48, 60});
    BOOST_TEST(rig.offers().stored == passed);
    BOOST_TEST(rig.stat("stores_below_threshold") == passed);
    rig.begin(3, tokens_of(1, 62));
    BOOST_TEST(rig.hit(3) == 60u);
    rig.end(3);
    rig.check_quiet();
  }
}

// A block below the threshold has no child in the tier, however often that came.
BOOST_AUTO_TEST_CASE(nothing_is_stored_behind_a_block_below_the_threshold) {
  SimpleCpuSchedulerOptions options;
  options.store_threshold = 2;
  options.max_tracker_size = 3;
  Offloading rig({{full(16)}, 16, 16, 1}, 1, 32, options);
  for (RequestId id = 1; id <= 4; ++id) {
    rig.serve(id, tokens_of(1, 97), static_cast<BlockId>(id * 10));
    rig.check_quiet();
  }
  rig.begin(9, tokens_of(1, 97));
  BOOST_TEST(rig.hit(9) == 48u);
  BOOST_TEST(rig.offers().dropped_no_parent == 0u);
}

// K11-108: one event for what is served as one.
BOOST_AUTO_TEST_CASE(events_have_the_span_of_a_chunk) {
  Offloading rig({{full(16)}, 16, 16, 1}, 4);
  const TokenIds prompt = tokens_of(1, 65);
  rig.serve(1, prompt, 1);
  std::vector<CacheEvent> events(16);
  std::size_t count = 0;
  BOOST_TEST(!rig.role->take_events(events, count));
  BOOST_REQUIRE(count == 1u);
  BOOST_CHECK(events[0].kind == EventKind::stored);
  BOOST_TEST(events[0].begin.n == 0u);
  BOOST_TEST(events[0].end.n == 64u);
  BOOST_TEST(!events[0].has_parent);
  TokenIds other(prompt.begin(), prompt.begin() + 48);
  const TokenIds own = tokens_of(2, 40);
  other.insert(other.end(), own.begin(), own.end());
  rig.begin(2, other);
  BOOST_TEST(rig.hit(2) == 0u);
}

// K11-110: the parent is the chunk before, stored or not.
BOOST_AUTO_TEST_CASE(the_parent_of_an_event_is_the_chunk_before_it) {
  Offloading rig({{full(4)}, 4, 4, 1}, 3);
  rig.serve(1, tokens_of(1, 37), 1);
  std::vector<CacheEvent> events(16);
  std::size_t count = 0;
  static_cast<void>(rig.role->take_events(events, count));
  BOOST_REQUIRE(count == 3u);
  const std::vector<std::uint8_t> keys = keys_of(tokens_of(1, 37), 4);
  for (std::size_t i = 0; i < 3; ++i) {
    BOOST_TEST(events[i].begin.n == i * 12);
    BOOST_TEST(events[i].end.n == (i + 1) * 12);
    BOOST_TEST(events[i].has_parent == (i > 0));
    if (i == 0) continue;
    BOOST_TEST(std::equal(keys.begin() + static_cast<std::ptrdiff_t>((i * 3 - 1) * key_bytes),
                          keys.begin() + static_cast<std::ptrdiff_t>(i * 3 * key_bytes),
                          events[i].parent_key.begin()));
  }
}

// A failed source of one block takes the chunk; the next offer of its key writes all of it again.
BOOST_AUTO_TEST_CASE(a_chunk_with_a_bad_block_is_written_again_as_a_whole) {
  Offloading rig({{full(4)}, 4, 4, 1}, 3);
  rig.serve(1, tokens_of(1, 25), 1);
  rig.begin(2, tokens_of(1, 25));
  BOOST_TEST(rig.hit(2) == 24u);
  const JobId job = rig.alloc(2, 24, rig.fresh_tables(24, 100));
  rig.step();
  const PlanCopy bad = rig.open.at(job).copies[4];
  BOOST_TEST(bad.position == 4u);
  rig.report(job, 0, Code::io,
             {{bad.group, bad.block, bad.position, 0, Code::io, FailedSide::source}});
  rig.begin(3, tokens_of(1, 25));
  BOOST_TEST(rig.hit(3) == 12u);
  const Tables tables = rig.fresh_tables(25, 200);
  rig.alloc(3, 0, tables);
  check(rig.stores(3, 24, tables), range(0, 3, 6));
  rig.finish_all();
  rig.begin(4, tokens_of(1, 25));
  BOOST_TEST(rig.hit(4) == 24u);
}

BOOST_AUTO_TEST_SUITE_END()
