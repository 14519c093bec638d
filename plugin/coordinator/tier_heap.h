// Heaps of runs: who was used longest ago, and whose time to live ends first.
#pragma once
#include <algorithm>
#include <cstdint>
#include <new>

#include "plugin/coordinator/slabs.h"
#include "plugin/coordinator/tier_index.h"

namespace kvc::tier {

// By a number of each run that only grows. Learns that it grew only when it meets the run at its
// top, so that using a run costs nothing here. The owner keeps who is in it.
//
// Threads: one user. Owns: the items. Invariants: no item is above one with a smaller stamp.
class RunHeap {
 public:
  struct Item {
    std::uint64_t stamp;
    RunId run;
    std::uint32_t unused;
  };

  // False: no memory.
  [[nodiscard]] bool size_for(std::uint64_t runs) { return items_.size_for(runs); }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] const Item& top() const { return items_[0]; }
  [[nodiscard]] const Item& operator[](std::uint64_t i) const { return items_[i]; }

  void push(std::uint64_t stamp, RunId run) {
    if (!items_.ensure(size_ + 1)) throw std::bad_alloc();
    std::uint64_t at = size_++;
    while (at != 0 && items_[(at - 1) / 2].stamp > stamp) {
      items_[at] = items_[(at - 1) / 2];
      at = (at - 1) / 2;
    }
    items_[at] = {stamp, run, 0};
  }
  void pop() {
    items_[0] = items_[--size_];
    if (size_ != 0) down();
  }
  // The stamp of the top has grown.
  void raise_top(std::uint64_t stamp) {
    items_[0].stamp = stamp;
    down();
  }

 private:
  void down() {
    const Item item = items_[0];
    std::uint64_t at = 0;
    for (;;) {
      std::uint64_t child = 2 * at + 1;
      if (child >= size_) break;
      if (child + 1 < size_ && items_[child + 1].stamp < items_[child].stamp) ++child;
      if (items_[child].stamp >= item.stamp) break;
      items_[at] = items_[child];
      at = child;
    }
    items_[at] = item;
  }

  SlabArray<Item> items_;
  std::uint64_t size_ = 0;
};

// Times of the runs that have one, which move both ways and end.
//
// Threads: one user. Owns: the times. Invariants: a run is in it at most once; no item is above an
// earlier one; places_ names every item. No heap for runs below what it was sized for.
class Deadlines {
 public:
  // False: no memory.
  [[nodiscard]] bool size_for(std::uint64_t runs) {
    return items_.size_for(runs) && runs_.size_for(runs);
  }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] bool has(RunId run) const {
    return run < runs_.capacity() && runs_[run].place != 0;
  }
  // Requires: not empty.
  [[nodiscard]] std::uint64_t first_time() const { return items_[0].time; }
  [[nodiscard]] RunId first() const { return items_[0].run; }
  // How long the run's time is, for the next renew.
  void set_length(RunId run, std::uint64_t ns) {
    if (!runs_.ensure(std::uint64_t{run} + 1)) throw std::bad_alloc();
    runs_[run].length = ns;
  }
  // The run's time ends its length after `now`.
  void renew(RunId run, std::uint64_t now) {
    const std::uint64_t length = runs_[run].length;
    const std::uint64_t time = length > UINT64_MAX - now ? UINT64_MAX : now + length;
    if (runs_[run].place == 0) {
      if (!items_.ensure(size_ + 1)) throw std::bad_alloc();
      put(size_++, {time, run, 0});
    } else {
      items_[runs_[run].place - 1].time = time;
    }
    settle(runs_[run].place - 1);
  }
  void erase(RunId run) {
    if (!has(run)) return;
    const std::uint64_t at = runs_[run].place - 1;
    runs_[run].place = 0;
    if (at == --size_) return;
    put(at, items_[size_]);
    settle(at);
  }
  // False: something is wrong (for tests).
  [[nodiscard]] bool verify() const {
    for (std::uint64_t i = 0; i < size_; ++i) {
      if (runs_[items_[i].run].place != i + 1) return false;
      if (i != 0 && items_[(i - 1) / 2].time > items_[i].time) return false;
    }
    return true;
  }
  [[nodiscard]] std::uint64_t bytes() const { return size_ * (sizeof(Item) + sizeof(Of)); }

 private:
  struct Item {
    std::uint64_t time;
    RunId run;
    std::uint32_t unused;
  };
  struct Of {
    std::uint64_t length;
    std::uint64_t place;  // of its item, + 1; 0: none
  };
  void put(std::uint64_t at, const Item& item) {
    items_[at] = item;
    runs_[item.run].place = at + 1;
  }
  void settle(std::uint64_t at) {
    const Item item = items_[at];
    while (at != 0 && items_[(at - 1) / 2].time > item.time) {
      put(at, items_[(at - 1) / 2]);
      at = (at - 1) / 2;
    }
    for (;;) {
      std::uint64_t child = 2 * at + 1;
      if (child >= size_) break;
      if (child + 1 < size_ && items_[child + 1].time < items_[child].time) ++child;
      if (items_[child].time >= item.time) break;
      put(at, items_[child]);
      at = child;
    }
    put(at, item);
  }

  SlabArray<Item> items_;
  SlabArray<Of> runs_;
  std::uint64_t size_ = 0;
};

}  // namespace kvc::tier
