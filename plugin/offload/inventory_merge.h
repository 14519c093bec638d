// What all ranks have on disk after a restart: their inventories, which come in pieces, as one
// (design 3.2).
#pragma once
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <span>
#include <vector>

#include "plugin/core/result.h"
#include "plugin/offload/disk/format.h"

namespace kvc {

struct InventoryCounters {
  std::uint64_t told = 0;       // entries of all pieces
  std::uint64_t agreed = 0;     // that every rank has, with the same parent and end
  std::uint64_t disagreed = 0;  // that some rank lacks, or has differently
};

// Threads:    scheduler role only.
// Owns:       what not all ranks have told yet; with one rank nothing.
// Invariants: an entry is handed out when the last rank told it, once. Pieces come in any order,
// and
//             more than once. Memory is taken with the first pieces.
class InventoryMerge {
 public:
  explicit InventoryMerge(std::uint32_t ranks) : ranks_(ranks) {}

  // Calls agreed(const disk::InventoryEntry&) for every entry that is on all ranks now. Errors
  // (arg): no inventory, of another rank, numbers that contradict those of another piece.
  template <class Agreed>
  Status take(std::uint32_t rank, std::span<const std::uint8_t> bytes, Agreed agreed);
  // All of all ranks was told.
  [[nodiscard]] bool complete() const { return ranks_complete_ == ranks_.size(); }
  [[nodiscard]] bool open() const { return !closed_ && !complete(); }
  // Calls visit(const disk::Identity&) for what some rank lacks or has differently; forgets all.
  // Requires complete().
  template <class Visit>
  void finish(Visit visit);
  // What comes later is ignored: a reset.
  void close();
  [[nodiscard]] bool closed() const { return closed_; }
  [[nodiscard]] const InventoryCounters& counters() const { return counters_; }

 private:
  struct Rank {
    bool known = false;
    std::uint64_t all = 0;
    std::uint64_t told = 0;
    std::vector<std::uint64_t> pieces;  // first entries of those that came
  };
  struct Name {
    std::uint32_t group = 0;
    disk::Key key{};
    friend bool operator==(const Name&, const Name&) = default;
  };
  struct NameHash {
    std::size_t operator()(const Name& n) const;
  };
  struct Seen {
    disk::InventoryEntry entry;
    std::uint32_t ranks = 0;
    bool differs = false;
  };
  // The piece is new and fits: its numbers are noted.
  Result<bool> note(std::uint32_t rank, const disk::InventoryPiece& piece);
  // Whether this was the last rank, and none has it differently.
  bool see(const disk::InventoryEntry& entry);

  std::vector<Rank> ranks_;
  std::size_t ranks_complete_ = 0;
  bool closed_ = false;
  boost::unordered_flat_map<Name, Seen, NameHash> seen_;
  InventoryCounters counters_;
};

template <class Agreed>
Status InventoryMerge::take(std::uint32_t rank, std::span<const std::uint8_t> bytes,
                            Agreed agreed) {
  if (closed_) return {};
  const auto view = disk::InventoryView::read(bytes);
  if (!view.ok()) return view.error();
  const auto fresh = note(rank, view.value().piece());
  if (!fresh.ok()) return fresh.error();
  if (!fresh.value()) return {};
  for (std::uint32_t i = 0; i < view.value().piece().entries; ++i) {
    const disk::InventoryEntry entry = view.value().entry(i);
    ++counters_.told;
    if (!see(entry)) continue;
    ++counters_.agreed;
    agreed(entry);
  }
  return {};
}

template <class Visit>
void InventoryMerge::finish(Visit visit) {
  for (const auto& [name, seen] : seen_) {
    ++counters_.disagreed;
    visit(seen.entry.what);
  }
  close();
}

}  // namespace kvc
