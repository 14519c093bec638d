// What calls cost, and what happens when memory or a copy is not to be had.
#include <kvc/kvc_util.h>

#include <memory>
#include <thread>

#include "conformance/cases/families.h"
#include "conformance/cases/support.h"
#include "conformance/rig/watch.h"
#include "host_stub/loader/status_text.h"

namespace kvc::conform {

namespace {

namespace watch = rig::watch;

// Requests that store, hit, load, extend, are preempted, aborted, reset.
void busy(World& w) {
  std::uint64_t id = 0;
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      w.begin(++id, prompt(seed, 3));
      const std::uint64_t loaded = w.load(id);
      w.request(id).computed = loaded;
      w.compute(id, 49);
      w.step();
      w.extend(id, tokens_of(900 + id, 16));
      w.compute(id, 65);
      w.step();
      if (seed == 2) w.preempt(id);
      if (seed == 2) w.step();
      w.lookup_cancel(id);
      w.all_stats();
      w.pending();
      w.end(id, seed == 3 ? KVC_END_ABORT : KVC_END_STOP);
      w.drain();
    }
    if (round == 1) w.reset();
    w.last_error();
  }
  w.drain();
  w.check_quiet();
}

void each_shape(Context& c, const std::function<void(World&)>& use) {
  for (const std::vector<Group>& groups :
       {std::vector<Group>{rig::full(16)}, {rig::full(16), rig::sliding(16, 32)}}) {
    Setup s = c.layout(groups);
    s.may_decline = groups.size() > 1;
    s.host_alloc = true;
    try {
      World w(c, s);
      watch::forget();
      use(w);
    } catch (const rig::Declined&) {
      continue;
    }
  }
}

void no_heap(Context& c) {
  each_shape(c, [&](World& w) {
    busy(w);
    for (const watch::Seen& seen : watch::seen_heap()) {
      c.expect(false, "KVC-P-014", "{} called {} {} times", seen.slot, seen.function, seen.times);
    }
  });
}

void no_waiting(Context& c) {
  each_shape(c, [&](World& w) {
    busy(w);
    for (const watch::Seen& seen : watch::seen_waits()) {
      c.expect(false, "KVC-P-015", "{} called {} {} times", seen.slot, seen.function, seen.times);
    }
  });
}

// Under KVC_HOST_STEPPED: no thread, no clock but the host's, copies in pump only.
void stepped(Context& c) {
  if (!c.can(KVC_CAP_STEPPED)) Context::skip("KVC_CAP_STEPPED");
  const std::uint64_t threads = thread_count();
  World w(c, c.plain());
  watch::forget();
  busy(w);
  c.expect(watch::seen_clocks() == 0, "KVC-P-021", "the clock of the system was read {} times",
           watch::seen_clocks());
  c.expect(thread_count() == threads, "KVC-P-021", "{} threads were started",
           thread_count() - threads);
  w.begin(500, prompt(77, 3));
  w.take(500, 0);
  w.compute(500, 48);
  const Planned p = w.plan();
  w.submit(p);
  if (p.stores.empty()) return;
  for (int i = 0; i < 50; ++i) std::this_thread::yield();
  c.expect(w.complete(w.reports()).jobs.empty(), "KVC-P-021",
           "a store ended, nobody has pumped the rank");
  w.pump();
  w.complete(w.reports());
}

// Opens, runs and closes with the n-th allocation refused, for every n.
void every_allocation_fails(Context& c) {
  Setup s = c.plain();
  s.host_alloc = true;
  s.device_blocks = 64;
  std::uint64_t total = 0;
  {
    World w(c, s);
    busy(w);
    total = w.host_memory().calls();
  }
  if (total == 0) Context::skip("host.alloc: the connector does not use the host's allocator");
  struct Quiet : rig::Judge {
    void fail(RuleId, const std::string&) override {}
  } quiet;
  // An open that gets no memory answers KVC_E_FULL, leaves nothing, and the next one works.
  World w(c, s);
  const kvc_open open = w.open_struct();
  const std::uint64_t live = w.host_memory().live();
  for (std::uint64_t n = 0; n < 10'000; ++n) {
    w.host_memory().fail_at(n);
    kvc_sched* sched = nullptr;
    kvc_rank* rank = nullptr;
    const kvc_status a = w.api().open_scheduler(&w.host(), &open, &sched);
    const kvc_status b = w.api().open_rank(&w.host(), &open, &rank);
    const bool failed = w.host_memory().failed();
    for (const auto& [status, handle] : {std::pair<kvc_status, const void*>(a, sched), {b, rank}}) {
      c.expect(status == KVC_OK || status == KVC_E_FULL, "KVC-P-132",
               "allocation {} refused: open answered {}", n, host::Said{status});
      c.expect((status == KVC_OK) == (handle != nullptr), "KVC-P-032",
               "allocation {} refused: open answered {} with a handle {}", n, host::Said{status},
               handle);
    }
    w.api().close_scheduler(sched);
    w.api().close_rank(rank);
    c.expect(w.host_memory().live() == live, "KVC-P-032",
             "allocation {} refused: {} pieces are left behind", n, w.host_memory().live() - live);
    if (!failed) break;
  }
  busy(w);
  // Later allocations, one by one: a status or a counted loss, then it works on.
  for (std::uint64_t n = 0; n < 200; ++n) {
    World one(c, s);
    one.host_memory().fail_at(n);
    const kvc_status begun = one.try_begin(1, prompt(1, 3));
    if (begun == KVC_OK) {
      one.take(1, 0);
      one.compute(1, 48);
      one.step();
      one.end(1);
    } else {
      c.expect(begun == KVC_E_FULL, "KVC-P-132", "allocation {} refused: request_begin answered {}",
               n, host::Said{begun});
      one.end(1, KVC_END_ABORT, 0);
    }
    one.drain();
    const bool failed = one.host_memory().failed();
    one.store(50, prompt(9, 2), 32);
    one.drain();
    one.check_quiet();
    if (!failed) break;
  }
}

// Every copy of a small life fails in turn.
void every_copy_fails(Context& c) {
  if (c.library->test() == nullptr) Context::skip("kvc.test/1: no copy can be made to fail");
  for (const char* point :
       {"copy.load", "copy.load_destination", "copy.store", "copy.store_source"}) {
    for (std::uint64_t n = 0; n < 100; ++n) {
      World w(c, two_ranks(c));
      bool tripped = false;
      {
        const Fault fault(c, point, n);
        w.run(1, prompt(1, 3), 48);
        w.end(1);
        w.drain();
        w.begin(2, prompt(1, 3));
        const Found f = w.lookup(2);
        c.expect(f.status == KVC_OK, "KVC-P-132", "lookup after failed copies answered {}",
                 host::Said{f.status});
        const kvc_job job = w.take(2, f.tokens);
        const Completed done = w.step();
        for (const kvc_verdict& v : done.verdicts) {
          if (v.job != job || v.status != KVC_OK) continue;
          const std::string wrong = w.wrong_bytes(w.request(2), 0, f.tokens);
          c.expect(wrong.empty(), "KVC-P-095", "{} {}: a load that ended KVC_OK: wrong: {}", point,
                   n, wrong);
        }
        tripped = fault.tripped();
      }
      w.end(2, KVC_END_ABORT, 0);
      w.drain();
      w.store(3, prompt(1, 3), 48);
      w.begin(4, prompt(1, 3));
      w.load(4);
      w.end(4, KVC_END_ABORT, 0);
      w.drain();
      w.check_quiet();
      if (!tripped) break;
    }
  }
}

// What was passed lies in memory of its own, which is gone when the call has returned: a pointer
// that was kept is a crash.
class Passing {
 public:
  template <class T>
  const T* operator()(const T* from, std::uint64_t count) {
    if (count == 0) return nullptr;
    held_.push_back(std::make_unique<GuardedBytes>(count * sizeof(T)));
    std::memcpy(held_.back()->data(), from, count * sizeof(T));
    return reinterpret_cast<const T*>(held_.back()->data());
  }
  void gone() { held_.clear(); }

 private:
  std::vector<std::unique_ptr<GuardedBytes>> held_;
};

kvc_sched* open_passing(Context& c, const World& source, Passing& pass) {
  kvc_open o = source.open_struct();
  const auto* const groups = static_cast<const kvc_group*>(o.groups.data);
  o.groups.data = pass(groups, o.groups.count);
  o.namespace_id.data = pass(o.namespace_id.data, o.namespace_id.size);
  o.config_toml.data = pass(o.config_toml.data, o.config_toml.size);
  kvc_sched* s = nullptr;
  c.need(c.api().open_scheduler(&source.host(), pass(&o, 1), &s) == KVC_OK, "KVC-P-030",
         "open_scheduler failed");
  pass.gone();
  std::vector<kvc_rank_info> infos = source.rank_infos();
  for (kvc_rank_info& info : infos) {
    info.classes.data = pass(static_cast<const std::uint8_t*>(info.classes.data),
                             info.classes.count * info.classes.stride);
  }
  const kvc_list list =
      kvc_list_of(pass(infos.data(), infos.size()), infos.size(), sizeof infos[0]);
  kvc_list usable{};
  const kvc_status joined = c.api().set_ranks(s, pass(&list, 1), &usable);
  c.expect(joined == KVC_OK, "KVC-P-041", "set_ranks answered {}", host::Said{joined});
  pass.gone();
  return s;
}

void inputs_are_not_kept(Context& c) {
  World source(c, c.plain());
  Passing pass;
  kvc_sched* const s = open_passing(c, source, pass);
  const std::vector<std::uint8_t> keys(16 * 8, 3);
  const std::vector<std::int64_t> blocks = {1, 2, 3, 4};
  const kvc_request begin{sizeof begin, 0,           1, 64, pass(keys.data(), keys.size()), 4,
                          KVC_NO_LIMIT, KVC_NO_LIMIT};
  kvc_status got = c.api().request_begin(s, pass(&begin, 1));
  c.expect(got == KVC_OK, rig::begin_rule(got), "request_begin answered {}", host::Said{got});
  pass.gone();
  const kvc_extend more{sizeof more, 0, 1, 4, pass(keys.data(), 16), 1};
  c.api().request_extend(s, pass(&more, 1));
  pass.gone();
  const kvc_lookup_in in{sizeof in, 0, 1, 80, 0, KVC_NO_LIMIT};
  auto found = sized<kvc_lookup_out>();
  c.api().lookup(s, pass(&in, 1), &found);
  pass.gone();
  const auto tables = [&] {
    const kvc_table t{sizeof t, 0, pass(blocks.data(), 4), 4, 0};
    return kvc_list_of(pass(&t, 1), 1, sizeof t);
  };
  const kvc_alloc_in alloc{sizeof alloc, 0, 1, 0, tables()};
  auto allocated = sized<kvc_alloc_out>();
  c.api().alloc_update(s, pass(&alloc, 1), &allocated);
  pass.gone();
  for (std::uint64_t n = 1; n <= 4; ++n) {
    const kvc_step_request record{sizeof record, 0, 1, 16 * n, tables()};
    auto step = sized<kvc_step>();
    step.step = n;
    step.scheduled = kvc_list_of(pass(&record, 1), 1, sizeof record);
    auto plan = sized<kvc_plan>();
    got = c.api().build_store_jobs(s, pass(&step, 1), &plan);
    c.expect(got == KVC_OK, "KVC-P-081", "build_store_jobs answered {}", host::Said{got});
    pass.gone();
    const std::vector<std::uint8_t> garbage(100, 7);
    const kvc_bytes report = kvc_bytes_of(pass(garbage.data(), 100), 100);
    auto done = sized<kvc_complete_out>();
    c.api().complete(s, pass(&report, 1), 1, &done);
    pass.gone();
  }
  const kvc_end_in end{sizeof end, KVC_END_STOP, 1, 64, tables(), {}};
  auto ended = sized<kvc_end_out>();
  got = c.api().request_end(s, pass(&end, 1), &ended);
  c.expect(got == KVC_OK, "KVC-P-096", "request_end answered {}", host::Said{got});
  pass.gone();
  std::uint64_t needed = 0;
  c.api().explain(s, 0, nullptr, 0, &needed);
  c.api().close_scheduler(s);
}

// The same requests for ever: what is stored once is not stored again, and nothing fills up.
void nothing_fills_up(Context& c) {
  World w(c, c.plain());
  w.check_structure = false;
  for (std::uint64_t id = 1; id <= 2000; ++id) {
    w.begin(id, prompt(id % 50, 2));
    const Found f = w.lookup(id);
    w.take(id, f.status == KVC_OK ? f.tokens : 0);
    w.step();
    w.request(id).computed = f.tokens;
    w.compute(id, 32);
    w.step();
    w.end(id);
  }
  w.drain();
  w.check_quiet();
}

constexpr Case cases[] = {
    {"memory.hot_calls_use_no_heap", "KVC-P-014", no_heap},
    {"memory.hot_calls_do_not_wait", "KVC-P-015", no_waiting},
    {"memory.stepped", "KVC-P-021", stepped},
    {"memory.every_allocation_fails", "KVC-P-132", every_allocation_fails, 120},
    {"memory.every_copy_fails", "KVC-P-132", every_copy_fails, 120},
    {"memory.inputs_are_not_kept", "KVC-P-017", inputs_are_not_kept},
    {"memory.nothing_fills_up", "KVC-P-131", nothing_fills_up, 120},
};

}  // namespace

std::span<const Case> memory_cases() { return cases; }

}  // namespace kvc::conform
