// Prefixes that an engine pinned (kvc.hints/1): they stay in the host tier until it lets go, or a
// reset.
#pragma once
#include <cstdint>
#include <string>

#include "plugin/coordinator/hit.h"
#include "plugin/offload/lease_table.h"

namespace kvc {

using PinId = std::uint64_t;  // never 0

struct PinCounters {
  std::uint64_t refused = 0;
  std::uint64_t lost = 0;  // ended as a block could not be read and must be written again
};

// Threads:    scheduler role only.
// Owns:       at most `pins_max` pins; each holds its hit as a lease does.
// Invariants: blocks() is the sum over open pins of the blocks that each names, also where they
//             share some. Ids are never reused. No heap after construction for hits up to
//             `max_tokens`.
class PinBook {
 public:
  static constexpr std::uint32_t most = 256;

  // pins_max: at most `most`; 0: every pin is refused.
  PinBook(const Geometry& geometry, HostTier& tier, std::uint32_t pins_max, Tokens max_tokens);

  [[nodiscard]] bool full() const { return table_.open_leases() >= pins_max_; }
  // Holds the hit, which is exchanged for another's memory. Requires !full(), tokens in the hit.
  PinId open(Hit& hit, Tokens max_tokens);
  // False: no pin ever had this id. One that is over is no mistake: nothing happens. Looks at all.
  [[nodiscard]] bool end(PinId pin);
  void end_all();
  // The entry is to be written again in its slot: pins that hold it by itself end.
  void give_up(SlotId entry);

  [[nodiscard]] std::uint64_t open_pins() const { return table_.open_leases(); }
  [[nodiscard]] std::uint64_t blocks() const { return blocks_; }
  [[nodiscard]] std::uint32_t pins_max() const { return pins_max_; }
  void count_refusal() { ++counters_.refused; }
  [[nodiscard]] const PinCounters& counters() const { return counters_; }

  [[nodiscard]] static std::uint64_t blocks_of(const Hit& hit);
  // Slow check for tests; empty text: all invariants hold.
  [[nodiscard]] std::string verify() const;

 private:
  void end_at(std::uint32_t at);

  std::uint32_t pins_max_;
  LeaseTable table_;  // of each: `step` is the pin
  PinId last_ = 0;
  std::uint64_t blocks_ = 0;
  PinCounters counters_;
};

}  // namespace kvc
