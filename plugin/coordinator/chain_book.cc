#include "plugin/coordinator/chain_book.h"

#include <new>

namespace kvc {

Result<ChainBook> ChainBook::make(std::uint32_t key_bytes, ChainSpec chain, std::uint64_t entries) {
  // A hole has a present child, so there are at most as many of them as entries.
  const std::uint64_t nodes = entries == 0 ? 0 : 2 * entries + first_node + 2;
  Result<FlatIndex> holes = FlatIndex::make({key_bytes, nodes, 0, false, {}});
  if (!holes.ok()) return holes.error();
  ChainBook book(chain, std::move(holes).value());
  if (!book.node_of_.size_for(entries) || !book.nodes_.size_for(nodes))
    return Status{Code::full, "no memory for the book of the chain"};
  return book;
}

bool ChainBook::make_room(std::uint64_t entries) {
  // The key's own node, and one for a hole before it.
  return node_of_.ensure(entries) && nodes_.ensure(std::uint64_t{used_} + 2);
}

std::uint32_t ChainBook::take() {
  ++in_use_;
  std::uint32_t node = free_;
  if (node != none) {
    free_ = nodes_[node].parent;
  } else {
    node = used_++;
  }
  nodes_[node] = {none, 0};
  return node;
}

void ChainBook::give(std::uint32_t node) {
  --in_use_;
  nodes_[node] = {free_, 0};
  free_ = node;
}

void ChainBook::add_hole(std::uint32_t node, const std::byte* key, std::uint64_t end) {
  const Code c = holes_.insert(chain_.group, key, node, {end});
  if (c == Code::full) throw std::bad_alloc();  // unlimited only
  KVC_CHECK(c == Code::ok);
  ++holes_count_;
  had_holes_ = true;
}

void ChainBook::drop_hole(std::uint32_t node) {
  KVC_CHECK(holes_.erase_slot(node) == 1);
  --holes_count_;
}

void ChainBook::added(std::uint32_t entry, const std::byte* key, std::uint64_t end,
                      const std::byte* parent, std::uint32_t parent_entry) {
  std::uint32_t node = holes_count_ == 0 ? no_slot : holes_.find(chain_.group, key);
  if (node != no_slot)
    drop_hole(node);
  else
    node = take();
  node_of_[entry] = node;
  std::uint32_t above = orphan;
  if (end == chain_.block.n) {
    above = root;
  } else if (end != 0 && parent != nullptr) {
    if (parent_entry != no_entry) {
      above = node_of_[parent_entry] == none ? orphan : node_of_[parent_entry];
    } else {
      above = holes_count_ == 0 ? no_slot : holes_.find(chain_.group, parent);
      if (above == no_slot) {
        above = take();
        add_hole(above, parent, end - chain_.block.n);
      }
    }
  }
  nodes_[node].parent = above;
  if (above == orphan)
    ++orphans_;
  else if (above != root)
    ++nodes_[above].children;
}

void ChainBook::removed(std::uint32_t entry, const std::byte* key, std::uint64_t end) {
  const std::uint32_t node = node_of_[entry];
  KVC_CHECK(node >= first_node);
  node_of_[entry] = none;
  const std::uint32_t above = nodes_[node].parent;
  if (above == orphan) {
    --orphans_;
  } else if (above != root && --nodes_[above].children == 0 && is_hole(above)) {
    drop_hole(above);
    give(above);
  }
  if (nodes_[node].children == 0) return give(node);
  nodes_[node].parent = none;
  add_hole(node, key, end);
}

void ChainBook::moved(std::uint32_t from, std::uint32_t to) {
  node_of_[to] = node_of_[from];
  node_of_[from] = none;
}

void ChainBook::clear(std::uint64_t entries) {
  for (std::uint64_t e = 0; e < entries; ++e) node_of_[e] = none;
  if (holes_count_ != 0) holes_.clear();
  used_ = first_node;
  free_ = none;
  in_use_ = holes_count_ = orphans_ = 0;
}

std::uint64_t ChainBook::bytes() const {
  return node_of_.capacity() * sizeof(std::uint32_t) + std::uint64_t{used_} * sizeof(Node) +
         (had_holes_ ? holes_.counters().bytes : 0);
}

}  // namespace kvc
