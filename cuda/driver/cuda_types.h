// The part of the CUDA driver's binary interface that this tree uses, in types of its own: the CPU
// build needs no toolkit. Values and layouts are those of cuda.h 12.8 and 13.0.
#pragma once
#include <cstddef>
#include <cstdint>

namespace kvc::cuda {

using DriverResult = int;  // CUresult
inline constexpr DriverResult driver_success = 0;
inline constexpr DriverResult driver_invalid_value = 1;
inline constexpr DriverResult driver_out_of_memory = 2;
inline constexpr DriverResult driver_not_initialized = 3;
inline constexpr DriverResult driver_invalid_device = 101;
inline constexpr DriverResult driver_invalid_context = 201;
inline constexpr DriverResult driver_invalid_handle = 400;
inline constexpr DriverResult driver_not_found = 500;
inline constexpr DriverResult driver_not_ready = 600;
inline constexpr DriverResult driver_illegal_address = 700;
inline constexpr DriverResult driver_already_registered = 712;
inline constexpr DriverResult driver_not_registered = 713;
inline constexpr DriverResult driver_launch_failed = 719;

using Device = int;
using DevicePointer = std::uint64_t;  // CUdeviceptr
using Context = struct ContextTag*;
using Stream = struct StreamTag*;
using Event = struct EventTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;

inline constexpr unsigned stream_non_blocking = 1;
inline constexpr unsigned event_disable_timing = 2;
inline constexpr unsigned host_register_portable = 1;
inline constexpr unsigned host_register_device_map = 2;
inline constexpr unsigned host_alloc_portable = 1;
inline constexpr unsigned host_alloc_device_map = 2;

inline constexpr int attribute_compute_capability_major = 75;
inline constexpr int attribute_compute_capability_minor = 76;
// The device reads registered host memory at the address that the host uses.
inline constexpr int attribute_same_host_pointer = 91;

// When the source of a batched copy may be read. `any`: also before earlier work of the stream has
// ended, so only where nothing that is still queued writes the source.
enum class SourceOrder : std::int32_t { stream = 1, during_call = 2, any = 3 };

struct MemoryLocation {
  std::int32_t type = 0;
  std::int32_t id = 0;
};

struct BatchAttributes {  // CUmemcpyAttributes_v1
  SourceOrder source_order = SourceOrder::stream;
  MemoryLocation source_hint;
  MemoryLocation destination_hint;
  std::uint32_t flags = 0;
};
static_assert(sizeof(BatchAttributes) == 24);

}  // namespace kvc::cuda
