#include "plugin/offload/hold_book.h"

#include <algorithm>

#include "plugin/core/op_count.h"

namespace kvc {

HoldBook::HoldBook(const Geometry& geometry, std::uint64_t device_blocks, BlockId null_block)
    : device_blocks_(device_blocks), null_block_(null_block), uses_(geometry.groups()) {
  if (device_blocks_ == UINT64_MAX) {
    reach_ = block_jump;
    return;
  }
  for (const GroupId g : geometry.cacheable()) uses_[g].ensure(device_blocks_);
}

HoldBook::Use& HoldBook::use(GroupId group, BlockId block) {
  KVC_OP(block, 1);
  KVC_CHECK(real(block));
  uses_[group].ensure(static_cast<std::uint64_t>(block) + 1);
  if (device_blocks_ == UINT64_MAX) {
    reach_ = std::max(reach_, std::min(block_limit, block + block_jump));
  }
  return uses_[group][static_cast<std::uint64_t>(block)];
}

const HoldBook::Use* HoldBook::find(GroupId group, BlockId block) const {
  KVC_OP(block, 1);
  const auto i = static_cast<std::uint64_t>(block);
  return real(block) && i < uses_[group].size() ? &uses_[group][i] : nullptr;
}

void HoldBook::table_add(GroupId group, BlockId block, std::uint64_t position) {
  Use& u = use(group, block);
  if (u.tables == 0 && u.holds != 0) --orphaned_;
  ++u.tables;
  ++table_references_;
  u.position = static_cast<std::uint32_t>(position);
}

void HoldBook::table_remove(GroupId group, BlockId block) {
  Use& u = use(group, block);
  KVC_CHECK(u.tables > 0);
  --u.tables;
  --table_references_;
  if (u.tables == 0 && u.holds != 0) ++orphaned_;
}

void HoldBook::hold(GroupId group, BlockId block) {
  Use& u = use(group, block);
  if (u.holds == 0) {
    ++held_;
    if (u.tables == 0) ++orphaned_;
  }
  ++u.holds;
}

void HoldBook::release(GroupId group, BlockId block) {
  Use& u = use(group, block);
  KVC_CHECK(u.holds > 0);
  --u.holds;
  if (u.holds != 0) return;
  --held_;
  if (u.tables == 0) {
    KVC_CHECK(orphaned_ > 0);
    --orphaned_;
  }
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
