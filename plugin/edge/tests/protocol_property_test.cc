// Random engines over the real library: requests come, look up, load all or a part, compute, are
// preempted, aborted and ended, while plans, copies and reports are late, split over ranks,
// reordered, repeated and fail. After every call the counts balance and the connector's structure
// is whole; every load that succeeded brought the right bytes and touched nothing else; at the end
// nothing is left.
//
// One seed again: KVC_SEED=<n> build/<preset>/bin/kvc_protocol_property_test
#include <kvc/kvc_util.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <deque>
#include <random>

#include "plugin/edge/tests/abi_host.h"
#include "plugin/tests/seed.h"

namespace kvc::abi_test {

BOOST_AUTO_TEST_SUITE(protocol_property)

namespace {

enum class State { waiting, loading, running };

class Life {
 public:
  explicit Life(std::uint64_t seed) : rng_(seed), w_(setup(rng_)) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      for (std::uint64_t n = pick(4); n != 0; --n) one_thing();
      plan();
      move();
      if (chance(3)) complete();
    }
    finish();
  }

 private:
  struct Live {
    State state = State::waiting;
    kvc_job job = 0;
    std::uint64_t offered = 0;
    std::uint64_t accepted = 0;
    std::uint64_t prompt = 0;
  };

  static std::uint64_t below(std::mt19937_64& rng, std::uint64_t n) { return rng() % n; }
  std::uint64_t pick(std::uint64_t n) { return below(rng_, n); }
  bool chance(std::uint64_t one_in) { return pick(one_in) == 0; }

  static Setup setup(std::mt19937_64& rng) {
    Setup s;
    switch (below(rng, 9)) {
      case 0:
        s.groups = {full(8)};
        break;
      case 1:
        s.groups = {full(8), sliding(8, 20)};
        break;
      case 2:
        s.groups = {full(16), state_align(16)};
        s.h = 4;
        break;
      case 3:
        s.groups = {full(8), state_all(16)};
        break;
      case 4:
        s.groups = {full(8, KVC_GROUP_CAP_SHARDED), state_align(16)};
        s.h = 8;
        s.cp = 2;
        break;
      case 5:
        s.groups = {full(8), chunked(8, 32), full(16)};
        break;
      case 6:
        s.groups = {full(8, KVC_GROUP_CAP_DRAFT), state_align(8), sliding(8, 17)};
        s.flags = KVC_OPEN_DRAFT_DROP;
        break;
      case 7:
        s.groups = {sliding(8, 24), scratch(8)};
        break;
      default:
        s.groups = {full(16), full(32), state_align(32)};
        s.h = 8;
        break;
    }
    if (s.cp == 1) s.ranks = 1 + static_cast<std::uint32_t>(below(rng, 2));
    s.host_blocks = 3 + below(rng, 24);
    s.device_blocks = 96;
    s.max_live = 6;
    s.max_running = 6;
    s.key_bytes = below(rng, 2) == 0 ? 8 : 32;
    s.connector_toml = "lease_steps = " + std::to_string(1 + below(rng, 8)) +
                       "\nmax_leases = " + std::to_string(1 + below(rng, 4)) +
                       "\nsingle_flight = " + (below(rng, 2) == 0 ? "true" : "false") +
                       "\nstore_decode_blocks = " + (below(rng, 4) != 0 ? "true" : "false") +
                       "\nheld_device_blocks_max = " + std::to_string(2 + below(rng, 40));
    return s;
  }

  Tokens prompt() {
    // A small tree: what requests share is a prefix.
    Tokens t = tokens_of(1 + pick(2), 8 + 8 * pick(4));
    t = t + tokens_of(10 + pick(2), pick(40));
    return t + tokens_of(100 + pick(4), 1 + pick(20));
  }

  std::uint64_t any_id() {
    auto it = live_.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(pick(live_.size())));
    return it->first;
  }

  void one_thing() {
    if (live_.empty() || (live_.size() < 6 && chance(4))) return come();
    const std::uint64_t id = any_id();
    Live& l = live_.at(id);
    if (chance(60)) return reset();
    if (chance(14)) return leave(id);
    if (l.state == State::waiting) return admit(id, l);
    if (l.state == State::running && chance(10)) return preempt(id, l);
    if (l.state == State::running) return compute(id, l);
  }

  void come() {
    const Tokens t = prompt();
    const std::uint32_t flags = chance(10)   ? KVC_REQUEST_NO_READ
                                : chance(10) ? KVC_REQUEST_NO_WRITE
                                             : 0;
    const std::uint64_t limit = chance(8) ? pick(60) : KVC_NO_LIMIT;
    const kvc_status s =
        w_.try_begin(++last_id_, t, flags, 0, limit, chance(8) ? pick(60) : KVC_NO_LIMIT);
    // Shells of ended requests with open copies may still count.
    BOOST_REQUIRE(s == KVC_OK || s == KVC_E_FULL);
    Live l;
    l.prompt = t.size();
    live_[last_id_] = l;
  }

  void admit(std::uint64_t id, Live& l) {
    const Found f = w_.lookup(id, 0, chance(6) ? pick(80) : KVC_NO_LIMIT);
    BOOST_REQUIRE(f.status == KVC_OK || f.status == KVC_LATER);
    BOOST_REQUIRE_LT(f.tokens, w_.request(id).tokens.size());
    BOOST_REQUIRE_EQUAL(f.tokens % w_.setup().h, 0U);
    l.offered = f.tokens;
    if (f.status == KVC_LATER || chance(3)) return;
    if (chance(8)) {
      BOOST_REQUIRE_EQUAL(w_.lookup_cancel(id), KVC_OK);
      if (chance(2)) return;
    }
    l.accepted = f.tokens;
    if (chance(5)) l.accepted = pick(f.tokens / w_.setup().h + 1) * w_.setup().h;
    if (w_.free_blocks() < 24) return;
    l.job = w_.take(id, l.accepted);
    l.state = l.job == 0 ? State::running : State::loading;
  }

  void compute(std::uint64_t id, Live& l) {
    Request& r = w_.request(id);
    if (r.computed == r.tokens.size()) {
      if (r.tokens.size() > l.prompt + 24) return leave(id);
      w_.extend(id, tokens_of(5000 + id, 1 + pick(6)), !chance(4));
    }
    if (w_.free_blocks() < 24) return;
    std::uint64_t upto = std::min<std::uint64_t>(r.tokens.size(), r.computed + 1 + pick(30));
    const std::uint64_t h = w_.setup().h;
    if (chance(2) && upto / h * h > r.computed) upto = upto / h * h;
    // One chunk per step: a state that a hand-off of this record names is not written again.
    if (std::any_of(w_.handoffs.begin(), w_.handoffs.end(),
                    [&](const kvc_handoff& o) { return o.request == id; })) {
      return;
    }
    w_.compute(id, upto);
    if (upto % h == 0 && !chance(4)) hand_off(id, upto);
    if (chance(6)) release_windows(r);
    if (chance(5)) w_.extend(id, {});
  }

  void hand_off(std::uint64_t id, std::uint64_t boundary) {
    for (std::uint32_t g = 0; g < w_.setup().groups.size(); ++g) {
      const Group& d = w_.setup().groups[g];
      if (d.kind != KVC_GROUP_STATE || (d.caps & KVC_GROUP_CAP_POSITION_STABLE) != 0) continue;
      w_.hand_off(id, g, w_.request(id).tables[g].back(), boundary);
    }
  }

  // The engine gives back what no later token of the request reads.
  void release_windows(Request& r) {
    for (std::uint32_t g = 0; g < w_.setup().groups.size(); ++g) {
      const Group& d = w_.setup().groups[g];
      if (d.kind != KVC_GROUP_SLIDING) continue;
      for (std::uint64_t p = 0; (p + 1) * d.tokens + d.window <= r.computed; ++p) {
        if (r.tables[g][p] != w_.setup().null_block) w_.null_out(r.id, g, p);
      }
    }
  }

  void forget(std::uint64_t id) {
    std::erase_if(w_.scheduled, [&](const World::Scheduled& s) { return s.id == id; });
    if (chance(2)) return;  // hand-offs of departed requests are dropped, not believed
    std::erase_if(w_.handoffs, [&](const kvc_handoff& h) { return h.request == id; });
  }

  void preempt(std::uint64_t id, Live& l) {
    forget(id);
    if (chance(2)) w_.lookup(id);
    w_.preempt(id);
    l.state = State::waiting;
  }

  void leave(std::uint64_t id) {
    const Live& l = live_.at(id);
    Request& r = w_.request(id);
    forget(id);
    const auto named = std::find(w_.preempted.begin(), w_.preempted.end(), id);
    if (named != w_.preempted.end()) {
      // It ends before the record that tells of its preemption: a lookup is the notice.
      w_.preempted.erase(named);
      w_.lookup(id);
    }
    std::vector<kvc_handoff> tails;
    if (l.state == State::running && r.computed != 0 && r.computed % w_.setup().h == 0 &&
        chance(2)) {
      for (std::uint32_t g = 0; g < w_.setup().groups.size(); ++g) {
        if (w_.setup().groups[g].kind != KVC_GROUP_STATE || r.tables[g].empty()) continue;
        tails.push_back({sizeof(kvc_handoff), g, id, r.tables[g].back(), r.computed});
      }
    }
    w_.end(id, static_cast<std::int32_t>(pick(4)), l.state == State::running ? r.computed : 0,
           tails);
    live_.erase(id);
  }

  void reset() {
    const kvc_status s = w_.reset(chance(3) ? KVC_RESET_INVALIDATE : 0);
    BOOST_REQUIRE(s == KVC_OK || s == KVC_LATER);
    BOOST_REQUIRE_EQUAL(w_.stat("host_published_now"), 0U);
  }

  void plan() {
    if (unsubmitted() >= 3) return;
    plans_.push_back({w_.plan(), std::vector<bool>(w_.setup().ranks, false)});
  }

  std::size_t unsubmitted() const { return plans_.size(); }

  // Each rank takes its plans in order, at its own pace.
  void move() {
    for (std::uint32_t r = 0; r < w_.setup().ranks; ++r) {
      for (auto& [plan, sent] : plans_) {
        if (sent[r]) continue;
        if (chance(3)) break;
        w_.submit_to(r, plan, 0);
        sent[r] = true;
      }
      if (chance(3)) continue;
      const kvc_test_api* test = w_.library().test();
      if (test != nullptr && chance(12)) {
        test->set_fault(kvc_text_of(chance(2) ? "copy.load" : "copy.store"), pick(3));
      }
      const auto before = w_.snapshot();
      w_.pump_one(r);
      BOOST_REQUIRE_EQUAL(w_.touched(before, w_.blocks_of_open_loads()), "");
      if (test != nullptr) test->clear_faults();
      if (chance(4)) continue;
      auto bytes = w_.report_of(r);
      if (!bytes.empty()) reports_.push_back(std::move(bytes));
    }
    while (!plans_.empty() && std::all_of(plans_.front().second.begin(),
                                          plans_.front().second.end(), [](bool b) { return b; })) {
      plans_.pop_front();
    }
  }

  void complete() {
    std::shuffle(reports_.begin(), reports_.end(), rng_);
    const std::size_t n = pick(reports_.size() + 1);
    std::vector<std::vector<std::uint8_t>> some(reports_.end() - static_cast<std::ptrdiff_t>(n),
                                                reports_.end());
    reports_.resize(reports_.size() - n);
    if (!some.empty() && chance(8)) some.push_back(some.front());
    if (chance(12)) some.push_back(std::vector<std::uint8_t>(pick(90), 7));
    take(w_.complete(some));
  }

  void take(const Completed& c) {
    BOOST_REQUIRE_EQUAL(c.status, KVC_OK);
    for (const kvc_verdict& v : c.verdicts) {
      const auto it = live_.find(v.request);
      if (it == live_.end() || it->second.job != v.job) continue;
      Live& l = it->second;
      Request& r = w_.request(v.request);
      BOOST_REQUIRE(l.state == State::loading);
      if (v.status == KVC_OK) {
        BOOST_REQUIRE_EQUAL(w_.wrong_bytes(r, 0, l.accepted), "");
        r.computed = l.accepted;
        l.state = State::running;
        ++loads_;
      } else {
        w_.drop_blocks(v.request);
        l.state = State::waiting;
      }
      l.job = 0;
    }
  }

  void finish() {
    while (!live_.empty()) leave(live_.begin()->first);
    for (int i = 0; i < 40; ++i) {
      plan();
      for (std::uint32_t r = 0; r < w_.setup().ranks; ++r) {
        for (auto& [plan, sent] : plans_) {
          if (!sent[r]) w_.submit_to(r, plan, 0);
          sent[r] = true;
        }
      }
      plans_.clear();
      w_.pump();
      for (auto& bytes : w_.reports()) reports_.push_back(std::move(bytes));
      take(w_.complete(reports_));
      reports_.clear();
    }
    w_.check_quiet();
    BOOST_CHECK_EQUAL(w_.stat("host_slots_leaked_now"), 0U);
    BOOST_CHECK_EQUAL(w_.stat("host_slots_reserved_now"), 0U);
    // What is still found is right.
    for (int i = 0; i < 6; ++i) {
      w_.begin(++last_id_, prompt());
      w_.load(last_id_);
      w_.end(last_id_, KVC_END_ABORT);
    }
    w_.drain();
    w_.check_quiet();
  }

  std::mt19937_64 rng_;
  World w_;
  std::map<std::uint64_t, Live> live_;
  std::deque<std::pair<Planned, std::vector<bool>>> plans_;
  std::vector<std::vector<std::uint8_t>> reports_;
  std::uint64_t last_id_ = 0;

 public:
  std::uint64_t loads_ = 0;
};

// How many lives: fewer where sanitizers slow everything down.
#if defined(KVC_SANITIZED)
constexpr std::uint64_t lives = 40;
#else
constexpr std::uint64_t lives = 300;
#endif

}  // namespace

BOOST_AUTO_TEST_CASE(random_engines_get_right_bytes_balanced_counts_and_no_leaks) {
  const std::optional<std::uint64_t> only = test::only_seed();
  const std::uint64_t from = only.value_or(1);
  const std::uint64_t count = only ? 1 : lives;
  std::uint64_t loads = 0;
  for (std::uint64_t seed = from; seed < from + count; ++seed) {
    BOOST_TEST_INFO_SCOPE(test::repeat_command(seed));
    Life life(seed);
    life.run(150);
    loads += life.loads_;
  }
  // The worlds are not idle: most lives load something.
  if (!only) BOOST_CHECK_GT(loads, lives);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvc::abi_test
