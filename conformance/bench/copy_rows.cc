// The host backend of the copy engine against the best memcpy of the same bytes.
#include <cstring>
#include <vector>

#include "conformance/bench/harness.h"
#include "cuda/host_copy_bytes.h"
#include "cuda/host_copy_engine.h"
#include "plugin/core/prng.h"

namespace kvc::bench {

namespace {

constexpr std::uint64_t total_bytes = std::uint64_t{128} << 20U;
constexpr std::size_t pairs = 15;

// `total_bytes` in fragments of `bytes`, from a tier to device blocks, in random order at both
// ends: neighbours do not stay neighbours, so nothing is merged.
struct Copies {
  explicit Copies(std::uint64_t bytes) : tier(total_bytes), device(total_bytes) {
    const std::uint64_t count = total_bytes / bytes;
    std::vector<std::uint64_t> from(count);
    std::vector<std::uint64_t> to(count);
    Prng random(1);
    for (std::uint64_t i = 0; i < count; ++i) from[i] = to[i] = i;
    for (auto* order : {&from, &to}) {
      for (std::uint64_t i = count; i > 1; --i) {
        std::swap((*order)[i - 1], (*order)[random.below(i)]);
      }
    }
    for (std::uint64_t i = 0; i < total_bytes; i += 8) {
      const std::uint64_t word = random.next();
      std::memcpy(&tier[i], &word, sizeof word);
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      list.push_back({&device[to[i] * bytes], &tier[from[i] * bytes], bytes});
    }
  }
  std::vector<std::byte> tier;
  std::vector<std::byte> device;
  std::vector<CopyDescriptor> list;
};

double limit_ns(const Copies& c, bool streaming) {
  return time_ns([&] {
    for (const CopyDescriptor& d : c.list) {
      if (streaming) {
        copy_detail::copy_streaming(static_cast<std::byte*>(d.dst),
                                    static_cast<const std::byte*>(d.src), d.bytes);
      } else {
        std::memcpy(d.dst, d.src, d.bytes);
      }
    }
  });
}

void host_copy(benchmark::State& state) {
  const auto kib = static_cast<std::uint64_t>(state.range(0));
  for (auto _ : state) {
    const Copies copies(kib << 10U);
    HostCopyOptions o;
    o.workers = 0;
    o.runs_max = copies.list.size();
    auto engine = HostCopyEngine::create(o);
    KVC_CHECK(engine.ok());
    std::uint64_t id = 0;
    const auto ours = [&] {
      return time_ns([&] {
        const CopyOperation op{++id, CopyDirection::load, copies.list, {}};
        KVC_CHECK(engine.value()->submit({{}, std::span(&op, 1)}).ok());
        while (engine.value()->pump(UINT64_MAX) != 0) {
        }
        CopyCompletion done;
        KVC_CHECK(engine.value()->poll(std::span(&done, 1)) == 1 && done.status == Code::ok);
      });
    };
    // Whichever memcpy is the faster one here.
    static_cast<void>(ours());
    std::vector<double> plain(5);
    std::vector<double> streaming(5);
    for (std::size_t i = 0; i < plain.size(); ++i) {
      plain[i] = limit_ns(copies, false);
      streaming[i] = limit_ns(copies, true);
    }
    const bool best_streams = median(streaming) < median(plain);
    const Comparison c =
        alternate(pairs, Sense::at_least, ours, [&] { return limit_ns(copies, best_streams); });
    report(
        state, {kib >= 64 ? 0.9 : 0.7, Sense::at_least},
        best_streams ? "ns per 128 MiB; limit: streaming stores" : "ns per 128 MiB; limit: memcpy",
        c);
    state.counters["GB_per_s"] = static_cast<double>(total_bytes) / c.ours;
  }
}
BENCHMARK(host_copy)->Name("copy/host_KiB")->Arg(4)->Arg(64)->Arg(1024)->Iterations(1);

}  // namespace

}  // namespace kvc::bench
