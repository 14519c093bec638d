#include "conformance/rig/device_memory.h"

#include <kvc/kvc.h>

namespace kvc::rig {

namespace {

class OwnMemory final : public DeviceMemory {
 public:
  [[nodiscard]] std::int32_t kind() const override { return KVC_DEVICE_HOST; }
  std::uint8_t* allocate(std::uint64_t bytes) override { return new std::uint8_t[bytes]; }
  void release(std::uint8_t* memory) override { delete[] memory; }
};

DeviceMemory*& chosen() {
  static OwnMemory own;
  static DeviceMemory* memory = &own;
  return memory;
}

}  // namespace

void set_device_memory(DeviceMemory* memory) {
  static OwnMemory own;
  chosen() = memory == nullptr ? &own : memory;
}

DeviceMemory& device_memory() { return *chosen(); }

}  // namespace kvc::rig
