// Zeroed host memory for a tier: an array of equal units, page aligned, mapped in one piece or in
// slabs on demand.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "plugin/core/result.h"
#include "plugin/core/units.h"

namespace kvc {

struct HostArenaOptions {
  Bytes unit_bytes{0};          // size of one unit, > 0
  std::uint64_t units_max = 0;  // > 0
  std::uint64_t units_per_slab =
      0;  // 0: one slab of units_max, mapped by create; else slabs are mapped by grow_to
  bool prefault =
      false;  // write every page when it is mapped, so that no copy pays for the first touch
};

// Threads:    grow_to from one thread at a time; unit() from any thread for units that a grow_to
// before it made
//             usable, except while another thread is inside grow_to.
// Owns:       its mappings, until destruction. Fresh units are all zero bytes.
// Invariants: a unit never crosses a slab, never moves, and starts at slab + index * unit_bytes.
class HostArena {
 public:
  // Errors: arg (a size is 0 or the product overflows), full (the system gives no memory), each
  // with the numbers.
  static Result<std::unique_ptr<HostArena>> create(const HostArenaOptions& options);

  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;
  ~HostArena();

  // Makes units [0, units) usable. Error full: more than units_max, or no memory; what was usable
  // stays so.
  Status grow_to(std::uint64_t units);

  // Requires index < units_usable().
  [[nodiscard]] std::byte* unit(std::uint64_t index) const;

  [[nodiscard]] std::uint64_t units_usable() const { return slabs_.size() * per_slab_; }
  [[nodiscard]] Bytes unit_bytes() const { return options_.unit_bytes; }
  // Bytes of address space mapped.
  [[nodiscard]] Bytes mapped() const { return {slabs_.size() * slab_bytes_}; }
  [[nodiscard]] std::size_t slab_count() const { return slabs_.size(); }
  // Requires slab < slab_count(). The range to pin for a device.
  [[nodiscard]] std::byte* slab_base(std::size_t slab) const;
  [[nodiscard]] Bytes slab_bytes() const { return {slab_bytes_}; }

 private:
  HostArena(const HostArenaOptions& options, std::uint64_t per_slab, std::uint64_t slab_bytes)
      : options_(options), per_slab_(per_slab), slab_bytes_(slab_bytes) {}
  Status map_slab();

  HostArenaOptions options_;
  std::uint64_t per_slab_;
  std::uint64_t slab_bytes_;  // rounded up to pages
  std::vector<std::byte*> slabs_;
};

}  // namespace kvc
