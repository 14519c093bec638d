// The families of cases; one file each.
#pragma once
#include <span>

#include "conformance/cases/case.h"

namespace kvc::conform {

std::span<const Case> negotiation_cases();
std::span<const Case> open_cases();
std::span<const Case> host_cases();
std::span<const Case> growth_cases();
std::span<const Case> request_cases();
std::span<const Case> rank_join_cases();
std::span<const Case> load_cases();
std::span<const Case> layer_cases();
std::span<const Case> hint_cases();
std::span<const Case> store_cases();
std::span<const Case> completion_cases();
std::span<const Case> point_cases();
std::span<const Case> query_cases();
std::span<const Case> rank_cases();
std::span<const Case> memory_cases();
std::span<const Case> hostile_cases();
std::span<const Case> data_cases();
std::span<const Case> random_cases();

}  // namespace kvc::conform
