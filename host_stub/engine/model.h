// The verifiable model: what "compute" writes into device blocks, and how output tokens follow from
// what is read back.
//
// The prefix hash after token t, H_t, folds all tokens up to t. An attention group's block holds,
// for each token of its place, words that are H_t shifted by constants of (group, rank, word). A
// state group's block holds one state: the hash folded over the prefix up to the block's boundary,
// in every word shifted by constants of (group, rank, word). A sampled token is a hash of
// everything that its attention or recurrence reads, taken from the bytes of the device blocks of
// all ranks. So a wrong block, a stale state, a missing copy or a race changes outputs, while
// outputs do not depend on block ids, chunks, caching or the number of ranks.
// With several layers each has words of its own, in a stretch of its own of the block.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "host_stub/engine/options.h"
#include "host_stub/engine/rank_memory.h"
#include "plugin/coordinator/block_pool.h"
#include "plugin/coordinator/geometry.h"

namespace kvc::host {

struct ModelShape {
  std::uint64_t bytes_per_token = 8;  // of one layer; a multiple of 8
  std::uint64_t vocabulary = 65'536;
  std::uint64_t seed = 1;
  std::uint32_t ranks = 1;   // a multiple of the geometry's context parallel
  std::uint64_t layers = 1;  // they share a block in equal parts, in order
};

// The first wrong word of a block.
struct Mismatch {
  GroupId group = 0;
  std::uint64_t position = 0;
  BlockId block = 0;
  std::uint64_t token = 0;  // states: tokens before the boundary
  std::uint32_t rank = 0;
  std::uint64_t expected = 0;
  std::uint64_t found = 0;

  [[nodiscard]] std::string text() const;
};

// Threads:    one user, the thread that runs forwards.
// Owns:       nothing; geometry and memory outlive it.
//
// Tables are positional block ids of one group; prefix[t] is H_t. Token ranges are [begin, end),
// absolute. What takes a layer reads or writes that one.
class Model {
 public:
  Model(const Geometry& geometry, const ModelShape& shape,
        std::span<const std::unique_ptr<RankMemory>> memory);

  // Bytes that one layer of blocks of every group needs on one rank: all groups overlay.
  static Bytes layer_bytes(const Geometry& geometry, std::uint64_t bytes_per_token);
  [[nodiscard]] std::uint64_t layers() const { return layers_; }

  // The hash before the first token of a request with this salt.
  [[nodiscard]] std::uint64_t root(std::string_view salt) const;
  // H of one more token.
  [[nodiscard]] static std::uint64_t fold(std::uint64_t hash, TokenId token) {
    std::uint64_t x =
        (hash ^ (std::uint64_t{token} + 1) * 0x9E3779B97F4A7C15U) * 0xD6E8FEB86659FD93U;
    x ^= x >> 32U;
    return x;
  }
  // Appends the hashes of tokens[prefix.size()..].
  void extend(std::uint64_t root_hash, std::span<const TokenId> tokens,
              std::vector<std::uint64_t>& prefix) const;

  // Attention groups: writes the tokens of [begin, end). Every touched position must be in the
  // table.
  void write_tokens(GroupId group, std::span<const BlockId> table,
                    std::span<const std::uint64_t> prefix, std::uint64_t begin, std::uint64_t end,
                    std::uint64_t layer = 0) const;
  // A hash of the tokens of [begin, end) as they stand in the blocks.
  [[nodiscard]] std::uint64_t read_tokens(GroupId group, std::span<const BlockId> table,
                                          std::uint64_t begin, std::uint64_t end,
                                          std::uint64_t layer = 0) const;
  // State groups: the state in `block` on `rank`.
  [[nodiscard]] std::uint64_t load_state(GroupId group, BlockId block, std::uint32_t rank,
                                         std::uint64_t layer = 0) const;
  void store_state(GroupId group, BlockId block, std::uint32_t rank, std::uint64_t state,
                   std::uint64_t layer = 0) const;
  // A hash of the whole state as it stands.
  [[nodiscard]] std::uint64_t read_state(GroupId group, BlockId block,
                                         std::uint64_t layer = 0) const;

  // The output token after reading `group_hashes`, of all layers, at the last of `tokens` tokens.
  [[nodiscard]] TokenId sample(std::span<const std::uint64_t> group_hashes,
                               std::uint64_t tokens) const;

  // Compares position `position` of an attention group below `end` tokens; nullopt: right.
  [[nodiscard]] std::optional<Mismatch> verify_tokens(GroupId group, std::uint64_t position,
                                                      BlockId block,
                                                      std::span<const std::uint64_t> prefix,
                                                      std::uint64_t end,
                                                      std::uint64_t layer = 0) const;
  // Compares a state block with the state after `end` tokens (end >= 1).
  [[nodiscard]] std::optional<Mismatch> verify_state(GroupId group, std::uint64_t position,
                                                     BlockId block,
                                                     std::span<const std::uint64_t> prefix,
                                                     std::uint64_t end,
                                                     std::uint64_t layer = 0) const;

 private:
  // Tokens of one rank in a piece of a block: `count` words groups at word offset `word`, tokens
  // first, first + step..
  struct Piece {
    std::uint64_t first_token = 0;
    std::uint64_t step = 1;
    std::uint64_t count = 0;
    std::uint64_t place = 0;  // token places into the block on this rank
  };
  template <class Visit>
  void for_pieces(GroupId group, std::uint32_t rank, std::uint64_t position, std::uint64_t begin,
                  std::uint64_t end, Visit visit) const;
  static constexpr std::uint64_t layer_step = 0xE7037ED1A0B428DBU;
  [[nodiscard]] std::uint64_t salt(GroupId group, std::uint32_t rank, std::uint64_t layer) const {
    return salts_[group * ranks_ + rank] + layer * layer_step;
  }
  [[nodiscard]] std::uint64_t* words(std::uint32_t rank, BlockId block, std::uint64_t layer) const;
  [[nodiscard]] std::uint64_t state_words(GroupId group) const;
  [[nodiscard]] std::uint64_t read_rank(GroupId group, std::uint32_t rank,
                                        std::span<const BlockId> table, std::uint64_t begin,
                                        std::uint64_t end, std::uint64_t layer) const;

  const Geometry& geometry_;
  std::span<const std::unique_ptr<RankMemory>> memory_;
  std::uint64_t words_per_token_;  // of a layer
  std::uint64_t layers_;
  std::uint64_t layer_bytes_;
  std::uint64_t vocabulary_;
  std::uint64_t seed_;
  std::uint32_t ranks_;
  std::uint32_t cp_;
  std::vector<std::uint64_t> salts_;  // [group][rank]
};

}  // namespace kvc::host
