// kvc.hints/1 as the scheduler roles of both connectors show it: what is refused and why, who goes,
// what stays, and what stats and explain say of it.
#include <array>
#include <nlohmann/json.hpp>

#include "plugin/offloading/tests/disk_rig.h"

using namespace kvc;
using namespace kvc::test;

namespace {

using Json = nlohmann::json;

constexpr std::uint64_t block = 16;
constexpr std::array<MakeRole, 2> connectors{make_simple_cpu_scheduler, make_offloading};
constexpr std::array policies{Eviction::lru, Eviction::arc, Eviction::gdsf, Eviction::hazard};

const Layout fa16{{full(block)}, block, block, 1};

SimpleCpuSchedulerOptions options_of(Eviction eviction) {
  SimpleCpuSchedulerOptions o;
  o.eviction = eviction;
  return o;
}

TokenIds blocks_of(std::uint32_t seed, std::uint64_t blocks) {
  return tokens_of(seed, blocks * block + 1);
}

struct HintRig : Rig {
  explicit HintRig(MakeRole make, std::uint64_t slots = 10,
                   const SimpleCpuSchedulerOptions& options = {})
      : Rig(fa16, slots, options, limits_of(), make) {}
  // As serve, of a request with a hint.
  void serve_hinted(const TokenIds& prompt, const Hint& hint) {
    const RequestId id = ++last;
    begin(id, prompt);
    BOOST_REQUIRE_EQUAL(role->hint(id, hint).text, "");
    const Tables tables = fresh_tables(prompt.size(), 1);
    alloc(id, 0, tables);
    step({{id, prompt.size(), tables}});
    end(id, prompt.size(), tables);
    drain();
  }
  // What a request would hit that leaves nothing behind.
  std::uint64_t found(const TokenIds& prompt) {
    const RequestId id = ++last;
    begin(id, prompt);
    const std::uint64_t external = hit(id);
    end(id);
    return external;
  }
  PinAnswer pinned(const TokenIds& prompt, std::uint64_t most) {
    const RequestId id = ++last;
    begin(id, prompt);
    const Result<PinAnswer> answer = role->pin(id, Tokens{most});
    BOOST_REQUIRE_EQUAL(error_of(answer), "");
    end(id);
    check();
    return answer.value();
  }
  Status pin_error(const TokenIds& prompt, std::uint64_t most) {
    const RequestId id = ++last;
    begin(id, prompt);
    const Result<PinAnswer> answer = role->pin(id, Tokens{most});
    BOOST_REQUIRE(!answer.ok());
    end(id);
    return answer.error();
  }
  RequestId last = 100;
};

// Ranks that have the first three blocks of a prompt on disk.
struct PrefetchRig : DiskRig {
  explicit PrefetchRig(std::uint64_t slots = 8, std::uint32_t ranks = 1)
      : DiskRig(fa16, slots, with_disk(), std::vector<Entries>(ranks, there())) {}
  static TokenIds on_disk() { return blocks_of(1, 3); }
  static Entries there() {
    const TokenIds all = on_disk();
    return {make_entry(block, 0, all, 16, 0), make_entry(block, 0, all, 32, 16, 2),
            make_entry(block, 0, all, 48, 32, 3)};
  }
  void wish(RequestId id) {
    begin(id, on_disk());
    BOOST_REQUIRE_EQUAL(role->hint(id, {0, 0, true}).text, "");
    check();
  }
};

template <class F>
void with_both(F&& test) {
  for (const MakeRole make : connectors) {
    BOOST_TEST_CONTEXT((make == make_offloading ? "offloading" : "simple_cpu")) { test(make); }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(hints)

BOOST_AUTO_TEST_CASE(what_is_refused_is_refused_with_its_numbers_and_changes_nothing) {
  with_both([](MakeRole make) {
    HintRig rig(make);
    const auto refused = [&](RequestId id, const Hint& hint, Code code, std::string_view part) {
      const Status s = rig.role->hint(id, hint);
      BOOST_TEST((s.code == code));
      BOOST_TEST(s.text.find(part) != std::string::npos, s.text);
    };
    refused(7, {}, Code::arg, "request 7 is unknown");
    rig.begin(1, blocks_of(1, 2));
    refused(1, {3, 0}, Code::arg, "priority 3; -2 to 2 are possible");
    refused(1, {-3, 0}, Code::arg, "priority -3");
    BOOST_TEST(rig.role->hint(1, {1, 5}).ok());
    BOOST_TEST(rig.role->hint(1, {2, 0}).ok());
    BOOST_TEST(rig.stat("hints_taken") == 2U);
    const Tables tables = rig.fresh_tables(33, 1);
    rig.alloc(1, 0, tables);
    refused(1, {1, 0}, Code::state, "request 1 was admitted 1 times");
    rig.step({{1, 33, tables}});
    refused(1, {2, 0}, Code::state, "admitted 1 times");
    BOOST_TEST(rig.stat("hints_taken") == 2U);
    rig.end(1, 33, tables);
    rig.drain();
    BOOST_TEST(rig.role->pin(7, Tokens{1}).error().text == "request 7 is unknown");
    rig.begin(2, blocks_of(1, 2));
    BOOST_TEST(rig.role->pin(2, Tokens{}).error().text == "request 2: a pin of 0 tokens");
    for (const std::uint64_t id : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
      const Status s = rig.role->unpin(id);
      BOOST_TEST((s.code == Code::arg));
      BOOST_TEST(s.text == "no pin had the id " + std::to_string(id));
    }
    rig.end(2);
    rig.check_quiet();
  });
}

BOOST_AUTO_TEST_CASE(ids_that_are_not_tracked_take_everything_without_effect) {
  with_both([](MakeRole make) {
    OpenLimits limits = limits_of();
    limits.max_live_requests = 1;
    Rig rig(fa16, 8, {}, limits, make);
    rig.serve(1, blocks_of(1, 2), 1);
    rig.begin(2, blocks_of(1, 2));
    BOOST_REQUIRE(rig.begin(3, blocks_of(1, 2)) == Code::full);
    BOOST_TEST(rig.role->hint(3, {9, 9}).ok());
    const Result<PinAnswer> answer = rig.role->pin(3, Tokens{32});
    BOOST_REQUIRE(answer.ok());
    BOOST_TEST(answer.value().pin == 0U);
    BOOST_TEST(rig.stat("hints_taken") == 0U);
  });
}

BOOST_AUTO_TEST_CASE(lower_priority_leaves_first_whatever_the_policy) {
  with_both([](MakeRole make) {
    for (const Eviction policy : policies) {
      BOOST_TEST_CONTEXT(name_of(policy)) {
        HintRig rig(make, 10, options_of(policy));
        rig.serve_hinted(blocks_of(1, 3), {1, 0});
        rig.serve_hinted(blocks_of(2, 3), {0, 0});
        rig.serve_hinted(blocks_of(3, 3), {-1, 0});
        BOOST_TEST(rig.found(blocks_of(3, 3)) == 48U);
        rig.serve_hinted(blocks_of(4, 4), {2, 0});  // one slot is free
        BOOST_TEST(rig.found(blocks_of(3, 3)) == 0U);
        BOOST_TEST(rig.found(blocks_of(2, 3)) == 48U);
        rig.serve_hinted(blocks_of(5, 3), {2, 0});
        BOOST_TEST(rig.found(blocks_of(2, 3)) == 0U);
        BOOST_TEST(rig.found(blocks_of(1, 3)) == 48U);
        BOOST_TEST(rig.found(blocks_of(4, 4)) == 64U);
        rig.check_quiet();
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(a_store_of_lower_priority_is_refused_and_counted) {
  with_both([](MakeRole make) {
    for (const Eviction policy : policies) {
      BOOST_TEST_CONTEXT(name_of(policy)) {
        HintRig rig(make, 6, options_of(policy));
        rig.serve_hinted(blocks_of(1, 3), {0, 0});
        rig.serve_hinted(blocks_of(2, 3), {1, 0});
        const std::uint64_t full_before = rig.offers().dropped_pool_full;
        rig.serve_hinted(blocks_of(3, 3), {-1, 0});
        BOOST_TEST(rig.found(blocks_of(1, 3)) == 48U);
        BOOST_TEST(rig.found(blocks_of(2, 3)) == 48U);
        BOOST_TEST(rig.found(blocks_of(3, 3)) == 0U);
        BOOST_TEST(rig.stat("hint_refusals") > 0U);
        BOOST_TEST(rig.offers().dropped_pool_full > full_before);
        rig.check_quiet();
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(what_outlived_its_time_is_found_until_it_is_the_first_to_go) {
  with_both([](MakeRole make) {
    for (const Eviction policy : policies) {
      BOOST_TEST_CONTEXT(name_of(policy)) {
        HintRig rig(make, 6, options_of(policy));
        rig.serve_hinted(blocks_of(1, 3), {-2, 0});
        rig.serve_hinted(blocks_of(2, 3), {2, 1000});
        rig.host.now += 999;
        rig.step();
        BOOST_TEST(rig.stat("ttl_expired_entries") == 0U);
        rig.host.now += 1;
        rig.step();
        BOOST_TEST(rig.stat("ttl_expired_entries") == 3U);
        BOOST_TEST(rig.found(blocks_of(2, 3)) == 48U);
        rig.serve_hinted(blocks_of(3, 3), {0, 0});
        BOOST_TEST(rig.found(blocks_of(2, 3)) == 0U);
        BOOST_TEST(rig.found(blocks_of(1, 3)) == 48U);
        rig.check_quiet();
      }
    }
  });
}

// Also when nothing else has a time that could end.
BOOST_AUTO_TEST_CASE(a_use_long_after_its_time_gives_a_new_one) {
  with_both([](MakeRole make) {
    HintRig rig(make, 10);
    const TokenIds prompt = blocks_of(1, 3);
    rig.serve_hinted(prompt, {0, 1000});
    rig.host.now += 5000;
    rig.step();
    BOOST_TEST(rig.stat("ttl_expired_entries") == 3U);
    rig.host.now += 1'000'000;
    const RequestId id = ++rig.last;
    rig.begin(id, prompt);
    BOOST_REQUIRE_EQUAL(rig.role->hint(id, {0, 1000}).text, "");
    BOOST_REQUIRE(rig.hit(id) == 48U);
    const Tables tables = rig.fresh_tables(49, 1);
    rig.alloc(id, 48, tables);
    rig.step();
    rig.finish_all();
    rig.step({{id, 49, tables}});
    rig.host.now += 999;
    rig.step();
    BOOST_TEST(rig.stat("ttl_expired_entries") == 3U);
    rig.host.now += 1;
    rig.step();
    BOOST_TEST(rig.stat("ttl_expired_entries") > 3U);
    rig.end(id, 49, tables);
    rig.drain();
    rig.check_quiet();
  });
}

BOOST_AUTO_TEST_CASE(a_running_request_does_not_outlive_its_time) {
  with_both([](MakeRole make) {
    HintRig rig(make, 10);
    rig.begin(1, blocks_of(1, 3));
    BOOST_REQUIRE(rig.role->hint(1, {0, 1000}).ok());
    const Tables tables = rig.fresh_tables(49, 1);
    rig.alloc(1, 0, tables);
    for (int i = 0; i < 10; ++i) {
      rig.step({{1, 49, i == 0 ? tables : Tables{}}});
      rig.finish_all();
      rig.host.now += 900;
    }
    BOOST_TEST(rig.stat("ttl_expired_entries") == 0U);
    rig.end(1, 49, tables);
    rig.host.now += 100;
    rig.drain();
    BOOST_TEST(rig.stat("ttl_expired_entries") == 3U);
    rig.check_quiet();
  });
}

BOOST_AUTO_TEST_CASE(a_hint_before_the_ranks_are_known_counts) {
  with_both([](MakeRole make) {
    HintRig rig(make, 0);
    rig.begin(1, blocks_of(1, 2));
    BOOST_REQUIRE(rig.role->hint(1, {2, 0}).ok());
    const Result<PinAnswer> nothing = rig.role->pin(1, Tokens{16});
    BOOST_REQUIRE(nothing.ok());
    BOOST_TEST(nothing.value().pin == 0U);
    rig.set_ranks(4);
    const Tables tables = rig.fresh_tables(33, 1);
    rig.alloc(1, 0, tables);
    rig.step({{1, 33, tables}});
    rig.end(1, 33, tables);
    rig.drain();
    rig.serve_hinted(blocks_of(2, 2), {0, 0});
    rig.serve_hinted(blocks_of(3, 2), {0, 0});
    BOOST_TEST(rig.found(blocks_of(1, 2)) == 32U);
    BOOST_TEST(rig.found(blocks_of(2, 2)) == 0U);
  });
}

BOOST_AUTO_TEST_CASE(a_pinned_prefix_stays_until_it_is_unpinned) {
  with_both([](MakeRole make) {
    for (const Eviction policy : policies) {
      BOOST_TEST_CONTEXT(name_of(policy)) {
        HintRig rig(make, 8, options_of(policy));
        rig.serve_hinted(blocks_of(1, 4), {-2, 1});
        const PinAnswer pin = rig.pinned(blocks_of(1, 4), 50);
        BOOST_TEST(pin.tokens.n == 48U);
        BOOST_TEST(pin.blocks == 3U);
        BOOST_TEST(rig.stat("pins_open_now") == 1U);
        BOOST_TEST(rig.stat("pin_blocks_now") == 3U);
        for (std::uint32_t i = 2; i < 8; ++i) {
          rig.serve_hinted(blocks_of(i, 6), {2, 0});
          BOOST_TEST(rig.found(blocks_of(1, 4)) == 48U);
        }
        BOOST_TEST(rig.stat("host_slots_leaked_now") == 0U);
        BOOST_TEST(rig.role->unpin(pin.pin).ok());
        BOOST_TEST(rig.role->unpin(pin.pin).ok());  // it is over
        BOOST_TEST(rig.stat("pins_open_now") == 0U);
        BOOST_TEST(rig.stat("pin_blocks_now") == 0U);
        rig.serve_hinted(blocks_of(9, 6), {2, 0});
        BOOST_TEST(rig.found(blocks_of(1, 4)) < 48U);
        rig.check_quiet();
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(pins_beyond_a_bound_are_refused_with_the_numbers) {
  with_both([](MakeRole make) {
    SimpleCpuSchedulerOptions options;
    options.max_pins = 2;
    options.max_pinned_percent = 50;
    HintRig rig(make, 11, options);
    rig.serve_hinted(blocks_of(1, 6), {});
    const Status wide = rig.pin_error(blocks_of(1, 6), 96);
    BOOST_TEST((wide.code == Code::full));
    BOOST_TEST(wide.text.find("a pin of 6 blocks beside 0 pinned ones; max_pinned_percent 50 of 11 "
                              "slots allows 5") != std::string::npos,
               wide.text);
    const PinAnswer one = rig.pinned(blocks_of(1, 6), 16);
    const PinAnswer two = rig.pinned(blocks_of(1, 6), 64);
    BOOST_TEST(rig.stat("pin_blocks_now") == 5U);
    const Status many = rig.pin_error(blocks_of(1, 6), 16);
    BOOST_TEST((many.code == Code::full));
    BOOST_TEST(many.text.find("2 pins are open, max_pins is 2") != std::string::npos, many.text);
    BOOST_TEST(rig.stat("pins_refused") == 2U);
    BOOST_TEST(rig.stat("pins_open_now") == 2U);
    BOOST_TEST(rig.role->unpin(one.pin).ok());
    const PinAnswer three = rig.pinned(blocks_of(1, 6), 16);
    BOOST_TEST(three.pin != one.pin);
    BOOST_TEST(rig.role->unpin(one.pin).ok());  // of an old id: nothing
    BOOST_TEST(rig.stat("pins_open_now") == 2U);
    for (const PinAnswer& pin : {two, three}) BOOST_TEST(rig.role->unpin(pin.pin).ok());
    rig.check_quiet();
    options.max_pins = 0;
    HintRig none(make, 11, options);
    none.serve_hinted(blocks_of(1, 2), {});
    BOOST_TEST((none.pin_error(blocks_of(1, 2), 16).code == Code::full));
  });
}

BOOST_AUTO_TEST_CASE(a_reset_ends_all_pins_and_gives_their_slots_back) {
  with_both([](MakeRole make) {
    HintRig rig(make, 8);
    rig.serve_hinted(blocks_of(1, 3), {});
    const PinAnswer pin = rig.pinned(blocks_of(1, 3), 48);
    BOOST_TEST(rig.role->reset(false).ok());
    BOOST_TEST(rig.stat("pins_open_now") == 0U);
    BOOST_TEST(rig.stat("pin_blocks_now") == 0U);
    BOOST_TEST(rig.stat("host_slots_used_now") == 0U);
    BOOST_TEST(rig.found(blocks_of(1, 3)) == 0U);
    BOOST_TEST(rig.role->unpin(pin.pin).ok());
    rig.check_quiet();
  });
}

// Design 3.1 (d): a bad entry is written again in place, which a pin must not stop.
BOOST_AUTO_TEST_CASE(a_pin_whose_block_cannot_be_read_is_lost_and_the_block_is_stored_again) {
  with_both([](MakeRole make) {
    HintRig rig(make, 8);
    rig.serve_hinted(blocks_of(1, 2), {});
    const PinAnswer first = rig.pinned(blocks_of(1, 2), 16);
    const PinAnswer both = rig.pinned(blocks_of(1, 2), 32);
    rig.begin(1, blocks_of(1, 2));
    BOOST_REQUIRE(rig.hit(1) == 32U);
    const JobId load = rig.alloc(1, 32, {{13, 14, 15}});
    rig.step();
    rig.report(load, 0, Code::io, {{0, 14, 1, 0, Code::io, FailedSide::source}});
    BOOST_TEST(rig.stat("pins_lost") == 1U);
    BOOST_TEST(rig.stat("pins_open_now") == 1U);
    rig.end(1);
    rig.drain();
    rig.serve_hinted(blocks_of(1, 2), {});
    BOOST_TEST(rig.found(blocks_of(1, 2)) == 32U);
    BOOST_TEST(rig.stat("index_rewritten_entries") == 1U);
    for (const PinAnswer& pin : {first, both}) BOOST_TEST(rig.role->unpin(pin.pin).ok());
    rig.check_quiet();
  });
}

BOOST_AUTO_TEST_CASE(explain_says_what_was_asked_and_what_is_allowed) {
  with_both([](MakeRole make) {
    SimpleCpuSchedulerOptions options;
    options.max_pins = 3;
    options.max_pinned_percent = 70;
    HintRig rig(make, 8, options);
    rig.serve_hinted(blocks_of(1, 3), {-1, 5'000'000});
    const Json hinted = Json::parse(rig.role->explain(rig.last).value());
    BOOST_TEST(hinted["hints"]["priority"] == -1);
    BOOST_TEST(hinted["hints"]["ttl_ms"] == 5);
    BOOST_TEST(hinted["hints"]["pins"] == 0);
    rig.pinned(blocks_of(1, 3), 32);
    const Json pinned = Json::parse(rig.role->explain(rig.last).value());
    BOOST_TEST(pinned["hints"]["pins"] == 1);
    BOOST_TEST(pinned["hints"]["pinned_tokens"] == 32);
    rig.found(blocks_of(1, 3));
    BOOST_TEST(!Json::parse(rig.role->explain(rig.last).value()).contains("hints"));
    const Json all = Json::parse(rig.role->explain(0).value());
    BOOST_TEST(all["options"]["max_pins"] == 3);
    BOOST_TEST(all["options"]["max_pinned_percent"] == 70);
  });
}

BOOST_AUTO_TEST_CASE(bounds_out_of_range_are_refused_at_open) {
  for (const auto& [pins, percent] : {std::pair{257U, 50U}, std::pair{32U, 101U}}) {
    SimpleCpuSchedulerOptions options;
    options.max_pins = pins;
    options.max_pinned_percent = percent;
    TestHost host;
    const auto made = make_simple_cpu_scheduler(geometry_of(fa16), limits_of(), options, host);
    BOOST_REQUIRE(!made.ok());
    BOOST_TEST((made.error().code == Code::arg));
    BOOST_TEST(made.error().text.find(std::to_string(pins)) != std::string::npos);
  }
}

// --- KVC_HINT_PREFETCH

BOOST_AUTO_TEST_CASE(what_is_on_disk_is_in_the_host_tier_before_the_request_is_admitted) {
  for (const std::uint32_t ranks : {1U, 2U}) {
    PrefetchRig rig(8, ranks);
    rig.wish(1);
    BOOST_TEST(rig.stat("prefetched_entries") == 3U);
    const Status again = rig.role->hint(1, {1, 0});
    BOOST_TEST((again.code == Code::state));
    BOOST_TEST(again.text.find("being read from disk") != std::string::npos, again.text);
    BOOST_TEST((rig.lookup_code(1) == Code::later));
    rig.step();
    BOOST_TEST(rig.only(JobKind::fill).blocks.size() == 3U);
    BOOST_TEST((rig.lookup_code(1) == Code::later));
    rig.finish_disk();
    BOOST_TEST(rig.hit(1) == 48U);
    const Tables tables = rig.fresh_tables(49, 1);
    rig.alloc(1, 48, tables);
    rig.step();
    BOOST_TEST(rig.count(JobKind::fill) == 0U);
    rig.finish_all();
    BOOST_TEST(rig.stat("disk_hit_tokens") == 0U);
    BOOST_TEST(rig.stat("disk_fills_ok") == 3U);
    rig.end(1, 0, tables);
    rig.settle_all();
    rig.check_quiet();
  }
}

BOOST_AUTO_TEST_CASE(nothing_goes_for_a_prefetch_which_takes_what_is_free) {
  for (const std::uint64_t free : {0U, 1U, 2U}) {
    PrefetchRig rig(3 + free);
    rig.serve(1, blocks_of(7, 3), 1);
    rig.settle_all();
    BOOST_REQUIRE(rig.stat("host_slots_used_now") == 3U);
    rig.wish(2);
    BOOST_TEST(rig.stat("prefetched_entries") == free);
    rig.step();
    rig.finish_disk();
    BOOST_TEST(rig.stat("host_slots_used_now") == 3U + free);
    BOOST_TEST(rig.stat("host_evictions") == 0U);
    rig.end(2);
    rig.settle_all();
    rig.check_quiet();
  }
}

BOOST_AUTO_TEST_CASE(a_prefetch_outlives_its_request_and_not_a_reset) {
  PrefetchRig rig;
  rig.wish(1);
  rig.end(1);  // no plan has it yet
  BOOST_TEST(rig.stat("requests_draining_now") == 1U);
  rig.step();
  BOOST_TEST(rig.count(JobKind::fill) == 3U);
  rig.finish_disk();
  BOOST_TEST(rig.stat("requests_draining_now") == 0U);
  BOOST_TEST(rig.stat("host_published_now") == 3U);
  rig.check_quiet();

  for (const bool planned : {false, true}) {
    PrefetchRig other;
    other.wish(1);
    if (planned) other.step();
    static_cast<void>(other.role->reset(false));
    other.end(1);
    if (!planned) {
      BOOST_TEST(other.stat("host_slots_used_now") == 0U);
      BOOST_TEST(other.stat("requests_draining_now") == 0U);
    }
    other.settle_all();
    other.finish_disk();
    BOOST_TEST(other.stat("host_published_now") == 0U);
    other.check_quiet();
  }
}

BOOST_AUTO_TEST_CASE(a_prefetch_that_fails_leaves_nothing) {
  PrefetchRig rig;
  rig.wish(1);
  rig.step();
  rig.finish(rig.only(JobKind::fill).job, Code::io);
  BOOST_TEST(rig.stat("disk_fills_failed") == 3U);
  BOOST_TEST(rig.hit(1) == 0U);
  rig.end(1);
  rig.settle_all();
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(a_bounded_number_of_prefetches_is_open_and_without_a_disk_none) {
  PrefetchRig rig(64);
  for (RequestId id = 1; id <= 40; ++id) rig.wish(id);
  BOOST_TEST(rig.stat("prefetched_entries") == 3U);  // of the first: the others find it coming
  for (RequestId id = 1; id <= 40; ++id) rig.end(id);
  rig.settle_all();
  rig.check_quiet();
  with_both([](MakeRole make) {
    HintRig none(make);
    none.begin(1, blocks_of(1, 3));
    BOOST_TEST(none.role->hint(1, {1, 0, true}).ok());
    BOOST_TEST(none.role->hint(1, {2, 0, false}).ok());
    BOOST_TEST(none.stat("prefetched_entries") == 0U);
    none.end(1);
  });
}

BOOST_AUTO_TEST_SUITE_END()
