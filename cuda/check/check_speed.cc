// Bytes a second of each way and size, beside one copy of everything from page-locked memory.
#include <algorithm>
#include <chrono>

#include "cuda/check/check_device.h"

namespace kvc::check {

namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<CopyDescriptor> scattered(const CheckDevice& d, CopyDirection direction,
                                      std::uint64_t bytes, std::uint64_t begin, std::uint64_t end) {
  std::vector<CopyDescriptor> out;
  const std::uint64_t count = (end - begin) / bytes;
  for (std::uint64_t i = 0; i < count; ++i) {
    // Odd steps visit every place once, and no two neighbours in a row.
    const std::uint64_t at = begin + (i * 7919 % count) * bytes;
    std::byte* device = d.device(at);
    std::byte* host = d.host(begin + i * bytes);
    out.push_back(direction == CopyDirection::load ? CopyDescriptor{device, host, bytes}
                                                   : CopyDescriptor{host, device, bytes});
  }
  return out;
}

const char* name_of(CopyDirection d) { return d == CopyDirection::load ? "load" : "store"; }

// The best of some repeats, in GB/s.
template <class Run>
double best(const CheckDevice& d, std::uint64_t bytes, Run&& run) {
  double seconds = 1e9;
  for (std::uint64_t i = 0; i < d.options().repeats; ++i) {
    const double begin = seconds_now();
    run();
    seconds = std::min(seconds, seconds_now() - begin);
  }
  return static_cast<double>(bytes) / seconds / 1e9;
}

double ceiling(CheckDevice& d, CopyDirection direction) {
  // Registered, as the engine's memory is.
  const auto keep = d.engine(CopyPath::batch);
  const cuda::Driver& driver = d.driver();
  const std::uint64_t bytes = d.options().bytes;
  return best(d, bytes, [&] {
    const cuda::DriverResult r =
        direction == CopyDirection::load
            ? driver.copy_to_device(d.memory(), d.host(0), bytes, d.compute())
            : driver.copy_to_host(d.host(0), d.memory(), bytes, d.compute());
    d.check(r, "a copy of everything");
    d.check(driver.stream_synchronize(d.compute()), "cuStreamSynchronize");
  });
}

void submit(CopyEngine& engine, const CopyOperation& op) {
  if (Status s = engine.submit({{}, std::span(&op, 1)}); !s.ok()) throw std::runtime_error(s.text);
}

}  // namespace

std::vector<Speed> measure_speed(CheckDevice& d) {
  std::vector<Speed> out;
  const std::uint64_t all = d.options().bytes;
  constexpr CopyDirection directions[] = {CopyDirection::load, CopyDirection::store};
  for (const CopyDirection direction : directions) {
    out.push_back({"ceiling", name_of(direction), all, ceiling(d, direction)});
  }
  for (const CopyPath path : paths) {
    const auto engine = d.engine(path);
    for (std::uint64_t bytes = 4096; bytes <= std::uint64_t{4} << 20U && bytes <= all; bytes *= 2) {
      for (const CopyDirection direction : directions) {
        const auto copies = scattered(d, direction, bytes, 0, all);
        out.push_back({kvc::check::name_of(path), name_of(direction), bytes, best(d, all, [&] {
                         submit(*engine, {1, direction, copies, {}});
                         finish(*engine, {1});
                       })});
      }
    }
  }
  const auto engine = d.engine(CopyPath::batch);
  for (const std::uint64_t bytes : {std::uint64_t{64} << 10U, std::uint64_t{1} << 20U}) {
    const auto loads = scattered(d, CopyDirection::load, bytes, 0, all / 2);
    const auto stores = scattered(d, CopyDirection::store, bytes, all / 2, all);
    out.push_back({"both", "load+store", bytes, best(d, all, [&] {
                     submit(*engine, {1, CopyDirection::load, loads, {}});
                     submit(*engine, {2, CopyDirection::store, stores, {}});
                     finish(*engine, {1, 2});
                   })});
  }
  return out;
}

}  // namespace kvc::check
