// The layout of an instance: what every group is, and every number that follows from it. Nothing
// outside this file multiplies block sizes, places boundaries or decides what a group needs (R-108,
// CW-4, CW-29).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/core/check.h"
#include "plugin/core/result.h"
#include "plugin/core/units.h"

namespace kvc {

// full: causal attention over everything (also MLA, sinks). sliding: the last `window` tokens.
// chunked: the current chunk of `window` tokens. state: one block is the whole state (Mamba and the
// like). other: scratch, never cached.
enum class GroupKind : std::uint8_t { full, sliding, chunked, state, other };
std::string_view name_of(GroupKind kind);

// Index of a group in the full list of groups, uncached ones included (R-104: indices stay dense).
using GroupId = std::uint32_t;
inline constexpr GroupId groups_max = 64;

// One group as the host describes it; the booleans mirror the capability bits of design 2.2.
// A state group in "all" mode is state && position_stable, in "align" mode state &&
// !position_stable (R-106, CW-13).
struct GroupSpec {
  GroupKind kind = GroupKind::full;
  Tokens tokens_per_block;      // per rank, > 0
  Tokens window;                // sliding: window W >= 1; chunked: chunk C >= 1; else 0
  Tokens extra_retained;        // sliding: tokens kept in front of the window; else 0
  bool cacheable = true;        // CACHEABLE
  bool position_stable = true;  // POSITION_STABLE
  bool fine_lookup = true;      // FINE_LOOKUP: full and state groups; refused for windows
  bool state = false;           // STATE: exactly the groups of kind state
  bool sharded = false;  // SHARDED over context parallel ranks: full attention only
  bool draft = false;    // DRAFT: belongs to a draft model
  bool resume_inside_block =
      false;  // RESUME_INSIDE_BLOCK: recorded, not used by the coordinator's lookups
};

// The usual capability bits of a kind, to start from. `all_mode` only matters for state
// groups.
GroupSpec group_spec(GroupKind kind, Tokens tokens_per_block, Tokens window = {},
                     bool all_mode = false);

struct GeometryOptions {
  std::vector<GroupSpec> groups;
  Tokens hash_unit;                    // h, > 0: tokens per key
  Tokens scheduler_block;              // S, > 0, a multiple of h and of every cacheable B_g
  std::uint32_t context_parallel = 1;  // > 0
  Tokens cp_interleave{1};             // > 0; divides tokens_per_block of sharded groups
  bool draft_drop =
      false;  // draft models drop the trailing block. On with no group flagged: no group is a draft
              // group, and a gate says so (O-017, design 2.2; deviates from R-111)
  Tokens lookahead;             // L of multi-token prediction; R = max(0, L - 1)
  std::int64_t retention = -1;  // -1 dense, 0 only semantic boundaries, > 0 a multiple of S
  bool fine_hits_allowed =
      true;  // false: the owner forbids fine-grained hits (lazy offload, R-116)
  // Above 1: the layout of a tier whose slots hold so many consecutive blocks of a group, a chunk
  // (O-010, Geometry::blocks_per_chunk): everything that is said of blocks is said of chunks then,
  // but for what the engine was checked for: S need not be a multiple of a chunk. 1 .. chunk_max.
  std::uint32_t blocks_per_chunk = 1;
};
inline constexpr std::uint32_t chunk_max = 64;

// Why a feature is off (or an option has no effect): for one log line, and for `stats` and
// `explain` for ever.
struct Gate {
  std::string feature;  // one word, stable: "fine_hits", "draft_drop", "full_attention", ...
  std::string why;      // a sentence naming the groups and numbers
};

// Groups that are looked up together: cacheable groups that are described alike, the draft
// flag apart. Full attention comes first, otherwise configuration order.
struct Bundle {
  GroupKind kind = GroupKind::full;
  bool drop = false;  // a member drops its trailing block
  Tokens margin;      // m_e of R-311: how far beyond the candidate a dropping bundle looks
  std::vector<GroupId> members;
};

// Threads:    immutable after make; any thread.
// Owns:       the specs and the derived numbers.
// Invariants: hold; S % B_g == 0 and B_g % h == 0 for every cacheable group; A is h
// or S;
//             for sliding and chunked groups and every end: needed positions are
//             [first_needed_position, end / B).
//
// Group arguments must be < groups(); a foreign index is a broken invariant of the caller.
class Geometry {
 public:
  // Refuses with Code::arg (Code::unsupported for a legal layout we have no rule for) and a text
  // that names the group and the numbers: zero or overflowing sizes, more than 64 groups or none
  // cacheable, R-109/R-110 violations (one group: h == S == B_0), a window on a kind without one,
  // sharded groups that are not full attention, chunked groups under context parallel or
  // flagged draft while draft_drop is on, retention, lookahead > S with draft
  // groups. Sizes are below 2^32 tokens.
  static Result<Geometry> make(GeometryOptions options);

  [[nodiscard]] GroupId groups() const { return static_cast<GroupId>(options_.groups.size()); }
  [[nodiscard]] const GroupSpec& group(GroupId g) const;
  [[nodiscard]] const GeometryOptions& options() const { return options_; }

  // B_g = tokens_per_block x (sharded ? context_parallel : 1): the only multiplication of it
  // . In the layout of a tier with chunks: x blocks_per_chunk(g), C_g.
  [[nodiscard]] Tokens block_tokens(GroupId g) const {
    KVC_CHECK(g < block_tokens_.size());
    return block_tokens_[g];
  }
  [[nodiscard]] Tokens hash_unit() const { return options_.hash_unit; }              // h
  [[nodiscard]] Tokens scheduler_block() const { return options_.scheduler_block; }  // S
  // A: every hit of `lookup` is a multiple of it; h with fine hits, else S (= B_0 with a single
  // group).
  [[nodiscard]] Tokens hit_alignment() const {
    return fine_ ? options_.hash_unit : options_.scheduler_block;
  }
  // How many blocks of the engine make one of group g here; 1 for states (one state is the whole of
  // it) and groups that are not cacheable. Windows have fewer than asked for: one with fine hits,
  // which end in front of a window's last block only; else as many as the engine still has when the
  // last of them is full (OW-28: no chunk has a hole), sliding C_g <= W + extra, chunked
  // W % C_g == 0. gates() names the groups.
  [[nodiscard]] std::uint32_t blocks_per_chunk(GroupId g) const {
    KVC_CHECK(g < chunk_blocks_.size());
    return chunk_blocks_[g];
  }
  // Attention keeps tails inside its blocks (or chunks), at multiples of hit_alignment(): with fine
  // hits, and in chunks of layouts without windows. Where chunks have none gates() says why.
  [[nodiscard]] bool keeps_tails() const { return tails_; }
  // When false although the layout has several groups and h < S, gates() says why and names
  // the groups.
  [[nodiscard]] bool fine_hits() const { return fine_; }
  // More than one group; a single group is looked up without reconciliation.
  [[nodiscard]] bool hybrid() const { return options_.groups.size() > 1; }
  // The drop is on and at least one cacheable group is flagged.
  [[nodiscard]] bool has_drafts() const { return drafts_; }
  // True when group g itself drops its trailing block: has_drafts() and its flag.
  [[nodiscard]] bool drops(GroupId g) const { return drafts_ && group(g).draft; }
  [[nodiscard]] const std::vector<Gate>& gates() const { return gates_; }
  // K6-50: a gate when requests of at most `max_total_tokens` tokens can never be hit in this
  // layout.
  [[nodiscard]] std::optional<Gate> inert(Tokens max_total_tokens) const;

  // Cacheable groups in ascending order.
  [[nodiscard]] const std::vector<GroupId>& cacheable() const { return cacheable_; }
  [[nodiscard]] const std::vector<Bundle>& bundles() const { return bundles_; }
  [[nodiscard]] bool is_state_all(GroupId g) const;    // state, stored by position
  [[nodiscard]] bool is_state_align(GroupId g) const;  // state, stored from hand-offs only
  // `fa`: the cacheable full-attention group with the smallest B_g, ties by lowest index
  // (design 3.1); none if the layout has no full attention.
  [[nodiscard]] std::optional<GroupId> chain() const { return chain_; }

  // R = max(0, L - 1): tail tokens that a later step may rewrite.
  [[nodiscard]] Tokens reprefill_tokens() const;
  // of `confirmed` tokens, how many leading ones group g may key; full blocks below it, that
  // is positions [0, result / B_g). 0 for groups that are not cacheable.
  [[nodiscard]] Tokens cacheable_tokens(GroupId g, Tokens confirmed) const;
  // the prefix length at which group g keeps its tail of a prompt of `prompt` tokens. One
  // function for the device cache and every tier (CW-4). 0: none (windows, uncached groups, short
  // prompts). May be a multiple of B_g: then it is an ordinary block end.
  [[nodiscard]] Tokens prompt_tail_boundary(GroupId g, Tokens prompt) const;
  // prompt_tail_boundary where a partial tail exists and can be hit: keeps_tails(), > 0 and inside
  // a block (R-333, R-334b), in units of hit_alignment(); else 0.
  [[nodiscard]] Tokens partial_tail(GroupId g, Tokens prompt) const;
  // R-106 last column: leading tokens of group g that nobody needs once `computed` tokens are
  // computed.
  [[nodiscard]] Tokens skipped_tokens(GroupId g, Tokens computed) const;
  // The needed set: to continue after `end` tokens group g needs positions
  // [first_needed_position, end_position). full: [0, cdiv(end, B)). state: the one block that
  // contains token end - 1, holding the state *at* end. sliding, chunked: the window or chunk
  // before end. Uncached groups: empty. Empty for end == 0. Equals skipped_tokens(g, end) / B_g for
  // cacheable groups.
  [[nodiscard]] std::uint64_t first_needed_position(GroupId g, Tokens end) const;
  [[nodiscard]] std::uint64_t end_position(GroupId g, Tokens end) const;
  // Tokens covered by position p of a prefix of `end` tokens end at min((p + 1) * B_g, end).
  [[nodiscard]] Tokens position_end(GroupId g, std::uint64_t position, Tokens end) const;
  // Whether group g can serve a prefix ending at `end` at all, whatever is held: end % A == 0, and
  // for windows and coarse groups end % B_g == 0.
  [[nodiscard]] bool legal_end(GroupId g, Tokens end) const;

 private:
  explicit Geometry(GeometryOptions options) : options_(std::move(options)) {}
  Status check_sizes();
  Status check_group(GroupId g) const;
  [[nodiscard]] std::string fitting_hash_unit() const;
  [[nodiscard]] std::string fitting_scheduler_block() const;
  Status check_layout() const;
  void decide_drafts();
  void decide_chunks();
  [[nodiscard]] std::uint32_t chunk_of(GroupId g) const;
  void decide_fine();
  void decide_draft_cost();
  void decide_chain();
  void decide_bundles();

  GeometryOptions options_;
  std::vector<Tokens> block_tokens_;
  std::vector<std::uint32_t> chunk_blocks_;
  std::vector<GroupId> cacheable_;
  std::vector<Bundle> bundles_;
  std::vector<Gate> gates_;
  std::optional<GroupId> chain_;
  bool fine_ = false;
  bool tails_ = false;
  bool drafts_ = false;
};

// blocks of a tier of `capacity` bytes when `device_blocks` blocks take `device_bytes`
// bytes, its null block included. Code::arg naming the numbers for a capacity below two blocks
// (CW-24: the null block alone would store nothing, silently), for zero sizes and for more blocks
// than 2^32.
Result<Blocks> tier_blocks(Bytes capacity, Blocks device_blocks, Bytes device_bytes);

}  // namespace kvc
