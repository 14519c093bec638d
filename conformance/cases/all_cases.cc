#include <vector>

#include "conformance/cases/families.h"

namespace kvc::conform {

std::span<const Case> all_cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> some;
    for (const auto family : {negotiation_cases, open_cases, growth_cases}) {
      const std::span<const Case> cases = family();
      some.insert(some.end(), cases.begin(), cases.end());
    }
    return some;
  }();
  return all;
}

}  // namespace kvc::conform
