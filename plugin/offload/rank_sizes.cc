#include "plugin/offload/rank_sizes.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvc {

namespace {

Status check_numbers(std::uint32_t ranks, std::span<const RankInfo> infos) {
  std::vector<bool> seen(ranks);
  for (const RankInfo& info : infos) {
    if (info.rank >= ranks) {
      return {Code::arg, fmt::format("rank {} of {} ranks", info.rank, ranks)};
    }
    if (seen[info.rank]) return {Code::arg, fmt::format("rank {} is given twice", info.rank)};
    seen[info.rank] = true;
  }
  for (std::uint32_t r = 0; r < ranks; ++r) {
    if (!seen[r]) return {Code::arg, fmt::format("rank {} of {} is missing", r, ranks)};
  }
  return {};
}

Status check_agreement(const RankInfo& a, const RankInfo& b) {
  if (a.classes.size() != b.classes.size()) {
    return {Code::arg, fmt::format("rank {} has {} classes of slots, rank {} has {}", a.rank,
                                   a.classes.size(), b.rank, b.classes.size())};
  }
  for (std::size_t i = 0; i < a.classes.size(); ++i) {
    const SlotClass& x = a.classes[i];
    const SlotClass& y = b.classes[i];
    if (x.class_id != y.class_id || x.group_mask != y.group_mask) {
      return {Code::arg,
              fmt::format("class {} of rank {} has groups {:#x}, class {} of rank {} has {:#x}",
                          x.class_id, a.rank, x.group_mask, y.class_id, b.rank, y.group_mask)};
    }
    if (x.slots_per_page != y.slots_per_page) {
      return {Code::arg,
              fmt::format("class {}: {} slots per page on rank {}, {} on rank {}", x.class_id,
                          x.slots_per_page, a.rank, y.slots_per_page, b.rank)};
    }
  }
  return {};
}

Status place_groups(const Geometry& geometry, const RankInfo& info, TierSizes& sizes) {
  sizes.class_of_group.fill(TierSizes::no_class);
  for (std::size_t i = 0; i < info.classes.size(); ++i) {
    const SlotClass& c = info.classes[i];
    if (c.slots_per_page == 0 || c.slots_per_page > UINT32_MAX) {
      return {Code::arg,
              fmt::format("class {} has {} slots per page", c.class_id, c.slots_per_page)};
    }
    sizes.slots_per_page.push_back(static_cast<std::uint32_t>(c.slots_per_page));
    for (const GroupId g : geometry.cacheable()) {
      if ((c.group_mask >> g & 1U) == 0) continue;
      if (sizes.class_of_group[g] != TierSizes::no_class) {
        return {Code::arg, fmt::format("group {} is in two classes of slots", g)};
      }
      sizes.class_of_group[g] = static_cast<std::uint8_t>(i);
    }
  }
  for (const GroupId g : geometry.cacheable()) {
    if (sizes.class_of_group[g] == TierSizes::no_class) {
      return {Code::arg, fmt::format("group {} is cacheable and in no class of slots", g)};
    }
  }
  return {};
}

}  // namespace

Result<RankSizes> settle_ranks(const Geometry& geometry, std::uint32_t ranks,
                               std::span<const RankInfo> infos) {
  if (Status s = check_numbers(ranks, infos); !s.ok()) return s;
  const RankInfo* first = nullptr;
  const RankInfo* smallest = nullptr;
  for (const RankInfo& info : infos) {
    if (info.rank == 0) first = &info;
    if (smallest == nullptr || info.pages < smallest->pages) smallest = &info;
  }
  if (first->classes.empty() || first->classes.size() > groups_max) {
    return {Code::arg, fmt::format("rank 0 has {} classes of slots, expected 1 to {}",
                                   first->classes.size(), groups_max)};
  }
  for (const RankInfo& info : infos) {
    if (Status s = check_agreement(*first, info); !s.ok()) return s;
  }
  RankSizes out;
  if (Status s = place_groups(geometry, *first, out.sizes); !s.ok()) return s;
  out.sizes.pages = smallest->pages;
  for (const SlotClass& c : first->classes) {
    SlotClass usable = c;
    const bool grows = smallest->pages == UINT64_MAX;
    if (!grows && __builtin_mul_overflow(smallest->pages, c.slots_per_page, &usable.usable_slots)) {
      return {Code::arg,
              fmt::format("{} pages of {} slots overflow", smallest->pages, c.slots_per_page)};
    }
    if (grows) usable.usable_slots = UINT64_MAX;
    if (usable.usable_slots < 2) {
      return {Code::arg,
              fmt::format("class {} (groups {:#x}) has {} slots: {} pages on rank {} with {} slots "
                          "per page; at least 2 slots are needed",
                          c.class_id, c.group_mask, usable.usable_slots, smallest->pages,
                          smallest->rank, c.slots_per_page)};
    }
    out.usable.push_back(usable);
  }
  return out;
}

}  // namespace kvc
