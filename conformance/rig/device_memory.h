// Where the device blocks of the rig lie: memory of this process, or of a device.
#pragma once
#include <cstdint>
#include <memory>

namespace kvc::rig {

// Threads:    one.
// Owns:       what allocate gave, until release.
// Invariants: the CPU may touch the memory.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  virtual ~DeviceMemory() = default;

  // kvc_region.device_kind of such memory.
  [[nodiscard]] virtual std::int32_t kind() const = 0;
  // Throws std::bad_alloc.
  virtual std::uint8_t* allocate(std::uint64_t bytes) = 0;
  virtual void release(std::uint8_t* memory) = 0;
};

// The memory of worlds that are made from now on; null: that of this process. It outlives them.
void set_device_memory(DeviceMemory* memory);
DeviceMemory& device_memory();

}  // namespace kvc::rig
