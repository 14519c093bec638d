// What the engines with threads share: queues of fixed size between the caller and the threads.
#pragma once
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "plugin/core/check.h"
#include "plugin/offload/disk/io_engine.h"

namespace kvc::disk {

// A queue of tasks whose room never grows. Threads: the caller's lock. Owns: pointers only.
class TaskRing {
 public:
  void reserve(std::size_t room) { room_.resize(room); }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::size_t size() const { return size_; }
  // Requires: fewer than reserved.
  void push(IoTask* task) {
    KVC_CHECK(size_ < room_.size());
    room_[(first_ + size_++) % room_.size()] = task;
  }
  // Requires: not empty.
  IoTask* pop() {
    KVC_CHECK(size_ != 0);
    IoTask* const task = room_[first_];
    first_ = (first_ + 1) % room_.size();
    --size_;
    return task;
  }

 private:
  std::vector<IoTask*> room_;
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

// Threads:    any; `mutex` guards all members but the options. Threads of an engine share it, so
//             that one that hangs in the system finds it there when it comes back, even after the
//             engine is gone.
// Owns:       the queues, sized at creation.
// Invariants: queued + at work + ended of a lane are at most tasks_max.
struct EngineCore {
  explicit EngineCore(const IoEngineOptions& given) : options(given) {
    for (auto& q : queued) q.reserve(options.tasks_max);
    for (auto& e : ended) e.reserve(options.tasks_max);
  }

  static std::size_t index(IoLane lane) { return static_cast<std::size_t>(lane); }
  [[nodiscard]] std::uint32_t depth(std::size_t lane) const {
    return lane == 0 ? options.read_depth : options.write_depth;
  }

  [[nodiscard]] bool submit(IoLane lane, IoTask& task) {
    const std::lock_guard lock(mutex);
    const std::size_t l = index(lane);
    if (open[l] == options.tasks_max) return false;
    ++open[l];
    queued[l].push(&task);
    work[l].notify_one();
    return true;
  }

  // Reads first: a request waits for them.
  std::size_t poll(std::span<IoTask*> out) {
    const std::lock_guard lock(mutex);
    std::size_t n = 0;
    for (std::size_t l = 0; l < io_lanes; ++l) {
      for (; n < out.size() && !ended[l].empty(); ++n) {
        out[n] = ended[l].pop();
        --open[l];
      }
    }
    return n;
  }

  void wait(std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex);
    any_ended.wait_for(lock, timeout, [&] { return !ended[0].empty() || !ended[1].empty(); });
  }

  // Called by the thread that ran it, without the lock.
  void report(std::size_t lane, IoTask* task) {
    {
      const std::lock_guard lock(mutex);
      ended[lane].push(task);
      any_ended.notify_all();
    }
    const std::lock_guard lock(calling_out);
    if (!silent && options.on_ended) options.on_ended();
  }

  // After it nobody calls on_ended.
  void silence() {
    const std::lock_guard lock(calling_out);
    silent = true;
  }

  const IoEngineOptions options;
  std::mutex mutex;
  std::array<std::condition_variable, io_lanes> work;
  std::condition_variable any_ended;
  std::condition_variable any_exit;
  std::array<TaskRing, io_lanes> queued;
  std::array<TaskRing, io_lanes> ended;
  std::array<std::uint32_t, io_lanes> open{};
  bool stopping = false;
  std::mutex calling_out;
  bool silent = false;  // guarded by calling_out
};

}  // namespace kvc::disk
