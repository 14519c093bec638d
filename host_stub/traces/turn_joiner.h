// Recorded turns of a conversation that share the tokens of an incomplete block.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "host_stub/traces/trace.h"

namespace kvc::host {

// A hash id of a Mooncake row stands for a whole prefix, so the incomplete last block of a prompt
// and the whole block that the next turn has there have different ids, although the turn repeats
// all of the prompt. Under Turns::continued such a block begins with the tokens of the last block.
//
// A row continues another one if its first unknown id stands behind the last whole block of that
// row and has more tokens than were left there, and no more than four unknown ids stood there
// before (more: a shared system prompt). Of several rows that end there it is the latest.
//
// Threads:    one user.
// Owns:       what the ids of the rows so far begin with.
// Invariants: all blocks of one id have equal tokens.
class TurnJoiner {
 public:
  // `whole`: tokens of a whole block.
  TurnJoiner(Turns turns, std::uint64_t whole) : turns_(turns), whole_(whole) {}

  void begin() { row_known_ = true, before_ = nullptr; }
  // Appends the next block of the row: `tokens` tokens, less than `whole` in the last one only.
  void add(std::uint64_t id, std::uint64_t tokens, TraceBuilder& builder);

 private:
  struct Piece {
    std::uint64_t origin;
    std::uint64_t tokens;
  };
  struct Block {
    std::vector<Piece> begin;  // what it begins with; the rest is its own
    // Behind a whole block: the last, incomplete one of the latest row that ended here.
    std::uint64_t tail = 0;
    std::uint64_t tail_tokens = 0;  // 0: no row did
    std::uint32_t followers = 0;    // ids that were unknown when they stood behind it
  };
  [[nodiscard]] std::vector<Piece> pieces_of(std::uint64_t id, std::uint64_t tokens) const;

  Turns turns_;
  std::uint64_t whole_;
  std::unordered_map<std::uint64_t, Block> blocks_;
  bool row_known_ = true;
  Block* before_ = nullptr;  // of the row at hand, the block before
};

}  // namespace kvc::host
