// Model files: the cache geometry of a model, as an engine would hand it to a connector
// (design 2.2), and what the verifiable model of the host engine needs beside it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/parsed.h"

namespace kvc::config {

enum class GroupKind { full, sliding, chunked, state, other };
// Where a state group keeps its states: align = at chunk ends and in place, all = one in
// every block.
enum class StateMode { align, all };

// One cache group. Capabilities that the file does not give follow R-106 for the kind.
struct GroupConfig {
  std::string name;
  std::string origin;  // where the numbers come from; for people
  GroupKind kind = GroupKind::full;
  std::uint64_t tokens_per_block = 0;       // per rank, 1 .. 2^20
  std::uint64_t window_tokens = 0;          // sliding only, 1 .. 2^40
  std::uint64_t chunk_tokens = 0;           // chunked only, 1 .. 2^40
  std::uint64_t extra_retained_tokens = 0;  // kept beyond the window, 0 .. 2^20
  StateMode mode = StateMode::align;        // state only
  bool cacheable = true;                    // default: all kinds but other
  bool draft = false;
  bool sharded = false;  // one block spans context_parallel times its tokens; default: full with
                         // context_parallel > 1
  bool resume_inside_block = false;
  bool fine_lookup = false;     // default: full and state
  bool position_stable = true;  // default: all but state in align mode

  friend bool operator==(const GroupConfig&, const GroupConfig&) = default;
};

struct ModelConfig {
  std::string name;
  std::string origin;
  std::vector<GroupConfig> groups;           // 1 .. 64, in engine order
  std::uint64_t hash_unit_tokens = 0;        // h; given or by R-109
  std::uint64_t scheduler_block_tokens = 0;  // S; given or by R-109
  std::uint64_t context_parallel = 1;        // 1 .. 1024
  std::uint64_t cp_interleave_tokens =
      1;  // token t lives on rank (t / interleave) mod context_parallel
  std::uint64_t sim_bytes_per_token = 8;  // of the verifiable model, a multiple of 8, 8 .. 65536
  std::uint64_t vocabulary = 65'536;      // output token ids are below it, 2 .. 2^31

  // B_g of R-108: tokens one block of the group spans over all ranks.
  [[nodiscard]] static std::uint64_t block_span_tokens(const GroupConfig& group,
                                                       std::uint64_t context_parallel) {
    return group.tokens_per_block * (group.sharded ? context_parallel : 1);
  }

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// A model from TOML text: [model] with name, origin, hash_unit, scheduler_block, context_parallel,
// cp_interleave, sim_bytes_per_token, vocabulary; then one [[group]] per group. Where the file
// gives no hash unit or scheduler block, R-109 decides: S = lcm of all block spans; h = S if there
// is one group or a state group in `all` mode, else the gcd of the spans of the cacheable groups
// (of all groups if none is cacheable). Errors, with place, key, value and what is allowed: as
// parse_simple_cpu, and every layout that R-110 forbids (S not a multiple of h or of a block, a
// cacheable span that is no multiple of h, a sharded group that is not full attention, chunked
// attention under context parallelism). Any bytes are safe input.
Parsed<ModelConfig> parse_model(std::string_view text, std::string_view file);

// All values, defaults included, as TOML that parse_model reads back to an equal struct.
[[nodiscard]] std::string effective_toml(const ModelConfig& model);

}  // namespace kvc::config
