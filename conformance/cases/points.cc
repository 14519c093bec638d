// Reset, preemption and abort at every point of a request's life.
#include <kvc/kvc_util.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "conformance/cases/families.h"
#include "conformance/cases/support.h"
#include "host_stub/loader/status_text.h"

namespace kvc::conform {

namespace {

enum class Blow { reset, invalidate, preempt, abort };

constexpr int points = 12;

// One request that hits, loads, computes and ends, with a blow at point `at`; what follows is
// what an engine does then. Ends in quiet.
class BrokenLife {
 public:
  BrokenLife(Context& context, World& world, Blow blow, int at)
      : c_(context), w_(world), blow_(blow), at_(at) {}

  void run() {
    const Tokens tokens = prompt(1, 2);
    w_.store(1, tokens, 32);
    hit_ = w_.hit(tokens);
    w_.begin(2, tokens);
    if (over()) return;
    const Found f = w_.lookup(2);
    if (over()) return;
    job_ = w_.take(2, f.tokens);
    if (over()) return;
    unsent_ = w_.plan();
    if (over()) return;
    w_.submit(*std::exchange(unsent_, std::nullopt));
    if (over()) return;
    w_.pump();
    if (over()) return;
    unheard_ = w_.reports();
    if (over()) return;
    const Completed done = w_.complete(std::exchange(unheard_, {}));
    if (over()) return;
    const bool ok = std::any_of(done.verdicts.begin(), done.verdicts.end(),
                                [](const kvc_verdict& v) { return v.status == KVC_OK; });
    if (ok && struck_ != Blow::preempt) {
      const std::string wrong = w_.wrong_bytes(w_.request(2), 0, f.tokens);
      c_.expect(wrong.empty(), "KVC-P-075", "{}: wrong: {}", where(), wrong);
    }
    w_.request(2).computed = ok ? f.tokens : 0;
    w_.compute(2, 33);
    w_.step();
    if (over()) return;
    w_.compute(2, 33);
    if (over()) return;
    w_.step();
    if (over()) return;
    w_.end(2);
    if (over(true)) return;
  }

  void finish() {
    settle();
    w_.drain();
    for (int i = 0; i < 3; ++i) w_.step();
    w_.check_quiet();
    // It works on.
    w_.store(50, prompt(9, 2), 32);
    const std::uint64_t again = w_.hit(prompt(9, 2));
    c_.expect(hit_ == 0 || again != 0, "KVC-P-131", "{}: nothing is stored or found any more",
              where());
  }

 private:
  std::string where() const {
    static constexpr const char* names[] = {"reset", "reset with INVALIDATE", "preemption",
                                            "abort"};
    return fmt::format("{} at point {}", names[static_cast<int>(blow_)], at_);
  }

  // At the point of the blow: strikes. True: this life is over.
  bool over(bool gone = false) {
    if (now_++ != at_) return false;
    struck_ = blow_;
    switch (blow_) {
      case Blow::reset:
      case Blow::invalidate:
        return strike_reset(gone);
      case Blow::abort:
        if (!gone) {
          w_.scheduled.clear();
          w_.end(2, KVC_END_ABORT, confirmed());
        }
        return true;
      case Blow::preempt:
        if (!gone) strike_preemption();
        return true;
    }
    return true;
  }

  // The engine goes on with what was under way when the blow came.
  void settle() {
    if (unsent_) w_.submit(*std::exchange(unsent_, std::nullopt));
    w_.pump();
    for (auto& report : w_.reports()) unheard_.push_back(std::move(report));
    w_.complete(std::exchange(unheard_, {}));
  }

  // What the records have said so far.
  [[nodiscard]] std::uint64_t confirmed() const { return now_ > 8 ? 33 : 0; }

  bool strike_reset(bool gone) {
    const kvc_status s = w_.reset(blow_ == Blow::invalidate ? KVC_RESET_INVALIDATE : 0);
    c_.expect(s == KVC_OK || s == KVC_LATER, "KVC-P-101", "{}: answered {}", where(),
              host::Said{s});
    const std::uint64_t hit = w_.hit(prompt(1, 2));
    c_.expect(hit == 0, "KVC-P-100", "{}: {} tokens older than the reset are offered", where(),
              hit);
    if (gone) return true;
    // The engine drains what is open and ends the request.
    w_.scheduled.clear();
    w_.end(2, KVC_END_ABORT, confirmed());
    return true;
  }

  // A load that is open keeps its request: it is preempted when it runs.
  void strike_preemption() {
    const bool loading = job_ != 0 && w_.open_jobs().count(job_) != 0;
    if (loading) {
      w_.end(2, KVC_END_ABORT, 0);
      return;
    }
    w_.scheduled.clear();
    w_.lookup(2);  // the notice
    if (w_.request(2).computed != 0) w_.preempt(2);
    w_.drop_blocks(2);
    w_.request(2).computed = 0;
    settle();
    w_.step();
    // It comes back with whole tables.
    const std::uint64_t loaded = w_.load(2);
    w_.request(2).computed = loaded;
    w_.compute(2, 33);
    w_.scheduled.back().resumed = true;
    w_.step();
    w_.end(2);
  }

  Context& c_;
  World& w_;
  Blow blow_;
  int at_;
  int now_ = 0;
  std::optional<Blow> struck_;
  std::optional<Planned> unsent_;
  std::vector<std::vector<std::uint8_t>> unheard_;
  kvc_job job_ = 0;
  std::uint64_t hit_ = 0;
};

void at_every_point(Context& c, Blow blow) {
  const std::vector<std::vector<Group>> shapes = {{rig::full(16)},
                                                  {rig::full(16), rig::state_align(16)}};
  for (const auto& groups : shapes) {
    for (int at = 0; at < points; ++at) {
      Setup s = c.layout(groups);
      s.may_decline = groups.size() > 1;
      try {
        World w(c, s);
        BrokenLife life(c, w, blow, at);
        life.run();
        life.finish();
      } catch (const rig::Declined&) {
        break;
      }
    }
  }
}

void resets(Context& c) { at_every_point(c, Blow::reset); }
void invalidations(Context& c) { at_every_point(c, Blow::invalidate); }
void preemptions(Context& c) { at_every_point(c, Blow::preempt); }
void aborts(Context& c) { at_every_point(c, Blow::abort); }

void nothing_older(Context& c) {
  for (const std::uint64_t flags : {std::uint64_t{0}, KVC_RESET_INVALIDATE}) {
    World w(c, c.plain());
    w.store(1, prompt(1, 4), 64);
    w.begin(2, prompt(2, 4));
    w.take(2, 0);
    w.compute(2, 64);
    const Planned p = w.plan();  // open stores
    const kvc_status s = w.reset(flags);
    c.expect(s == KVC_OK || s == KVC_LATER, "KVC-P-101", "reset answered {}", host::Said{s});
    for (const std::uint64_t seed : {1U, 2U}) {
      c.expect(w.hit(prompt(seed, 4)) == 0, "KVC-P-100", "blocks older than the reset are offered");
    }
    w.submit(p);
    w.pump();
    w.complete(w.reports());
    c.expect(w.hit(prompt(2, 4)) == 0, "KVC-P-100",
             "a store that was open at the reset is offered after it");
    w.end(2, KVC_END_ABORT, 64);
    w.drain();
    const kvc_status again = w.reset(0);
    c.expect(again == KVC_OK, "KVC-P-101", "a reset with nothing open answered {}",
             host::Said{again});
    w.check_quiet();
  }
}

void reset_statuses(Context& c) {
  World w(c, c.plain());
  for (int i = 0; i < 3; ++i) {
    const kvc_status s = w.reset(i == 1 ? KVC_RESET_INVALIDATE : 0);
    c.expect(s == KVC_OK, "KVC-P-101", "reset {} of an idle connector answered {}", i,
             host::Said{s});
  }
  for (const unsigned bit : {1U, 7U, 40U, 63U}) {
    const kvc_status s = w.reset(std::uint64_t{1} << bit);
    c.expect(s == KVC_E_UNSUPPORTED, "KVC-P-101", "flag bit {} answered {}", bit, host::Said{s});
  }
  Setup s = c.plain();
  s.host_caps |= KVC_HOST_RANK_VERDICTS;
  World v(c, s);
  const Tokens tokens = prompt(1, 2);
  v.store(1, tokens, 32);
  const std::uint64_t hit = stored_hit(c, v, tokens, 32);
  v.begin(2, tokens);
  v.lookup(2);
  v.take(2, hit);
  const kvc_status open = v.reset(KVC_RESET_INVALIDATE);
  c.expect(open == KVC_E_STATE, "KVC-P-101",
           "INVALIDATE under KVC_HOST_RANK_VERDICTS with an open load answered {}",
           host::Said{open});
  v.step();
  const kvc_status drained = v.reset(KVC_RESET_INVALIDATE);
  c.expect(drained == KVC_OK || drained == KVC_LATER, "KVC-P-101", "the same drained answered {}",
           host::Said{drained});
}

void open_loads(Context& c) {
  World w(c, c.plain());
  const Tokens tokens = prompt(1, 2);
  w.store(1, tokens, 32);
  const std::uint64_t hit = stored_hit(c, w, tokens, 32);
  w.begin(2, tokens);
  w.lookup(2);
  const kvc_job job = w.take(2, hit);
  w.submit(w.plan());
  const kvc_status s = w.reset(KVC_RESET_INVALIDATE);
  c.expect(s == KVC_LATER || s == KVC_OK, "KVC-P-101", "reset with an open load answered {}",
           host::Said{s});
  w.pump();
  const Completed done = w.complete(w.reports());
  c.need(done.verdicts.size() == 1 && done.verdicts[0].job == job, "KVC-P-091",
         "{} verdicts of one load", done.verdicts.size());
  c.expect(done.verdicts[0].status < 0, "KVC-P-102",
           "a load that was open at a reset with INVALIDATE ended {}",
           host::Said{done.verdicts[0].status});
  w.end(2, KVC_END_ABORT, 0);
  w.drain();
  w.check_quiet();
}

constexpr Case cases[] = {
    {"reset.nothing_older_is_found", "KVC-P-100", nothing_older},
    {"reset.statuses", "KVC-P-101", reset_statuses},
    {"reset.open_loads_end_failed", "KVC-P-102", open_loads},
    {"points.reset_at_every_point", "KVC-P-100", resets},
    {"points.invalidation_at_every_point", "KVC-P-100", invalidations},
    {"points.preemption_at_every_point", "KVC-P-131", preemptions},
    {"points.abort_at_every_point", "KVC-P-131", aborts},
};

}  // namespace

std::span<const Case> point_cases() { return cases; }

}  // namespace kvc::conform
