// What ARC and GDSF must hit on a recorded trace, counted from the file alone, by the block rules
// of lru_hit_tokens: no code of the product is used.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "conformance/acceptance/trace_rules.h"

namespace kvc::acceptance {

// Blocks of 512 tokens, one request after the other, no device cache; a block that something
// continues stays. docs/policies.md says the rest.
std::uint64_t arc_hit_tokens(const std::vector<Row>& rows, std::uint64_t capacity_blocks);
std::uint64_t gdsf_hit_tokens(const std::vector<Row>& rows, std::uint64_t capacity_blocks);

}  // namespace kvc::acceptance
