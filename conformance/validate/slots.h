// The slots of kvc_plugin_api by number, with what kvc_calls.def says of them.
#pragma once
#include <array>
#include <cstdint>

#include <kvc/kvc_util.h>

namespace kvc::validate {

// In the order of the table: the numbers of a recording. Behind them, and in no recording, those of
// extensions.
enum class Slot : std::uint32_t {
#define KVC_SLOT(slot, handle, role, attributes, minor, need, capability) slot,
#include <kvc/kvc_calls.def>
  retention_boundaries,  // of kvc.retention/1
  count
};
inline constexpr auto recorded_slots = static_cast<std::uint32_t>(Slot::retention_boundaries);

enum class Role : std::uint8_t { ctl, sched, rank, any };
enum class HandleOf : std::uint8_t { none, sched, rank };

struct SlotInfo {
  const char* name;
  HandleOf handle;
  Role role;
  unsigned attributes;  // KVC_ATTR_*

  [[nodiscard]] bool has(unsigned attribute) const { return (attributes & attribute) != 0; }
};

inline constexpr std::array all_slots = std::to_array<SlotInfo>({
#define KVC_SLOT(slot, handle, role, attributes, minor, need, capability) \
  {#slot, HandleOf::handle, Role::role, attributes},
#include <kvc/kvc_calls.def>
    {"boundaries", HandleOf::sched, Role::sched, KVC_ATTR_NOWAIT | KVC_ATTR_NOALLOC},
});
static_assert(all_slots.size() == static_cast<std::size_t>(Slot::count));

constexpr const SlotInfo& info(Slot slot) { return all_slots[static_cast<std::size_t>(slot)]; }

}  // namespace kvc::validate
