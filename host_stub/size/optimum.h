// What no policy can beat: Belady's choice, with the right not to store at all.
#pragma once
#include <cstdint>

#include "host_stub/size/size_trace.h"
#include "plugin/core/units.h"

namespace kvc::host {

// Hit tokens of the optimum with `slots` slots for whole blocks of `block` tokens, requests one
// after the other: after each request the blocks with the nearest next uses are kept, of equals the
// ones nearer to the root. A parent's next use is never later than its child's, so what is kept is
// closed towards the root, and no policy for whole blocks hits more. Requires block % h == 0.
std::uint64_t optimal_hit_tokens(Tokens block, Tokens hash_unit, const SizeTrace& trace,
                                 std::uint64_t slots);

// Distinct whole blocks of prompts, and hit tokens when all of them are kept. With block == h a
// bound for every layout.
struct Whole {
  std::uint64_t blocks = 0;
  std::uint64_t hit_tokens = 0;
};
Whole whole_blocks(Tokens block, Tokens hash_unit, const SizeTrace& trace);

}  // namespace kvc::host
