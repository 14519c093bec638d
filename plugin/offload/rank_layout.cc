#include "plugin/offload/rank_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace kvc {

namespace {

template <class... Args>
Status bad(fmt::format_string<Args...> text, Args&&... args) {
  return {Code::arg, fmt::format(text, std::forward<Args>(args)...)};
}

std::uint64_t mask_of(std::uint32_t groups) {
  return groups >= 64 ? UINT64_MAX : (std::uint64_t{1} << groups) - 1;
}

Status check_options(const RankLayoutOptions& o) {
  if (o.groups == 0 || o.groups > 64) return bad("{} groups, must be 1 to 64", o.groups);
  if (o.cacheable_mask == 0 || (o.cacheable_mask & ~mask_of(o.groups)) != 0) {
    return bad("cacheable groups {:#x} of {} groups", o.cacheable_mask, o.groups);
  }
  if (o.device_blocks == 0) return bad("0 device blocks");
  if (!o.blocks_per_slot.empty() && o.blocks_per_slot.size() != o.groups) {
    return bad("{} groups have slots of so many blocks, {} groups are there",
               o.blocks_per_slot.size(), o.groups);
  }
  for (const std::uint32_t n : o.blocks_per_slot) {
    if (n == 0 || n > blocks_per_slot_max) {
      return bad("{} blocks per slot, must be 1 to {}", n, blocks_per_slot_max);
    }
  }
  return {};
}

// Bytes from the first byte of block 0 to the last of the last block; the padding behind the last
// block needs not to exist. Requires: blocks > 0.
bool extent(const RankRegion& r, std::uint64_t blocks, std::uint64_t& out) {
  return !__builtin_mul_overflow(blocks - 1, r.stride_bytes.n, &out) &&
         !__builtin_add_overflow(out, r.block_bytes.n, &out);
}

Status check_region(std::size_t i, const RankRegion& r, const RankLayoutOptions& o) {
  const auto where = [&] { return fmt::format("region {} (layer {})", i, r.layer); };
  if (r.device != DeviceKind::host && r.device != DeviceKind::cuda) {
    return {Code::unsupported,
            fmt::format("{}: device kind {} is not supported, only host memory (0) and CUDA (1)",
                        where(), static_cast<std::int32_t>(r.device))};
  }
  if (r.base == nullptr) return bad("{}: null base", where());
  if (r.block_bytes.n == 0) return bad("{}: blocks of 0 bytes", where());
  if (r.stride_bytes.n < r.block_bytes.n) {
    return bad("{}: stride of {} bytes is below the block's {} bytes", where(), r.stride_bytes.n,
               r.block_bytes.n);
  }
  if (r.size_bytes.n > UINTPTR_MAX - reinterpret_cast<std::uintptr_t>(r.base)) {
    return bad("{}: {} bytes at {} go beyond the address space", where(), r.size_bytes.n,
               static_cast<const void*>(r.base));
  }
  const std::uint64_t blocks = o.device_blocks == UINT64_MAX ? 1 : o.device_blocks;
  std::uint64_t need = 0;
  if (!extent(r, blocks, need)) {
    return bad("{}: {} blocks at a stride of {} bytes overflow", where(), blocks, r.stride_bytes.n);
  }
  if (need > r.size_bytes.n) {
    return bad("{}: {} bytes are shorter than {} blocks of {} bytes at a stride of {} ({} bytes)",
               where(), r.size_bytes.n, blocks, r.block_bytes.n, r.stride_bytes.n, need);
  }
  if (r.group_mask == 0) return bad("{}: belongs to no group (mask 0)", where());
  if ((r.group_mask & ~mask_of(o.groups)) != 0) {
    return bad("{}: group mask {:#x} names groups beyond the {} of the model", where(),
               r.group_mask, o.groups);
  }
  return {};
}

// Bytes of a checked region in which blocks can lie.
std::uint64_t reach(const RankRegion& r, std::uint64_t device_blocks) {
  std::uint64_t bytes = 0;
  return device_blocks != UINT64_MAX && extent(r, device_blocks, bytes) ? bytes : r.size_bytes.n;
}

// Whether any block of `a` and any block of `b` may share a byte.
bool share_bytes(const RankRegion& a, const RankRegion& b, std::uint64_t device_blocks) {
  const auto a0 = reinterpret_cast<std::uintptr_t>(a.base);
  const auto b0 = reinterpret_cast<std::uintptr_t>(b.base);
  if (a0 + reach(a, device_blocks) <= b0 || b0 + reach(b, device_blocks) <= a0) return false;
  // Layers side by side in one block: equal strides, different places within the stride.
  if (a.stride_bytes != b.stride_bytes) return true;
  const std::uint64_t stride = a.stride_bytes.n;
  const std::uint64_t b_after_a =
      a0 <= b0 ? (b0 - a0) % stride : stride - 1 - (a0 - b0 - 1) % stride;
  if (b_after_a == 0) return true;
  return b_after_a < a.block_bytes.n || stride - b_after_a < b.block_bytes.n;
}

}  // namespace

Result<RankLayout> RankLayout::make(std::span<const RankRegion> regions,
                                    const RankLayoutOptions& options) {
  if (Status s = check_options(options); !s.ok()) return s;
  RankLayout layout;
  layout.options_ = options;
  if (Status s = layout.take_regions(regions); !s.ok()) return s;
  if (Status s = layout.take_groups(); !s.ok()) return s;
  layout.make_layers();
  layout.make_classes();
  if (Status s = layout.size_pool(); !s.ok()) return s;
  return layout;
}

Status RankLayout::take_regions(std::span<const RankRegion> regions) {
  for (std::size_t i = 0; i < regions.size(); ++i) {
    if (Status s = check_region(i, regions[i], options_); !s.ok()) return s;
    if (regions[i].device != regions[0].device || regions[i].ordinal != regions[0].ordinal) {
      return {Code::unsupported,
              fmt::format("regions 0 and {} lie on different devices: kind {} number {} and kind "
                          "{} number {}; a rank copies from and to one",
                          i, static_cast<std::int32_t>(regions[0].device), regions[0].ordinal,
                          static_cast<std::int32_t>(regions[i].device), regions[i].ordinal)};
    }
    for (std::size_t k = 0; k < i; ++k) {
      const std::uint64_t both = regions[i].group_mask & regions[k].group_mask;
      if (both != 0 && share_bytes(regions[k], regions[i], options_.device_blocks)) {
        return bad("regions {} and {} share bytes and both belong to the groups {:#x}", k, i, both);
      }
    }
  }
  regions_.assign(regions.begin(), regions.end());
  return {};
}

Status RankLayout::take_groups() {
  pieces_.resize(options_.groups);
  bytes_.resize(options_.groups, 0);
  blocks_.resize(options_.groups, options_.device_blocks);
  for (std::uint32_t g = 0; g < options_.groups; ++g) {
    for (std::uint32_t i = 0; i < regions_.size(); ++i) {
      const RankRegion& r = regions_[i];
      if ((r.group_mask >> g & 1) == 0) continue;
      pieces_[g].push_back({i, bytes_[g], r.block_bytes.n});
      if (__builtin_add_overflow(bytes_[g], r.block_bytes.n, &bytes_[g])) {
        return bad("the blocks of group {} are larger than 2^64 bytes", g);
      }
      if (bytes_[g] > UINT64_MAX / blocks_per_slot(g)) {
        return bad("{} blocks of group {} are larger than 2^64 bytes", blocks_per_slot(g), g);
      }
      blocks_[g] = std::min(blocks_[g], (r.size_bytes.n - r.block_bytes.n) / r.stride_bytes.n + 1);
    }
    if (pieces_[g].empty() && (options_.cacheable_mask >> g & 1) != 0) {
      return bad("cacheable group {} has no region on this rank ({} regions given)", g,
                 regions_.size());
    }
  }
  return {};
}

// Where a piece lies in its slot does not depend on its layer's number.
void RankLayout::make_layers() {
  const auto layer_of = [this](const Piece& p) { return regions_[p.region].layer; };
  for (std::uint32_t g = 0; g < options_.groups; ++g) {
    std::stable_sort(pieces_[g].begin(), pieces_[g].end(),
                     [&](const Piece& a, const Piece& b) { return layer_of(a) < layer_of(b); });
    if ((options_.cacheable_mask >> g & 1) == 0) continue;
    for (const Piece& p : pieces_[g]) layers_.push_back(layer_of(p));
  }
  std::sort(layers_.begin(), layers_.end());
  layers_.erase(std::unique(layers_.begin(), layers_.end()), layers_.end());
  first_piece_.resize(options_.groups);
  for (std::uint32_t g = 0; g < options_.groups; ++g) {
    std::size_t at = 0;
    for (const std::uint32_t layer : layers_) {
      while (at < pieces_[g].size() && layer_of(pieces_[g][at]) < layer) ++at;
      first_piece_[g].push_back(at);
    }
    first_piece_[g].push_back(pieces_[g].size());
  }
}

void RankLayout::make_classes() {
  class_of_.assign(options_.groups, no_class);
  for (std::uint32_t g = 0; g < options_.groups; ++g) {
    if ((options_.cacheable_mask >> g & 1) == 0) continue;
    std::size_t at = 0;
    while (at < classes_.size() && classes_[at].bytes_per_block.n != slot_bytes(g)) ++at;
    if (at == classes_.size()) {
      SlotClass fresh;
      fresh.class_id = static_cast<std::uint32_t>(at);
      fresh.bytes_per_block = {slot_bytes(g)};
      classes_.push_back(fresh);
    }
    SlotClass& c = classes_[at];
    c.group_mask |= std::uint64_t{1} << g;
    class_of_[g] = c.class_id;
  }
}

Status RankLayout::size_pool() {
  std::uint64_t smallest = UINT64_MAX;
  for (const SlotClass& c : classes_) {
    page_bytes_ = std::max(page_bytes_, c.bytes_per_block.n);
    smallest = std::min(smallest, c.bytes_per_block.n);
  }
  for (SlotClass& c : classes_) c.slots_per_page = page_bytes_ / c.bytes_per_block.n;
  const std::uint64_t widest = page_bytes_ / smallest;
  if (widest > slots_max / 2) {
    return bad("blocks of {} and of {} bytes in one model: {} slots of the smaller on a page",
               page_bytes_, smallest, widest);
  }
  if (options_.host_unlimited) {
    pages_ = UINT64_MAX;
    return {};
  }
  std::uint64_t budget = options_.host_bytes.n;
  std::uint64_t block = 0;
  for (std::uint32_t g = 0; g < options_.groups; ++g) {
    if (class_of_[g] != no_class) block = std::max(block, bytes_[g]);
  }
  if (options_.host_blocks != 0 && __builtin_mul_overflow(options_.host_blocks, block, &budget)) {
    return bad("{} host blocks of {} bytes overflow", options_.host_blocks, block);
  }
  pages_ = budget / page_bytes_;
  // Below (slots_max + 1) / widest: the scheduler role numbers the slots of all pages.
  const std::uint64_t most = (slots_max + 1) / widest - 1;
  if (pages_ > most) {
    const std::string blocks = options_.host_blocks == 0
                                   ? std::string()
                                   : fmt::format(" ({} blocks)", options_.host_blocks);
    return bad(
        "host pool of {} bytes{} holds {} slots of {} bytes; at most {}, that is {} bytes per "
        "rank, are possible",
        budget, blocks, pages_, page_bytes_, most, most * page_bytes_);
  }
  if (pages_ < 2) {
    return bad(
        "host pool of {} bytes holds {} slot{} of {} bytes; at least 2, that is {} bytes per rank, "
        "are needed",
        budget, pages_, pages_ == 1 ? "" : "s", page_bytes_, page_bytes_ * 2);
  }
  return {};
}

bool RankLayout::in_range(std::uint32_t group, BlockId block) const {
  return block >= 0 && block != options_.null_block &&
         static_cast<std::uint64_t>(block) < blocks_[group];
}

}  // namespace kvc
