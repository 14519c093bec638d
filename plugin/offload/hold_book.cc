#include "plugin/offload/hold_book.h"

#include <algorithm>

#include "plugin/core/prefetch.h"

namespace kvc {

HoldBook::HoldBook(const Geometry& geometry, std::uint64_t device_blocks, BlockId null_block)
    : device_blocks_(device_blocks), null_block_(null_block), uses_(geometry.groups()) {
  if (device_blocks_ == UINT64_MAX) {
    reach_ = block_jump;
    return;
  }
  for (const GroupId g : geometry.cacheable()) uses_[g].ensure(device_blocks_);
}

void HoldBook::make_room(GroupId group, BlockId block) {
  uses_[group].ensure(static_cast<std::uint64_t>(block) + 1);
  reach_ = std::max(reach_, std::min(block_limit, block + block_jump));
}

std::uint64_t HoldBook::first_unreal(const BlockId* blocks, std::uint64_t first,
                                     std::uint64_t behind) const {
  if (device_blocks_ == UINT64_MAX) return behind;
  // One pass without branches: the sign of `wrong` says whether any block is below 0, above the
  // last, or the null block (where that is a number that a block could have).
  const std::uint64_t last = std::min<std::uint64_t>(device_blocks_, block_limit) - 1;
  const bool null_counts = null_block_ >= 0;
  const std::uint64_t null_block = null_counts ? static_cast<std::uint64_t>(null_block_) : 0;
  const std::uint64_t one = null_counts ? 1 : 0;
  std::uint64_t wrong = 0;
  for (std::uint64_t i = first; i < behind; ++i) {
    const auto block = static_cast<std::uint64_t>(blocks[i]);
    wrong |= block | (last - block) | ((block ^ null_block) - one);
  }
  if (wrong >> 63U == 0) return behind;
  while (first < behind && real(blocks[first])) ++first;
  return first;
}

std::uint64_t HoldBook::name_and_hold(GroupId group, const BlockId* blocks, std::uint64_t first,
                                      std::uint64_t behind) {
  std::uint64_t end = behind;
  if (device_blocks_ == UINT64_MAX) {
    for (end = first; end < behind && real(blocks[end]); ++end) make_room(group, blocks[end]);
  }
  Use* const uses = uses_[group].data();
  const std::uint64_t known = std::min(uses_[group].size(), device_blocks_);
  const BlockId null_block = null_block_;
  std::uint64_t i = first;
  for (; i < end; ++i) {
    const auto soon = static_cast<std::uint64_t>(blocks[std::min(i + ahead, end - 1)]);
    prefetch_write(&uses[soon < known ? soon : 0]);
    const auto block = static_cast<std::uint64_t>(blocks[i]);
    if (block >= known || blocks[i] == null_block || uses[block].holds != 0) break;
    uses[block] = {uses[block].tables + 1, 1, i};
  }
  KVC_OP(block, i - first);
  table_references_ += i - first;
  held_ += i - first;
  return i;
}

const HoldBook::Use* HoldBook::find(GroupId group, BlockId block) const {
  KVC_OP(block, 1);
  const auto i = static_cast<std::uint64_t>(block);
  return real(block) && i < uses_[group].size() ? &uses_[group][i] : nullptr;
}

bool HoldBook::held_by_job(GroupId group, BlockId block) const {
  const Use* u = find(group, block);
  return u != nullptr && u->holds != 0;
}

bool HoldBook::adds_orphan(GroupId group, BlockId block, std::uint32_t own_tables) const {
  const Use* u = find(group, block);
  return u == nullptr || (u->tables <= own_tables && u->holds == 0);
}

bool HoldBook::only_table(GroupId group, BlockId block) const {
  const Use* u = find(group, block);
  return u != nullptr && u->tables == 1 && u->holds != 0;
}

std::uint64_t HoldBook::last_position(GroupId group, BlockId block) const {
  const Use* u = find(group, block);
  return u == nullptr ? 0 : u->position;
}

}  // namespace kvc
