// The file system as the disk tier uses it: one virtual layer, so that tests can make every call
// fail.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plugin/offload/disk/io_engine.h"

namespace kvc::disk {

// Answers are negative errno values on failure, never -EINTR.
//
// Threads:    any; calls on one descriptor at once are allowed.
// Owns:       nothing; descriptors are the caller's.
class Files {
 public:
  Files() = default;
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  virtual ~Files() = default;

  // A descriptor, closed on exec; a new file is for its owner alone (mode 0600).
  virtual int open(const std::string& path, int flags) = 0;
  virtual void close(int fd) = 0;
  virtual IoResult read(int fd, std::byte* memory, std::uint64_t bytes, std::uint64_t offset) = 0;
  virtual IoResult write(int fd, const std::byte* memory, std::uint64_t bytes,
                         std::uint64_t offset) = 0;
  virtual int sync(int fd) = 0;
  virtual int punch(int fd, std::uint64_t offset, std::uint64_t bytes) = 0;
  virtual int truncate(int fd, std::uint64_t size) = 0;
  virtual IoResult size(int fd) = 0;
  virtual IoResult allocated(int fd) = 0;  // bytes that the file occupies
  // The whole file for this descriptor alone; -EWOULDBLOCK: another has it.
  virtual int lock(int fd) = 0;
  virtual int rename(const std::string& from, const std::string& to) = 0;
  virtual int remove(const std::string& path) = 0;
  virtual int make_folders(const std::string& path) = 0;  // with those above; there already: 0
  virtual int sync_folder(const std::string& path) = 0;
  virtual int list(const std::string& path, std::vector<std::string>& names) = 0;
  virtual IoResult free_bytes(const std::string& path) = 0;  // of the file system

  // Asked by an engine that is about to hand the call to the system by itself. go_on: do it;
  // not_yet: ask again later (stepped engine only); else the result.
  static constexpr IoResult go_on = INT64_MAX;
  static constexpr IoResult not_yet = INT64_MIN;
  virtual IoResult preview(const IoCall& call) = 0;
  // What preview said not_yet to is not asked for again, nor made.
  virtual void forget(const IoCall& call) = 0;
  // Makes the call, after preview said go_on.
  virtual IoResult run(const IoCall& call) = 0;
};

// The machine's. Fault points: disk.open, disk.read, disk.write, disk.sync; disk.full (no space for
// a write); disk.hang (stepped engine only: the call hangs until it was asked for 300 times, one of
// the process at a time).
class PosixFiles : public Files {
 public:
  int open(const std::string& path, int flags) override;
  void close(int fd) override;
  IoResult read(int fd, std::byte* memory, std::uint64_t bytes, std::uint64_t offset) override;
  IoResult write(int fd, const std::byte* memory, std::uint64_t bytes,
                 std::uint64_t offset) override;
  int sync(int fd) override;
  int punch(int fd, std::uint64_t offset, std::uint64_t bytes) override;
  int truncate(int fd, std::uint64_t size) override;
  IoResult size(int fd) override;
  IoResult allocated(int fd) override;
  int lock(int fd) override;
  int rename(const std::string& from, const std::string& to) override;
  int remove(const std::string& path) override;
  int make_folders(const std::string& path) override;
  int sync_folder(const std::string& path) override;
  int list(const std::string& path, std::vector<std::string>& names) override;
  IoResult free_bytes(const std::string& path) override;
  IoResult preview(const IoCall& call) override;
  void forget(const IoCall& call) override;
  IoResult run(const IoCall& call) override;
};

// A PosixFiles that lives for ever, so that what hangs in the system may come back to it. Any
// thread.
Files& system_files();

// "Input/output error (5)" of -EIO. Any thread.
std::string errno_text(IoResult result);

}  // namespace kvc::disk
