// Which entries of a chain are there without the one before them: the book that makes a flat index
// say prefix_closed although its keys come and go in any order (docs/adr/0008).
#pragma once
#include <cstdint>

#include "plugin/coordinator/key_index.h"
#include "plugin/coordinator/slabs.h"
#include "plugin/core/result.h"
#include "plugin/core/units.h"

namespace kvc {

// A node per distinct key of the chain: a present one knows its parent's node and how many present
// children it has itself. An absent parent of present children stays as a *hole*, found by its key;
// a child that came without a parent's key is an *orphan*. While there is neither, every present
// block has the block before it.
//
// Threads:    as the index that owns it.
// Owns:       nodes, and the keys of holes.
// Invariants: nodes in use are the present keys and the holes; a hole has a child; a node's count
//             is the number of present nodes that name it as parent. O(1) per call. Bounded: sized
//             at construction, and memory that was never used is not touched; else grows in slabs.
class ChainBook {
 public:
  // `entries`: the most entries of the index, 0 if it grows. Code::arg, Code::full as
  // FlatIndex::make.
  static Result<ChainBook> make(std::uint32_t key_bytes, ChainSpec chain, std::uint64_t entries);

  // Whether an entry of this group and end belongs in the book: whole blocks of the chain. One
  // whose end is not known is in it too, as an orphan.
  [[nodiscard]] bool takes(GroupId group, std::uint64_t end) const {
    return group == chain_.group && end % chain_.block.n == 0;
  }
  // Room for the next `added` with its entry below `entries`; false: no memory.
  [[nodiscard]] bool make_room(std::uint64_t entries);
  // The first holder of a key came: `entry`, with the prefix of `end` tokens. `parent` is the key
  // of the block before (nullptr: not given), `parent_entry` its first entry or no_entry. Requires
  // takes, make_room.
  void added(std::uint32_t entry, const std::byte* key, std::uint64_t end, const std::byte* parent,
             std::uint32_t parent_entry);
  // The key's last holder goes.
  void removed(std::uint32_t entry, const std::byte* key, std::uint64_t end);
  // Another entry holds the key first now.
  void moved(std::uint32_t from, std::uint32_t to);
  // All entries below `entries` are gone.
  void clear(std::uint64_t entries);

  [[nodiscard]] GroupId group() const { return chain_.group; }
  [[nodiscard]] bool closed() const { return holes_count_ + orphans_ == 0; }
  [[nodiscard]] std::uint64_t holes() const { return holes_count_; }
  [[nodiscard]] std::uint64_t orphans() const { return orphans_; }
  // Memory of the nodes that were in use at once, and of the room for holes if there ever was one.
  [[nodiscard]] std::uint64_t bytes() const;

  // For verify of the index: the nodes of an entry and of its parent (root, orphan or a node) and
  // the present children, and the key of a hole.
  static constexpr std::uint32_t no_entry = UINT32_MAX;
  static constexpr std::uint32_t none = 0;
  static constexpr std::uint32_t root = 1;
  static constexpr std::uint32_t orphan = 2;
  [[nodiscard]] std::uint32_t node_of(std::uint32_t entry) const {
    return entry < node_of_.capacity() ? node_of_[entry] : none;
  }
  [[nodiscard]] std::uint32_t parent_of(std::uint32_t node) const { return nodes_[node].parent; }
  [[nodiscard]] std::uint32_t children_of(std::uint32_t node) const {
    return nodes_[node].children;
  }
  [[nodiscard]] std::uint32_t nodes_end() const { return used_; }
  [[nodiscard]] std::uint64_t nodes_in_use() const { return in_use_; }
  [[nodiscard]] bool is_hole(std::uint32_t node) const {
    return holes_count_ != 0 && holes_.has_keys(node);
  }
  [[nodiscard]] SlotKey hole_key(std::uint32_t node) const { return holes_.primary(node); }
  [[nodiscard]] Status verify_holes() const { return holes_.verify(); }

 private:
  struct Node {
    std::uint32_t parent;  // of a free node: the next free one
    std::uint32_t children;
  };
  static constexpr std::uint32_t first_node = 3;

  ChainBook(ChainSpec chain, FlatIndex holes) : chain_(chain), holes_(std::move(holes)) {}
  [[nodiscard]] std::uint32_t take();
  void give(std::uint32_t node);
  void add_hole(std::uint32_t node, const std::byte* key, std::uint64_t end);
  void drop_hole(std::uint32_t node);

  ChainSpec chain_;
  FlatIndex holes_;  // key of a hole -> its node
  SlabArray<std::uint32_t> node_of_;
  SlabArray<Node> nodes_;
  std::uint32_t used_ = first_node;  // high-water mark
  std::uint32_t free_ = none;
  std::uint64_t in_use_ = 0;
  std::uint64_t holes_count_ = 0;
  std::uint64_t orphans_ = 0;
  bool had_holes_ = false;
};

}  // namespace kvc
