// The disk tier against fio on the same device, the cost of its checksums, and of its open
// (docs/performance.md). KVC_BENCH_DISK names the folder to measure in; default: build/bench.
#include <fcntl.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <random>
#include <sstream>

#include "conformance/bench/harness.h"
#include "plugin/core/prng.h"
#include "plugin/offload/disk/disk_store.h"
#include "plugin/offload/disk/tests/block_bytes.h"
#include "plugin/offload/disk/uring.h"

namespace kvc::bench {

namespace {

using namespace kvc::disk;
using disk_test::key_number;

constexpr std::uint64_t mib = std::uint64_t{1} << 20U;
constexpr std::uint64_t place = mib;  // bytes of a transfer, the same for all
constexpr std::uint64_t payload = place - block_header_bytes;
constexpr std::uint64_t blocks = 256;
constexpr std::uint32_t read_depth = 16;
constexpr std::uint32_t write_depth = 8;
constexpr std::size_t pairs = 7;

std::uint64_t wall_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

// A folder on the device to measure, gone afterwards.
class Ground {
 public:
  explicit Ground(const std::string& name) {
    const char* const given = std::getenv("KVC_BENCH_DISK");
    path_ = std::filesystem::path(given != nullptr ? given : "build/bench") / ("disk-" + name);
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  Ground(const Ground&) = delete;
  Ground& operator=(const Ground&) = delete;
  ~Ground() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// A store of `blocks` blocks, all written.
class Tier {
 public:
  Tier(const std::string& folder, bool checksum) : memory_(payload) {
    DiskStoreOptions o;
    o.folder = folder;
    o.budget = {(blocks + 16) * (place + record_bytes) + mib};
    o.payload_of_group = {payload};
    o.checksum = checksum;
    o.io.read_depth = read_depth;
    o.io.write_depth = write_depth;
    o.read_deadline_ns = o.write_deadline_ns = 600'000'000'000;
    auto made = DiskStore::open(o, files_);
    if (!made.ok()) throw std::runtime_error(made.error().text);
    store_ = std::move(made.value());
    Prng rng(1);
    for (std::byte& b : memory_) b = static_cast<std::byte>(rng.next());
    write_all();
  }

  // Nanoseconds a block.
  double read_all(std::uint64_t seed) {
    std::vector<std::uint64_t> order(blocks);
    std::iota(order.begin(), order.end(), std::uint64_t{0});
    std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
    std::vector<std::vector<std::byte>> into(read_depth, std::vector<std::byte>(payload));
    const std::uint64_t begin = wall_ns();
    run(read_depth, [&](std::uint64_t i) {
      return store_->read({i, 0, 16, key_number(order[i]), into[i % read_depth].data()}, wall_ns());
    });
    return static_cast<double>(wall_ns() - begin) / blocks;
  }

  // The same places again, as a full tier does.
  double write_all() {
    KVC_CHECK(store_->reset(UINT64_MAX, wall_ns()) == Code::ok);
    while (store_->open_operations() != 0) take();
    const std::uint64_t begin = wall_ns();
    run(write_depth, [&](std::uint64_t i) {
      Identity what;
      what.end_tokens = 16;
      what.key = key_number(i);
      return store_->write({i, what, memory_.data(), payload}, wall_ns());
    });
    return static_cast<double>(wall_ns() - begin) / blocks;
  }

  [[nodiscard]] bool direct() const { return store_->direct(); }

 private:
  template <class Start>
  void run(std::uint64_t depth, Start start) {
    for (std::uint64_t i = 0; i < blocks; ++i) {
      while (store_->open_operations() >= depth) take();
      if (start(i) != Code::ok) throw std::runtime_error("the disk tier refused an operation");
    }
    while (store_->open_operations() != 0) take();
  }
  void take() {
    DiskDone done[read_depth];
    const std::size_t n = store_->poll(done, wall_ns());
    for (std::size_t i = 0; i < n; ++i) {
      if (done[i].status != Code::ok) throw std::runtime_error("an operation of the tier failed");
    }
    if (n == 0) store_->wait(1'000'000'000);
  }

  PosixFiles files_;
  std::vector<std::byte> memory_;
  std::unique_ptr<DiskStore> store_;
};

// What fio measures: nanoseconds a block. 0: there is no fio.
double fio(const std::string& folder, bool read) {
  const std::string command = fmt::format(
      "fio --name=kvc --filename={}/fio.file --size={}m --io_size={}m --bs=1m --rw={} --direct=1 "
      "--ioengine=io_uring --iodepth={} --minimal --randrepeat=0 2>/dev/null",
      folder, blocks, blocks, read ? "randread" : "randwrite", read ? read_depth : write_depth);
  FILE* const out = ::popen(command.c_str(), "r");
  if (out == nullptr) return 0;
  std::string text;
  char some[4096];
  while (const std::size_t n = std::fread(some, 1, sizeof some, out)) text.append(some, n);
  if (::pclose(out) != 0) return 0;
  // Terse version 3: KiB/s of reads are field 7, of writes field 48.
  std::istringstream fields(text);
  std::string field;
  for (int i = 0; i < (read ? 7 : 48); ++i) std::getline(fields, field, ';');
  const double kib_per_s = std::atof(field.c_str());
  return kib_per_s <= 0 ? 0 : static_cast<double>(mib) / 1024 / kib_per_s * 1e9;
}

// The same without fio: its calls to the system, in a loop.
double raw(const std::string& folder, bool read, std::uint64_t seed) {
  PosixFiles files;
  const int fd = files.open(folder + "/raw.file", O_RDWR | O_CREAT | O_DIRECT);
  const std::uint32_t depth = read ? read_depth : write_depth;
  Staging buffers;
  Uring ring;
  if (fd < 0 || !buffers.create(depth, place).ok() || !ring.open(depth).ok()) {
    throw std::runtime_error("no limit to measure against: neither fio nor io_uring");
  }
  std::vector<std::uint64_t> order(blocks);
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
  const std::uint64_t begin = wall_ns();
  std::uint64_t started = 0;
  std::uint32_t open = 0;
  while (started < blocks || open != 0) {
    while (started < blocks && open < depth) {
      const std::uint32_t buffer = buffers.take();
      KVC_CHECK(ring.push({read ? IoKind::read : IoKind::write, fd, buffers.bytes(buffer), place,
                           order[started++] * place},
                          buffer));
      ++open;
    }
    KVC_CHECK(ring.submit(1) >= 0);
    Uring::Done done;
    while (ring.pop(done)) {
      if (done.result != static_cast<std::int32_t>(place)) throw std::runtime_error("short");
      buffers.give_back(static_cast<std::uint32_t>(done.id));
      --open;
    }
  }
  const double ns = static_cast<double>(wall_ns() - begin) / blocks;
  files.close(fd);
  return ns;
}

template <class Ours>
void against_fio(benchmark::State& state, const Ground& ground, bool read, Ours ours) {
  const bool with_fio = fio(ground.path(), false) > 0 && fio(ground.path(), read) > 0;
  if (!with_fio) raw(ground.path(), false, 1);
  std::uint64_t seed = 1;
  const Comparison c = alternate(pairs, Sense::at_least, ours, [&] {
    return with_fio ? fio(ground.path(), read) : raw(ground.path(), read, ++seed);
  });
  report(state, {0.9, Sense::at_least},
         with_fio ? "ns per MiB; limit: fio" : "ns per MiB; limit: the same calls in a loop", c);
}

void disk_read(benchmark::State& state) {
  for (auto _ : state) {
    const Ground ground("read");
    Tier tier(ground.path(), true);
    std::uint64_t seed = 1;
    against_fio(state, ground, true, [&] { return tier.read_all(++seed); });
    state.counters["O_DIRECT"] = tier.direct() ? 1 : 0;
  }
}
BENCHMARK(disk_read)->Name("disk/read_1MiB_depth_16")->Iterations(1);

void disk_write(benchmark::State& state) {
  for (auto _ : state) {
    const Ground ground("write");
    Tier tier(ground.path(), true);
    against_fio(state, ground, false, [&] { return tier.write_all(); });
    state.counters["O_DIRECT"] = tier.direct() ? 1 : 0;
  }
}
BENCHMARK(disk_write)->Name("disk/write_1MiB_depth_8")->Iterations(1);

void disk_checksum(benchmark::State& state) {
  const bool read = state.range(0) == 0;
  for (auto _ : state) {
    const Ground with("checked");
    const Ground without("unchecked");
    Tier checked(with.path(), true);
    Tier unchecked(without.path(), false);
    std::uint64_t seed = 1;
    const auto measure = [&](Tier& tier) {
      return read ? tier.read_all(++seed) : tier.write_all();
    };
    report(state, {1.05, Sense::at_most}, "ns per MiB; limit: without checksums",
           alternate(
               pairs, Sense::at_most, [&] { return measure(checked); },
               [&] { return measure(unchecked); }));
  }
}
BENCHMARK(disk_checksum)->Name("disk/checksum_read0_write1")->Arg(0)->Arg(1)->Iterations(1);

// An index of a million blocks, written as a tier writes it; the data file is one hole.
void disk_open(benchmark::State& state) {
  constexpr std::uint64_t count = 1'000'000;
  constexpr std::uint64_t small = 16 * 1024;
  for (auto _ : state) {
    const Ground ground("open");
    DiskStoreOptions o;
    o.folder = ground.path();
    o.budget = {2 * count * (place_bytes(small) + record_bytes)};
    o.payload_of_group = {small};
    PosixFiles files;
    const auto open = [&] {
      auto made = DiskStore::open(o, files);
      if (!made.ok()) throw std::runtime_error(made.error().text);
      return std::move(made.value());
    };
    const std::uint64_t generation = open()->generation();
    const int fd =
        files.open(fmt::format("{}/rank-0/blocks-{}.index", ground.path(), small), O_RDWR);
    std::vector<std::uint8_t> records(count * record_bytes);
    for (std::uint64_t i = 0; i < count; ++i) {
      Record r;
      r.state = PlaceState::live;
      r.what.end_tokens = 16;
      r.what.key = key_number(i);
      r.place = i;
      r.generation = generation;
      r.sequence = count - i;
      write_record(r, std::span(records).subspan(i * record_bytes, record_bytes));
    }
    KVC_CHECK(files.write(fd, reinterpret_cast<const std::byte*>(records.data()), records.size(),
                          0) == static_cast<IoResult>(records.size()));
    files.close(fd);
    std::vector<double> seconds;
    for (std::size_t i = 0; i < pairs; ++i) {
      const std::uint64_t begin = wall_ns();
      const auto store = open();
      seconds.push_back(static_cast<double>(wall_ns() - begin) / 1e9);
      KVC_CHECK(store->blocks() == count);
    }
    const double s = median(seconds);
    report(state, {1.0, Sense::at_most}, "s; limit: 1 s", {s, 1.0, s});
  }
}
BENCHMARK(disk_open)->Name("disk/open_1M_blocks")->Iterations(1);

}  // namespace

}  // namespace kvc::bench
