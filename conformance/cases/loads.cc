// alloc_update: what is accepted, how often, and where the bytes go.
#include <kvc/kvc_util.h>

#include <algorithm>

#include "conformance/cases/families.h"
#include "conformance/cases/support.h"
#include "host_stub/loader/status_text.h"

namespace kvc::conform {

namespace {

const kvc_verdict* verdict_of(const Completed& done, kvc_job job) {
  const auto v = std::find_if(done.verdicts.begin(), done.verdicts.end(),
                              [&](const kvc_verdict& one) { return one.job == job; });
  return v == done.verdicts.end() ? nullptr : &*v;
}

void zero_accepted(Context& c) {
  World w(c, c.plain());
  w.store(1, prompt(1, 3), 48);
  w.begin(2, prompt(1, 3));
  const auto zero = [&](std::string_view when) {
    kvc_alloc_out out{};
    const kvc_status s = w.try_take(2, 0, out);
    c.expect(s == KVC_OK && out.job == 0, "KVC-P-070", "0 accepted {}: status {}, job {}", when,
             host::Said{s}, out.job);
  };
  zero("before any lookup");
  w.lookup(2);
  zero("of a hit");
  zero("again");
  w.lookup(2);
  w.lookup_cancel(2);
  zero("after a cancel");
  w.compute(2, 32);
  zero("while it runs");
  w.step();
  zero("after a step");
  w.end(2);
  w.drain();
  w.check_quiet();
}

void bad_accepts(Context& c) {
  World w(c, c.plain());
  const Tokens tokens = prompt(1, 4);
  w.store(1, tokens, 64);
  const std::uint64_t hit = stored_hit(c, w, tokens, 64);
  w.begin(2, tokens);
  c.need(w.lookup(2).tokens == hit, "KVC-P-064", "two requests with the same tokens differ");
  w.allocate_for_load(2, 64);
  const auto refused = [&](std::uint64_t accepted, std::string_view what) {
    kvc_alloc_out out{};
    const kvc_status s = w.try_take(2, accepted, out);
    c.need(s == KVC_E_ARG, "KVC-P-071", "{} answered {}", what, host::Said{s});
  };
  refused(hit + 16, "16 more than offered");
  refused(hit - 1, "1 less than offered, no multiple of h");
  refused(UINT64_MAX, "2^64 - 1 tokens");
  std::int64_t& entry = w.request(2).tables[0][0];
  const std::int64_t good = entry;
  for (const std::int64_t bad :
       {w.setup().null_block, std::int64_t{64}, std::int64_t{-5}, INT64_MAX, INT64_MIN}) {
    entry = bad;
    refused(hit, fmt::format("block {} where the load must write", bad));
  }
  entry = good;
  // The lease stays: the right call works now.
  const kvc_job job = w.take(2, hit);
  const Completed done = w.step();
  const kvc_verdict* const v = verdict_of(done, job);
  c.need(v != nullptr, "KVC-P-091", "job {} has no verdict", job);
  c.expect(v->status == KVC_OK, "KVC-P-071",
           "after refused calls what was offered could not be loaded: {}", host::Said{v->status});
  c.expect(w.wrong_bytes(w.request(2), 0, hit).empty(), "KVC-P-075", "wrong: {}",
           w.wrong_bytes(w.request(2), 0, hit));
}

void second_load(Context& c) {
  World w(c, c.plain());
  const Tokens tokens = prompt(1, 4);
  w.store(1, tokens, 64);
  const std::uint64_t hit = stored_hit(c, w, tokens, 64);
  w.begin(2, tokens);
  w.lookup(2);
  w.take(2, hit);
  for (const bool planned : {false, true}) {
    kvc_alloc_out out{};
    const kvc_status s = w.try_take(2, hit, out);
    c.expect(s == KVC_E_STATE, "KVC-P-072", "a second load {} the plan of the first answered {}",
             planned ? "after" : "before", host::Said{s});
    if (!planned) w.submit(w.plan());
  }
  w.pump();
  w.complete(w.reports());
  w.request(2).computed = hit;
  w.compute(2, 65);
  w.step();
  w.end(2);
  w.drain();
  w.check_quiet();
}

// Each length that may be accepted, with the destinations and nothing else written.
void every_part_of_a_hit(Context& c) {
  World w(c, c.plain());
  const Tokens tokens = prompt(1, 6);
  w.store(1, tokens, 96);
  const std::uint64_t hit = stored_hit(c, w, tokens, 96);
  std::uint64_t id = 10;
  for (std::uint64_t part = 16; part <= hit; part += 16) {
    for (std::uint64_t device = 0; device + part <= hit; device += 32) {
      Request& r = w.begin(++id, tokens);
      w.allocate_for_load(id, device);
      w.write(r, 0, device);
      const Found f = w.lookup(id, device);
      c.expect(f.status == KVC_OK && f.tokens <= hit - device, "KVC-P-060",
               "behind {} device tokens: status {}, {} tokens of {}", device, host::Said{f.status},
               f.tokens, hit);
      if (f.tokens < part) {
        w.end(id, KVC_END_ABORT, 0);
        continue;
      }
      const auto before = w.snapshot();
      const kvc_job job = w.take(id, part, device);
      const std::set<std::int64_t> own = w.blocks_of_open_loads();
      const Completed done = w.step();
      const kvc_verdict* const v = verdict_of(done, job);
      c.need(v != nullptr && v->status == KVC_OK, "KVC-P-075", "{} of {} tokens behind {} ended {}",
             part, f.tokens, device, host::Said{v == nullptr ? KVC_E_STATE : v->status});
      const std::string wrong = w.wrong_bytes(r, 0, device + part);
      c.expect(wrong.empty(), "KVC-P-075", "{} tokens behind {}: wrong: {}", part, device, wrong);
      const std::string touched = w.touched(before, own);
      c.expect(touched.empty(), "KVC-P-126", "{} tokens behind {}: also written: {}", part, device,
               touched);
      w.end(id, KVC_END_ABORT, 0);
    }
  }
  w.drain();
  w.check_quiet();
}

// What was offered before a reset cannot be served: a job, which ends KVC_E_IO, and no load_failed.
void hits_that_are_gone(Context& c) {
  World w(c, c.plain());
  const Tokens tokens = prompt(1, 4);
  w.store(1, tokens, 64);
  const std::uint64_t hit = stored_hit(c, w, tokens, 64);
  w.begin(2, tokens);
  w.lookup(2);
  w.reset();
  const kvc_job job = w.take(2, hit);
  const Completed done = w.step();
  const kvc_verdict* const v = verdict_of(done, job);
  c.need(v != nullptr, "KVC-P-091", "job {} has no verdict", job);
  c.expect(v->status == KVC_E_IO, "KVC-P-074",
           "a load of what a reset took away ended {}, not KVC_E_IO", host::Said{v->status});
  const Found f = w.lookup(2);
  c.expect(f.why != KVC_WHY_LOAD_FAILED, "KVC-P-074", "why load_failed after a hit that was gone");
  w.end(2, KVC_END_ABORT, 0);
  w.drain();
  w.check_quiet();
}

// A lease ends with the steps; the hit is found again or the load fails, never wrong bytes.
void expired_leases(Context& c) {
  for (const int steps : {1, 2, 8, 20}) {
    World w(c, c.plain());
    const Tokens tokens = prompt(1, 4);
    w.store(1, tokens, 64);
    const std::uint64_t hit = stored_hit(c, w, tokens, 64);
    Request& r = w.begin(2, tokens);
    w.lookup(2);
    for (int i = 0; i < steps; ++i) w.step();
    const kvc_job job = w.take(2, hit);
    const Completed done = w.step();
    const kvc_verdict* const v = verdict_of(done, job);
    c.need(v != nullptr, "KVC-P-091", "job {} has no verdict", job);
    c.expect(v->status == KVC_OK || v->status == KVC_E_IO, "KVC-P-074",
             "{} steps after the lookup the load ended {}", steps, host::Said{v->status});
    if (v->status == KVC_OK) {
      c.expect(w.wrong_bytes(r, 0, hit).empty(), "KVC-P-075", "wrong: {}",
               w.wrong_bytes(r, 0, hit));
    }
    w.end(2, KVC_END_ABORT, 0);
    w.drain();
    w.check_quiet();
  }
}

void jobs_and_destinations(Context& c) {
  Setup s = c.layout({rig::full(16), rig::sliding(16, 40)});
  World w(c, s);
  const Tokens tokens = prompt(1, 6);
  w.store(1, tokens, 96);
  const std::uint64_t hit = stored_hit(c, w, tokens, 96);
  std::set<kvc_job> seen;
  for (std::uint64_t id = 10; id < 14; ++id) {
    w.begin(id, tokens);
    const Found f = w.lookup(id);
    if (f.status != KVC_OK || f.tokens == 0) continue;
    const kvc_job job = w.take(id, f.tokens);  // judges ids, destinations and media
    c.expect(seen.insert(job).second && job != 0, "KVC-P-073", "job {} a second time", job);
    // Every block that the boundary needs is a destination.
    for (std::uint32_t g = 0; g < 2; ++g) {
      for (const std::int64_t b : w.request(id).tables[g]) {
        c.expect(b == w.setup().null_block || w.held(b), "KVC-P-073",
                 "block {} of group {} must be loaded and is not held", b, g);
      }
    }
  }
  w.step();
  for (std::uint64_t id = 10; id < 14; ++id) w.end(id, KVC_END_ABORT, 0);
  w.drain();
  w.check_quiet();
  c.expect(hit == 96 || hit % 16 == 0, "KVC-P-060", "a hit of {} tokens", hit);
}

// A load of a request that ends, is preempted or is reset before its plan: the job still ends.
void loads_that_are_not_wanted_any_more(Context& c) {
  for (int way = 0; way < 4; ++way) {
    World w(c, c.plain());
    const Tokens tokens = prompt(1, 4);
    w.store(1, tokens, 64);
    const std::uint64_t hit = stored_hit(c, w, tokens, 64);
    w.begin(2, tokens);
    w.lookup(2);
    const kvc_job job = w.take(2, hit);
    Planned p;
    if (way == 3) p = w.plan();
    if (way != 1) w.end(2, KVC_END_ABORT, 0);
    if (way == 1) w.reset(KVC_RESET_INVALIDATE);
    if (way != 3) p = w.plan();
    c.expect(std::find(p.loads.begin(), p.loads.end(), job) != p.loads.end(), "KVC-P-080",
             "way {}: load {} is not in the next plan", way, job);
    w.submit(p);
    w.pump();
    const Completed done = w.complete(w.reports());
    const kvc_verdict* const v = verdict_of(done, job);
    c.need(v != nullptr, "KVC-P-091", "way {}: job {} has no verdict", way, job);
    if (way == 1) {
      c.expect(v->status < 0, "KVC-P-102", "a load open at a reset with INVALIDATE ended {}",
               host::Said{v->status});
      w.end(2, KVC_END_ABORT, 0);
    }
    w.drain();
    w.check_quiet();
  }
}

constexpr Case cases[] = {
    {"loads.zero_accepted_at_any_time", "KVC-P-070", zero_accepted},
    {"loads.bad_accepts", "KVC-P-071", bad_accepts},
    {"loads.a_second_load", "KVC-P-072", second_load},
    {"loads.jobs_and_destinations", "KVC-P-073", jobs_and_destinations},
    {"loads.hits_that_are_gone", "KVC-P-074", hits_that_are_gone},
    {"loads.expired_leases", "KVC-P-074", expired_leases},
    {"loads.every_part_of_a_hit", "KVC-P-075", every_part_of_a_hit},
    {"loads.not_wanted_any_more", "KVC-P-091", loads_that_are_not_wanted_any_more},
};

}  // namespace

std::span<const Case> load_cases() { return cases; }

}  // namespace kvc::conform
