// Reports and what complete makes of them: late, split, reordered, repeated, cut, failed, never.
#include <kvc/kvc_util.h>

#include <algorithm>

#include "conformance/cases/families.h"
#include "conformance/cases/support.h"
#include "host_stub/loader/status_text.h"

namespace kvc::conform {

namespace {

using Bytes = std::vector<std::uint8_t>;

// A request of two blocks is computed and its plan submitted; skipped if nothing is stored.
kvc_job open_store(World& w, std::uint64_t id = 1) {
  w.begin(id, prompt(id, 2));
  w.take(id, 0);
  w.compute(id, 32);
  const Planned p = w.plan();
  w.submit(p);
  if (p.stores.empty()) Context::skip("stores: the connector stores nothing of a cold request");
  return p.stores[0];
}

bool ended(const Completed& done, kvc_job job) {
  return std::any_of(done.jobs.begin(), done.jobs.end(),
                     [&](const Ended& e) { return e.job == job; });
}

void every_rank_reports(Context& c) {
  for (const bool reversed : {false, true}) {
    World w(c, two_ranks(c));
    const kvc_job job = open_store(w);
    w.pump();
    const Bytes first = w.report_of(reversed ? 1 : 0);
    const Bytes second = w.report_of(reversed ? 0 : 1);
    c.expect(!ended(w.complete({first}), job), "KVC-P-090",
             "job {} ended when one of two ranks had reported it", job);
    c.expect(w.pending().store_jobs == 1, "KVC-P-112", "{} store jobs are pending, one is open",
             w.pending().store_jobs);
    c.expect(w.hit(prompt(1, 2)) == 0, "KVC-P-130", "a hit on a block that one rank does not have");
    c.expect(ended(w.complete({second}), job), "KVC-P-090",
             "job {} did not end when both ranks had reported it", job);
    w.end(1);
    w.drain();
    w.check_quiet();
  }
}

void any_order(Context& c) {
  World w(c, c.plain());
  w.begin(1, prompt(1, 6));
  w.take(1, 0);
  std::vector<Bytes> late;
  for (const std::uint64_t end : {32U, 64U, 96U}) {
    w.compute(1, end);
    w.submit(w.plan());
    w.pump();
    late.push_back(w.report_of(0));
  }
  const auto given = [&](std::initializer_list<std::size_t> which) {
    std::vector<Bytes> some;
    for (const std::size_t i : which) {
      if (!late[i].empty()) some.push_back(late[i]);
    }
    const Completed done = w.complete(some);
    c.expect(done.status == KVC_OK && done.rejected.empty(), "KVC-P-094",
             "reports in another order: status {}, {} rejected", host::Said{done.status},
             done.rejected.size());
  };
  given({2});
  given({1, 0});
  w.end(1);
  w.drain();
  w.begin(2, prompt(1, 6));
  w.load(2);
  w.end(2, KVC_END_ABORT, 0);
  w.drain();
  w.check_quiet();
}

void bad_reports(Context& c) {
  World w(c, two_ranks(c));
  World other(c, two_ranks(c));
  const kvc_job job = open_store(w);
  open_store(other);
  w.pump();
  other.pump();
  const std::vector<Bytes> good = w.reports();
  const Bytes foreign = other.report_of(0);
  Bytes flipped = good[0];
  flipped[flipped.size() / 2] ^= 1U;
  const Bytes cut(good[0].begin(), good[0].end() - 1);
  const Completed done = w.complete({Bytes(100, 0x5A), foreign, cut, flipped, good[0], good[1]});
  c.need(done.status == KVC_OK, "KVC-P-093",
         "complete with bad reports among good ones answered {}", host::Said{done.status});
  for (std::uint64_t i = 0; i < 4; ++i) {
    const auto it = std::find_if(done.rejected.begin(), done.rejected.end(),
                                 [&](const kvc_rejected& r) { return r.report == i; });
    c.expect(it != done.rejected.end(), "KVC-P-093", "bad report {} is not in rejected", i);
    if (it == done.rejected.end()) continue;
    c.expect(it->status < 0, "KVC-P-093", "bad report {} is rejected with status {}", i,
             host::Said{it->status});
    if (i == 1) {
      c.expect(it->status == KVC_E_STATE, "KVC-P-093",
               "the report of a foreign epoch is rejected with {}, not KVC_E_STATE",
               host::Said{it->status});
    }
  }
  c.expect(ended(done, job), "KVC-P-093", "job {}, well reported beside bad reports, did not end",
           job);
  const Completed again = w.complete({good[0]});
  c.expect(again.status == KVC_OK && again.jobs.empty() && !again.rejected.empty(), "KVC-P-093",
           "a report a second time: status {}, {} jobs, {} rejected", host::Said{again.status},
           again.jobs.size(), again.rejected.size());
  const kvc_bytes nothing{nullptr, 0};
  auto out = sized<kvc_complete_out>();
  const kvc_status s = w.api().complete(w.sched(), &nothing, 1, &out);
  c.expect(s == KVC_OK && out.rejected.count == 0, "KVC-P-094", "an empty report: status {}",
           host::Said{s});
  w.end(1);
  w.drain();
  w.check_quiet();
}

void every_cut_and_flip(Context& c) {
  World w(c, c.plain());
  const kvc_job job = open_store(w);
  w.pump();
  const Bytes good = w.report_of(0);
  const auto rejected = [&](const Bytes& bad, std::string_view what, std::size_t at) {
    const Completed done = w.complete({bad});
    c.need(done.status == KVC_OK && done.rejected.size() == 1 && done.jobs.empty(), "KVC-P-094",
           "{} {} of {} bytes: status {}, {} rejected, {} jobs", what, at, good.size(),
           host::Said{done.status}, done.rejected.size(), done.jobs.size());
  };
  for (std::size_t n = 1; n < good.size(); ++n) {
    rejected({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n)}, "cut at", n);
  }
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const unsigned bit : {0U, 4U, 7U}) {
      Bytes bad = good;
      bad[i] = static_cast<std::uint8_t>(bad[i] ^ (1U << bit));
      rejected(bad, "one bit flipped in byte", i);
    }
  }
  Bytes longer = good;
  longer.insert(longer.end(), 8, 0);
  rejected(longer, "with bytes behind the", good.size());
  c.expect(ended(w.complete({good}), job), "KVC-P-094",
           "the right report after bad ones is not used");
}

// What ranks say before any step, and bytes that are no report, from a connector that reports
// nothing as well.
void garbage(Context& c) {
  World w(c, c.plain());
  for (const std::size_t n : {1U, 7U, 8U, 64U, 100U, 4096U}) {
    for (const std::uint8_t fill : {std::uint8_t{0}, std::uint8_t{0x5A}, std::uint8_t{0xFF}}) {
      const Completed done = w.complete({Bytes(n, fill)});
      c.expect(done.status == KVC_OK && done.rejected.size() == 1 && done.jobs.empty(), "KVC-P-094",
               "{} bytes of {:#x}: status {}, {} rejected", n, fill, host::Said{done.status},
               done.rejected.size());
      if (done.rejected.empty()) continue;
      c.expect(done.rejected[0].report == 0 && done.rejected[0].status < 0, "KVC-P-093",
               "report {} is rejected with {}", done.rejected[0].report,
               host::Said{done.rejected[0].status});
    }
  }
  w.check_quiet();
}

void verdicts_after_the_end(Context& c) {
  World w(c, two_ranks(c));
  const Tokens tokens = prompt(1, 4);
  w.store(1, tokens, 64);
  const std::uint64_t hit = stored_hit(c, w, tokens, 64);
  w.begin(2, tokens);
  w.lookup(2);
  const kvc_job job = w.take(2, hit);
  w.submit(w.plan());
  const std::vector<std::int64_t> blocks = w.request(2).tables[0];
  kvc_end_out out{};
  c.need(w.try_end(2, KVC_END_ABORT, 0, {}, out) == KVC_OK, "KVC-P-096", "request_end: {}",
         w.last_error());  // judges that held lists what the load holds
  w.drop_blocks(2);
  w.pump();
  c.expect(w.complete({w.report_of(0)}).verdicts.empty(), "KVC-P-090",
           "a verdict when one of two ranks had reported load {}", job);
  const Completed done = w.complete({w.report_of(1)});
  c.expect(done.verdicts.size() == 1 && done.verdicts[0].job == job, "KVC-P-091",
           "{} verdicts of load {}, whose request has ended", done.verdicts.size(), job);
  w.drain();
  w.check_quiet();
}

void releases(Context& c) {
  World w(c, c.plain());
  const kvc_job job = open_store(w);
  const std::uint64_t held = w.held_count();
  c.expect(held == w.pending().held_blocks, "KVC-P-112", "{} blocks are held, has_pending says {}",
           held, w.pending().held_blocks);
  w.pump();
  const Completed done = w.complete(w.reports());  // judges that what was held is released
  c.expect(ended(done, job), "KVC-P-090", "job {} did not end", job);
  c.expect(w.held_count() == 0, "KVC-P-092", "{} blocks are still held", w.held_count());
  w.end(1);
  w.drain();
  w.check_quiet();
}

// A store that is still open when its request ends: held names its blocks.
void holds_at_the_end(Context& c) {
  World w(c, c.plain());
  open_store(w);
  kvc_end_out out{};
  c.need(w.try_end(1, KVC_END_STOP, 32, {}, out) == KVC_OK, "KVC-P-096", "request_end: {}",
         w.last_error());
  c.expect(out.held.count >= 2, "KVC-P-097", "{} blocks are listed, 2 are held by an open store",
           out.held.count);
  w.drop_blocks(1);
  w.pump();
  w.complete(w.reports());
  w.drain();
  w.check_quiet();
}

void failed_loads(Context& c) {
  World w(c, c.plain());
  const Tokens tokens = prompt(1, 4);
  w.store(1, tokens, 64);
  const std::uint64_t hit = stored_hit(c, w, tokens, 64);
  for (const char* point : {"copy.load", "copy.load_destination"}) {
    const std::uint64_t id = point == std::string_view("copy.load") ? 2 : 3;
    w.begin(id, tokens);
    const Found offered = w.lookup(id);
    if (offered.tokens == 0) break;
    const kvc_job job = w.take(id, offered.tokens);
    Completed done;
    {
      const Fault fault(c, point);
      if (!fault.there()) Context::skip("kvc.test/1: no copy can be made to fail");
      done = w.step();
      if (!fault.tripped()) Context::skip(fmt::format("kvc.test/1 without the point {}", point));
    }
    c.need(done.verdicts.size() == 1 && done.jobs.size() == 1, "KVC-P-091",
           "a failed load: {} verdicts, {} jobs", done.verdicts.size(), done.jobs.size());
    c.expect(done.verdicts[0].status < 0, "KVC-P-095", "load {} with a failed copy is {}", job,
             done.verdicts[0].status);
    c.expect(!done.jobs[0].failed.empty(), "KVC-P-095", "load {} failed, nothing is listed", job);
    for (const kvc_failed_block& f : done.jobs[0].failed) {
      c.expect(f.side == KVC_SIDE_SOURCE || f.side == KVC_SIDE_DESTINATION, "KVC-P-095",
               "side {} of a failed block", f.side);
      c.expect(f.status < 0 && f.rank == 0, "KVC-P-095", "status {} of rank {}",
               host::Said{f.status}, f.rank);
    }
    const Found after = w.lookup(id);
    c.expect(after.tokens == 0 && after.why == KVC_WHY_LOAD_FAILED, "KVC-P-095",
             "after a failed load: {} tokens, why {}", after.tokens, after.why);
    // It computes what it could not load; admitted once, it may hit again.
    w.take(id, 0);
    w.request(id).computed = 0;
    w.compute(id, 64);
    w.step();
    c.expect(w.lookup(id).why != KVC_WHY_LOAD_FAILED, "KVC-P-095",
             "why load_failed after the request was admitted");
    w.end(id);
    w.drain();
  }
  w.begin(9, tokens);
  const std::uint64_t again = w.load(9);
  c.expect(again <= hit, "KVC-P-130", "{} tokens are offered, {} were stored", again, hit);
  w.end(9, KVC_END_ABORT, 0);
  w.drain();
  w.check_quiet();
}

void failed_stores(Context& c) {
  World w(c, two_ranks(c));
  w.begin(1, prompt(1, 3));
  w.take(1, 0);
  w.compute(1, 48);
  const Planned p = w.plan();
  w.submit(p);
  if (p.stores.empty()) Context::skip("stores: the connector stores nothing of a cold request");
  w.pump_one(0);
  {
    const Fault fault(c, "copy.store");
    if (!fault.there()) Context::skip("kvc.test/1: no copy can be made to fail");
    w.pump_one(1);
    if (!fault.tripped()) Context::skip("kvc.test/1 without the point copy.store");
  }
  const Completed done = w.complete(w.reports());
  c.need(done.jobs.size() == 1, "KVC-P-090", "{} jobs ended, one was open", done.jobs.size());
  c.expect(done.jobs[0].status < 0, "KVC-P-095", "a store that a rank failed ended {}",
           host::Said{done.jobs[0].status});
  for (const kvc_failed_block& f : done.jobs[0].failed) {
    c.expect(f.rank == 1, "KVC-P-095", "rank {} is named, rank 1 failed", f.rank);
  }
  const kvc_offer_counts n = w.counts().all_offers;
  c.expect(n.dropped_copy_failed >= 1, "KVC-P-132", "a failed copy is not counted");
  const std::uint64_t hit = w.hit(prompt(1, 3));
  c.expect(hit <= n.stored * 16, "KVC-P-130", "{} tokens are offered, {} blocks were stored", hit,
           n.stored);
  w.end(1);
  w.drain();
  w.check_quiet();
}

// One job never ends: the rest goes on, its blocks stay held.
void a_job_that_never_ends(Context& c) {
  World w(c, c.plain());
  w.begin(1, prompt(1, 2));
  w.take(1, 0);
  w.compute(1, 32);
  const Planned p = w.plan();
  w.submit_to(0, p, 77);  // its fence is never reached
  const std::uint64_t held = w.held_count();
  for (std::uint64_t id = 2; id < 8; ++id) {
    w.begin(id, prompt(id, 2));
    const Found f = w.lookup(id);
    c.expect(f.status == KVC_OK, "KVC-P-132", "lookup beside a job that does not end answered {}",
             host::Said{f.status});
    w.take(id, 0);
    w.compute(id, 32);
    w.submit(w.plan());
    w.pump();
    w.complete(w.reports());
    w.end(id);
  }
  c.expect(w.pending().held_blocks >= held, "KVC-P-112",
           "{} blocks are held by a job that does not end, has_pending says {}", held,
           w.pending().held_blocks);
}

constexpr Case cases[] = {
    {"completion.every_rank_reports", "KVC-P-090", every_rank_reports},
    {"completion.any_order", "KVC-P-094", any_order},
    {"completion.bad_reports", "KVC-P-093", bad_reports},
    {"completion.every_cut_and_flipped_report", "KVC-P-094", every_cut_and_flip},
    {"completion.garbage", "KVC-P-094", garbage},
    {"completion.verdicts_after_the_end", "KVC-P-091", verdicts_after_the_end},
    {"completion.releases", "KVC-P-092", releases},
    {"completion.holds_at_the_end", "KVC-P-097", holds_at_the_end},
    {"completion.failed_loads", "KVC-P-095", failed_loads},
    {"completion.failed_stores", "KVC-P-132", failed_stores},
    {"completion.a_job_that_never_ends", "KVC-P-132", a_job_that_never_ends},
};

}  // namespace

std::span<const Case> completion_cases() { return cases; }

}  // namespace kvc::conform
