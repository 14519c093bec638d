// The same operations on the host backend and on the device, by each way and size.
#include <fmt/format.h>

#include <cstring>

#include "cuda/check/check_device.h"
#include "cuda/host_copy_engine.h"
#include "plugin/core/prng.h"

namespace kvc::check {

namespace {

std::vector<std::byte> noise(std::size_t bytes, std::uint64_t seed) {
  Prng random(seed);
  std::vector<std::byte> out(bytes);
  for (std::byte& b : out) b = static_cast<std::byte>(random.next());
  return out;
}

// Fragments of `bytes`, scattered, some of them neighbours at both ends, at odd places where the
// size is odd.
struct Places {
  std::vector<std::size_t> device;
  std::vector<std::size_t> host;
};

Places places_of(std::size_t bytes, std::size_t room, std::uint64_t seed) {
  Prng random(seed);
  const std::size_t count = std::min<std::size_t>(room / bytes, 300);
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = i;
  for (std::size_t i = count; i > 1; --i) {
    if (random.chance(2, 3)) std::swap(order[i - 1], order[random.below(i)]);
  }
  Places p;
  for (std::size_t i = 0; i < count; ++i) {
    p.device.push_back(order[i] * bytes);
    p.host.push_back(i * bytes);
  }
  return p;
}

std::string compare(const char* what, const std::vector<std::byte>& expected,
                    const std::byte* found, CopyPath path, std::size_t bytes) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == found[i]) continue;
    return fmt::format("{}, fragments of {} bytes by {}: byte {} is {:#x}, expected {:#x}", what,
                       bytes, name_of(path), i, static_cast<unsigned>(found[i]),
                       static_cast<unsigned>(expected[i]));
  }
  return {};
}

void one_size(CheckDevice& device, CudaCopyEngine& engine, CopyPath path, std::size_t bytes,
              std::vector<std::string>& wrong) {
  const std::size_t room = std::min<std::size_t>(device.options().bytes, std::size_t{16} << 20U);
  const Places places = places_of(bytes, room, bytes);
  std::vector<std::byte> twin_device = noise(room, 1);
  std::vector<std::byte> twin_host = noise(room, 2);
  HostCopyOptions o;
  o.workers = 0;
  auto twin = HostCopyEngine::create(o);
  for (const CopyDirection d : {CopyDirection::load, CopyDirection::store}) {
    device.write_device(twin_device);
    std::memcpy(device.host(0), twin_host.data(), room);
    std::vector<CopyDescriptor> real;
    std::vector<CopyDescriptor> copy;
    for (std::size_t i = 0; i < places.device.size(); ++i) {
      std::byte* at = device.device(places.device[i]);
      std::byte* host = device.host(places.host[i]);
      std::byte* at2 = &twin_device[places.device[i]];
      std::byte* host2 = &twin_host[places.host[i]];
      const bool load = d == CopyDirection::load;
      real.push_back(load ? CopyDescriptor{at, host, bytes} : CopyDescriptor{host, at, bytes});
      copy.push_back(load ? CopyDescriptor{at2, host2, bytes} : CopyDescriptor{host2, at2, bytes});
    }
    const CopyOperation op{1, d, real, {}};
    const CopyOperation op2{1, d, copy, {}};
    if (Status s = engine.submit({{}, std::span(&op, 1)}); !s.ok()) {
      wrong.push_back(s.text);
      return;
    }
    KVC_CHECK(twin.value()->submit({{}, std::span(&op2, 1)}).ok());
    finish(engine, {1});
    finish(*twin.value(), {1});
    std::string text = compare("device", twin_device, device.read_device(room).data(), path, bytes);
    if (text.empty()) text = compare("host", twin_host, device.host(0), path, bytes);
    if (!text.empty()) wrong.push_back(text);
    // Stores find other bytes than the loads have written.
    twin_device = noise(room, 3);
  }
}

}  // namespace

std::vector<std::string> check_bytes(CheckDevice& device) {
  std::vector<std::string> wrong;
  for (const CopyPath path : paths) {
    const auto engine = device.engine(path);
    for (const std::size_t bytes : {1U, 3U, 4U, 8U, 12U, 16U, 100U, 512U, 4096U, 4104U, 28U << 10U,
                                    65'536U, 65'537U, 1U << 20U, 4U << 20U, (4U << 20U) + 4U}) {
      one_size(device, *engine, path, bytes, wrong);
    }
    // What was to be tested has been used.
    const CudaCopyCounters c = engine->counters();
    const std::uint64_t calls = path == CopyPath::batch  ? c.batch_calls
                                : path == CopyPath::loop ? c.single_calls
                                                         : c.launches;
    if (calls == 0) {
      wrong.push_back(fmt::format("no copy went by {}: {}", name_of(path), engine->describe()));
    }
  }
  return wrong;
}

}  // namespace kvc::check
