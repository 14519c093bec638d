// The machine's files with trouble on demand.
#pragma once
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

#include "plugin/offload/disk/files.h"

namespace kvc::disk_test {

// Threads: any. Owns: nothing.
class FaultyFiles : public disk::PosixFiles {
 public:
  // The n-th call of this kind from now on (0: the next) answers `result`; half: only the first
  // half of its bytes moves.
  static constexpr disk::IoResult half = 1;
  void fail(disk::IoKind kind, std::uint64_t n, disk::IoResult result, std::uint64_t times = 1) {
    const std::lock_guard lock(mutex_);
    plan_ = Plan{kind, n, result, times};
  }
  // The n-th call of any kind.
  void fail_any(std::uint64_t n, disk::IoResult result) {
    const std::lock_guard lock(mutex_);
    plan_ = Plan{disk::IoKind::none, n, result, 1};
    tripped_ = false;
  }
  void heal() {
    const std::lock_guard lock(mutex_);
    plan_.reset();
  }
  [[nodiscard]] bool tripped() const {
    const std::lock_guard lock(mutex_);
    return tripped_;
  }
  [[nodiscard]] std::uint64_t calls(disk::IoKind kind) const {
    const std::lock_guard lock(mutex_);
    return calls_[static_cast<std::size_t>(kind)];
  }

  // Calls of this kind hang until release(). In the stepped mode they are not answered.
  void hold(disk::IoKind kind, bool stepped) {
    const std::lock_guard lock(mutex_);
    held_ = kind;
    stepped_ = stepped;
  }
  void release() {
    const std::lock_guard lock(mutex_);
    held_ = disk::IoKind::none;
    let_go_.notify_all();
  }
  // Waits until so many calls hang.
  void await_hanging(std::uint64_t count) {
    std::unique_lock lock(mutex_);
    let_go_.wait(lock, [&] { return hanging_ >= count; });
  }

  bool direct_refused = false;      // open with O_DIRECT: EINVAL
  bool punch_refused = false;       // EOPNOTSUPP
  std::uint64_t locks_refused = 0;  // so many locks behind the first one: another has them

  int open(const std::string& path, int flags) override;
  int lock(int fd) override {
    if (first_lock_ || locks_refused == 0) {
      first_lock_ = false;
      return PosixFiles::lock(fd);
    }
    --locks_refused;
    return -EWOULDBLOCK;
  }
  int punch(int fd, std::uint64_t offset, std::uint64_t bytes) override {
    return punch_refused ? -EOPNOTSUPP : PosixFiles::punch(fd, offset, bytes);
  }
  disk::IoResult read(int fd, std::byte* memory, std::uint64_t bytes,
                      std::uint64_t offset) override {
    return direct({disk::IoKind::read, fd, memory, bytes, offset});
  }
  disk::IoResult write(int fd, const std::byte* memory, std::uint64_t bytes,
                       std::uint64_t offset) override {
    return direct({disk::IoKind::write, fd, const_cast<std::byte*>(memory), bytes, offset});
  }
  int sync(int fd) override {
    return static_cast<int>(direct({disk::IoKind::sync, fd, nullptr, 0, 0}));
  }
  disk::IoResult preview(const disk::IoCall& call) override;

 private:
  struct Plan {
    disk::IoKind kind;
    std::uint64_t left;
    disk::IoResult result;
    std::uint64_t times;
  };
  disk::IoResult direct(const disk::IoCall& call) {
    const disk::IoResult r = preview(call);
    return r == go_on ? run(call) : r;
  }

  bool first_lock_ = true;
  mutable std::mutex mutex_;
  std::condition_variable let_go_;
  std::optional<Plan> plan_;
  bool tripped_ = false;
  std::uint64_t calls_[5] = {};
  disk::IoKind held_ = disk::IoKind::none;
  bool stepped_ = false;
  std::uint64_t hanging_ = 0;
};

}  // namespace kvc::disk_test
