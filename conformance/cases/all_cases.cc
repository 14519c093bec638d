#include <vector>

#include "conformance/cases/families.h"

namespace kvc::conform {

std::span<const Case> all_cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> some;
    for (const auto family :
         {negotiation_cases, open_cases, host_cases, growth_cases, request_cases, rank_join_cases,
          load_cases, layer_cases, hint_cases, store_cases, completion_cases, point_cases,
          query_cases, rank_cases, memory_cases, hostile_cases, data_cases, random_cases}) {
      const std::span<const Case> cases = family();
      some.insert(some.end(), cases.begin(), cases.end());
    }
    return some;
  }();
  return all;
}

}  // namespace kvc::conform
