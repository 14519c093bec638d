// The rank role of the toy connector: slots of bytes, copies that wait for their fences.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include <kvc/kvc_util.h>

#include "host_stub/engine/toy_connector.h"

namespace kvc::host::testing {

// Of the handles that are opened next.
ToySettings& toy_settings();

// A plan is a list of these.
struct Copy {
  std::uint64_t job = 0;
  std::uint64_t slot = 0;
  std::int64_t block = 0;
  std::uint64_t load = 0;  // 0: store
  std::uint64_t spoil = 0;
};

// A report is a list of these: the rank has no copy of the job left.
struct RankReport {
  std::uint64_t job = 0;
  std::uint64_t rank = 0;
};

class ToyRank {
 public:
  ToyRank(std::uint32_t rank, const kvc_host_api& host)
      : settings(toy_settings()), rank_(rank), host_(host) {}

  void set_region(const kvc_region& region) { region_ = region; }

  void submit(kvc_bytes plan, const kvc_fence& fence, std::uint64_t load) {
    for (std::uint64_t at = 0; at + sizeof(Copy) <= plan.size; at += sizeof(Copy)) {
      Copy copy;
      std::memcpy(&copy, plan.data + at, sizeof copy);
      if (copy.load != load) continue;
      queue_.push_back({copy, fence.counter, fence.value});
      ++left_[copy.job];
    }
    if (host_.wake != nullptr) host_.wake(host_.self);
  }

  void work(std::uint64_t budget) {
    if (settings.shuffle_copies && queue_.size() > 1) {
      std::rotate(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(queue_.size() / 2),
                  queue_.end());
    }
    for (std::size_t i = 0; i < queue_.size() && budget > 0;) {
      const Queued& q = queue_[i];
      const bool reached = __atomic_load_n(q.counter, __ATOMIC_ACQUIRE) >= q.value;
      if (!reached && !settings.ignore_fences) {
        ++i;
        continue;
      }
      run(q.copy);
      if (--left_[q.copy.job] == 0) {
        left_.erase(q.copy.job);
        reports_.push_back({q.copy.job, rank_});
      }
      queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(i));
      --budget;
    }
  }

  void progress(kvc_progress& out) {
    sent_.swap(reports_);
    reports_.clear();
    out.report = kvc_bytes_of(sent_.data(), sent_.size() * sizeof(RankReport));
  }

  [[nodiscard]] bool busy() const { return !queue_.empty(); }
  const ToySettings settings;

 private:
  struct Queued {
    Copy copy;
    const std::uint64_t* counter;
    std::uint64_t value;
  };

  void run(const Copy& copy) {
    if (copy.block == 0) return;
    std::uint8_t* const block =
        region_.base + static_cast<std::uint64_t>(copy.block) * region_.block_stride_bytes;
    std::vector<std::uint8_t>& slot = slots_[copy.slot];
    if (copy.load == 0) {
      slot.assign(block, block + region_.block_bytes);
      return;
    }
    std::memcpy(block, slot.data(), region_.block_bytes);
    if (copy.spoil != 0) block[5] ^= 0x80;
  }

  std::uint64_t rank_;
  kvc_host_api host_;
  kvc_region region_{};
  std::deque<Queued> queue_;
  std::map<std::uint64_t, std::uint64_t> left_;
  std::map<std::uint64_t, std::vector<std::uint8_t>> slots_;
  std::vector<RankReport> reports_;
  std::vector<RankReport> sent_;
};

}  // namespace kvc::host::testing
