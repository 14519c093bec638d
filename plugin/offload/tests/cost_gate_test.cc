// The cost gate against a twin that keeps everything and computes each answer anew from the rules
// of docs/cost_gate.md.
#include "plugin/offload/cost_gate.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "plugin/core/prng.h"
#include "plugin/tests/seed.h"

using namespace kvc;
using namespace kvc::test;

namespace {

using Real = long double;

struct Point {
  Real size;
  Real ns;
};

Real lower_median(std::vector<Real> all) {
  std::sort(all.begin(), all.end());
  return all[(all.size() - 1) / 2];
}

std::vector<Real> sizes(const std::vector<Point>& points) {
  std::vector<Real> out;
  for (const Point& p : points) out.push_back(p.size);
  return out;
}
std::vector<Real> times(const std::vector<Point>& points) {
  std::vector<Real> out;
  for (const Point& p : points) out.push_back(p.ns);
  return out;
}

struct TwinLine {
  Real fixed = 0;
  Real slope = 0;
  bool known = false;
};

TwinLine line_of(std::vector<Point> points) {
  if (points.size() < cost_samples_least) return {};
  std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) {
    return a.size != b.size ? a.size < b.size : a.ns < b.ns;
  });
  const auto third = static_cast<std::ptrdiff_t>(points.size() / 3);
  const std::vector<Point> low(points.begin(), points.begin() + third);
  const std::vector<Point> high(points.end() - third, points.end());
  const Real x1 = lower_median(sizes(low));
  const Real x2 = lower_median(sizes(high));
  const Real y1 = lower_median(times(low));
  const Real y2 = lower_median(times(high));
  if (x2 >= x1 * 1.5L && y2 > y1) {
    const Real slope = (y2 - y1) / (x2 - x1);
    std::vector<Real> rest;
    for (const Point& p : points) rest.push_back(p.ns - slope * p.size);
    if (lower_median(rest) > 0) return {lower_median(rest), slope, true};
  }
  std::vector<Real> ratios;
  for (const Point& p : points) ratios.push_back(p.ns / p.size);
  return {0, lower_median(ratios), true};
}

template <class T>
std::vector<T> last_32(const std::vector<T>& all) {
  const std::size_t n = std::min<std::size_t>(all.size(), 32);
  return {all.end() - static_cast<std::ptrdiff_t>(n), all.end()};
}

struct Twin {
  struct Load {
    Real bytes, disk, ns;
  };
  CostGateOptions options;
  std::vector<Load> host;
  std::vector<Load> disk;
  std::vector<Point> steps;

  [[nodiscard]] TwinLine host_line() const {
    std::vector<Point> points;
    for (const Load& l : last_32(host)) points.push_back({l.bytes, l.ns});
    return line_of(points);
  }
  [[nodiscard]] TwinLine disk_line() const {
    const TwinLine h = host_line();
    std::vector<Point> points;
    for (const Load& l : last_32(disk)) {
      const Real copies = std::floor(h.fixed + h.slope * l.bytes);
      points.push_back({l.disk, std::max<Real>(0, l.ns - copies)});
    }
    return line_of(points);
  }
  [[nodiscard]] bool knows_prefill() const {
    return options.prefill_tokens_per_second != 0 || steps.size() >= cost_samples_least;
  }
  [[nodiscard]] Real recompute(Tokens tokens) const {
    const Real n = static_cast<Real>(tokens.n);
    if (options.prefill_tokens_per_second != 0)
      return n * 1e9L / static_cast<Real>(options.prefill_tokens_per_second);
    std::vector<Point> all = last_32(steps);
    std::sort(all.begin(), all.end(), [](const Point& a, const Point& b) {
      const Real ra = a.ns / a.size;
      const Real rb = b.ns / b.size;
      return ra != rb ? ra < rb : a.size < b.size;
    });
    Real ns = 0;
    Real size = 0;
    for (std::size_t i = all.size() / 4; i < all.size() - all.size() / 4; ++i) {
      ns += all[i].ns;
      size += all[i].size;
    }
    return n * ns / size;
  }
  [[nodiscard]] bool knows(const HitCost& hit) const {
    return (hit.disk.n == 0 ? host_line().known : disk_line().known) && knows_prefill();
  }
  [[nodiscard]] Real load(const HitCost& hit) const {
    const TwinLine h = host_line();
    Real ns = h.fixed + h.slope * static_cast<Real>(hit.bytes.n);
    if (hit.disk.n == 0) return ns;
    const TwinLine d = disk_line();
    return ns + d.fixed + d.slope * static_cast<Real>(hit.disk.n);
  }
};

// Too near for two ways of rounding to agree on.
bool close_call(Real a, Real b) {
  return std::fabs(a - b) <= 1e-6L * (std::fabs(a) + std::fabs(b)) + 4;
}

class World {
 public:
  World(CostGateOptions options, std::uint64_t seed)
      : random_(seed), gate_(options), twin_{options, {}, {}, {}} {
    // What this machine is like; now and then it becomes another.
    change();
  }

  void act() {
    const std::uint64_t what = random_.below(100);
    if (what < 30) {
      decide();
    } else if (what < 45) {
      choose();
    } else if (what < 70) {
      load(cost(), 0);
    } else if (what < 98) {
      step();
    } else {
      change();
    }
  }
  [[nodiscard]] const CostGateCounters& counters() const { return gate_.counters(); }
  std::uint64_t compared = 0;

 private:
  void change() {
    fixed_ = random_.below(20'000'000);
    ns_per_kib_ = random_.below(3000);
    disk_ns_per_kib_ = random_.below(30'000);
    ns_per_token_ = 1 + random_.below(200'000);
  }
  HitCost cost() {
    HitCost c{Tokens{16 * random_.between(1, 2000)}, {}, {}};
    c.bytes = Bytes{c.tokens.n * 4096};
    if (random_.chance(1, 3)) c.disk = Bytes{random_.between(1, c.bytes.n)};
    return c;
  }
  void load(const HitCost& c, std::uint64_t beats) {
    std::uint64_t ns = fixed_ + c.bytes.n / 1024 * ns_per_kib_ + c.disk.n / 1024 * disk_ns_per_kib_;
    ns = ns / 100 * random_.between(80, 130);
    if (random_.chance(1, 30)) ns += 5'000'000'000;
    auto& list = c.disk.n == 0 ? twin_.host : twin_.disk;
    if (ns < beats) list.clear();
    list.push_back(
        {static_cast<Real>(c.bytes.n), static_cast<Real>(c.disk.n), static_cast<Real>(ns)});
    gate_.loaded(c, ns, beats);
  }
  void decide() {
    const HitCost c = cost();
    const std::uint64_t request = ++request_;
    const CostGateCounters before = gate_.counters();
    const GateAnswer answer = gate_.decide(c, request);
    const CostGateCounters after = gate_.counters();
    BOOST_REQUIRE(after.decisions == before.decisions + 1);
    if (!twin_.knows(c)) {
      BOOST_REQUIRE(answer.decision == GateDecision::unmeasured);
      BOOST_REQUIRE(after.unmeasured == before.unmeasured + 1);
      return;
    }
    const Real load_ns = twin_.load(c);
    const Real recompute_ns = twin_.recompute(c.tokens);
    if (close_call(load_ns, recompute_ns)) return;
    ++compared;
    BOOST_TEST(close_call(static_cast<Real>(answer.load_ns), load_ns));
    BOOST_TEST(close_call(static_cast<Real>(answer.recompute_ns), recompute_ns));
    const bool pays = load_ns < recompute_ns;
    const bool on = twin_.options.mode == CostGateMode::on;
    const bool probe = on && CostGate::probes(request);
    const GateDecision right = pays    ? GateDecision::load
                               : probe ? GateDecision::probe
                               : on    ? GateDecision::refused
                                       : GateDecision::would_refuse;
    BOOST_REQUIRE(answer.decision == right);
    BOOST_REQUIRE(answer.loads() == (right != GateDecision::refused));
    const bool counted = !pays && !probe;
    BOOST_REQUIRE(after.refused == before.refused + (counted ? 1 : 0));
    BOOST_REQUIRE(after.refused_tokens.n == before.refused_tokens.n + (counted ? c.tokens.n : 0));
    if (answer.loads() && random_.chance(1, 2)) {
      load(c, right == GateDecision::probe ? answer.recompute_ns : 0);
    }
  }
  void choose() {
    HitCost deep = cost();
    HitCost host{Tokens{16 * random_.between(1, deep.tokens.n / 16)}, {}, {}};
    host.bytes = Bytes{host.tokens.n * 4096};
    if (deep.disk.n == 0) deep.disk = Bytes{1};
    const std::uint64_t request = ++request_;
    const DiskAnswer answer = gate_.choose(host, deep, request);
    if (!twin_.knows(host) || !twin_.knows(deep)) {
      BOOST_REQUIRE(answer.choice == DiskChoice::with_disk);
      return;
    }
    const Real gain_deep = twin_.recompute(deep.tokens) - twin_.load(deep);
    const Real gain_host = twin_.recompute(host.tokens) - twin_.load(host);
    if (close_call(gain_deep, gain_host)) return;
    ++compared;
    const bool on = twin_.options.mode == CostGateMode::on;
    const DiskChoice right = gain_deep > gain_host       ? DiskChoice::with_disk
                             : !on                       ? DiskChoice::with_disk
                             : CostGate::probes(request) ? DiskChoice::probe
                                                         : DiskChoice::without;
    BOOST_REQUIRE(answer.choice == right);
    BOOST_REQUIRE((answer.beats_ns != 0) == (right == DiskChoice::probe));
    if (right == DiskChoice::probe) load(deep, answer.beats_ns);
  }
  // A step that computes some of a prompt or not, and that goes on with one or not.
  void step() {
    const Tokens computes{random_.chance(2, 3) ? random_.between(1, 8192) : 0};
    const bool goes_on = random_.chance(2, 3);
    gate_.begin_step(now_);
    if (goes_on) gate_.went_on();
    if (computes.n != 0 && gate_.measures_prefill()) gate_.prefilled(computes);
    gate_.end_step();
    if (gate_.measures_prefill() && goes_on && last_.n != 0 && now_ > last_now_) {
      twin_.steps.push_back({static_cast<Real>(last_.n), static_cast<Real>(now_ - last_now_)});
    }
    last_ = computes;
    last_now_ = now_;
    now_ += random_.chance(1, 20) ? 0
            : random_.chance(1, 10)
                ? 60'000'000'000
                : 1'000'000 + computes.n * ns_per_token_ / 100 * random_.between(90, 120);
  }

  Prng random_;
  CostGate gate_;
  Twin twin_;
  std::uint64_t fixed_ = 0;
  std::uint64_t ns_per_kib_ = 0;
  std::uint64_t disk_ns_per_kib_ = 0;
  std::uint64_t ns_per_token_ = 0;
  std::uint64_t request_ = 0;
  std::uint64_t now_ = 1;
  std::uint64_t last_now_ = 0;
  Tokens last_;
};

void compare(CostGateOptions options) {
  CostGateCounters all;
  std::uint64_t compared = 0;
  const std::uint64_t last = only_seed().value_or(40);
  for (std::uint64_t seed = seed_or(1); seed <= last; ++seed) {
    BOOST_TEST_CONTEXT(repeat_command(seed)) {
      World world(options, seed);
      for (int i = 0; i < 1500; ++i) world.act();
      all.refused += world.counters().refused;
      all.disk_left += world.counters().disk_left;
      all.probes += world.counters().probes;
      all.unmeasured += world.counters().unmeasured;
      compared += world.compared;
    }
  }
  if (only_seed()) return;
  BOOST_TEST(compared > 10'000U);
  BOOST_TEST(all.refused > 300U);
  BOOST_TEST(all.disk_left > 100U);
  BOOST_TEST(all.unmeasured > 100U);
  BOOST_TEST((all.probes > 0) == (options.mode == CostGateMode::on));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cost_gate)

BOOST_AUTO_TEST_CASE(decisions_are_those_of_the_twin_with_a_rate_that_is_given) {
  compare({CostGateMode::on, 20'000});
}

BOOST_AUTO_TEST_CASE(decisions_are_those_of_the_twin_with_a_measured_rate) {
  compare({CostGateMode::on, 0});
}

BOOST_AUTO_TEST_CASE(reporting_counts_the_same_and_refuses_nothing) {
  compare({CostGateMode::report, 20'000});
}

BOOST_AUTO_TEST_CASE(switched_off_it_knows_and_refuses_nothing) {
  CostGate gate({CostGateMode::off, 1});
  for (int i = 0; i < 40; ++i) gate.loaded({Tokens{16}, Bytes{1000}, {}}, 1'000'000'000, 0);
  BOOST_TEST(gate.decide({Tokens{16}, Bytes{1000}, {}}, 1).loads());
  BOOST_TEST(gate.counters().decisions == 0U);
  BOOST_TEST(gate.measured() == 0U);
  BOOST_TEST(explain({}, gate.report()) == "{\"mode\":\"off\"}");
}

BOOST_AUTO_TEST_CASE(one_request_of_32_is_a_probe_whichever_ids_are_used) {
  std::uint64_t ids = 0;
  for (std::uint64_t id = 1; id <= 32'000; ++id) ids += CostGate::probes(id) ? 1 : 0;
  BOOST_TEST(ids > 900U);
  BOOST_TEST(ids < 1100U);
  std::uint64_t far = 0;
  for (std::uint64_t id = 1; id <= 32'000; ++id) far += CostGate::probes(id << 32U | 7U) ? 1 : 0;
  BOOST_TEST(far > 900U);
  BOOST_TEST(far < 1100U);
}

BOOST_AUTO_TEST_CASE(a_probe_that_was_quick_makes_the_gate_begin_anew) {
  CostGate gate({CostGateMode::on, 1000});
  const HitCost hit{Tokens{100}, Bytes{1000}, {}};
  for (int i = 0; i < 32; ++i) gate.loaded(hit, 1'000'000'000, 0);
  const GateAnswer slow = gate.decide(hit, 1);
  BOOST_TEST((slow.decision == GateDecision::refused));
  BOOST_TEST(slow.load_ns == 1'000'000'000U);
  BOOST_TEST(slow.recompute_ns == 100'000'000U);
  gate.loaded(hit, 200'000'000, slow.recompute_ns);  // not quick enough
  BOOST_TEST((gate.decide(hit, 1).decision == GateDecision::refused));
  gate.loaded(hit, 1'000'000, slow.recompute_ns);
  BOOST_TEST((gate.decide(hit, 1).decision == GateDecision::unmeasured));
  for (int i = 0; i < 7; ++i) gate.loaded(hit, 1'000'000, 0);
  BOOST_TEST((gate.decide(hit, 1).decision == GateDecision::load));
}

BOOST_AUTO_TEST_SUITE_END()
