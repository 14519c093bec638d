// Draft models (field reports K8) and layouts that are refused (K7).
#include <kvc/kvc_util.h>
#include <boost/test/unit_test.hpp>

#include "plugin/edge/tests/abi_host.h"

namespace kvc::abi_test {

BOOST_AUTO_TEST_SUITE(drafts_and_layouts)

// K8-73: with drafts on, all but the last block of a prompt is stored, without a hole at chunk
// ends.
BOOST_AUTO_TEST_CASE(chunks_leave_no_hole_with_drafts_on) {
  Setup s;
  s.groups = {full(256, KVC_GROUP_CAP_DRAFT)};
  s.flags = KVC_OPEN_DRAFT_DROP;
  s.device_blocks = 160;
  s.host_blocks = 128;
  s.max_batch = 8192;
  World w(s);
  w.begin(1, tokens_of(1, 24'576));
  w.take(1, 0);
  for (const std::uint64_t end : {8192U, 16'384U, 24'576U}) {
    w.compute(1, end);
    w.step();
  }
  const std::uint64_t stored = w.counts().all_offers.stored;
  BOOST_CHECK_GE(stored, 95U);
  // The last matched block is computed again: of n stored blocks n - 1 are hit.
  BOOST_CHECK_EQUAL(w.hit(tokens_of(1, 24'576) + tokens_of(2, 256)), (stored - 1) * 256);
}

// K8-74, V16: the drop happens once, and only if a group is flagged; K8-77: it is counted.
BOOST_AUTO_TEST_CASE(drafts_drop_one_unit_of_a_flagged_group_only) {
  for (const bool flagged : {false, true}) {
    Setup s;
    s.groups = {full(16, flagged ? KVC_GROUP_CAP_DRAFT : 0), state_align(16)};
    s.flags = KVC_OPEN_DRAFT_DROP;
    World w(s);
    w.begin(1, tokens_of(1, 81));
    w.take(1, 0);
    for (const std::uint64_t end : {16U, 32U, 48U, 64U}) {
      w.compute(1, end);
      w.hand_off(1, 1, w.request(1).tables[1].back(), end);
      w.step();
    }
    w.end(1, KVC_END_STOP, 64);
    w.drain();
    w.begin(2, tokens_of(1, 80));
    BOOST_CHECK_EQUAL(w.lookup(2).tokens, flagged ? 48U : 64U);
    BOOST_CHECK_EQUAL(w.stat("draft_dropped_tokens"), flagged ? 16U : 0U);
    BOOST_CHECK_EQUAL(w.logged_times("draft_drop"), flagged ? 0U : 1U);
  }
}

// Design 2.3 Acceptance: a part of a hit is found again with the part as its cap, drops included,
// and loaded; the block that drafts compute again lies behind the part and need not be loaded.
BOOST_AUTO_TEST_CASE(a_part_of_a_hit_is_found_again_and_loaded_with_drafts_on) {
  Group draft_window = sliding(16, 33);
  draft_window.caps |= KVC_GROUP_CAP_DRAFT;
  const std::vector<std::vector<Group>> layouts = {
      {full(16, KVC_GROUP_CAP_DRAFT)},
      {full(16, KVC_GROUP_CAP_DRAFT), state_align(16)},
      {full(16), full(16, KVC_GROUP_CAP_DRAFT), state_align(16)},
      {full(16), draft_window},
  };
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    BOOST_TEST_CONTEXT("layout " << i) {
      Setup s;
      s.groups = layouts[i];
      s.flags = KVC_OPEN_DRAFT_DROP;
      World w(s);
      w.begin(1, tokens_of(1, 97));
      w.take(1, 0);
      for (std::uint64_t end = 16; end <= 96; end += 16) {
        w.compute(1, end);
        for (std::uint32_t g = 0; g < s.groups.size(); ++g) {
          if (s.groups[g].kind == KVC_GROUP_STATE) {
            w.hand_off(1, g, w.request(1).tables[g].back(), end);
          }
        }
        w.step();
      }
      w.end(1, KVC_END_STOP, 96);
      w.drain();
      std::uint64_t id = 2;
      for (std::uint64_t part = 16; part <= 80; part += 16, ++id) {
        w.begin(id, tokens_of(1, 97));
        BOOST_REQUIRE_EQUAL(w.lookup(id).tokens, 80U);
        if (part == 80) BOOST_REQUIRE_EQUAL(w.lookup_cancel(id), KVC_OK);  // the lease is gone
        const kvc_job job = w.take(id, part);
        const Completed c = w.step();
        BOOST_REQUIRE_EQUAL(c.verdicts.size(), 1U);
        BOOST_CHECK_EQUAL(c.verdicts[0].job, job);
        BOOST_CHECK_MESSAGE(c.verdicts[0].status == KVC_OK, "part " << part);
        BOOST_CHECK_EQUAL(w.wrong_bytes(w.request(id), 0, part), "");
        w.end(id, KVC_END_ABORT, 0);
        w.drain();
      }
      w.check_quiet();
    }
  }
}

namespace {

// What open says about a layout: the status, and the text in `why`.
kvc_status open_only(Setup s, std::string& why) {
  struct Log {
    std::string text;
  } log;
  kvc_host_api host{};
  host.struct_size = sizeof host;
  host.self = reinterpret_cast<kvc_host*>(&log);
  host.caps = KVC_HOST_STEPPED;
  host.now_ns = [](kvc_host*) noexcept { return std::uint64_t{1}; };
  host.log = [](kvc_host* h, std::int32_t, kvc_bytes text) noexcept {
    reinterpret_cast<Log*>(h)->text.assign(reinterpret_cast<const char*>(text.data), text.size);
  };
  Setup plain;
  plain.host_blocks = 4;
  World shape(plain);
  kvc_open o = shape.open_struct();
  std::vector<kvc_group> groups;
  for (const Group& g : s.groups) {
    groups.push_back({sizeof(kvc_group), g.kind, g.caps | KVC_GROUP_CAP_CACHEABLE,
                      KVC_GROUP_CAPS_ALL, g.tokens, g.window, 0});
  }
  o.groups = kvc_list_of(groups.data(), groups.size(), sizeof(kvc_group));
  o.hash_unit_tokens = s.h;
  o.scheduler_block_tokens = s.s;
  o.context_parallel = s.cp;
  o.ranks = s.cp;
  o.flags = s.flags;
  const std::string toml = s.toml.value_or("[host]\nblocks = 8\n");
  o.config_toml = kvc_bytes_of(toml.data(), toml.size());
  kvc_sched* out = nullptr;
  const kvc_status status = shape.api().open_scheduler(&host, &o, &out);
  why = log.text;
  shape.api().close_scheduler(out);
  return status;
}

}  // namespace

// K7-61, V34: named at the start, with group and numbers.
BOOST_AUTO_TEST_CASE(a_block_below_the_hash_unit_is_refused_with_group_and_numbers) {
  Setup s;
  s.groups = {full(32), sliding(8, 128)};
  s.h = 32;
  s.s = 32;
  std::string why;
  BOOST_CHECK_EQUAL(open_only(s, why), KVC_E_ARG);
  BOOST_CHECK_MESSAGE(why.find("group 1") != std::string::npos, why);
  BOOST_CHECK_MESSAGE(why.find('8') != std::string::npos && why.find("32") != std::string::npos,
                      why);
}

BOOST_AUTO_TEST_CASE(wrong_toml_is_refused_with_key_and_what_is_allowed) {
  const std::pair<std::string, std::string> cases[] = {
      {"[host]\nblocks = 1\n", "blocks"},
      {"[host]\nblokcs = 9\n", "blokcs"},
      {"[host]\nblocks = \"many\"\n", "blocks"},
      {"[connector]\nlease_steps = 99\n", "lease_steps"},
      {"[connector]\nmode = \"greedy\"\n", "mode"},
      {"[connector\n", "config_toml"},
      {std::string("\xFF\xFE\x00", 3), "config_toml"},
  };
  for (const auto& [text, part] : cases) {
    Setup s;
    s.groups = {full(16)};
    s.h = s.s = 16;
    s.toml = text;
    std::string why;
    BOOST_CHECK_EQUAL(open_only(s, why), KVC_E_ARG);
    BOOST_CHECK_MESSAGE(why.find(part) != std::string::npos, text << " -> " << why);
    BOOST_CHECK_EQUAL(why.find('\n'), std::string::npos);
  }
}

namespace {

// A world whose ranks are not yet known to the scheduler: a second scheduler of the same library.
struct Ranks {
  Ranks() {
    setup.ranks = 2;
    setup.host_blocks = 8;
    world.emplace(setup);
    const kvc_open o = world->open_struct();
    BOOST_REQUIRE_EQUAL(world->api().open_scheduler(&world->host(), &o, &s), KVC_OK);
    a = {sizeof a, 0, 1, 1, 128, 0};
    b = a;
    infos[0] = {sizeof(kvc_rank_info), 0, 8, kvc_list_of(&a, 1, sizeof a), {nullptr, 0}};
    infos[1] = {sizeof(kvc_rank_info), 1, 8, kvc_list_of(&b, 1, sizeof b), {nullptr, 0}};
  }
  ~Ranks() { world->api().close_scheduler(s); }
  kvc_status set(std::uint64_t n = 2) {
    const kvc_list list = kvc_list_of(infos, n, sizeof(kvc_rank_info));
    return world->api().set_ranks(s, &list, &usable);
  }
  std::string error() {
    std::string text(1000, ' ');
    std::uint64_t n = 0;
    world->api().last_error_scheduler(s, text.data(), text.size(), &n);
    text.resize(n);
    return text;
  }

  Setup setup;
  std::optional<World> world;
  kvc_sched* s = nullptr;
  kvc_class a{}, b{};
  kvc_rank_info infos[2]{};
  kvc_list usable{};
};

}  // namespace

// T-14, CW-7: the tier is as large as its smallest rank.
BOOST_FIXTURE_TEST_CASE(the_smallest_rank_decides_the_number_of_slots, Ranks) {
  infos[1].pages = 3;
  BOOST_REQUIRE_EQUAL(set(), KVC_OK);
  BOOST_REQUIRE_EQUAL(usable.count, 1U);
  BOOST_CHECK_EQUAL(static_cast<const kvc_class*>(usable.data)->usable_slots, 3U);
  BOOST_CHECK_EQUAL(set(), KVC_E_STATE);
}

BOOST_FIXTURE_TEST_CASE(ranks_may_have_blocks_of_different_bytes, Ranks) {
  b.bytes_per_block = 64;
  BOOST_CHECK_EQUAL(set(), KVC_OK);
}

// K7-63, K7-70: what ranks must agree on is refused with the rank and both numbers; a second try
// may be right.
BOOST_FIXTURE_TEST_CASE(ranks_that_disagree_are_refused_with_their_numbers, Ranks) {
  b.slots_per_page = 4;
  BOOST_CHECK_EQUAL(set(), KVC_E_ARG);
  BOOST_CHECK_MESSAGE(error().find('4') != std::string::npos, error());
  b = a;
  infos[1].rank = 0;
  BOOST_CHECK_EQUAL(set(), KVC_E_ARG);
  infos[1].rank = 7;
  BOOST_CHECK_EQUAL(set(), KVC_E_ARG);
  infos[1].rank = 1;
  BOOST_CHECK_EQUAL(set(1), KVC_E_ARG);
  infos[1].pages = 1;
  BOOST_CHECK_EQUAL(set(), KVC_E_ARG);
  infos[1].pages = 8;
  b.group_mask = 2;
  BOOST_CHECK_EQUAL(set(), KVC_E_ARG);
  b.group_mask = 1;
  infos[1].classes.count = 0;
  BOOST_CHECK_EQUAL(set(), KVC_E_ARG);
  infos[1].classes.count = 1;
  BOOST_CHECK_EQUAL(set(), KVC_OK);
}

// Before set_ranks nothing hits and nothing breaks.
BOOST_FIXTURE_TEST_CASE(before_set_ranks_every_lookup_answers_zero_with_a_why, Ranks) {
  const kvc_request r{sizeof r, 0, 5, 33, nullptr, 0, KVC_NO_LIMIT, KVC_NO_LIMIT};
  BOOST_REQUIRE_EQUAL(world->api().request_begin(s, &r), KVC_OK);
  const kvc_lookup_in in{sizeof in, 0, 5, 33, 0, KVC_NO_LIMIT};
  kvc_lookup_out out{};
  out.struct_size = sizeof out;
  BOOST_CHECK_EQUAL(world->api().lookup(s, &in, &out), KVC_OK);
  BOOST_CHECK_EQUAL(out.external_tokens, 0U);
  BOOST_CHECK_EQUAL(out.why, KVC_WHY_NO_RANKS);
}

// K7-68: blocks whose bytes are summed over layers size the pool once, and no id is beyond it.
BOOST_AUTO_TEST_CASE(the_pool_is_sized_by_the_bytes_of_all_layers_once) {
  Setup s;
  s.layers = 10;
  s.host_blocks = 0;
  // One block is 10 layers x 16 tokens x 8 bytes.
  s.host_toml = "bytes = 12800";
  World w(s);
  BOOST_CHECK_EQUAL(w.stat("host_slots_total"), 10U);
  w.store(1, tokens_of(1, 16 * 12 + 1), 16 * 12);
  BOOST_CHECK_EQUAL(w.counts().all_offers.stored, 10U);
  w.begin(2, tokens_of(1, 16 * 12 + 1));
  BOOST_CHECK_EQUAL(w.load(2), 160U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvc::abi_test
