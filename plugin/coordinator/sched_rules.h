// Where a prefill chunk must stop so that states exist at useful boundaries: pure
// functions.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "plugin/core/units.h"

namespace kvc {

// The layout's part. Built by chunk_rules(geometry) in the usual case.
struct ChunkRules {
  Tokens
      state_block;    // M: tokens per block of the align-mode state groups; 0: none, no stop points
  Tokens hash_unit;   // h
  bool fine = false;  // fine hits are on and h < S
  bool draft_drop = false;  // the trailing-block drop is on with a draft group
  Tokens max_chunk;         // token budget of a step, or the long-prefill threshold if smaller
  bool stop_at_junction = false;  // the shared-prefix-checkpoint option
  // Smaller blocks of further align-mode state groups. A chunk that begins inside a block of any
  // state group stops at its end: that group's block would keep the state of the chunk's begin
  // under the key of the block's end.
  std::vector<Tokens> smaller_state_blocks;
};

// One request's part.
struct ChunkInput {
  Tokens start;     // computed + local + external: the chunk begins here
  Tokens want;      // tokens the scheduler would give it now
  Tokens prompt;    // P
  Tokens total;     // n
  Tokens junction;  // 0: none
  // The backend exports a checkpoint of its own inside this chunk at this position; 0: no (R-560
  // `internal`).
  Tokens internal_checkpoint;
  // Further stops, ascending, in tokens: boundaries whose states somebody wants.
  std::span<const std::uint64_t> stops = {};
};

// Tokens of the next chunk: input.want clipped to the first stop point. 0: wait for a larger
// budget. Requires want > 0 and total >= prompt.
Tokens clip_chunk(const ChunkRules& rules, const ChunkInput& input);

class Geometry;
// Rules of a layout: M is the block of its align-mode state groups, the largest if they differ.
ChunkRules chunk_rules(const Geometry& geometry, Tokens max_chunk);

}  // namespace kvc
