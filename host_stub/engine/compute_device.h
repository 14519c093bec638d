// The device that the engine's model runs on when it is not the host itself: a CUDA driver whose
// device memory the CPU may touch, that is the fake one (docs/cuda.md). Block copies and forwards
// are work of its compute stream; fences are events and positions of that stream.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <kvc/kvc.h>

#include "cuda/fake/fake_control.h"
#include "plugin/core/result.h"
#include "plugin/core/units.h"

namespace kvc::host {

// Threads:    one user; the connector's threads use the same driver.
// Owns:       the device's context, compute stream and events. Memory that it gave must be back
//             before it goes.
// Invariants: turns run in the order in which they were launched, inside take_turn and nowhere
//             else; what they touch through touched() is work of the stream.
class ComputeDevice {
 public:
  // `driver` is the path of the fake's library, which begins anew with `seed`. Errors: unsupported
  // (no such library, or a real driver).
  static Result<std::unique_ptr<ComputeDevice>> open(const std::string& driver, std::uint64_t seed);
  ComputeDevice(const ComputeDevice&) = delete;
  ComputeDevice& operator=(const ComputeDevice&) = delete;
  ~ComputeDevice();

  // Null: there is not so much.
  std::byte* allocate(Bytes bytes);
  void free(std::byte* memory);

  // Puts one more turn into the stream: whatever the next take_turn that comes to it will do.
  void launch_turn();
  // A fence for what was launched so far: by turns an event, recorded anew each time, and the
  // stream.
  kvc_fence fence_now();
  // What is launched from here on waits for a fence of somebody else: an event, or none.
  void wait_for(const kvc_fence& fence);
  // Does `work` as the oldest turn that was launched; launches one if there is none. What the
  // stream waits for before it goes on meanwhile.
  void take_turn(const std::function<void()>& work);

  // `bytes` at `p` are read or written by the turn that runs, or by host code if none does.
  void touched(const void* p, std::uint64_t bytes, bool writes) const {
    control_.access(p, bytes, writes ? 1 : 0);
  }
  // What the device found wrong; empty: nothing.
  [[nodiscard]] std::string faults() const;

 private:
  ComputeDevice() = default;
  static void run_turn(void* self);

  std::shared_ptr<const cuda::Driver> driver_;
  cuda::FakeControl control_;
  cuda::Context context_ = nullptr;
  cuda::Stream stream_ = nullptr;
  cuda::Event event_ = nullptr;
  std::uint64_t turns_ = 0;  // launched and not taken
  std::uint64_t fences_ = 0;
  const std::function<void()>* work_ = nullptr;
};

}  // namespace kvc::host
