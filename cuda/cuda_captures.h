// Fences of the device as they stood at one moment. Internal to cuda/.
#pragma once
#include <cstdint>
#include <vector>

#include "cuda/copy_engine.h"
#include "cuda/driver/cuda_driver.h"

namespace kvc::cuda {

// A caller's event may be recorded anew, and a stream goes on; an event of our own keeps what was
// meant. An event is caught by one of a few streams that do nothing but wait for such events.
//
// Threads:    one user at a time, with the device's context current.
// Owns:       events and streams, from open to close.
// Invariants: a capture with references stands for the same moment until the last is dropped; at
//             most `max` captures are not free, so the catching streams never fill up.
class CudaCaptures {
 public:
  explicit CudaCaptures(std::uint32_t max);

  // `priority`: of the catching streams.
  Status open(const Driver& driver, int priority);
  // Requires that nothing waits any more.
  void close(const Driver& driver);

  // A capture with one reference. Errors: arg (no event), full, io.
  Result<std::uint32_t> take(const Driver& driver, const Fence& fence, bool skip_wait);
  void add(std::uint32_t capture) { ++captures_[capture].references; }
  void drop(std::uint32_t capture);
  [[nodiscard]] bool known(std::uint32_t capture) const {
    return capture < captures_.size() && captures_[capture].references != 0;
  }
  [[nodiscard]] Event event(std::uint32_t capture) const { return captures_[capture].event; }

  // Whether the copy stream of this direction waits for it already: true from the second time on.
  bool waited(std::uint32_t capture, CopyDirection direction);

 private:
  struct Capture {
    Event event = nullptr;
    std::uint32_t references = 0;
    std::uint32_t catcher = UINT32_MAX;  // stream whose queue holds it until it is reached
    bool waited[2] = {};
  };
  static constexpr std::uint32_t catchers_max = 4;

  Result<std::uint32_t> free_one(const Driver& driver);

  std::uint32_t max_;
  std::vector<Capture> captures_;
  std::vector<std::uint32_t> unused_;  // no references; the event may not be reached yet
  Stream catchers_[catchers_max] = {};
  std::uint32_t caught_[catchers_max] = {};  // captures that the stream may still hold
};

}  // namespace kvc::cuda
