// The rank role: plans, fences, progress, deadlines, and which bytes are touched.
#include <kvc/kvc_util.h>

#include <algorithm>
#include <map>

#include "conformance/cases/families.h"
#include "conformance/cases/support.h"
#include "host_stub/loader/status_text.h"

namespace kvc::conform {

namespace {

using Bytes = std::vector<std::uint8_t>;

kvc_bytes raw(const Bytes& b) { return kvc_bytes_of(b.data(), b.size()); }

// Submits to both slots; they must answer alike.
struct Submits {
  kvc_status loads;
  kvc_status stores;
};
Submits submit_both(World& w, const Bytes& plan, const kvc_fence* fence) {
  return {w.api().submit_loads(w.rank(0), raw(plan), fence),
          w.api().submit_stores(w.rank(0), raw(plan), fence)};
}

void bad_plans(Context& c) {
  World w(c, c.plain());
  World other(c, c.plain());
  w.begin(1, prompt(1, 4));
  w.take(1, 0);
  w.compute(1, 32);
  const Planned one = w.plan();
  w.compute(1, 64);
  const Planned two = w.plan();
  const Planned foreign = other.plan();
  const auto none = sized<kvc_fence>();
  const auto refused = [&](const Bytes& plan, kvc_status wanted, std::string_view what) {
    const Submits s = submit_both(w, plan, &none);
    c.expect(s.loads == wanted && s.stores == wanted, "KVC-P-120",
             "{}: submit_loads answered {}, submit_stores {}, wanted {}", what, host::Said{s.loads},
             host::Said{s.stores}, host::Said{wanted});
  };
  const auto before = w.snapshot();
  refused({}, KVC_E_ARG, "an empty plan");
  refused(Bytes(100, 0x5A), KVC_E_ARG, "100 bytes that are no plan");
  refused(Bytes(7, 0), KVC_E_ARG, "7 bytes of 0");
  c.expect(w.api().submit_loads(w.rank(0), {nullptr, 40}, &none) == KVC_E_ARG, "KVC-P-120",
           "40 bytes without data");
  c.expect(w.api().submit_loads(w.rank(0), raw(one.bytes), nullptr) == KVC_E_ARG, "KVC-P-120",
           "a plan without fence");
  w.submit(one);
  refused(one.bytes, KVC_E_STATE, "step 1 a second time");
  refused(foreign.bytes, KVC_E_STATE, "a plan of another scheduler");
  w.submit(two);
  refused(one.bytes, KVC_E_STATE, "step 1 after step 2");
  c.expect(w.touched(before, {}).empty(), "KVC-P-126", "written by plans without loads: {}",
           w.touched(before, {}));
  w.pump();
  w.complete(w.reports());
  w.end(1);
  w.drain();
  w.check_quiet();
}

void every_cut_and_flip(Context& c) {
  World w(c, c.plain());
  w.begin(1, prompt(1, 1));
  w.take(1, 0);
  w.compute(1, 16);
  const Planned p = w.plan();
  const auto none = sized<kvc_fence>();
  const auto refused = [&](const Bytes& bad, std::string_view what, std::size_t at) {
    const Submits s = submit_both(w, bad, &none);
    c.need(s.loads < 0 && s.stores < 0, "KVC-P-120",
           "{} {} of {} bytes: submit_loads answered {}, submit_stores {}", what, at,
           p.bytes.size(), host::Said{s.loads}, host::Said{s.stores});
  };
  for (std::size_t n = 0; n < p.bytes.size(); ++n) {
    refused({p.bytes.begin(), p.bytes.begin() + static_cast<std::ptrdiff_t>(n)}, "cut at", n);
  }
  const bool checked = p.stores.size() != 0;
  for (std::size_t i = 0; checked && i < p.bytes.size(); ++i) {
    for (const unsigned bit : {0U, 4U, 7U}) {
      Bytes bad = p.bytes;
      bad[i] = static_cast<std::uint8_t>(bad[i] ^ (1U << bit));
      refused(bad, "one bit flipped in byte", i);
    }
  }
  w.submit(p);
  w.pump();
  w.complete(w.reports());
  w.end(1);
  w.drain();
  w.check_quiet();
}

void kinds_of_fences(Context& c) {
  World w(c, c.plain());
  const Planned p = w.plan();
  auto odd = sized<kvc_fence>();
  for (const std::int32_t kind : {44, -1, INT32_MAX, INT32_MIN}) {
    odd.kind = kind;
    const Submits s = submit_both(w, p.bytes, &odd);
    c.expect(s.loads == KVC_E_UNSUPPORTED && s.stores == KVC_E_UNSUPPORTED, "KVC-P-121",
             "fence kind {}: submit_loads answered {}, submit_stores {}", kind, host::Said{s.loads},
             host::Said{s.stores});
  }
  odd.kind = KVC_FENCE_COUNTER;
  const Submits null = submit_both(w, p.bytes, &odd);
  c.expect(null.loads == KVC_E_ARG && null.stores == KVC_E_ARG, "KVC-P-121",
           "a counter fence without counter: {}, {}", null.loads, null.stores);
  odd.counter = reinterpret_cast<const std::uint64_t*>(reinterpret_cast<std::uintptr_t>(&odd) | 1U);
  const Submits crooked = submit_both(w, p.bytes, &odd);
  c.expect(crooked.loads == KVC_E_ARG && crooked.stores == KVC_E_ARG, "KVC-P-121",
           "a counter at an odd address: {}, {}", crooked.loads, crooked.stores);
  w.submit(p);
}

void copies_wait_for_fences(Context& c) {
  World w(c, c.plain());
  w.begin(1, prompt(1, 2));
  w.take(1, 0);
  w.allocate_for_compute(1, 32);
  w.schedule(1, 32);
  const Planned stores = w.plan();
  if (stores.stores.empty())
    Context::skip("stores: the connector stores nothing of a cold request");
  w.submit_to(0, stores, 7);
  for (int i = 0; i < 3; ++i) {
    w.pump();
    c.expect(w.complete(w.reports()).jobs.empty(), "KVC-P-121",
             "a store ended before its fence was reached");
  }
  w.write(w.request(1), 0, 32);  // the forward runs late
  w.request(1).computed = 32;
  w.reach(7);
  w.pump();
  w.complete(w.reports());
  const Tokens tokens = prompt(1, 2);
  const std::uint64_t hit = stored_hit(c, w, tokens, 32);
  w.begin(2, tokens);
  w.lookup(2);
  w.take(2, hit);
  const Planned loads = w.plan();
  const auto before = w.snapshot();
  w.submit_to(0, loads, 8);
  w.pump();
  const std::string early = w.touched(before, {});
  c.expect(early.empty(), "KVC-P-121", "written before the load fence was reached: {}", early);
  w.reach(8);
  w.pump();
  w.complete(w.reports());
  const std::string wrong = w.wrong_bytes(w.request(2), 0, hit);
  c.expect(wrong.empty(), "KVC-P-121", "wrong, as if read before the store fence: {}", wrong);
  w.end(1);
  w.end(2, KVC_END_ABORT, 0);
  w.drain();
  w.check_quiet();
}

void items_of_progress(Context& c) {
  World w(c, two_ranks(c));
  const Tokens tokens = prompt(1, 4);
  w.store(1, tokens, 64);
  stored_hit(c, w, tokens, 64);
  std::set<kvc_job> jobs;
  for (std::uint64_t id = 2; id < 6; ++id) {
    w.begin(id, tokens);
    const Found f = w.lookup(id);
    if (f.tokens != 0) jobs.insert(w.take(id, f.tokens));
    w.step();  // judges that no item comes twice
  }
  for (int i = 0; i < 3; ++i) w.step();
  std::map<kvc_job, int> seen;
  for (const World::Item& item : w.items) {
    ++seen[item.job];
    c.expect(item.status == KVC_OK, "KVC-P-122", "load {} on rank {} ended {}", item.job, item.rank,
             host::Said{item.status});
  }
  for (const kvc_job job : jobs) {
    c.expect(seen[job] == 2, "KVC-P-122", "load {} was reported by {} of two ranks", job,
             seen[job]);
  }
  c.expect(seen.size() == jobs.size(), "KVC-P-122", "{} loads were reported, {} there were",
           seen.size(), jobs.size());
}

void deadlines(Context& c) {
  World w(c, c.plain());
  const Tokens tokens = prompt(1, 2);
  w.store(1, tokens, 32);
  const std::uint64_t hit = stored_hit(c, w, tokens, 32);
  w.begin(2, tokens);
  w.lookup(2);
  const kvc_job job = w.take(2, hit);
  w.submit_to(0, w.plan(), 9);
  w.advance_ns(std::uint64_t{3'600} * 1'000'000'000);
  Completed done = w.complete(w.reports());
  if (done.verdicts.empty()) Context::skip("deadlines: no load is late after an hour");
  c.expect(done.verdicts[0].job == job && done.verdicts[0].status == KVC_E_DEADLINE, "KVC-P-123",
           "a load an hour late ended {}", host::Said{done.verdicts[0].status});
  c.expect(done.jobs.empty(), "KVC-P-123", "the job ended while its copies wait for their fence");
  c.expect(w.pending().quarantined_blocks == w.held_count(), "KVC-P-112",
           "{} blocks of late copies, has_pending says {} quarantined", w.held_count(),
           w.pending().quarantined_blocks);
  c.expect(w.complete(w.reports()).verdicts.empty(), "KVC-P-123",
           "a second verdict of a late load");
  w.reach(9);
  w.pump();
  done = w.complete(w.reports());
  c.expect(done.verdicts.empty() && done.jobs.size() == 1, "KVC-P-123",
           "the copies of a late load ended: {} verdicts, {} jobs", done.verdicts.size(),
           done.jobs.size());
  w.end(2, KVC_END_ABORT, 0);
  w.drain();
  w.check_quiet();
}

void waits(Context& c) {
  World w(c, c.plain());
  const kvc_job unknown[] = {4711, UINT64_MAX};
  c.expect(w.api().wait(w.rank(0), unknown, 2, 0) == KVC_OK, "KVC-P-124",
           "unknown jobs do not count as ended");
  c.expect(w.api().wait(w.rank(0), nullptr, 0, 0) == KVC_OK, "KVC-P-124",
           "nothing is open, wait does not answer KVC_OK");
  w.begin(1, prompt(1, 2));
  w.take(1, 0);
  w.compute(1, 32);
  const Planned p = w.plan();
  if (p.stores.empty()) Context::skip("stores: the connector stores nothing of a cold request");
  w.submit_to(0, p, 3);
  kvc_status s = w.api().wait(w.rank(0), p.stores.data(), 1, 1'000'000);
  c.expect(s == KVC_LATER, "KVC-P-124", "a store behind a fence is open, wait answered {}",
           host::Said{s});
  s = w.api().wait(w.rank(0), nullptr, 0, 1'000'000);
  c.expect(s == KVC_LATER, "KVC-P-124", "a store behind a fence is open, wait for all answered {}",
           host::Said{s});
  c.expect(w.api().wait(w.rank(0), unknown, 2, 0) == KVC_OK, "KVC-P-124",
           "unknown jobs do not count as ended beside an open one");
  w.reach(3);
  w.pump();
  s = w.api().wait(w.rank(0), p.stores.data(), 1, std::uint64_t{10} * 1'000'000'000);
  c.expect(s == KVC_OK, "KVC-P-124", "the store has ended, wait answered {}", host::Said{s});
  w.complete(w.reports());
  w.end(1);
  w.drain();
}

// A store and a load of its bytes in plans that are submitted before anything is copied.
void chains(Context& c) {
  World w(c, c.plain());
  const Tokens tokens = prompt(1, 4);
  w.begin(1, tokens);
  w.take(1, 0);
  w.compute(1, 64);
  w.step();
  w.begin(2, tokens);
  const Found f = w.lookup(2);
  if (f.tokens == 0) {
    stored_hit(c, w, tokens, 64);
    Context::skip("hits: nothing is offered");
  }
  w.take(2, f.tokens);
  w.begin(3, prompt(3, 4));
  w.take(3, 0);
  w.compute(3, 64);
  const Planned p = w.plan();  // loads of 2 and stores of 3 in one plan
  w.submit(p);
  w.compute(3, 65);
  const Planned next = w.plan();
  w.submit(next);
  w.pump();
  w.complete(w.reports());
  const std::string wrong = w.wrong_bytes(w.request(2), 0, f.tokens);
  c.expect(wrong.empty(), "KVC-P-125", "wrong: {}", wrong);
  w.begin(4, prompt(3, 4));
  w.load(4);
  for (std::uint64_t id = 1; id <= 4; ++id)
    w.end(id, KVC_END_ABORT, id == 3 ? 65 : id == 1 ? 64 : 0);
  w.drain();
  w.check_quiet();
}

// Stores read only, loads write their own destinations only, gaps between blocks stay.
void touches(Context& c) {
  World w(c, c.layout({rig::full(16), rig::sliding(16, 32), rig::state_align(16)}));
  const Tokens tokens = tokens_of(1, 97);
  w.begin(1, tokens);
  w.take(1, 0);
  w.compute(1, 96);
  w.hand_off(1, 2, w.request(1).tables[2].back(), 96);
  auto before = w.snapshot();
  w.step();
  c.expect(w.touched(before, {}).empty(), "KVC-P-126", "a store wrote: {}", w.touched(before, {}));
  w.begin(2, tokens);
  const Found f = w.lookup(2);
  w.take(2, f.tokens);
  const std::set<std::int64_t> own = w.blocks_of_open_loads();
  before = w.snapshot();
  w.step();
  c.expect(w.touched(before, own).empty(), "KVC-P-126", "a load also wrote: {}",
           w.touched(before, own));
  w.end(1);
  w.end(2, KVC_END_ABORT, 0);
  w.drain();
  w.check_quiet();
}

// A rank that has no regions yet, and one whose device is smaller than the plan thinks.
void wrong_moments(Context& c) {
  World w(c, c.plain());
  const kvc_open o = w.open_struct();
  kvc_rank* r = nullptr;
  c.need(w.api().open_rank(&w.host(), &o, &r) == KVC_OK, "KVC-P-030", "open_rank failed");
  const Planned p = w.plan();
  const auto none = sized<kvc_fence>();
  const kvc_status early = w.api().submit_loads(r, raw(p.bytes), &none);
  c.expect(early == KVC_E_STATE, "KVC-P-120", "a plan before register_regions answered {}",
           host::Said{early});
  auto done = sized<kvc_progress>();
  c.expect(w.api().progress(r, &done) == KVC_OK && done.loads.count == 0, "KVC-P-122",
           "progress before register_regions");
  c.expect(w.api().wait(r, nullptr, 0, 0) == KVC_OK, "KVC-P-124", "wait before register_regions");
  w.api().close_rank(r);
}

constexpr Case cases[] = {
    {"rank.bad_plans", "KVC-P-120", bad_plans},
    {"rank.every_cut_and_flipped_plan", "KVC-P-120", every_cut_and_flip},
    {"rank.wrong_moments", "KVC-P-120", wrong_moments},
    {"rank.kinds_of_fences", "KVC-P-121", kinds_of_fences},
    {"rank.copies_wait_for_fences", "KVC-P-121", copies_wait_for_fences},
    {"rank.every_load_is_reported_once", "KVC-P-122", items_of_progress},
    {"rank.deadlines", "KVC-P-123", deadlines},
    {"rank.waits", "KVC-P-124", waits},
    {"rank.chains", "KVC-P-125", chains},
    {"rank.touches_only_its_own", "KVC-P-126", touches},
};

}  // namespace

std::span<const Case> rank_cases() { return cases; }

}  // namespace kvc::conform
