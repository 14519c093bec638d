// The rules of jobs, as in plugin_rules_test.cc: the first finding names the rule that was broken.
// Where the connector's mistake is its answer to one of the host's, that rule is found before.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cstring>

#include "conformance/validate/table.h"
#include "conformance/validate/tests/planted_test.h"

namespace kvc::validate::testing {
namespace {

void after_alloc(const std::function<void(kvc_alloc_out&)>& f) {
  script().alloc_update = [f](kvc_sched* s, const kvc_alloc_in* in, kvc_alloc_out* out) {
    const kvc_status status = right_api().alloc_update(s, in, out);
    change(out, f);
    return status;
  };
}

const Planted loads[] = {
    {"KVC-P-065", "what was just offered cannot be loaded",
     [](Host& h) {
       after_alloc([](kvc_alloc_out& out) { out.held = out.media = {}; });
       begin_load(h);
       script().complete = [](kvc_sched* s, const kvc_bytes* reports, std::uint64_t n,
                              kvc_complete_out* out) {
         script().end_status = KVC_E_IO;
         const kvc_status status = right_api().complete(s, reports, n, out);
         auto* const job = static_cast<kvc_ended_job*>(const_cast<void*>(out->jobs.data));
         job->released = {};
         return status;
       };
       h.step();
     }},
    {"KVC-P-070", "no tokens, a job",
     [](Host& h) {
       after_alloc([](kvc_alloc_out& out) { out.job = 77; });
       h.begin(1, 48);
       h.alloc(1, 0, {1});
     }},
    {"KVC-P-070", "no tokens are refused",
     [](Host& h) {
       script().alloc_update = [](kvc_sched*, const kvc_alloc_in*, kvc_alloc_out*) {
         return KVC_E_ARG;
       };
       h.begin(1, 48);
       h.alloc(1, 0, {1});
     }},
    {"KVC-P-071", "what was offered is refused",
     [](Host& h) {
       script().alloc_update = [](kvc_sched*, const kvc_alloc_in*, kvc_alloc_out*) {
         return KVC_E_ARG;
       };
       begin_load(h);
     }},
    {"KVC-P-071", "a load into the null block is taken",
     [](Host& h) {
       script().alloc_update = [](kvc_sched*, const kvc_alloc_in*, kvc_alloc_out* out) {
         kvc_alloc_out mine{};
         mine.struct_size = sizeof mine;
         mine.job = 1;
         return KVC_WRITE(out, &mine);
       };
       script().offer = 32;
       h.begin(1, 48);
       h.lookup(1, 48);
       h.alloc(1, 32, {1, 0});
     },
     true, "KVC-H-032"},
    {"KVC-P-072", "a second load beside the first",
     [](Host& h) {
       begin_load(h);
       h.alloc(1, 0, {1, 2});
       script().alloc_update = [](kvc_sched*, const kvc_alloc_in*, kvc_alloc_out* out) {
         kvc_alloc_out mine{};
         mine.struct_size = sizeof mine;
         mine.job = 9;
         return KVC_WRITE(out, &mine);
       };
       h.alloc(1, 16, {5});
     },
     true, "KVC-H-031"},
    {"KVC-P-073", "a load without a job",
     [](Host& h) {
       after_alloc([](kvc_alloc_out& out) { out.job = 0; });
       begin_load(h);
     }},
    {"KVC-P-073", "a job id that was used",
     [](Host& h) {
       after_alloc([](kvc_alloc_out& out) { out.job = 1; });
       begin_load(h);
       h.begin(2, 48);
       h.lookup(2, 48);
       h.alloc(2, 32, {3, 4});
     }},
    {"KVC-P-073", "a destination that is not in the table",
     [](Host& h) {
       static kvc_block mine;
       mine = stored(9, 0);
       after_alloc([](kvc_alloc_out& out) { out.held = kvc_list_of(&mine, 1, sizeof mine); });
       begin_load(h);
     }},
    {"KVC-P-073", "media that do not sum",
     [](Host& h) {
       static kvc_medium_tokens mine;
       mine = {sizeof mine, KVC_MEDIUM_HOST, 16};
       after_alloc([](kvc_alloc_out& out) { out.media = kvc_list_of(&mine, 1, sizeof mine); });
       begin_load(h);
     }},
};

void after_build(const std::function<void(kvc_plan&)>& f) {
  script().build_store_jobs = [f](kvc_sched* s, const kvc_step* in, kvc_plan* out) {
    const kvc_status status = right_api().build_store_jobs(s, in, out);
    change(out, f);
    return status;
  };
}

const Planted stores[] = {
    {"KVC-P-080", "a load that no call handed out",
     [](Host& h) {
       static kvc_plan_job job;
       job = {sizeof job, KVC_JOB_LOAD, 55, 1, {}};
       after_build([](kvc_plan& p) { p.jobs = kvc_list_of(&job, 1, sizeof job); });
       h.build();
     }},
    {"KVC-P-080", "a job in two plans",
     [](Host& h) {
       run(h, 1, 32);
       script().store = {stored(2, 1)};
       h.build();
       static kvc_plan_job job;
       job = {sizeof job, KVC_JOB_STORE, 1, 1, {}};
       after_build([](kvc_plan& p) { p.jobs = kvc_list_of(&job, 1, sizeof job); });
       h.build();
     }},
    {"KVC-P-080", "a finish-time job that is in no plan",
     [](Host& h) {
       run(h, 1, 32);
       h.step();
       script().request_end = [](kvc_sched* s, const kvc_end_in* in, kvc_end_out* out) {
         const kvc_status status = right_api().request_end(s, in, out);
         static kvc_block mine;
         mine = stored(1, 0);
         change(out, [](kvc_end_out& e) {
           e.job = 41;
           e.held = kvc_list_of(&mine, 1, sizeof mine);
         });
         return status;
       };
       h.end(1, 32, {1, 2});
       h.build();
     }},
    {"KVC-P-081", "a right step is refused",
     [](Host& h) {
       script().build_store_jobs = [](kvc_sched*, const kvc_step*, kvc_plan*) { return KVC_E_ARG; };
       h.build();
     }},
    {"KVC-P-081", "a wrong step is taken",
     [](Host& h) {
       script().build_store_jobs = [](kvc_sched*, const kvc_step*, kvc_plan*) { return KVC_OK; };
       h.build(7);
     },
     true, "KVC-H-040"},
    {"KVC-P-083", "the null block is stored",
     [](Host& h) {
       run(h, 1, 32);
       script().store = {stored(0, 0)};
       h.build();
     }},
    {"KVC-P-083", "a block that no table has",
     [](Host& h) {
       run(h, 1, 32);
       script().store = {stored(9, 0)};
       h.build();
     }},
    {"KVC-P-083", "a block that is not confirmed",
     [](Host& h) {
       h.begin(1, 32);
       h.schedule(1, 16, {1, 2});
       script().store = {stored(2, 1)};
       h.build();
     }},
    {"KVC-P-084", "holds from the front",
     [](Host& h) {
       run(h, 1, 32);
       script().store = {stored(1, 0), stored(2, 1)};
       h.build();
     }},
    {"KVC-P-085", "a request that must not be written",
     [](Host& h) {
       run(h, 1, 32, KVC_REQUEST_NO_WRITE);
       script().store = {stored(1, 0)};
       h.build();
     }},
    {"KVC-P-120", "a plan is taken twice",
     [](Host& h) {
       h.build();
       h.submit();
       script().submit_loads = [](kvc_rank*, kvc_bytes, const kvc_fence*) { return KVC_OK; };
       h.submit();
     },
     true, "KVC-H-050"},
    {"KVC-P-120", "the next plan is refused",
     [](Host& h) {
       h.build();
       script().submit_loads = [](kvc_rank*, kvc_bytes, const kvc_fence*) { return KVC_E_STATE; };
       h.submit();
     }},
    {"KVC-P-122", "a load is reported twice",
     [](Host& h) {
       begin_load(h);
       h.build();
       h.submit();
       h.progress();
       static kvc_load_done done;
       done = {sizeof done, KVC_OK, 1, 1, {}};
       script().progress = [](kvc_rank*, kvc_progress* out) {
         kvc_progress mine{};
         mine.struct_size = sizeof mine;
         mine.loads = kvc_list_of(&done, 1, sizeof done);
         return KVC_WRITE(out, &mine);
       };
       h.progress();
     }},
    {"KVC-P-122", "a load is reported before its plan",
     [](Host& h) {
       begin_load(h);
       static kvc_load_done done;
       done = {sizeof done, KVC_OK, 1, 1, {}};
       script().progress = [](kvc_rank*, kvc_progress* out) {
         kvc_progress mine{};
         mine.struct_size = sizeof mine;
         mine.loads = kvc_list_of(&done, 1, sizeof done);
         return KVC_WRITE(out, &mine);
       };
       h.progress();
     }},
    {"KVC-P-124", "wait says ended, progress does not report it",
     [](Host& h) {
       begin_load(h);
       h.build();
       h.submit();
       slots::wait(h.rank, nullptr, 0, 0);
       script().progress = [](kvc_rank*, kvc_progress* out) {
         kvc_progress mine{};
         mine.struct_size = sizeof mine;
         return KVC_WRITE(out, &mine);
       };
       h.progress();
     }},
};

void after_complete(const std::function<void(kvc_complete_out&)>& f) {
  script().complete = [f](kvc_sched* s, const kvc_bytes* reports, std::uint64_t n,
                          kvc_complete_out* out) {
    const kvc_status status = right_api().complete(s, reports, n, out);
    change(out, f);
    return status;
  };
}

kvc_ended_job& first_ended(kvc_complete_out& out) {
  return *static_cast<kvc_ended_job*>(const_cast<void*>(out.jobs.data));
}

const Planted ends[] = {
    {"KVC-P-090", "a job ends that nobody handed out",
     [](Host& h) {
       static kvc_ended_job job;
       job = {sizeof job, KVC_JOB_STORE, 66, 1, KVC_OK, 0, {}, {}};
       after_complete([](kvc_complete_out& o) { o.jobs = kvc_list_of(&job, 1, sizeof job); });
       h.complete();
     }},
    {"KVC-P-090", "a job ends before the rank reported",
     [](Host& h) {
       run(h, 1, 32);
       script().store = {stored(1, 0)};
       h.build();
       static kvc_ended_job job;
       static kvc_block block;
       block = stored(1, 0);
       job = {sizeof job, KVC_JOB_STORE, 1, 1, KVC_OK, 0, {}, kvc_list_of(&block, 1, sizeof block)};
       after_complete([](kvc_complete_out& o) { o.jobs = kvc_list_of(&job, 1, sizeof job); });
       h.complete();
     }},
    {"KVC-P-091", "a load without verdict",
     [](Host& h) {
       begin_load(h);
       after_complete([](kvc_complete_out& o) { o.verdicts = {}; });
       h.step();
     }},
    {"KVC-P-092", "a hold that is not released",
     [](Host& h) {
       run(h, 1, 32);
       script().store = {stored(2, 1), stored(1, 0)};
       after_complete([](kvc_complete_out& o) { first_ended(o).released.count = 1; });
       h.step();
     }},
    {"KVC-P-092", "holds are released from the front",
     [](Host& h) {
       begin_load(h);
       after_complete([](kvc_complete_out& o) {
         auto* const b = static_cast<kvc_block*>(const_cast<void*>(first_ended(o).released.data));
         std::swap(b[0], b[1]);
       });
       h.step();
     }},
    {"KVC-P-093", "a right report is rejected",
     [](Host& h) {
       static kvc_rejected rejected;
       rejected = {sizeof rejected, 0, 0, 0, KVC_E_ARG, 0};
       after_complete(
           [](kvc_complete_out& o) { o.rejected = kvc_list_of(&rejected, 1, sizeof rejected); });
       h.step();
     }},
    {"KVC-P-093", "a report that no rank made is not rejected",
     [](Host& h) {
       h.reports.push_back({1, 2, 3});
       h.complete();
     },
     true, "KVC-H-051"},
    {"KVC-P-094", "reports are refused as a whole",
     [](Host& h) {
       script().complete = [](kvc_sched*, const kvc_bytes*, std::uint64_t, kvc_complete_out*) {
         return KVC_E_ARG;
       };
       h.step();
     }},
    {"KVC-P-095", "a failed load with a good verdict",
     [](Host& h) {
       begin_load(h);
       after_complete([](kvc_complete_out& o) { first_ended(o).status = KVC_E_IO; });
       h.step();
     }},
    {"KVC-P-095", "a hit again after a failed load",
     [](Host& h) {
       begin_load(h);
       script().end_status = KVC_E_IO;
       h.step();
       h.lookup(1, 48);
     }},
    {"KVC-P-096", "the end of nobody is taken",
     [](Host& h) {
       script().request_end = [](kvc_sched*, const kvc_end_in*, kvc_end_out*) { return KVC_OK; };
       h.end(5, 0);
     },
     true, "KVC-H-023"},
    {"KVC-P-097", "a held block is not listed at the end",
     [](Host& h) {
       run(h, 1, 32);
       script().store = {stored(1, 0)};
       h.build();
       script().request_end = [](kvc_sched*, const kvc_end_in*, kvc_end_out* out) {
         kvc_end_out mine{};
         mine.struct_size = sizeof mine;
         return KVC_WRITE(out, &mine);
       };
       h.end(1, 32, {1, 2});
     }},
    {"KVC-P-100", "a hit after a reset, and nothing was stored",
     [](Host& h) {
       slots::reset(h.sched, 0);
       script().offer = 16;
       h.begin(1, 48);
       h.lookup(1, 48);
     }},
    {"KVC-P-101", "a reset is refused",
     [](Host& h) {
       script().reset = [](kvc_sched*, std::uint64_t) { return KVC_E_STATE; };
       slots::reset(h.sched, 0);
     }},
    {"KVC-P-102", "a load lives through a reset with INVALIDATE",
     [](Host& h) {
       begin_load(h);
       slots::reset(h.sched, KVC_RESET_INVALIDATE);
       h.step();
     }},
    {"KVC-P-131", "blocks are held and nothing is open",
     [](Host& h) {
       script().has_pending = [](const kvc_sched*, kvc_pending* out) {
         const kvc_pending mine{sizeof mine, 0, 0, 0, 3, 0, 0};
         return KVC_WRITE(out, &mine);
       };
       h.close();
     }},
};

BOOST_AUTO_TEST_SUITE(plugin_job_rules)

BOOST_DATA_TEST_CASE(a_wrong_load_names_its_rule, boost::unit_test::data::make(loads), p) {
  check(p);
}
BOOST_DATA_TEST_CASE(a_wrong_plan_names_its_rule, boost::unit_test::data::make(stores), p) {
  check(p);
}
BOOST_DATA_TEST_CASE(a_wrong_end_names_its_rule, boost::unit_test::data::make(ends), p) {
  check(p);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::validate::testing
