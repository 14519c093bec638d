// What the device side gives keys to (R-330..R-335): it decides what can ever be hit or offloaded.
#pragma once
#include <cstdint>
#include <span>

#include "plugin/coordinator/block_pool.h"
#include "plugin/coordinator/geometry.h"
#include "plugin/coordinator/keys.h"
#include "plugin/core/result.h"
#include "plugin/core/units.h"

namespace kvc {

// What a group of a request registers, at one moment.
struct RegisterInput {
  GroupId group = 0;
  KeyView keys;
  std::span<const BlockId> table;  // positional; null entries are passed over
  Tokens computed;  // t of R-330: tokens computed once the step that is being planned has run
  Tokens prompt;    // P
  Tokens junction;  // hit + uncached common prefix of the request's own lookup; 0: none
  // A boundary whose state somebody wants: inside a block it is keyed as a prompt's tail is. 0 or
  // `computed`.
  Tokens kept = {};
};

struct RegisterOutput {
  std::uint64_t full_blocks = 0;  // positions that got a full-block key now
  // Prefix length under which a partial tail was keyed now; 0: none. Its block is table[tail /
  // B_g].
  Tokens tail;
};

// Registers positions [cursor, cacheable_tokens(t) / B_g) of the group with full-block keys (nulls
// passed over; states that keeps_state() refuses too), then the partial tail: full attention
// whenever the boundary of R-332 is computed and lies inside a block, states only when t is
// exactly that boundary (R-334b). `cursor` moves to the first position not yet decided; reset it to
// 0 with a new table. Stops in front of positions whose key is not in `keys`. Code::arg when the
// table is shorter than the positions to register, or a foreign block.
Code register_blocks(const Geometry& geometry, BlockPool& pool, const RegisterInput& in,
                     std::uint64_t& cursor, RegisterOutput& out);

// R-335 for state groups: whether the state at `end` (a multiple of B_g) is kept under the
// retention option. Dense: always. Else ends on a segment of `retention` tokens, and the last
// A-aligned prefix at or below each replay boundary ({P - 1}, or with draft drops {max(0, rd(P-1,S)
// - S), max(0, rd(P,S) - S)}) and the junction. Other groups: true.
bool keeps_state(const Geometry& geometry, GroupId group, Tokens end, Tokens prompt,
                 Tokens junction);

}  // namespace kvc
