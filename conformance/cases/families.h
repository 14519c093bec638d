// The families of cases; one file each.
#pragma once
#include <span>

#include "conformance/cases/case.h"

namespace kvc::conform {

std::span<const Case> negotiation_cases();
std::span<const Case> open_cases();
std::span<const Case> growth_cases();

}  // namespace kvc::conform
