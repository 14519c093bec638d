// Lists of keys that are of no one path: the engine's fault, and nobody else's trouble.
#include <optional>

#include "plugin/simple_cpu/tests/rig.h"
#include "plugin/tests/seed.h"

using namespace kvc;
using namespace kvc::test;

namespace {

using KeyList = std::vector<std::uint8_t>;

Layout fa4() { return {{full(4)}, 4, 4, 1}; }

void begin(Rig& rig, RequestId id, const KeyList& keys) {
  const std::uint64_t count = keys.size() / key_bytes;
  rig.tokens[id] = tokens_of(static_cast<std::uint32_t>(id), 4 * count);
  RequestBegin in;
  in.request = id;
  in.prompt = Tokens{4 * count};
  in.keys = keys.data();
  in.key_count = count;
  BOOST_REQUIRE(rig.role->request_begin(in).ok());
  rig.check();
}

// The request looks up and loads what it hits; the status of its load, none if it hit nothing.
std::optional<Code> load(Rig& rig, RequestId id, BlockId first, std::uint64_t& tokens) {
  const LookupAnswer answer = rig.lookup(id);
  tokens = answer.external.n;
  if (answer.code != Code::ok || tokens == 0) return {};
  const JobId job = rig.alloc(id, tokens, rig.fresh_tables(tokens, first));
  BOOST_REQUIRE(job != 0u);
  rig.step();
  const Completed done = rig.finish(job);
  BOOST_REQUIRE_EQUAL(done.verdicts.size(), 1u);
  return done.verdicts[0].status;
}

// Loads until it works or nothing is left: not for ever.
std::optional<Code> load_again(Rig& rig, RequestId id, BlockId first, std::uint64_t& tokens) {
  std::optional<Code> status = load(rig, id, first, tokens);
  if (status.has_value() && *status != Code::ok) status = load(rig, id, first, tokens);
  return status;
}

void copy_key(KeyList& to, std::size_t at, const KeyList& from, std::size_t which) {
  std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(which * key_bytes), key_bytes,
              to.begin() + static_cast<std::ptrdiff_t>(at * key_bytes));
}

// Lists drawn from twelve keys, in pools of few slots, while copies are open and fail.
void run_lists(std::uint64_t seed) {
  const std::vector<Layout> layouts = {fa4(),
                                       {{full(8), state(8)}, 4, 8, 1},
                                       {{full(4), sliding(4, 8)}, 4, 4, 1},
                                       {{full(16), full(8), state_all(4)}, 4, 16, 1}};
  Prng random(seed);
  Rig rig(layouts[seed % layouts.size()], random.between(2, 40), {}, limits_of(4000));
  const KeyList bank = keys_of(tokens_of(9, 48), 4);
  BlockId next = 1;
  std::map<RequestId, std::uint64_t> live;
  for (RequestId id = 1; id <= 120; ++id) {
    KeyList keys(random.between(1, 40) * key_bytes);
    for (std::size_t k = 0; k < keys.size() / key_bytes; ++k) {
      copy_key(keys, k, bank, random.chance(1, 2) && k < 12 ? k : random.below(12));
    }
    begin(rig, id, keys);
    live[id] = rig.tokens[id].size();
    const LookupAnswer answer = rig.lookup(id);
    next = next > 3000 ? 1 : next + 200;
    const Tables tables = rig.fresh_tables(live[id], next);
    const bool loads = answer.code == Code::ok && answer.external > Tokens{} &&
                       rig.alloc_code(id, answer.external.n, tables) == Code::ok;
    std::vector<Sched> scheduled;
    if (!loads) scheduled.push_back({id, live[id], tables});
    rig.step(scheduled);
    if (random.chance(1, 8)) BOOST_REQUIRE(rig.role->reset(false).code != Code::internal);
    while (rig.open.size() > 2) {
      rig.finish(rig.open.begin()->first, random.chance(1, 6) ? Code::io : Code::ok);
    }
    if (live.size() < 4) continue;
    rig.end(live.begin()->first, live.begin()->second);
    live.erase(live.begin());
  }
  for (const auto& [id, tokens] : live) rig.end(id, tokens);
  rig.drain();
  rig.check_quiet();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(simple_cpu_broken_keys)

BOOST_AUTO_TEST_CASE(a_list_with_a_foreign_key_in_the_middle_loads_one_of_its_prefixes) {
  for (const std::size_t blocks : {3U, 5U, 40U, 300U}) {
    for (const std::size_t foreign : {std::size_t{1}, blocks / 2, blocks - 2}) {
      Rig rig(fa4(), 400, {}, limits_of(4000));
      const TokenIds prompt = tokens_of(1, 4 * blocks);
      rig.serve(1, prompt, 1);
      KeyList keys = keys_of(prompt, 4);
      copy_key(keys, foreign, keys_of(tokens_of(2, 4), 4), 0);
      begin(rig, 2, keys);
      std::uint64_t tokens = 0;
      BOOST_TEST((load_again(rig, 2, 1001, tokens) == Code::ok));
      // Or the prefix that its deepest key names, where nobody looked at the foreign one.
      BOOST_TEST((tokens == 4 * foreign || tokens == 4 * (blocks - 1)));
      rig.end(2);
      rig.drain();
      rig.check_quiet();
    }
  }
}

BOOST_AUTO_TEST_CASE(one_key_again_and_again_poisons_nothing) {
  for (const std::size_t blocks : {2U, 3U, 70U}) {
    Rig rig(fa4(), 100, {}, limits_of(4000));
    KeyList keys(blocks * key_bytes);
    for (std::size_t i = 0; i < blocks; ++i) copy_key(keys, i, keys_of(tokens_of(1, 4), 4), 0);
    begin(rig, 1, keys);
    const Tables tables = rig.fresh_tables(4 * blocks, 1);
    rig.alloc(1, 0, tables);
    rig.step({{1, 4 * blocks, tables}});
    rig.finish_all();
    rig.end(1, 4 * blocks, tables);
    rig.drain();
    begin(rig, 2, keys);
    std::uint64_t tokens = 0;
    BOOST_TEST((load_again(rig, 2, 1001, tokens) == Code::ok));
    rig.end(2);
    rig.drain();
    rig.check_quiet();
  }
}

BOOST_AUTO_TEST_CASE(an_honest_request_is_served_beside_a_broken_list_of_keys) {
  constexpr std::size_t blocks = 80;
  Rig rig(fa4(), 400, {}, limits_of(4000));
  const KeyList honest = keys_of(tokens_of(1, 4 * blocks), 4);
  rig.serve(1, tokens_of(1, 40), 1);  // the first 10 blocks of the honest path
  // Keys of the honest path behind blocks that are not its own.
  KeyList broken = keys_of(tokens_of(2, 4 * blocks), 4);
  for (std::size_t i = 40; i < blocks; ++i) copy_key(broken, i, honest, i);
  begin(rig, 2, broken);
  const Tables tables = rig.fresh_tables(4 * blocks, 101);
  rig.alloc(2, 0, tables);
  rig.step({{2, 4 * blocks, tables}});
  rig.finish_all();
  rig.end(2, 4 * blocks, tables);
  rig.drain();
  begin(rig, 3, honest);
  std::uint64_t tokens = 0;
  BOOST_TEST((load_again(rig, 3, 1001, tokens) == Code::ok));
  BOOST_TEST(tokens == 40u);
  rig.end(3);
  rig.drain();
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(no_list_of_keys_breaks_the_role) {
  const std::uint64_t last = only_seed().value_or(60);
  for (std::uint64_t seed = seed_or(1); seed <= last; ++seed) {
    BOOST_TEST_CONTEXT(repeat_command(seed)) { run_lists(seed); }
  }
}

BOOST_AUTO_TEST_SUITE_END()
