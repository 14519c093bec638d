// Rules of the host, broken in ways that no host of conformance/bad/hosts has: the first finding
// names them.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <kvc/kvc_layerwise.h>

#include "conformance/validate/table.h"
#include "conformance/validate/tests/planted_test.h"

namespace kvc::validate::testing {
namespace {

// Request `id` runs with `n` tokens in blocks first, first + 1, ...
void run_at(Host& h, std::uint64_t id, std::uint64_t n, std::int64_t first) {
  Blocks blocks;
  for (std::uint64_t p = 0; p < n / 16; ++p) {
    blocks.push_back(first + static_cast<std::int64_t>(p));
  }
  h.begin(id, n);
  h.lookup(id, n);
  h.alloc(id, 0, blocks);
  h.schedule(id, n, blocks);
}

kvc_status begin_with_keys(Host& h, std::uint64_t id, std::uint64_t tokens,
                           const std::vector<std::uint8_t>& mine) {
  const kvc_request r{sizeof r,    0,           id,           tokens,
                      mine.data(), tokens / 16, KVC_NO_LIMIT, KVC_NO_LIMIT};
  return slots::request_begin(h.sched, &r);
}

void register_with(Host& h, std::uint64_t size, std::uint64_t stride, std::uint64_t mask) {
  static std::uint64_t memory[2048];
  const kvc_region region{
      sizeof region, KVC_DEVICE_HOST, 0,   0,   reinterpret_cast<std::uint8_t*>(memory),
      size,          stride,          128, mask};
  const kvc_list regions = kvc_list_of(&region, 1, sizeof region);
  kvc_rank_info info{};
  info.struct_size = sizeof info;
  slots::register_regions(h.rank, &regions, &info);
}

void set_ranks_with(Host& h, std::uint32_t rank, std::uint64_t pages) {
  kvc_class klass{sizeof klass, 0, 3, 1, 1024, 0};
  const kvc_rank_info info{sizeof info, rank, pages, kvc_list_of(&klass, 1, sizeof klass), {}};
  const kvc_list ranks = kvc_list_of(&info, 1, sizeof info);
  kvc_list usable{};
  slots::set_ranks(h.sched, &ranks, &usable);
}

// set_ranks with one thing changed of what register_regions returned (field report 119).
template <class F>
void set_ranks_changed(Host& h, const F& change) {
  h.open_handles();
  register_with(h, 64 * 128, 128, 3);
  kvc_class klass{sizeof klass, 0, 3, 1, 1024, 0};  // as the scripted connector has it
  kvc_rank_info info{sizeof info, 0, 100, kvc_list_of(&klass, 1, sizeof klass), {}};
  change(klass, info);
  const kvc_list ranks = kvc_list_of(&info, 1, sizeof info);
  kvc_list usable{};
  slots::set_ranks(h.sched, &ranks, &usable);
}

const Planted every_call[] = {
    {"KVC-H-001", "a call inside another of the same handle",
     [](Host& h) {
       h.begin(1, 16);
       script().lookup_cancel = [&](kvc_sched*, std::uint64_t) {
         script().lookup_cancel = nullptr;
         return slots::request_begin(h.sched, nullptr);
       };
       slots::lookup_cancel(h.sched, 1);
     }},
    {"KVC-H-002", "no handle", [](Host&) { slots::pump_rank(nullptr, 1); }},
    {"KVC-H-003", "a struct that is too short",
     [](Host& h) {
       const kvc_request r{8, 0, 1, 16, nullptr, 0, KVC_NO_LIMIT, KVC_NO_LIMIT};
       slots::request_begin(h.sched, &r);
     }},
    {"KVC-H-003", "an unknown flag", [](Host& h) { h.begin(1, 16, 1U << 30U); }},
    {"KVC-H-003", "keys that are not there",
     [](Host& h) {
       const kvc_request r{sizeof r, 0, 1, 32, nullptr, 2, KVC_NO_LIMIT, KVC_NO_LIMIT};
       slots::request_begin(h.sched, &r);
     }},
    {"KVC-H-003", "a list that cannot be read",
     [](Host& h) {
       const kvc_alloc_in in{sizeof in, 0, 1, 0, {reinterpret_cast<void*>(4096), 2, 32, 0}};
       kvc_alloc_out out{};
       out.struct_size = sizeof out;
       slots::alloc_update(h.sched, &in, &out);
     }},
    {"KVC-H-005", "a call after KVC_E_INTERNAL",
     [](Host& h) {
       script().lookup_cancel = [](kvc_sched*, std::uint64_t) { return KVC_E_INTERNAL; };
       h.begin(1, 16);
       slots::lookup_cancel(h.sched, 1);
       slots::lookup_cancel(h.sched, 1);
     }},
    {"KVC-H-006", "the log calls the plugin",
     [](Host& h) {
       h.on_log = [&] {
         h.on_log = nullptr;
         kvc_pending p{};
         p.struct_size = sizeof p;
         slots::has_pending(h.sched, &p);
       };
       given_host().log(given_host().self, KVC_LOG_INFO, kvc_text_of("a line"));
     }},
    {"KVC-H-006", "memory that is not aligned",
     [](Host& h) {
       h.table.alloc = [](kvc_host*, std::uint64_t, std::uint64_t) noexcept -> void* {
         static std::uint64_t place[64];
         return reinterpret_cast<std::uint8_t*>(place) + 1;
       };
       h.table.release = [](kvc_host*, void*, std::uint64_t, std::uint64_t) noexcept {};
       h.open();
       void* const p = given_host().alloc(given_host().self, 64, 64);
       given_host().release(given_host().self, p, 64, 64);
     },
     false},
    {"KVC-H-007", "has_key answers 7",
     [](Host& h) {
       h.table.has_key = [](kvc_host*, std::uint32_t, std::int64_t, const std::uint8_t*,
                            std::uint64_t*) noexcept -> kvc_status { return 7; };
       h.open();
       h.begin(1, 16);
       script().lookup = [](kvc_sched* s, const kvc_lookup_in* in, kvc_lookup_out* out) {
         const std::uint8_t key[8] = {};
         std::uint64_t end = 0;
         given_host().has_key(given_host().self, 0, 1, key, &end);
         return right_api().lookup(s, in, out);
       };
       h.lookup(1, 16);
     },
     false},
    {"KVC-H-007", "block_of names no block of the device",
     [](Host& h) {
       h.table.block_of = [](kvc_host*, std::uint32_t, const std::uint8_t*,
                             std::int64_t* block) noexcept -> kvc_status {
         *block = 64;
         return 1;
       };
       h.open();
       h.begin(1, 16);
       script().lookup = [](kvc_sched* s, const kvc_lookup_in* in, kvc_lookup_out* out) {
         const std::uint8_t key[8] = {};
         std::int64_t block = 0;
         given_host().block_of(given_host().self, 0, key, &block);
         return right_api().lookup(s, in, out);
       };
       h.lookup(1, 16);
     },
     false},
};

const Planted opening[] = {
    {"KVC-H-010", "a rank beyond ranks",
     [](Host& h) {
       h.layout.rank = 3;
       slots::open_rank(&h.table, &h.layout, &h.rank);
     },
     false},
    {"KVC-H-011", "set_ranks twice", [](Host& h) { set_ranks_with(h, 0, 100); }},
    {"KVC-H-011", "a rank that is not there",
     [](Host& h) {
       h.open_handles();
       set_ranks_with(h, 1, 100);
     },
     false},
    {"KVC-H-011", "another class id",
     [](Host& h) { set_ranks_changed(h, [](kvc_class& k, kvc_rank_info&) { k.class_id = 1; }); },
     false},
    {"KVC-H-011", "other groups in a class",
     [](Host& h) { set_ranks_changed(h, [](kvc_class& k, kvc_rank_info&) { k.group_mask = 1; }); },
     false},
    {"KVC-H-011", "other slots per page",
     [](Host& h) {
       set_ranks_changed(h, [](kvc_class& k, kvc_rank_info&) { k.slots_per_page = 2; });
     },
     false},
    {"KVC-H-011", "other bytes per block",
     [](Host& h) {
       set_ranks_changed(h, [](kvc_class& k, kvc_rank_info&) { k.bytes_per_block = 512; });
     },
     false},
    {"KVC-H-011", "another inventory",
     [](Host& h) {
       set_ranks_changed(h, [](kvc_class&, kvc_rank_info& i) { i.inventory = kvc_text_of("x"); });
     },
     false},
    {"KVC-H-012", "a cacheable group without region",
     [](Host& h) {
       h.open_handles();
       register_with(h, 64 * 128, 128, 1);
     },
     false},
    {"KVC-H-012", "a plan before the regions",
     [](Host& h) {
       h.open_handles();
       h.build();
       h.submit();
     },
     false},
};

const Planted requests[] = {
    {"KVC-H-021", "more keys than the limits of open hold",
     [](Host& h) {
       const auto mine = keys(1, 0, 200);
       const kvc_request r{sizeof r, 0, 1, 32, mine.data(), 200, KVC_NO_LIMIT, KVC_NO_LIMIT};
       slots::request_begin(h.sched, &r);
     }},
    {"KVC-H-021", "a prompt that is too long", [](Host& h) { h.begin(1, 1040); }},
    {"KVC-H-022", "one key at two positions",
     [](Host& h) {
       h.begin(1, 48);
       begin_with_keys(h, 2, 16, keys(1, 1, 1));
     }},
    {"KVC-H-023", "keys of nobody", [](Host& h) { h.extend(5, 0, 1); }},
    {"KVC-H-023", "an allocation of nobody", [](Host& h) { h.alloc(5, 0, {1}); }},
    {"KVC-H-023", "the end of nobody", [](Host& h) { h.end(5, 0); }},
    {"KVC-H-023", "nobody is scheduled",
     [](Host& h) {
       h.schedule(5, 16, {1});
       h.build();
     }},
    {"KVC-H-030", "all tokens are on the device",
     [](Host& h) {
       h.begin(1, 64);
       h.lookup(1, 64, 64);
     }},
    {"KVC-H-032", "a table that is too short",
     [](Host& h) {
       script().offer = 32;
       h.begin(1, 64);
       h.lookup(1, 64);
       h.alloc(1, 32, {1}, {0, 60});
     }},
    {"KVC-H-032", "a block that another job holds",
     [](Host& h) {
       begin_load(h);
       h.begin(2, 64);
       h.lookup(2, 64);
       h.alloc(2, 32, {2, 3});
     }},
};

const Planted steps[] = {
    {"KVC-H-041", "confirmed tokens fall at the end",
     [](Host& h) {
       run_at(h, 1, 64, 1);
       h.step();
       h.end(1, 32);
     }},
    {"KVC-H-042", "a block behind the device",
     [](Host& h) {
       h.begin(1, 32);
       h.schedule(1, 32, {1, 64});
       h.build();
     }},
    {"KVC-H-043", "a block that was given on and is still named",
     [](Host& h) {
       run_at(h, 1, 32, 1);
       h.step();
       run_at(h, 2, 32, 2);
       h.step();
       h.schedule(1, 32, {});
       h.build();
     }},
    {"KVC-H-044", "a hand-off of a request that is not scheduled",
     [](Host& h) {
       h.begin(1, 32);
       h.handoffs = {{sizeof(kvc_handoff), 1, 1, 9, 16}};
       h.build();
     }},
    {"KVC-H-044", "a boundary inside a hash unit",
     [](Host& h) {
       run_at(h, 1, 32, 1);
       h.handoffs = {{sizeof(kvc_handoff), 1, 1, 9, 20}};
       h.build();
     }},
    {"KVC-H-045", "a request is resumed that was not preempted",
     [](Host& h) {
       run_at(h, 1, 32, 1);
       h.step();
       h.schedule(1, 32, {1, 2}, 0, KVC_STEP_RESUMED);
       h.build();
     }},
    {"KVC-H-047", "a held block is a candidate",
     [](Host& h) {
       run_at(h, 1, 32, 1);
       script().store = {stored(2, 1)};
       h.build();
       h.end(1, 32, {1, 2});
       const auto mine = keys(1, 0, 1);
       h.candidates = {{sizeof(kvc_candidate), 0, 2, mine.data(), 16}};
       h.build();
     }},
    {"KVC-H-048", "a candidate that is no block",
     [](Host& h) {
       const auto mine = keys(1, 0, 1);
       h.candidates = {{sizeof(kvc_candidate), 0, 0, mine.data(), 16}};
       h.build();
     }},
    {"KVC-H-064", "a hit beyond the cap is accepted",
     [](Host& h) {
       script().lookup = [](kvc_sched*, const kvc_lookup_in*, kvc_lookup_out* out) {
         const kvc_lookup_out mine{sizeof mine, 0, 32, 0, 0};
         return KVC_WRITE(out, &mine);
       };
       script().offer = 32;
       h.begin(1, 64);
       h.lookup(1, 64, 0, 16);
       h.alloc(1, 32, {1, 2});
     },
     true, "KVC-P-060"},
};

const Planted transport[] = {
    {"KVC-H-052", "a counter that is not aligned",
     [](Host& h) {
       h.build();
       static const std::uint64_t counters[2] = {1, 1};
       h.fence.counter =
           reinterpret_cast<const std::uint64_t*>(reinterpret_cast<const char*>(counters) + 4);
       h.submit();
     }},
};

BOOST_AUTO_TEST_SUITE(host_rules)

BOOST_DATA_TEST_CASE(a_wrong_call_names_its_rule, boost::unit_test::data::make(every_call), p) {
  check(p);
}
BOOST_DATA_TEST_CASE(a_wrong_opening_names_its_rule, boost::unit_test::data::make(opening), p) {
  check(p);
}
BOOST_DATA_TEST_CASE(a_wrong_request_names_its_rule, boost::unit_test::data::make(requests), p) {
  check(p);
}
BOOST_DATA_TEST_CASE(a_wrong_step_names_its_rule, boost::unit_test::data::make(steps), p) {
  check(p);
}
BOOST_DATA_TEST_CASE(a_wrong_transport_names_its_rule, boost::unit_test::data::make(transport), p) {
  check(p);
}

// kvc.layerwise/1: a load that runs in step.
const kvc_layerwise_api& begin_in_step(Host& h) {
  static const kvc_layerwise_api right{
      sizeof right, 0,
      [](kvc_sched*, const kvc_load_in_step*) noexcept -> kvc_status { return KVC_OK; },
      [](kvc_rank*, std::uint64_t, std::uint32_t, kvc_fence*) noexcept -> kvc_status {
        return KVC_OK;
      }};
  script().extension = [](kvc_bytes) -> const void* { return &right; };
  begin_load(h);
  const auto& mine =
      *static_cast<const kvc_layerwise_api*>(checked_extension(KVC_LAYERWISE_EXTENSION, &right));
  const kvc_load_in_step in{sizeof in, 0, 1, h.allocated.job};
  BOOST_TEST(mine.load_in_step(h.sched, &in) == KVC_OK);
  return mine;
}

BOOST_AUTO_TEST_CASE(a_load_in_step_may_be_scheduled_with_the_tokens_of_the_device) {
  Host h;
  h.open();
  const kvc_layerwise_api& layers = begin_in_step(h);
  h.schedule(1, 0, {1, 2, 3});
  BOOST_TEST(h.build() == KVC_OK);
  BOOST_TEST(h.submit() == KVC_OK);
  kvc_fence fence{};
  fence.struct_size = sizeof fence;
  BOOST_TEST(layers.layer_fence(h.rank, 1, 0, &fence) == KVC_OK);
  BOOST_TEST(h.progress() == KVC_OK);
  BOOST_TEST(h.complete() == KVC_OK);
  h.schedule(1, 48, {});
  BOOST_TEST(h.step() == KVC_OK);
  BOOST_TEST(h.end(1, 48, {1, 2, 3}) == KVC_OK);
  h.close();
  BOOST_TEST(found_texts() == "");
  // What no open gave is not handed through.
  const kvc_load_in_step in{sizeof in, 0, 1, 1};
  BOOST_TEST(layers.load_in_step(nullptr, &in) == KVC_E_ARG);
  BOOST_TEST(layers.layer_fence(nullptr, 1, 0, &fence) == KVC_E_ARG);
  BOOST_TEST(found_rules() == (std::vector<std::string>{"KVC-H-002", "KVC-H-002"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(tokens_that_come_of_a_load_in_step_are_not_confirmed_before_its_verdict) {
  Host h;
  h.open();
  begin_in_step(h);
  h.schedule(1, 48, {1, 2, 3});
  h.step();
  BOOST_REQUIRE(!found_rules().empty());
  BOOST_TEST(found_rules().front() == "KVC-H-071", found_texts());
}

BOOST_AUTO_TEST_CASE(a_failed_load_in_step_preempts_its_request) {
  for (const bool told : {false, true}) {
    Host h;
    h.open();
    begin_in_step(h);
    script().end_status = KVC_E_IO;
    h.schedule(1, 0, {1, 2, 3});
    h.step();
    if (told) h.preempted = {1};
    if (told) h.step();
    script().end_status = KVC_OK;
    script().offer = 0;
    if (!told) h.alloc(1, 0, {1, 2, 3});
    if (told) {
      h.lookup(1, 48);
      h.alloc(1, 0, {1, 2, 3});
    }
    h.schedule(1, 48, {1, 2, 3}, 0, told ? KVC_STEP_RESUMED : 0U);
    h.step();
    BOOST_TEST_CONTEXT(found_texts()) {
      if (told) {
        BOOST_TEST(found_rules().empty());
      } else {
        BOOST_REQUIRE(!found_rules().empty());
        BOOST_TEST(found_rules().front() == "KVC-H-071");
      }
    }
  }
}

// The control of the rows above: nothing changed, nothing found.
BOOST_AUTO_TEST_CASE(what_the_rank_returned_may_be_told_to_the_scheduler) {
  Host h;
  set_ranks_changed(h, [](kvc_class&, kvc_rank_info&) {});
  h.close();
  BOOST_TEST(found_texts() == "");
}

BOOST_AUTO_TEST_CASE(a_right_host_and_a_right_connector_have_no_finding) {
  Host h;
  h.open();
  run_at(h, 1, 64, 1);
  script().store = {stored(4, 3), stored(3, 2), stored(2, 1), stored(1, 0)};
  BOOST_TEST(h.step() == KVC_OK);
  script().offer = 32;
  BOOST_TEST(h.begin(2, 64, 0, 1) == KVC_OK);
  BOOST_TEST(h.lookup(2, 64) == KVC_OK);
  BOOST_TEST(h.alloc(2, 32, {5, 6, 7, 8}, {0, 60, 0, 0}) == KVC_OK);
  BOOST_TEST(h.step() == KVC_OK);
  h.schedule(2, 64, {});
  h.schedule(1, 80, {1, 2, 3, 4, 9}, 4);
  BOOST_TEST(h.step() == KVC_OK);
  h.preempted = {2};
  BOOST_TEST(h.step() == KVC_OK);
  BOOST_TEST(h.lookup(2, 64) == KVC_OK);
  BOOST_TEST(h.alloc(2, 0, {1, 2, 3, 8}) == KVC_OK);
  h.schedule(2, 64, {1, 2, 3, 8}, 0, KVC_STEP_RESUMED);
  BOOST_TEST(h.step() == KVC_OK);
  BOOST_TEST(h.end(1, 80, {1, 2, 3, 4, 9}) == KVC_OK);
  BOOST_TEST(h.end(2, 64, {1, 2, 3, 8}) == KVC_OK);
  BOOST_TEST(slots::reset(h.sched, 0) == KVC_OK);
  h.close();
  BOOST_TEST(found_texts() == "");
}

BOOST_AUTO_TEST_CASE(a_request_whose_confirmed_tokens_fell_at_its_end_is_over) {
  Host h;
  h.open();
  run_at(h, 1, 64, 1);
  h.step();
  script().request_end = [](kvc_sched*, const kvc_end_in*, kvc_end_out*) { return KVC_E_ARG; };
  h.end(1, 32);
  h.end(1, 64);
  BOOST_TEST(found_rules() == (std::vector<std::string>{"KVC-H-041", "KVC-H-024"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_finding_goes_to_the_log_of_the_host_as_a_fault_of_the_peer) {
  Host h;
  h.open();
  h.lookup(5, 32);
  BOOST_REQUIRE(!h.log.empty());
  BOOST_TEST(h.log.front().first == KVC_LOG_PEER_FAULT);
  BOOST_TEST(h.log.front().second == "KVC-H-023: call 5 (lookup): lookup of 5, which is not live");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::validate::testing
