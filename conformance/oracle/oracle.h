// Answers to "what may be hit, what is needed for it" written from the rules: quadratic, obvious,
// and independent of every other folder, so that a mistake shared with the coordinator is unlikely.
// All sizes are tokens.
//
// Threads: everything is a pure function of its arguments.
#pragma once
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace kvc::oracle {

enum class Kind { full, sliding, chunked, state, other };

// One group and what a cache holds of one request in it.
struct Group {
  Kind kind = Kind::full;
  std::uint64_t rank_block = 0;      // per rank, > 0
  bool sharded = false;              // a block spans rank_block x context_parallel tokens
  std::uint64_t window = 0;          // sliding: W >= 1; chunked: C >= 1
  std::uint64_t extra_retained = 0;  // sliding: kept in front of the window
  bool align = false;                // state groups: states at chunk ends only, not in every block
  bool cacheable = true;
  bool draft = false;  // drops its trailing block (only if the owner of the world lets drafts drop)
  std::uint64_t chunk = 1;  // so many blocks are kept together (set_chunks)
  std::set<std::uint64_t>
      held;  // ends of the prefixes of which the cache holds this group's last block or chunk
};

// A layout with one request in it.
struct World {
  std::vector<Group> groups;
  std::uint64_t hash_unit = 1;        // h
  std::uint64_t scheduler_block = 1;  // S
  std::uint64_t context_parallel = 1;
  bool fine_hits_allowed = true;  // false: the owner forbids hits inside scheduler blocks
  std::uint64_t tokens = 0;       // n; the request has keys for rd(n, h) tokens
  std::uint64_t start = 0;        // tokens the device already has, a multiple of S

  // B_g.
  [[nodiscard]] std::uint64_t span(std::size_t group) const;
  // Tokens of what is kept together: B_g, or C_g in a cache with chunks.
  [[nodiscard]] std::uint64_t kept_span(std::size_t group) const;
};

// hits may end at any multiple of h.
bool fine_hits(const World& world);
// Every hit is a multiple of this: h with fine hits, S without; the block of the only group
//
std::uint64_t alignment(const World& world);

// The cache keeps `wanted` blocks together, or as many as it can: attention all of them; a state
// stands alone; a window as many as it still reaches back to when the last token of a chunk but one
// is computed, and one where hits end at hash units.
void set_chunks(World& world, std::uint64_t wanted);
// The cache may hold ends inside what is kept together, of full attention: with fine hits, and
// where chunks stand beside no windows.
bool keeps_tails(const World& world);

// A group and the number of one of its blocks; block i spans tokens [i * B_g, (i + 1) * B_g), C_g
// for chunks.
using Place = std::pair<std::size_t, std::uint64_t>;

// The blocks without which nobody can go on at token t when the device has the first `start`
// tokens: of a full group every block below t, of windows and chunks every block that they reach
// back to, of states the one with the state at t; only those that end behind `start`. Empty for t
// <= start. Ascending.
std::vector<Place> needed(const World& world, std::uint64_t t);

// Whether the cache holds what group `group` needs for going on at t: every needed block in full,
// or, for the block in which t lies, a held prefix that ends at or behind t inside the same block
// (full attention only: what lies behind t in it does no harm; of a window's chunk the whole). A
// state must be held at exactly t. Groups that are not cacheable never stand in the way.
bool serves(const World& world, std::size_t group, std::uint64_t t);
bool all_serve(const World& world, std::uint64_t t);

// The largest multiple of alignment() in (start, cap] that all groups serve; `start` if there is
// none. At most n - 1. Draft flags do not count.
std::uint64_t best_hit(const World& world, std::uint64_t cap);

// The answer of rules R-301..R-312 as they stand, trailing-block drops of draft groups included.
// Same units as best_hit, and never above it.
std::uint64_t rule_hit(const World& world, std::uint64_t cap);

// where group `group` keeps its tail of a prompt of `prompt` tokens. `drafts_drop`: draft
// models drop the trailing block and some cacheable group is a draft group. 0: no tail.
std::uint64_t tail_boundary(const World& world, std::size_t group, std::uint64_t prompt,
                            bool drafts_drop);

// of `confirmed` tokens, how many leading ones the group may key. `again`: tokens at the end
// that a later step may rewrite (R of R-112). `drafts_drop` as above.
std::uint64_t cacheable_tokens(const World& world, std::size_t group, std::uint64_t confirmed,
                               std::uint64_t again, bool drafts_drop);

}  // namespace kvc::oracle
