#include "plugin/offload/flows/disk_flow.h"

#include <fmt/format.h>

#include <algorithm>

#include "plugin/core/disk_room.h"

namespace kvc {

namespace {

constexpr std::size_t notes_max = std::size_t{1} << 14U;
constexpr std::uint32_t fills_max = 64;
constexpr std::uint64_t entries_per_run = 4096;

std::uint64_t path_entries_of(const Geometry& geometry, Tokens total) {
  constexpr std::uint64_t unbounded = 65'536;
  if (total == no_token_limit) return unbounded;
  std::uint64_t n = 0;
  for (const GroupId g : geometry.cacheable()) n += geometry.end_position(g, total) + 1;
  return n;
}

std::uint32_t jobs_of(const DiskFlowOptions& o) {
  return o.bytes == 0 ? 0 : std::min<std::uint32_t>(o.open_blocks, 256) + 16 + fills_max;
}

std::uint32_t copies_of(const DiskFlowOptions& o, std::uint64_t path) {
  constexpr std::uint64_t most = std::uint64_t{1} << 20U;
  if (o.bytes == 0) return 0;
  return o.open_blocks + static_cast<std::uint32_t>(std::clamp<std::uint64_t>(4 * path, 256, most));
}

}  // namespace

DiskFlow::DiskFlow(const Geometry& tier_geometry, const OpenLimits& limits,
                   const FlowOptions& options, HostTier& host, RequestTable& requests,
                   EventRing& events, HostServices& services)
    : geometry_(tier_geometry),
      options_(options.disk),
      key_bytes_(limits.key_bytes),
      ranks_(limits.ranks),
      max_total_(limits.max_total_tokens),
      batch_(limits.max_batch_tokens),
      host_(host),
      requests_(requests),
      services_(services),
      index_(tier_geometry, limits.key_bytes, options.chained_index, events),
      both_(host, index_),
      jobs_(limits.ranks, jobs_of(options.disk), fills_max,
            copies_of(options.disk, path_entries_of(tier_geometry, limits.max_total_tokens))),
      merge_(limits.ranks) {
  if (!configured()) return;
  path_entries_ = path_entries_of(tier_geometry, limits.max_total_tokens);
  notes_.reserve(notes_max);
  climb_.reserve(path_entries_);
  pinned_.reserve(path_entries_);
  blocks_.reserve(std::max<std::uint64_t>(2 * path_entries_, 1024) + options_.open_blocks);
  fills_now_.reserve(fills_max + prefetches_max);
  prefetches_.reserve(prefetches_max);
  drained_.reserve(fills_max);
  states_.assign(ranks_, DiskState::on);
  state_reports_.assign(ranks_, 0);
}

Status DiskFlow::set_ranks(std::span<const RankInfo> ranks, std::uint64_t open_runs) {
  if (!configured()) return {};
  DiskSizes sizes;
  // Those of requests, and of what is restored or demoted at the moment.
  sizes.open_runs = open_runs == 0 ? 0 : open_runs + 8;
  sizes.budget_bytes = disk::budget_bytes(options_.bytes, options_.paths);
  for (const RankInfo& rank : ranks) {
    if (rank.inventory.empty()) {
      return {Code::arg, fmt::format("rank {} has no disk tier, and this scheduler's options have "
                                     "one of {} bytes a rank",
                                     rank.rank, options_.bytes)};
    }
    for (const SlotClass& c : rank.classes) {
      const std::uint64_t cost = disk::entry_bytes(c.bytes_per_block.n);
      for (const GroupId g : geometry_.cacheable()) {
        if ((c.group_mask >> g & 1U) == 0) continue;
        sizes.cost_of_group[g] = std::max(sizes.cost_of_group[g], cost);
      }
    }
  }
  if (Status s = index_.resize(sizes); !s.ok()) return s;
  const std::uint64_t total = host_.slots_total();
  std::uint64_t step = 0;
  for (const GroupId g : geometry_.cacheable()) {
    step +=
        blocks_touched(std::min(batch_, Tokens{std::uint64_t{1} << 20U}), geometry_.block_tokens(g))
            .n;
  }
  headroom_ = total == UINT64_MAX ? 0 : std::clamp<std::uint64_t>(step, 1, total / 8 + 1);
  if (max_total_ != no_token_limit) {
    std::uint64_t widest = 0;
    for (const GroupId g : geometry_.cacheable())
      widest = std::max(widest, geometry_.block_tokens(g).n);
    scratch_.resize(ceil_div(max_total_.n + 2 * widest, geometry_.hash_unit().n) * key_bytes_);
    laid_.reserve(3 * path_entries_);
  }
  warming_since_ = services_.now_ns();
  for (const RankInfo& rank : ranks) {
    if (Status s = take_inventory(rank.rank, rank.inventory); !s.ok()) return s;
  }
  return {};
}

Status DiskFlow::take_inventory(std::uint32_t rank, std::span<const std::uint8_t> bytes) {
  const bool open = merge_.open();
  Status s = merge_.take(rank, bytes, [&](const disk::InventoryEntry& entry) { restore(entry); });
  if (s.ok() && open && merge_.complete()) finish_restore();
  return s;
}

void DiskFlow::restore(const disk::InventoryEntry& entry) {
  if (!restore_one(entry)) orphans_.push_back(entry);
}

// False: what the entry hangs on is not there (yet).
bool DiskFlow::restore_one(const disk::InventoryEntry& entry) {
  const disk::Identity& what = entry.what;
  const auto* const key = reinterpret_cast<const std::byte*>(what.key.data());
  const auto* const parent = reinterpret_cast<const std::byte*>(what.parent.data());
  const Tokens end{what.end_tokens};
  const Tokens h = geometry_.hash_unit();
  if (what.group >= geometry_.groups() || !geometry_.group(what.group).cacheable ||
      end == Tokens{} || end.n % h.n != 0 || scratch_.size() / key_bytes_ < end.n / h.n) {
    ++counters_.restore_no_room;
    index_.drop(what.group, key);
    return true;
  }
  SlotId there = no_slot;
  if (index_.find(what.group, key, there) != Presence::absent) return true;
  lay_key(end, key);
  const TierIndex& index = index_.index();
  bool hangs = true;
  if (index.chained()) {
    const GroupId chain = *geometry_.chain();
    const Tokens block = geometry_.block_tokens(chain);
    const Tokens inside{end.n % block.n};
    const bool own = what.group == chain;
    Tokens base = inside == Tokens{} ? end : end - inside + block;
    if (own) base = inside == Tokens{} ? end - block : end - inside;
    const bool parent_there = what.has_parent && index.find(chain, parent) != no_slot;
    hangs =
        own ? base == Tokens{} || parent_there : parent_there || index.find(chain, key) != no_slot;
    if (hangs && what.has_parent && base > Tokens{} && base != end) lay_key(base, parent);
  }
  if (hangs) {
    if (restore_run_ == no_run || restored_in_run_ == entries_per_run) {
      index_.close_run(restore_run_);
      restore_run_ = index_.open_run();
      restored_in_run_ = 0;
    }
    ++restored_in_run_;
    const SlotId to = index_.reserve(what.group, key, laid_path(), end, restore_run_, no_slot);
    if (to == no_slot) {
      ++counters_.restore_no_room;
      index_.drop(what.group, key);
    } else {
      ++counters_.restored;
      index_.publish(to);
    }
  }
  clear_path();
  return hangs;
}

// Roots first; what has no parent goes from the ranks, too.
void DiskFlow::finish_restore() {
  std::sort(orphans_.begin(), orphans_.end(),
            [this](const disk::InventoryEntry& a, const disk::InventoryEntry& b) {
              const bool chain_a = geometry_.chain() == a.what.group;
              const bool chain_b = geometry_.chain() == b.what.group;
              if (chain_a != chain_b) return chain_a;
              return a.what.end_tokens < b.what.end_tokens;
            });
  for (const disk::InventoryEntry& entry : orphans_) {
    if (restore_one(entry)) continue;
    ++counters_.restore_no_parent;
    index_.drop(entry.what.group, reinterpret_cast<const std::byte*>(entry.what.key.data()));
  }
  orphans_ = {};
  merge_.finish([&](const disk::Identity& what) {
    index_.drop(what.group, reinterpret_cast<const std::byte*>(what.key.data()));
  });
  index_.close_run(restore_run_);
  restore_run_ = no_run;
  const InventoryCounters& n = merge_.counters();
  if (n.told == 0) return;
  services_.log(LogLevel::info,
                fmt::format("disk tier: {} blocks are there from before; {} had no parent, {} no "
                            "room, {} were not on every rank",
                            counters_.restored, counters_.restore_no_parent,
                            counters_.restore_no_room, n.disagreed));
}

std::string DiskFlow::explain() const {
  if (!configured()) return "null";
  std::string off;
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    if (states_[r] == DiskState::off) off += fmt::format("{}{}", off.empty() ? "" : ",", r);
  }
  return fmt::format(
      "{{\"bytes\":{},\"paths\":{},\"store\":\"{}\",\"open_blocks\":{},\"blocks\":{},"
      "\"used_bytes\":{},\"ranks_off\":[{}],\"reset_open\":{},\"warming\":{}}}",
      options_.bytes, options_.paths, options_.on_eviction ? "on_eviction" : "write_through",
      options_.open_blocks, index_.numbers().published, index_.used_bytes(), off, reset_open(),
      warming());
}

std::string DiskFlow::verify() const {
  if (!on()) return {};
  if (std::string text = index_.verify(); !text.empty()) return text;
  if (std::string text = jobs_.verify(); !text.empty()) return text;
  if (index_.reserved() != open_spills()) {
    return fmt::format("disk: {} entries are reserved, {} are written", index_.reserved(),
                       open_spills());
  }
  if (!notes_.empty() || !fills_now_.empty()) return "disk: notes of a call outlive it";
  return {};
}

}  // namespace kvc
