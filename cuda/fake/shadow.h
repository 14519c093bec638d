// Who touched which byte last, and whether that is ordered before who touches it now. Internal to
// the fake device.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace kvc::cuda::fake {

// A vector clock: entry e is how much of actor e is ordered before the holder. Actor 0 is the host,
// every stream is one more.
class Clock {
 public:
  [[nodiscard]] std::uint64_t of(std::uint32_t actor) const {
    return actor < times_.size() ? times_[actor] : 0;
  }
  std::uint64_t tick(std::uint32_t actor) {
    if (actor >= times_.size()) times_.resize(actor + 1);
    return ++times_[actor];
  }
  void join(const Clock& other) {
    if (other.times_.size() > times_.size()) times_.resize(other.times_.size());
    for (std::size_t i = 0; i < other.times_.size(); ++i) {
      if (other.times_[i] > times_[i]) times_[i] = other.times_[i];
    }
  }

 private:
  std::vector<std::uint64_t> times_;
};

struct Touch {
  std::uint32_t actor = 0;
  std::uint64_t time = 0;
};

// Two accesses, one of them a write, of which neither is ordered before the other.
struct Race {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  Touch earlier;
  bool earlier_writes = false;
};

// Threads:    none of its own; the device's lock guards it.
// Owns:       for each byte that was touched: the last write, and the last read of each actor
// since. Invariants: segments do not overlap.
class Shadow {
 public:
  // Notes the access of [address, address + bytes) by `who`; what `before` holds is ordered before
  // it. Answers the first access that it races with.
  std::optional<Race> touch(std::uint64_t address, std::uint64_t bytes, bool writes, Touch who,
                            const Clock& before);
  // The first access to the range that is not ordered before `before`.
  [[nodiscard]] std::optional<Race> unordered(std::uint64_t address, std::uint64_t bytes,
                                              const Clock& before) const;
  void forget(std::uint64_t address, std::uint64_t bytes);
  void clear() { segments_.clear(); }

 private:
  struct Segment {
    std::uint64_t end = 0;
    bool written = false;
    Touch write;
    std::vector<Touch> reads;
  };
  // A segment begins at `address` if any covers it.
  void cut(std::uint64_t address);
  static std::optional<Race> race_in(std::uint64_t begin, const Segment& segment, bool writes,
                                     const Clock& before);

  std::map<std::uint64_t, Segment> segments_;
};

}  // namespace kvc::cuda::fake
