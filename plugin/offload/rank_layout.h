// Where the blocks of every group lie on one rank: the engine's regions, checked, and the classes
// of slots that follow from them (design 2.4 register_regions, R-701 to R-703, CW-7, CW-24).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "plugin/core/result.h"
#include "plugin/core/units.h"
#include "plugin/offload/scheduler_role.h"

namespace kvc {

enum class DeviceKind : std::int32_t { host = 0, cuda = 1 };

// Block i of a region: block_bytes bytes at base + i * stride_bytes.
struct RankRegion {
  std::uint8_t* base = nullptr;
  Bytes size_bytes;
  Bytes stride_bytes;
  Bytes block_bytes;
  DeviceKind device = DeviceKind::host;
  std::int32_t ordinal = 0;
  std::uint32_t layer = 0;  // ascending in the order of a forward; several regions may share it
  std::uint64_t group_mask = 0;  // groups whose blocks live here; several may overlay one region
};

inline constexpr std::uint32_t blocks_per_slot_max = 64;

struct RankLayoutOptions {
  std::uint32_t groups = 0;          // of the model, uncached ones included; 1 .. 64
  std::uint64_t cacheable_mask = 0;  // the groups that need slots
  std::uint64_t device_blocks = 0;   // > 0; UINT64_MAX: grows inside the regions
  BlockId null_block = 0;            // never a source or destination
  // Size of the host tier of this rank; the first that is given counts.
  bool host_unlimited = false;
  std::uint64_t host_blocks = 0;  // in blocks of the group with the largest blocks
  // How many blocks a slot of the group holds, places 0, 1, ...; empty: one of each.
  std::vector<std::uint32_t> blocks_per_slot;
  Bytes host_bytes;
};

// Threads:    immutable after make; any thread.
// Owns:       its copies of the region descriptions; the bytes are the engine's.
// Invariants: every cacheable group has at least one region and belongs to exactly one class;
//             groups are in one class iff their slots have the same bytes: a block's, summed over
//             regions, as often as a slot holds blocks;
//             for a block that in_range accepts, address() + block bytes is inside the region;
//             no two regions of one group share a byte of the same or of different blocks.
class RankLayout {
 public:
  // One stretch of a group's slot: `bytes` of a block in a region, at `slot_offset` in its place.
  struct Piece {
    std::uint32_t region = 0;
    std::uint64_t slot_offset = 0;
    std::uint64_t bytes = 0;
  };

  static constexpr std::uint32_t no_class = UINT32_MAX;
  // Slots are numbered with 32 bits in the plan; the scheduler role keeps one bit for itself.
  static constexpr std::uint64_t slots_max = (std::uint64_t{1} << 31U) - 1;

  // Errors, each with region, group and numbers: arg (an option out of range, null base, a size of
  // 0, overflow, stride < block bytes, region shorter than its blocks, unknown groups or mask 0, a
  // cacheable group without region, regions of one group that share bytes, fewer than 2 slots or
  // more than slots_max),
  // unsupported (device kind, several devices).
  static Result<RankLayout> make(std::span<const RankRegion> regions,
                                 const RankLayoutOptions& options);

  // A page is as large as a slot of the largest class; a class has as many slots on a page of its
  // own as fit. At most slots_max slots in all. UINT64_MAX: grows.
  [[nodiscard]] std::uint64_t pages() const { return pages_; }
  // Where all regions lie.
  [[nodiscard]] DeviceKind device() const { return regions_[0].device; }
  [[nodiscard]] std::int32_t ordinal() const { return regions_[0].ordinal; }
  [[nodiscard]] Bytes page_bytes() const { return {page_bytes_}; }
  [[nodiscard]] std::span<const SlotClass> classes() const { return classes_; }
  // Requires: group < groups(). no_class: not cacheable.
  [[nodiscard]] std::uint32_t class_of(std::uint32_t group) const { return class_of_[group]; }
  // By layer, then in the order of regions.
  [[nodiscard]] std::span<const Piece> pieces(std::uint32_t group) const { return pieces_[group]; }
  // The layers of all cacheable groups, ascending.
  [[nodiscard]] std::span<const std::uint32_t> layers() const { return layers_; }
  // Those pieces of a group that are of layer layers()[index].
  [[nodiscard]] std::span<const Piece> pieces(std::uint32_t group, std::size_t index) const {
    const auto& first = first_piece_[group];
    return std::span(pieces_[group]).subspan(first[index], first[index + 1] - first[index]);
  }
  [[nodiscard]] std::uint32_t groups() const { return static_cast<std::uint32_t>(pieces_.size()); }
  [[nodiscard]] Bytes block_bytes(std::uint32_t group) const { return {bytes_[group]}; }
  [[nodiscard]] std::uint32_t blocks_per_slot(std::uint32_t group) const {
    return options_.blocks_per_slot.empty() ? 1 : options_.blocks_per_slot[group];
  }
  [[nodiscard]] std::uint64_t slot_bytes(std::uint32_t group) const {
    return bytes_[group] * blocks_per_slot(group);
  }
  // The place of a block in its group's slot (docs/formats/plan.md).
  [[nodiscard]] std::uint32_t place_of(std::uint32_t group, std::uint64_t position) const {
    const std::uint32_t n = blocks_per_slot(group);
    return n == 1 ? 0 : static_cast<std::uint32_t>(position % n);
  }

  // Whether `block` of `group` exists: not the null block, below the device blocks and inside every
  // region of the group. Requires: group < groups().
  [[nodiscard]] bool in_range(std::uint32_t group, BlockId block) const;
  // Requires: in_range of a group that has this piece.
  [[nodiscard]] std::uint8_t* address(const Piece& piece, BlockId block) const {
    const RankRegion& r = regions_[piece.region];
    return r.base + static_cast<std::uint64_t>(block) * r.stride_bytes.n;
  }

 private:
  RankLayout() = default;
  Status take_regions(std::span<const RankRegion> regions);
  Status take_groups();
  void make_layers();
  void make_classes();
  Status size_pool();

  RankLayoutOptions options_;
  std::vector<RankRegion> regions_;
  std::vector<std::vector<Piece>> pieces_;  // by group
  std::vector<std::uint32_t> layers_;
  std::vector<std::vector<std::size_t>> first_piece_;  // by group and layer, and one behind
  std::vector<std::uint64_t> bytes_;                   // by group: bytes of a block
  std::vector<std::uint64_t> blocks_;                  // by group: blocks that all its regions hold
  std::vector<std::uint32_t> class_of_;                // by group
  std::vector<SlotClass> classes_;
  std::uint64_t pages_ = 0;
  std::uint64_t page_bytes_ = 0;
};

}  // namespace kvc
