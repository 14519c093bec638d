#include "host_stub/engine/device_pool.h"

#include <algorithm>

#include "host_stub/engine/key_chain.h"

namespace kvc::host {

Result<std::unique_ptr<DevicePool>> DevicePool::make(
    const Geometry& geometry, Blocks blocks, std::span<const std::unique_ptr<RankMemory>> memory) {
  BlockPoolOptions options;
  options.blocks = blocks;
  options.key_bytes = engine_key_bytes;
  if (const auto chain = geometry.chain())
    options.chain = ChainSpec{*chain, geometry.block_tokens(*chain)};
  Result<BlockPool> pool = BlockPool::make(options);
  if (!pool.ok()) return pool.error();
  return std::unique_ptr<DevicePool>(new DevicePool(std::move(pool).value(), memory));
}

bool DevicePool::allocate(std::span<BlockId> out) {
  if (out.empty()) return true;
  if (pool_.allocate(out) != Code::ok) return false;
  candidates_.allocated(out);
  if (!pool_.unlimited()) return true;
  for (const auto& memory : memory_) {
    if (!memory->ensure(pool_.blocks())) {
      KVC_CHECK(pool_.free(out) == Code::ok);
      return false;
    }
  }
  return true;
}

bool DevicePool::hold(kvc_job job, std::span<const BlockId> blocks, std::uint64_t step) {
  if (blocks.empty()) return true;
  if (pool_.touch(blocks) != Code::ok) return false;
  candidates_.taken(blocks);
  Hold& hold = holds_[job];
  hold.step = step;
  std::vector<BlockId>& list = hold.blocks;
  for (const BlockId block : blocks) {
    list.push_back(block);
    ++held_[block];
    ++hold_references_;
  }
  return true;
}

void DevicePool::drop(BlockId block) {
  const auto it = held_.find(block);
  KVC_CHECK(it != held_.end());
  if (--it->second == 0) held_.erase(it);
  --hold_references_;
  dropped_.push_back(block);
}

std::uint64_t DevicePool::release(kvc_job job, std::span<const BlockId> order) {
  const auto it = holds_.find(job);
  if (it == holds_.end()) return order.size();
  std::vector<BlockId> list = std::move(it->second.blocks);
  holds_.erase(it);
  std::uint64_t foreign = 0;
  dropped_.clear();
  // Lists are usually given back as they were taken: the search meets the block at once.
  std::size_t from = 0;
  for (const BlockId block : order) {
    const auto at = std::find(list.begin() + static_cast<std::ptrdiff_t>(from), list.end(), block);
    const auto found = at != list.end() ? at : std::find(list.begin(), list.end(), block);
    if (found == list.end()) {
      ++foreign;
      continue;
    }
    drop(block);
    *found = null_block;
    from = static_cast<std::size_t>(found - list.begin()) + 1;
  }
  for (auto i = list.rbegin(); i != list.rend(); ++i) {
    if (*i != null_block) drop(*i);
  }
  const std::span<const BlockId> back = candidates_.released(dropped_);
  KVC_CHECK(pool_.free(dropped_) == Code::ok);
  KVC_CHECK(pool_.free_to_mark(back) == Code::ok);
  return foreign;
}

void DevicePool::jobs_on(BlockId block, std::uint64_t step, std::vector<kvc_job>& jobs) const {
  for (const auto& [job, hold] : holds_) {
    const auto& blocks = hold.blocks;
    if (hold.step == 0 || hold.step >= step) continue;
    if (std::find(blocks.begin(), blocks.end(), block) != blocks.end()) jobs.push_back(job);
  }
}

void DevicePool::release_all() {
  std::vector<kvc_job> jobs;
  for (const auto& [job, hold] : holds_) jobs.push_back(job);
  std::sort(jobs.begin(), jobs.end());
  for (const kvc_job job : jobs) release(job, {});
}

std::uint64_t DevicePool::held_only() const {
  std::uint64_t n = 0;
  for (const auto& [block, count] : held_) n += pool_.references(block) == count ? 1 : 0;
  return n;
}

std::uint64_t DevicePool::holds_on(BlockId block) const {
  const auto it = held_.find(block);
  return it == held_.end() ? 0 : it->second;
}

DeviceUse DevicePool::use() const {
  DeviceUse use;
  use.total = pool_.blocks().n - 1;
  use.used = pool_.used_blocks().n - 1;
  const IndexCounters counters = pool_.counters();
  use.cached = std::min(counters.entries - counters.aliases, use.total - use.used);
  use.bisections = counters.bisections;
  use.linear_walks = counters.linear_walks;
  return use;
}

std::uint64_t DevicePool::has_key(std::uint32_t group, std::int64_t block,
                                  const std::uint8_t* key) const {
  if (block <= 0 || static_cast<std::uint64_t>(block) >= pool_.blocks().n) return 0;
  const auto* const bytes = reinterpret_cast<const std::byte*>(key);
  const auto id = static_cast<BlockId>(block);
  if (!pool_.holds(id, group, bytes)) return 0;
  std::uint64_t end = 0;
  pool_.index().for_each_key(id, [&](const SlotKey& k) {
    if (k.group == group && std::equal(bytes, bytes + engine_key_bytes, k.key)) end = k.end.n;
  });
  return end;
}

std::int64_t DevicePool::block_of(std::uint32_t group, const std::uint8_t* key) const {
  const SlotId slot = pool_.find(group, reinterpret_cast<const std::byte*>(key));
  return slot == no_slot ? -1 : static_cast<std::int64_t>(slot);
}

}  // namespace kvc::host
