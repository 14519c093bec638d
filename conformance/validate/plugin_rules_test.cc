// Every rule of the connector that the layer sees, broken once by a scripted connector: the first
// finding names it. Where the connector's mistake is its answer to one of the host's, that rule is
// found before.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cstring>

#include "conformance/validate/table.h"
#include "conformance/validate/tests/planted_test.h"

namespace kvc::validate::testing {
namespace {

const Planted every_call[] = {
    {"KVC-P-004", "it writes behind the room",
     [](Host& h) {
       script().has_pending = [](const kvc_sched*, kvc_pending* out) {
         std::memset(reinterpret_cast<char*>(out) + 16, 0, 8);
         return KVC_OK;
       };
       kvc_pending room[2] = {};
       room->struct_size = 16;  // a query may be asked for half
       slots::has_pending(h.sched, room);
     }},
    {"KVC-P-004", "it says that it filled more than the room",
     [](Host& h) {
       h.begin(1, 48);
       script().lookup = [](kvc_sched* s, const kvc_lookup_in* in, kvc_lookup_out* out) {
         const kvc_status status = right_api().lookup(s, in, out);
         out->struct_size = 64;
         return status;
       };
       h.lookup(1, 48);
     }},
    {"KVC-P-004", "a list without data",
     [](Host& h) {
       script().build_store_jobs = [](kvc_sched* s, const kvc_step* in, kvc_plan* out) {
         const kvc_status status = right_api().build_store_jobs(s, in, out);
         out->jobs = kvc_list_of(nullptr, 3, sizeof(kvc_plan_job));
         return status;
       };
       h.build();
     }},
    {"KVC-P-005", "a struct that is too short is taken",
     [](Host& h) {
       script().request_begin = [](kvc_sched*, const kvc_request*) { return KVC_OK; };
       const kvc_request r{8, 0, 1, 16, nullptr, 0, KVC_NO_LIMIT, KVC_NO_LIMIT};
       slots::request_begin(h.sched, &r);
     },
     true, "KVC-H-003"},
    {"KVC-P-006", "an unknown flag is taken",
     [](Host& h) {
       script().request_begin = [](kvc_sched*, const kvc_request*) { return KVC_OK; };
       h.begin(1, 16, 1U << 30U);
     },
     true, "KVC-H-003"},
    {"KVC-P-007", "keys without data are taken",
     [](Host& h) {
       script().request_begin = [](kvc_sched*, const kvc_request*) { return KVC_OK; };
       const kvc_request r{sizeof r, 0, 1, 32, nullptr, 2, KVC_NO_LIMIT, KVC_NO_LIMIT};
       slots::request_begin(h.sched, &r);
     },
     true, "KVC-H-003"},
    {"KVC-P-010", "a refusal without text",
     [](Host& h) {
       h.build(9);
       forget_findings();
       script().last_error_scheduler = [](const kvc_sched*, char*, std::uint64_t,
                                          std::uint64_t* needed) {
         *needed = 0;
         return KVC_OK;
       };
       std::uint64_t needed = 0;
       slots::last_error_scheduler(h.sched, nullptr, 0, &needed);
     }},
    {"KVC-P-010", "a text before any failure",
     [](Host& h) {
       script().last_error_scheduler = [](const kvc_sched*, char*, std::uint64_t,
                                          std::uint64_t* needed) {
         *needed = 7;
         return KVC_E_ROOM;
       };
       std::uint64_t needed = 0;
       slots::last_error_scheduler(h.sched, nullptr, 0, &needed);
     }},
    {"KVC-P-011", "a size that is not said",
     [](Host& h) {
       script().explain = [](const kvc_sched*, std::uint64_t, char*, std::uint64_t,
                             std::uint64_t*) { return KVC_OK; };
       std::uint64_t needed = 0;
       slots::explain(h.sched, 0, nullptr, 0, &needed);
     }},
    {"KVC-P-011", "KVC_E_ROOM and bytes are written",
     [](Host& h) {
       script().explain = [](const kvc_sched*, std::uint64_t, char* buf, std::uint64_t,
                             std::uint64_t* needed) {
         *needed = 9;
         buf[0] = '{';
         return KVC_E_ROOM;
       };
       std::uint64_t needed = 0;
       char buf[4] = {};
       slots::explain(h.sched, 0, buf, 4, &needed);
     }},
    {"KVC-P-012", "a status that is not in kvc.h",
     [](Host& h) {
       h.begin(1, 16);
       script().lookup_cancel = [](kvc_sched*, std::uint64_t) { return 17; };
       slots::lookup_cancel(h.sched, 1);
     }},
    {"KVC-P-012", "KVC_LATER where nothing waits",
     [](Host& h) {
       script().request_begin = [](kvc_sched*, const kvc_request*) -> kvc_status {
         return KVC_LATER;
       };
       h.begin(1, 16);
     }},
    {"KVC-P-013", "service after KVC_E_INTERNAL",
     [](Host& h) {
       h.begin(1, 16);
       script().lookup_cancel = [](kvc_sched*, std::uint64_t) { return KVC_E_INTERNAL; };
       slots::lookup_cancel(h.sched, 1);
       script().lookup_cancel = nullptr;
       slots::lookup_cancel(h.sched, 1);
     },
     true, "KVC-H-005"},
    {"KVC-P-014", "memory in a call that must not ask for it",
     [](Host& h) {
       h.begin(1, 16);
       script().lookup = [](kvc_sched* s, const kvc_lookup_in* in, kvc_lookup_out* out) {
         const kvc_host_api& host = given_host();
         host.release(host.self, host.alloc(host.self, 64, 8), 64, 8);
         return right_api().lookup(s, in, out);
       };
       h.lookup(1, 16);
     }},
    {"KVC-P-016", "the plan changes before the next one",
     [](Host& h) {
       h.build();
       *const_cast<std::uint8_t*>(h.planned.bytes.data) ^= 1;
       h.build();
     }},
    {"KVC-P-018", "a block query outside of its calls",
     [](Host& h) {
       script().pump_rank = [](kvc_rank*, std::uint32_t) {
         const std::uint8_t key[8] = {};
         std::uint64_t end = 0;
         given_host().has_key(given_host().self, 0, 1, key, &end);
         return KVC_OK;
       };
       slots::pump_rank(h.rank, 1);
     }},
    {"KVC-P-018", "a block query that the host does not offer",
     [](Host& h) {
       h.table.caps = 0;
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
    {"KVC-P-019", "a line of no level",
     [](Host&) { given_host().log(given_host().self, 9, kvc_text_of("text")); }},
    {"KVC-P-019", "a line that is no UTF-8",
     [](Host&) { given_host().log(given_host().self, KVC_LOG_INFO, kvc_text_of("a\xff")); }},
    {"KVC-P-019", "a fault of the peer without a rule",
     [](Host&) {
       given_host().log(given_host().self, KVC_LOG_PEER_FAULT, kvc_text_of("you are wrong"));
     }},
    {"KVC-P-022", "memory is released with another size",
     [](Host&) {
       const kvc_host_api& host = given_host();
       host.release(host.self, host.alloc(host.self, 64, 8), 32, 8);
     }},
    {"KVC-P-022", "memory stays after close",
     [](Host& h) {
       const kvc_host_api host = given_host();
       static void* kept = nullptr;
       kept = host.alloc(host.self, 64, 8);
       h.close();
       ::operator delete(kept, std::align_val_t(8));
     }},
    {"KVC-P-033", "the log is called after close",
     [](Host& h) {
       const kvc_host_api host = given_host();
       h.close();
       host.log(host.self, KVC_LOG_INFO, kvc_text_of("late"));
     }},
};

const Planted opening[] = {
    {"KVC-P-030", "a refusal without a line in the log",
     [](Host& h) {
       script().open_scheduler = [](const kvc_host_api*, const kvc_open*, kvc_sched**) {
         return KVC_E_ARG;
       };
       slots::open_scheduler(&h.table, &h.layout, &h.sched);
     },
     false},
    {"KVC-P-030", "a refusal with a handle",
     [](Host& h) {
       script().open_scheduler = [](const kvc_host_api* host, const kvc_open* open,
                                    kvc_sched** out) {
         right_api().open_scheduler(host, open, out);
         host->log(host->self, KVC_LOG_ERROR, kvc_text_of("no"));
         return KVC_E_ARG;
       };
       slots::open_scheduler(&h.table, &h.layout, &h.sched);
       h.sched = nullptr;
     },
     false},
    {"KVC-P-032", "a refusal that keeps memory",
     [](Host& h) {
       static void* kept = nullptr;
       script().open_scheduler = [](const kvc_host_api* host, const kvc_open*, kvc_sched**) {
         kept = host->alloc(host->self, 64, 8);
         host->log(host->self, KVC_LOG_ERROR, kvc_text_of("no"));
         return KVC_E_ARG;
       };
       slots::open_scheduler(&h.table, &h.layout, &h.sched);
       ::operator delete(kept, std::align_val_t(8));
     },
     false},
    {"KVC-P-035", "no clock under KVC_HOST_STEPPED is taken",
     [](Host& h) {
       h.table.caps = KVC_HOST_STEPPED;
       slots::open_scheduler(&h.table, &h.layout, &h.sched);
     },
     false},
    {"KVC-P-040", "more slots than a rank has",
     [](Host& h) {
       script().set_ranks = [](kvc_sched* s, const kvc_list* ranks, kvc_list* usable) {
         const kvc_status status = right_api().set_ranks(s, ranks, usable);
         static kvc_class mine;
         mine = *static_cast<const kvc_class*>(usable->data);
         mine.usable_slots = 101;
         *usable = kvc_list_of(&mine, 1, sizeof mine);
         return status;
       };
       h.open();
     },
     false},
    {"KVC-P-041", "a second set_ranks is taken",
     [](Host& h) {
       script().set_ranks = [](kvc_sched*, const kvc_list*, kvc_list*) { return KVC_OK; };
       kvc_list none{};
       slots::set_ranks(h.sched, &none, &none);
     },
     true, "KVC-H-011"},
    {"KVC-P-042", "a hit before set_ranks",
     [](Host& h) {
       h.open_handles();
       offer(16, 0);
       h.begin(1, 48);
       h.lookup(1, 48);
     },
     false},
    {"KVC-P-043", "a second register_regions is taken",
     [](Host& h) {
       script().register_regions = [](kvc_rank*, const kvc_list*, kvc_rank_info*) {
         return KVC_OK;
       };
       kvc_list none{};
       kvc_rank_info info{};
       info.struct_size = sizeof info;
       slots::register_regions(h.rank, &none, &info);
     },
     true, "KVC-H-012"},
};

const Planted requests[] = {
    {"KVC-P-050", "request 0 is taken",
     [](Host& h) {
       script().request_begin = [](kvc_sched*, const kvc_request*) { return KVC_OK; };
       h.begin(0, 16);
     },
     true, "KVC-H-020"},
    {"KVC-P-050", "a right request is refused",
     [](Host& h) {
       script().request_begin = [](kvc_sched*, const kvc_request*) { return KVC_E_ARG; };
       h.begin(1, 16);
     }},
    {"KVC-P-051", "more requests than max_live_requests",
     [](Host& h) {
       for (std::uint64_t id = 1; id <= 9; ++id) h.begin(id, 16);
     }},
    {"KVC-P-051", "an effect for a request that was refused with KVC_E_FULL",
     [](Host& h) {
       script().request_begin = [](kvc_sched*, const kvc_request*) { return KVC_E_FULL; };
       h.begin(1, 48);
       offer(16, 0);
       h.lookup(1, 48);
     }},
    {"KVC-P-052", "keys with a hole are taken",
     [](Host& h) {
       h.begin(1, 16);
       h.extend(1, 3, 1);
     },
     true, "KVC-H-021"},
    {"KVC-P-060", "a hit inside a hash unit",
     [](Host& h) {
       h.begin(1, 64);
       offer(8, 0);
       h.lookup(1, 64);
     }},
    {"KVC-P-060", "a hit of all tokens",
     [](Host& h) {
       h.begin(1, 64);
       offer(64, 0);
       h.lookup(1, 64);
     }},
    {"KVC-P-060", "a hit beyond the cap",
     [](Host& h) {
       h.begin(1, 64);
       offer(32, 0);
       h.lookup(1, 64, 0, 16);
     }},
    {"KVC-P-060", "0 tokens without a reason",
     [](Host& h) {
       h.begin(1, 64);
       offer(0, 0);
       h.lookup(1, 64);
     }},
    {"KVC-P-060", "KVC_LATER without its reason",
     [](Host& h) {
       h.begin(1, 64);
       offer(0, 0, KVC_LATER);
       h.lookup(1, 64);
     }},
    {"KVC-P-061", "a hit behind unaligned device tokens",
     [](Host& h) {
       h.begin(1, 64);
       offer(16, 0);
       h.lookup(1, 64, 8);
     },
     true, "KVC-H-030"},
    {"KVC-P-062", "a hit of a request that must not read",
     [](Host& h) {
       h.begin(1, 64, KVC_REQUEST_NO_READ);
       offer(16, 0);
       h.lookup(1, 64);
     }},
    {"KVC-P-063", "a lookup of nobody is answered",
     [](Host& h) {
       offer(0, KVC_WHY_MISS);
       h.lookup(5, 64);
     },
     true, "KVC-H-023"},
    {"KVC-P-063", "a lookup while the request loads is answered",
     [](Host& h) {
       begin_load(h);
       offer(0, KVC_WHY_MISS);
       h.lookup(1, 48);
     }},
    {"KVC-P-064", "the same question, another answer",
     [](Host& h) {
       h.begin(1, 64);
       offer(16, 0);
       h.lookup(1, 64);
       offer(32, 0);
       h.lookup(1, 64);
     }},
    {"KVC-P-066", "a cancelled lookup of nobody is taken",
     [](Host& h) {
       script().lookup_cancel = [](kvc_sched*, std::uint64_t) { return KVC_OK; };
       slots::lookup_cancel(h.sched, 5);
     },
     true, "KVC-H-023"},
};

const Planted queries[] = {
    {"KVC-P-110", "outcomes that do not sum",
     [](Host& h) {
       script().miscounted = 1;
       h.begin(1, 16);
     }},
    {"KVC-P-111", "a counter that falls",
     [](Host& h) {
       static std::uint64_t value;
       value = 5;
       script().stats = [](const kvc_sched*, void* out, std::uint32_t stride, std::uint64_t,
                           std::uint64_t* needed) {
         *needed = 1;
         const kvc_stat row{sizeof row, 0, kvc_text_of("calls"), {}, value--};
         return kvc_write_at(out, stride, 0, &row, sizeof row, kvc_stat_least);
       };
       kvc_stat row{};
       std::uint64_t needed = 0;
       slots::stats(h.sched, &row, sizeof row, 1, &needed);
       slots::stats(h.sched, &row, sizeof row, 1, &needed);
     }},
    {"KVC-P-112", "loads that are not there",
     [](Host& h) {
       script().has_pending = [](const kvc_sched*, kvc_pending* out) {
         const kvc_pending mine{sizeof mine, 0, 2, 0, 0, 0, 0};
         return KVC_WRITE(out, &mine);
       };
       kvc_pending p{};
       p.struct_size = sizeof p;
       slots::has_pending(h.sched, &p);
     }},
    {"KVC-P-113", "an explanation that is no JSON",
     [](Host& h) {
       script().explain = [](const kvc_sched*, std::uint64_t, char* buf, std::uint64_t cap,
                             std::uint64_t* needed) {
         return kvc_put(buf, cap, needed, kvc_text_of("{all is well"));
       };
       char buf[64];
       std::uint64_t needed = 0;
       slots::explain(h.sched, 0, buf, sizeof buf, &needed);
     }},
    {"KVC-P-114", "more events than room",
     [](Host& h) {
       script().take_events = [](kvc_sched*, void*, std::uint32_t, std::uint64_t,
                                 std::uint64_t* count) {
         *count = 9;
         return KVC_OK;
       };
       kvc_event e{};
       std::uint64_t count = 0;
       slots::take_events(h.sched, &e, sizeof e, 1, &count);
     }},
    {"KVC-P-115", "half a line",
     [](Host& h) {
       script().take_log_rank = [](kvc_rank*, char* buf, std::uint64_t, std::uint64_t* count) {
         buf[0] = 'a';
         *count = 1;
         return KVC_MORE;
       };
       char buf[8];
       std::uint64_t count = 0;
       slots::take_log_rank(h.rank, buf, sizeof buf, &count);
     }},
};

BOOST_AUTO_TEST_SUITE(plugin_rules)

BOOST_DATA_TEST_CASE(a_wrong_answer_names_its_rule, boost::unit_test::data::make(every_call), p) {
  check(p);
}
BOOST_DATA_TEST_CASE(a_wrong_open_names_its_rule, boost::unit_test::data::make(opening), p) {
  check(p);
}
BOOST_DATA_TEST_CASE(a_wrong_answer_to_a_request_names_its_rule,
                     boost::unit_test::data::make(requests), p) {
  check(p);
}
BOOST_DATA_TEST_CASE(a_wrong_query_names_its_rule, boost::unit_test::data::make(queries), p) {
  check(p);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::validate::testing
