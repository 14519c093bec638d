// Any engine that keeps its side of the line: the bytes are the choices of conformance/rig/life.h,
// which checks every answer, with the oracle beside it.
#include "conformance/fuzz/fuzz_library.h"
#include "conformance/rig/life.h"

namespace {

class EndingJudge final : public kvc::rig::Judge {
 public:
  void fail(kvc::rig::RuleId rule, const std::string& text) override {
    kvc::fuzz::promise(false, std::string(rule.text()) + ": " + text);
  }
};

constexpr int steps_most = 80;

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvc::rig;  // NOLINT(google-build-using-namespace)
  EndingJudge judge;
  ByteChoices choices({data, size});
  const Setup setup = random_setup(choices, true);
  // The slow check of the whole structure in some runs only.
  const bool slow = choices.chance(8);
  Life life(choices, setup, kvc::fuzz::library(), judge, true);
  life.check_structure(slow);
  life.run(steps_most, [&] { return choices.used_up(); });
  return 0;
}
