// Order against the compute stream and between the directions. A long fill in front makes the
// device late, so that a copy that does not wait takes the bytes of before.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cuda/check/check_device.h"

namespace kvc::check {

namespace {

constexpr std::uint64_t rounds = 20;
constexpr std::size_t block = std::size_t{64} << 10U;

bool all(const std::byte* p, std::size_t bytes, unsigned char value) {
  return std::all_of(p, p + bytes, [&](std::byte b) { return b == std::byte{value}; });
}

// The device is busy for a while: most of its memory is written, block 0 and 1 are not.
void keep_busy(CheckDevice& d) {
  for (int i = 0; i < 8; ++i) {
    d.check(d.driver().device_memset(d.memory() + 2 * block, static_cast<unsigned char>(i),
                                     d.options().bytes - 2 * block, d.compute()),
            "cuMemsetD8Async");
  }
}

void fill(CheckDevice& d, std::size_t at, unsigned char value) {
  d.check(d.driver().device_memset(d.memory() + at, value, block, d.compute()), "cuMemsetD8Async");
}

struct Scene {
  CheckDevice& device;
  CudaCopyEngine& engine;
  cuda::Event event;
  CopyPath path;
  std::vector<std::string>& wrong;

  [[nodiscard]] Fence fence(bool by_event) const {
    if (!by_event) return {FenceKind::cuda_stream, nullptr, 0, device.compute()};
    device.check(device.driver().event_record(event, device.compute()), "cuEventRecord");
    return {FenceKind::cuda_event, nullptr, 0, event};
  }
  void submit(const std::vector<CopyOperation>& ops, const Fence& f) const {
    if (Status s = engine.submit({f, ops}); !s.ok()) throw std::runtime_error(s.text);
  }
  void expect(bool right, const char* what, std::uint64_t round) const {
    if (!right) {
      wrong.push_back(fmt::format("{}, by {}, round {}", what, name_of(path), round));
    }
  }
};

// Small pieces, so that the kernel takes them too.
std::vector<CopyDescriptor> in_pieces(std::byte* dst, const std::byte* src) {
  std::vector<CopyDescriptor> out;
  constexpr std::size_t piece = 2048;
  for (std::size_t i = block / piece; i-- > 0;) {
    out.push_back({dst + i * piece, src + i * piece, piece});
  }
  return out;
}

void store_after_compute(const Scene& s, std::uint64_t round) {
  CheckDevice& d = s.device;
  const auto value = static_cast<unsigned char>(round + 1);
  fill(d, 0, 0);
  d.check(d.driver().stream_synchronize(d.compute()), "cuStreamSynchronize");
  keep_busy(d);
  fill(d, 0, value);
  const auto copies = in_pieces(d.host(0), d.device(0));
  s.submit({{1, CopyDirection::store, copies, {}}}, s.fence(round % 2 == 0));
  finish(s.engine, {1});
  s.expect(all(d.host(0), block, value), "a store did not wait for the forward", round);
}

void load_after_zeroing(const Scene& s, std::uint64_t round) {
  CheckDevice& d = s.device;
  const auto value = static_cast<unsigned char>(round + 101);
  std::memset(d.host(0), value, block);
  keep_busy(d);
  fill(d, 0, 0);
  const auto copies = in_pieces(d.device(0), d.host(0));
  s.submit({{1, CopyDirection::load, copies, {}}}, s.fence(round % 2 == 0));
  finish(s.engine, {1});
  d.check(d.driver().stream_synchronize(d.compute()), "cuStreamSynchronize");
  s.expect(all(d.read_device(block).data(), block, value), "a load did not wait for the zeroing",
           round);
}

void chained(const Scene& s, std::uint64_t round) {
  CheckDevice& d = s.device;
  const auto value = static_cast<unsigned char>(round + 51);
  std::memset(d.host(0), 0xee, block);
  fill(d, block, 0);
  keep_busy(d);
  fill(d, 0, value);
  const std::uint64_t first = 1;
  const auto out = in_pieces(d.host(0), d.device(0));
  const auto back = in_pieces(d.device(block), d.host(0));
  s.submit(
      {{1, CopyDirection::store, out, {}}, {2, CopyDirection::load, back, std::span(&first, 1)}},
      s.fence(round % 2 == 0));
  finish(s.engine, {1, 2});
  s.expect(all(d.read_device(2 * block).data() + block, block, value),
           "a load overtook the store of its slot", round);
}

}  // namespace

std::vector<std::string> check_order(CheckDevice& device) {
  std::vector<std::string> wrong;
  cuda::Event event = nullptr;
  device.check(device.driver().event_create(&event, cuda::event_disable_timing), "cuEventCreate");
  for (const CopyPath path : paths) {
    const auto engine = device.engine(path);
    const Scene scene{device, *engine, event, path, wrong};
    for (std::uint64_t round = 0; round < rounds; ++round) {
      store_after_compute(scene, round);
      load_after_zeroing(scene, round);
      chained(scene, round);
    }
  }
  device.check(device.driver().event_destroy(event), "cuEventDestroy");
  return wrong;
}

}  // namespace kvc::check
