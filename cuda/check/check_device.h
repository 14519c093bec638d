// A device, memory at both ends, and engines over them: what the parts of kvc-device-check share.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/cuda_copy_engine.h"
#include "cuda/driver/cuda_driver.h"

namespace kvc::check {

struct CheckOptions {
  std::string driver;  // empty: libcuda.so.1
  std::int32_t device = 0;
  std::uint64_t bytes = std::uint64_t{256} << 20U;  // moved by each measurement
  std::uint64_t repeats = 3;
};

inline constexpr CopyPath paths[] = {CopyPath::batch, CopyPath::loop, CopyPath::kernel};
const char* name_of(CopyPath path);

// Throws std::runtime_error, with the driver's text, where a call fails: this is a check.
//
// Threads:    one.
// Owns:       a stream for "compute", device memory and page-locked host memory of the same size,
//             which the engines that it makes register.
// Invariants: engines are gone before it.
class CheckDevice {
 public:
  explicit CheckDevice(const CheckOptions& options);
  CheckDevice(const CheckDevice&) = delete;
  CheckDevice& operator=(const CheckDevice&) = delete;
  ~CheckDevice();

  // Over this device, with the host memory registered.
  [[nodiscard]] std::unique_ptr<CudaCopyEngine> engine(CopyPath path) const;
  void check(cuda::DriverResult result, const char* what) const;
  // The whole of device memory is set to, or compared with, `image`.
  void write_device(const std::vector<std::byte>& image);
  [[nodiscard]] std::vector<std::byte> read_device(std::size_t bytes);

  [[nodiscard]] std::byte* device(std::size_t offset) const;
  [[nodiscard]] std::byte* host(std::size_t offset) const { return host_ + offset; }
  [[nodiscard]] const cuda::Driver& driver() const { return *driver_; }
  [[nodiscard]] cuda::Stream compute() const { return compute_; }
  [[nodiscard]] cuda::DevicePointer memory() const { return memory_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const CheckOptions& options() const { return options_; }

 private:
  CheckOptions options_;
  std::shared_ptr<const cuda::Driver> driver_;
  std::string name_;
  cuda::Device id_ = 0;
  cuda::Context context_ = nullptr;
  cuda::Stream compute_ = nullptr;
  cuda::DevicePointer memory_ = 0;
  std::byte* host_ = nullptr;
  std::byte* staging_ = nullptr;
};

// Waits until the operations have ended, and throws unless all of them ended well.
void finish(CopyEngine& engine, const std::vector<std::uint64_t>& ops);

// What each part found wrong; empty: nothing.
std::vector<std::string> check_bytes(CheckDevice& device);
std::vector<std::string> check_order(CheckDevice& device);

// A line of the table: bytes a second of one way at one size.
struct Speed {
  std::string way;  // batch, loop, kernel, ceiling, both
  std::string direction;
  std::uint64_t fragment_bytes = 0;
  double gb_per_s = 0;
};
std::vector<Speed> measure_speed(CheckDevice& device);

}  // namespace kvc::check
