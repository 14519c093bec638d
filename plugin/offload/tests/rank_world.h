// A rank with real memory around it, for tests.
#pragma once
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/host_copy_engine.h"
#include "plugin/offload/rank_engine.h"

namespace kvc::rank_test {

class FakeHost final : public HostServices {
 public:
  void log(LogLevel level, std::string_view text) override { lines.emplace_back(level, text); }
  [[nodiscard]] std::uint64_t now_ns() override { return now; }
  [[nodiscard]] bool can_query_blocks() const override { return false; }
  [[nodiscard]] bool has_key(std::uint32_t, BlockId, const std::uint8_t*, Tokens&) override {
    return false;
  }
  [[nodiscard]] bool block_of(std::uint32_t, const std::uint8_t*, BlockId&) override {
    return false;
  }

  std::uint64_t now = 1;
  std::vector<std::pair<LogLevel, std::string>> lines;
};

// The clock moves with the machine's, for tests with threads.
class RealTimeHost final : public HostServices {
 public:
  void log(LogLevel, std::string_view) override {}
  [[nodiscard]] std::uint64_t now_ns() override {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                          std::chrono::steady_clock::now().time_since_epoch())
                                          .count());
  }
  [[nodiscard]] bool can_query_blocks() const override { return false; }
  [[nodiscard]] bool has_key(std::uint32_t, BlockId, const std::uint8_t*, Tokens&) override {
    return false;
  }
  [[nodiscard]] bool block_of(std::uint32_t, const std::uint8_t*, BlockId&) override {
    return false;
  }
};

struct PlannedCopies {
  JobId job = 0;
  std::vector<PlanCopy> copies;
  RequestId request = 1;
  bool in_step = false;  // a load of kvc.layerwise/1
};

inline bool add_job(PlanEncoder& e, JobKind kind, const PlannedCopies& j) {
  if (!e.begin_job(kind, j.job, j.request, Code::ok, j.in_step)) return false;
  for (const PlanCopy& copy : j.copies) {
    if (!e.add_copy(copy)) return false;
  }
  e.end_job();
  return true;
}

inline std::vector<std::uint8_t> make_plan(std::uint64_t epoch, std::uint64_t step,
                                           const std::vector<PlannedCopies>& loads,
                                           const std::vector<PlannedCopies>& stores) {
  std::uint64_t copies = 0;
  for (const auto* list : {&loads, &stores}) {
    for (const auto& j : *list) copies += j.copies.size();
  }
  std::vector<std::uint8_t> bytes(plan_bytes(loads.size() + stores.size(), copies));
  PlanEncoder e(bytes);
  e.begin(epoch, step);
  bool fits = true;
  for (const auto& j : loads) fits = fits && add_job(e, JobKind::load, j);
  for (const auto& j : stores) fits = fits && add_job(e, JobKind::store, j);
  if (!fits) throw std::logic_error("plan does not fit");
  static_cast<void>(e.finish());
  return bytes;
}

struct Seen {
  std::vector<ReportJob> reported;
  std::map<JobId, std::vector<FailedBlock>> failed;
  std::vector<std::pair<JobId, Code>> items;
  std::map<JobId, std::vector<FailedBlock>> item_failed;
};

// Groups 0 and 1 with 48-byte blocks, in regions of 32 and 16 bytes and in one region; group 2 with
// blocks of 16 bytes, three on a page. Each region has the layer that it is given.
struct World {
  static constexpr std::uint64_t blocks = 16;
  static constexpr std::uint64_t epoch = 77;
  static constexpr std::uint64_t block_bytes = 48;

  explicit World(CopyFault* fault = nullptr, RankOptions o = options(),
                 HostCopyOptions c = copies(), std::array<std::uint32_t, 4> layers_of = {})
      : layers(layers_of) {
    c.fault = fault;
    auto engine = HostCopyEngine::create(c);
    if (!engine.ok()) throw std::runtime_error(engine.error().text);
    auto made = RankEngine::create(o, std::move(engine.value()), host);
    if (!made.ok()) throw std::runtime_error(made.error().text);
    rank = std::move(made.value());
    auto info_or = rank->register_regions(regions());
    if (!info_or.ok()) throw std::runtime_error(info_or.error().text);
    info = info_or.value();
    for (std::size_t i = 0; i < device.size(); ++i)
      device[i] = static_cast<std::uint8_t>(i * 7 + 3);
  }

  static RankOptions options() {
    RankOptions o;
    o.rank = 5;
    o.layout.groups = 3;
    o.layout.cacheable_mask = 0b111;
    o.layout.device_blocks = blocks;
    o.layout.null_block = 0;
    o.layout.host_blocks = 8;
    return o;
  }
  static HostCopyOptions copies() {
    HostCopyOptions c;
    c.workers = 0;
    return c;
  }

  std::vector<RankRegion> regions() {
    std::vector<RankRegion> out(4);
    const std::uint64_t at[] = {0, 1024, 2048, 3072};
    const std::uint64_t bytes[] = {32, 16, 48, 16};
    const std::uint64_t stride[] = {32, 24, 48, 16};
    for (std::size_t i = 0; i < 4; ++i) {
      out[i].base = device.data() + at[i];
      out[i].size_bytes = {1024};
      out[i].stride_bytes = {stride[i]};
      out[i].block_bytes = {bytes[i]};
      out[i].layer = layers[i];
      out[i].group_mask = i < 2 ? 0b001 : std::uint64_t{1} << (i - 1);
    }
    return out;
  }

  // The bytes of a block, regions joined.
  std::vector<std::uint8_t> block(std::uint32_t group, BlockId b) {
    std::vector<std::uint8_t> out;
    for (const RankRegion& r : regions()) {
      if ((r.group_mask >> group & 1) == 0) continue;
      const std::uint8_t* p = r.base + static_cast<std::uint64_t>(b) * r.stride_bytes.n;
      out.insert(out.end(), p, p + r.block_bytes.n);
    }
    return out;
  }
  void fill(std::uint32_t group, BlockId b, std::uint8_t seed) {
    for (const RankRegion& r : regions()) {
      if ((r.group_mask >> group & 1) == 0) continue;
      std::uint8_t* p = r.base + static_cast<std::uint64_t>(b) * r.stride_bytes.n;
      for (std::uint64_t i = 0; i < r.block_bytes.n; ++i)
        p[i] = static_cast<std::uint8_t>(seed + i * 3);
    }
  }

  Status submit(const std::vector<PlannedCopies>& loads, const std::vector<PlannedCopies>& stores,
                Fence load_fence = {}, Fence store_fence = {}) {
    const auto plan = make_plan(epoch, ++step, loads, stores);
    if (Status s = rank->submit_loads(plan, load_fence); !s.ok()) return s;
    return rank->submit_stores(plan, store_fence);
  }

  // One progress, decoded.
  Seen progress() {
    Seen out;
    const RankProgress p = rank->progress();
    for (const LoadDone& d : p.loads) {
      out.items.emplace_back(d.job, d.status);
      out.item_failed[d.job].assign(d.failed.begin(), d.failed.end());
    }
    if (p.report.empty()) return out;
    const std::vector<std::uint8_t> bytes(p.report.begin(), p.report.end());
    const auto view = ReportView::read(bytes);
    if (!view.ok()) throw std::runtime_error(view.error().text);
    if (view.value().epoch() != epoch || view.value().rank() != 5 ||
        view.value().sequence() != ++reports) {
      throw std::runtime_error("wrong report header");
    }
    ReportReader reader = view.value().entries();
    ReportEntry entry;
    while (reader.next(entry)) {
      out.reported.push_back(entry.job());
      for (std::uint32_t i = 0; i < entry.failed_count(); ++i)
        out.failed[entry.job().job].push_back(entry.failed(i));
    }
    return out;
  }
  // Does all the work there is, then progress.
  Seen run() {
    while (rank->pump(1000) == Code::later) {
    }
    return progress();
  }

  std::array<std::uint32_t, 4> layers;
  FakeHost host;
  std::vector<std::uint8_t> device = std::vector<std::uint8_t>(4096);
  std::unique_ptr<RankEngine> rank;
  RankInfo info;
  std::uint64_t step = 0;
  std::uint64_t reports = 0;
};

}  // namespace kvc::rank_test
