// Random engines under a seed (conformance/rig/life.h).
#include "conformance/rig/life.h"

#include "conformance/cases/families.h"
#include "conformance/cases/support.h"

namespace kvc::conform {

namespace {

// Adds the seed and the command that repeats it to every finding.
class SeedJudge final : public rig::Judge {
 public:
  SeedJudge(Context& c, std::uint64_t seed) : c_(c), seed_(seed) {}
  void fail(RuleId rule, const std::string& text) override {
    c_.judge->fail(rule, fmt::format("{} (seed {}: {} --seed {})", text, seed_, c_.repeat, seed_));
  }

 private:
  Context& c_;
  std::uint64_t seed_;
};

// Ends in a Stop at the first seed that fails.
void walks(Context& c, bool faults) {
  const std::uint64_t count = c.one_seed ? 1 : 12;
  std::uint64_t declined = 0;
  std::uint64_t loads = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t seed = c.seed + i + (c.one_seed ? 0 : 100 * c.param);
    rig::SeededChoices choices(seed);
    Setup s = rig::random_setup(choices, false);
    s.toml = c.config_toml;
    s.may_decline = true;
    SeedJudge judge(c, seed);
    try {
      rig::Life life(choices, s, *c.library, judge, faults);
      life.check_structure(false);
      life.run(120);
      loads += life.loads();
    } catch (const rig::Declined&) {
      ++declined;
    }
  }
  if (declined == count) Context::skip("layouts: every random layout was declined");
}

void right_engines(Context& c) { walks(c, false); }
void engines_whose_copies_fail(Context& c) {
  if (c.library->test() == nullptr) Context::skip("kvc.test/1: no copy can be made to fail");
  walks(c, true);
}

constexpr Case cases[] = {
    {"random.walks_0", "KVC-P-130", right_engines, 120, 0},
    {"random.walks_1", "KVC-P-130", right_engines, 120, 1},
    {"random.walks_2", "KVC-P-131", right_engines, 120, 2},
    {"random.walks_3", "KVC-P-131", right_engines, 120, 3},
    {"random.walks_with_failures_0", "KVC-P-132", engines_whose_copies_fail, 120, 4},
    {"random.walks_with_failures_1", "KVC-P-132", engines_whose_copies_fail, 120, 5},
};

}  // namespace

std::span<const Case> random_cases() { return cases; }

}  // namespace kvc::conform
