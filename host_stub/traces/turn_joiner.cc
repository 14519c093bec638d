#include "host_stub/traces/turn_joiner.h"

#include <algorithm>

namespace kvc::host {

namespace {

constexpr std::uint32_t followers_of_turns = 4;

}  // namespace

std::vector<TurnJoiner::Piece> TurnJoiner::pieces_of(std::uint64_t id, std::uint64_t tokens) const {
  std::vector<Piece> pieces;
  const auto found = blocks_.find(id);
  if (found != blocks_.end()) {
    for (const Piece& p : found->second.begin) {
      const std::uint64_t part = std::min(p.tokens, tokens);
      if (part != 0) pieces.push_back({p.origin, part});
      tokens -= part;
    }
  }
  if (tokens != 0) pieces.push_back({id, tokens});
  return pieces;
}

void TurnJoiner::add(std::uint64_t id, std::uint64_t tokens, TraceBuilder& builder) {
  if (turns_ == Turns::apart) return builder.add_run(id, tokens);
  // References to elements of an unordered_map stay valid.
  const auto [at, fresh] = blocks_.try_emplace(id);
  Block& block = at->second;
  if (fresh && row_known_ && before_ != nullptr) {
    Block& end = *before_;
    if (end.tail_tokens != 0 && end.tail_tokens < tokens && end.followers <= followers_of_turns) {
      block.begin = pieces_of(end.tail, end.tail_tokens);
    }
    ++end.followers;
  }
  row_known_ = row_known_ && !fresh;
  for (const Piece& p : pieces_of(id, tokens)) builder.add_run(p.origin, p.tokens);
  if (tokens < whole_ && before_ != nullptr) {
    before_->tail = id;
    before_->tail_tokens = tokens;
  }
  before_ = &block;
}

}  // namespace kvc::host
