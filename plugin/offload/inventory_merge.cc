#include "plugin/offload/inventory_merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace kvc {

std::size_t InventoryMerge::NameHash::operator()(const Name& n) const {
  // Keys are hashes already, but of shorter ones the end is zeroes.
  std::uint64_t a = 0;
  std::memcpy(&a, n.key.data(), sizeof a);
  return static_cast<std::size_t>((a ^ (std::uint64_t{n.group} << 56U)) * 0x9E3779B97F4A7C15U);
}

Result<bool> InventoryMerge::note(std::uint32_t rank, const disk::InventoryPiece& piece) {
  if (rank >= ranks_.size() || piece.rank != rank) {
    return {Code::arg, fmt::format("inventory: a piece of rank {} from rank {} of {}", piece.rank,
                                   rank, ranks_.size())};
  }
  Rank& r = ranks_[rank];
  if (r.known && r.all != piece.entries_all) {
    return {Code::arg, fmt::format("inventory: rank {} has {} entries, before it said {}", rank,
                                   piece.entries_all, r.all)};
  }
  if (std::find(r.pieces.begin(), r.pieces.end(), piece.first) != r.pieces.end()) return false;
  if (piece.first + piece.entries > piece.entries_all) {
    return {Code::arg, fmt::format("inventory: rank {}: entries {} to {} of {}", rank, piece.first,
                                   piece.first + piece.entries, piece.entries_all)};
  }
  if (!r.known && ranks_.size() > 1) seen_.reserve(std::max(seen_.size(), piece.entries_all));
  r.known = true;
  r.all = piece.entries_all;
  r.told += piece.entries;
  r.pieces.push_back(piece.first);
  if (r.told >= r.all) ++ranks_complete_;
  return true;
}

bool InventoryMerge::see(const disk::InventoryEntry& entry) {
  if (ranks_.size() == 1) return true;
  const Name name{entry.what.group, entry.what.key};
  const auto [it, fresh] = seen_.try_emplace(name, Seen{entry, 0, false});
  Seen& seen = it->second;
  seen.differs = seen.differs || seen.entry.what != entry.what;
  seen.entry.sequence = std::max(seen.entry.sequence, entry.sequence);
  if (++seen.ranks < ranks_.size() || seen.differs) return false;
  seen_.erase(it);
  return true;
}

void InventoryMerge::close() {
  closed_ = true;
  seen_ = {};
}

}  // namespace kvc
