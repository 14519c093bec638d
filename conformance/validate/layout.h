// What open said about the engine, in the form that checks need.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <kvc/kvc.h>

#include "conformance/validate/calls.h"

namespace kvc::validate {

// Threads:    immutable after it was made. Owns: values.
// Invariants: no divisor is 0, also if the host passed one.
struct Layout {
  struct Group {
    std::int32_t kind = KVC_GROUP_FULL;
    bool cacheable = false;
    bool stable = false;  // POSITION_STABLE: its tables stand in step records
    bool state = false;
    std::uint64_t span = 1;  // B_g
    std::uint64_t window = 0;
    std::uint64_t extra = 0;
    std::uint64_t table_entries_max = 0;
  };
  std::vector<Group> groups;
  std::uint64_t hash_unit = 1;
  std::uint64_t scheduler_block = 1;
  std::uint32_t ranks = 1;
  std::uint64_t device_blocks = 0;  // UINT64_MAX: grows
  std::int64_t null_block = 0;
  std::uint32_t key_bytes = 16;
  std::uint64_t max_prompt = 0;
  std::uint64_t max_total = 0;
  std::uint64_t max_batch = 0;
  std::uint64_t max_live = 0;
  std::uint64_t steps_in_flight = 1;  // UINT64_MAX: no limit
  std::uint64_t host_caps = 0;

  // The longest lists that an engine which keeps these numbers can pass. Longer ones are not read.
  std::uint64_t scheduled_max = 0;
  std::uint64_t handoffs_max = 0;
  std::uint64_t candidates_max = 0;
  std::uint64_t reports_max = 0;
  std::uint64_t keys_max = 0;

  [[nodiscard]] static Layout of(const OpenIn& open);

  [[nodiscard]] bool rank_verdicts() const { return (host_caps & KVC_HOST_RANK_VERDICTS) != 0; }
  [[nodiscard]] bool stepped() const { return (host_caps & KVC_HOST_STEPPED) != 0; }
  // Neither the null block nor outside the device.
  [[nodiscard]] bool real(std::int64_t block) const {
    return block != null_block && block >= 0 && static_cast<std::uint64_t>(block) < device_blocks;
  }
  // The first position that group g needs to go on after `end` tokens; at least end / span (rounded
  // up) if it needs none (docs/semantics.md section 3).
  [[nodiscard]] std::uint64_t first_needed(std::uint32_t g, std::uint64_t end) const;
};

[[nodiscard]] constexpr std::uint64_t ceil_of(std::uint64_t value, std::uint64_t unit) {
  return value / unit + (value % unit != 0 ? 1 : 0);
}

}  // namespace kvc::validate
