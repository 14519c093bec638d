// The slots of kvc_plugin_api with what kvc_calls.def says of them, and behind them the functions
// of extensions that the layer knows.
#pragma once
#include <array>
#include <cstdint>
#include <optional>

#include <kvc/kvc_util.h>

namespace kvc::validate {

enum class Slot : std::uint32_t {
#define KVC_SLOT(slot, handle, role, attributes, minor, need, capability) slot,
#include <kvc/kvc_calls.def>
#define KVC_EXTENSION_SLOT(slot, number, handle, role, attributes) slot,
#include "conformance/validate/extension_calls.def"
  count
};

enum class Role : std::uint8_t { ctl, sched, rank, any };
enum class HandleOf : std::uint8_t { none, sched, rank };

struct SlotInfo {
  const char* name;
  std::uint32_t number;  // in recordings
  HandleOf handle;
  Role role;
  unsigned attributes;  // KVC_ATTR_*

  [[nodiscard]] bool has(unsigned attribute) const { return (attributes & attribute) != 0; }
};

inline constexpr std::array all_slots = std::to_array<SlotInfo>({
#define KVC_SLOT(slot, handle, role, attributes, minor, need, capability) \
  {#slot, static_cast<std::uint32_t>(Slot::slot), HandleOf::handle, Role::role, attributes},
#include <kvc/kvc_calls.def>
#define KVC_EXTENSION_SLOT(slot, number, handle, role, attributes) \
  {#slot, number, HandleOf::handle, Role::role, attributes},
#include "conformance/validate/extension_calls.def"
});
static_assert(all_slots.size() == static_cast<std::size_t>(Slot::count));

// Recordings number the functions of extensions from here on, and the slots below.
inline constexpr std::uint32_t extension_numbers = 256;

constexpr const SlotInfo& info(Slot slot) { return all_slots[static_cast<std::size_t>(slot)]; }

// The slot with this number in a recording; nullopt: none.
constexpr std::optional<Slot> slot_of(std::uint32_t number) {
  for (std::size_t i = 0; i < all_slots.size(); ++i) {
    if (all_slots[i].number == number) return static_cast<Slot>(i);
  }
  return std::nullopt;
}

// All numbers differ, and those of extensions are above the others.
constexpr bool numbers_are_right() {
  bool right = true;
  for (std::size_t i = 0; i < all_slots.size(); ++i) {
    const bool extension = i >= static_cast<std::size_t>(Slot::boundaries);
    right = right && slot_of(all_slots[i].number) == static_cast<Slot>(i) &&
            extension == (all_slots[i].number >= extension_numbers);
  }
  return right;
}
static_assert(numbers_are_right());

}  // namespace kvc::validate
