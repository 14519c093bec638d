#include "plugin/offload/disk/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/falloc.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "plugin/core/fault.h"

namespace kvc::disk {

namespace {

template <class Call>
auto repeated(Call call) {
  auto r = call();
  while (r < 0 && errno == EINTR) r = call();
  return r;
}

template <class Call>
int status_of(Call call) {
  return repeated(call) < 0 ? -errno : 0;
}

IoResult read_at(int fd, std::byte* memory, std::uint64_t bytes, std::uint64_t offset) {
  const auto n = repeated([&] { return ::pread(fd, memory, bytes, static_cast<off_t>(offset)); });
  return n < 0 ? -errno : n;
}

IoResult write_at(int fd, const std::byte* memory, std::uint64_t bytes, std::uint64_t offset) {
  const auto n = repeated([&] { return ::pwrite(fd, memory, bytes, static_cast<off_t>(offset)); });
  return n < 0 ? -errno : n;
}

}  // namespace

IoResult PosixFiles::run(const IoCall& call) {
  switch (call.kind) {
    case IoKind::read:
      return read_at(call.fd, call.memory, call.bytes, call.offset);
    case IoKind::write:
      return write_at(call.fd, call.memory, call.bytes, call.offset);
    case IoKind::sync:
      return status_of([&] { return ::fdatasync(call.fd); });
    case IoKind::punch:
      return punch(call.fd, call.offset, call.bytes);
    case IoKind::none:
      break;
  }
  return -EINVAL;
}

int PosixFiles::open(const std::string& path, int flags) {
  if (KVC_FAULT("disk.open")) return -EIO;
  const auto fd = repeated([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0600); });
  return fd < 0 ? -errno : fd;
}

void PosixFiles::close(int fd) { ::close(fd); }

IoResult PosixFiles::read(int fd, std::byte* memory, std::uint64_t bytes, std::uint64_t offset) {
  if (KVC_FAULT("disk.read")) return -EIO;
  return read_at(fd, memory, bytes, offset);
}

IoResult PosixFiles::write(int fd, const std::byte* memory, std::uint64_t bytes,
                           std::uint64_t offset) {
  if (KVC_FAULT("disk.write")) return -EIO;
  return write_at(fd, memory, bytes, offset);
}

int PosixFiles::sync(int fd) {
  if (KVC_FAULT("disk.sync")) return -EIO;
  return status_of([&] { return ::fdatasync(fd); });
}

int PosixFiles::punch(int fd, std::uint64_t offset, std::uint64_t bytes) {
  return status_of([&] {
    return ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                       static_cast<off_t>(bytes));
  });
}

int PosixFiles::truncate(int fd, std::uint64_t size) {
  return status_of([&] { return ::ftruncate(fd, static_cast<off_t>(size)); });
}

IoResult PosixFiles::size(int fd) {
  struct stat s {};
  return ::fstat(fd, &s) < 0 ? -errno : s.st_size;
}

IoResult PosixFiles::allocated(int fd) {
  struct stat s {};
  return ::fstat(fd, &s) < 0 ? -errno : s.st_blocks * 512;
}

int PosixFiles::lock(int fd) {
  return status_of([&] { return ::flock(fd, LOCK_EX | LOCK_NB); });
}

int PosixFiles::rename(const std::string& from, const std::string& to) {
  return status_of([&] { return ::rename(from.c_str(), to.c_str()); });
}

int PosixFiles::remove(const std::string& path) {
  return status_of([&] { return ::unlink(path.c_str()); });
}

int PosixFiles::make_folders(const std::string& path) {
  for (std::size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    const std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), 0700) < 0 && errno != EEXIST) return -errno;
    if (at == std::string::npos) break;
  }
  struct stat s {};
  if (::stat(path.c_str(), &s) < 0) return -errno;
  return S_ISDIR(s.st_mode) ? 0 : -ENOTDIR;
}

int PosixFiles::sync_folder(const std::string& path) {
  const int fd = open(path, O_RDONLY | O_DIRECTORY);
  if (fd < 0) return fd;
  const int r = status_of([&] { return ::fsync(fd); });
  close(fd);
  return r;
}

int PosixFiles::list(const std::string& path, std::vector<std::string>& names) {
  DIR* const dir = ::opendir(path.c_str());
  if (dir == nullptr) return -errno;
  errno = 0;
  while (const dirent* const entry = ::readdir(dir)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  const int r = -errno;
  ::closedir(dir);
  return r;
}

IoResult PosixFiles::free_bytes(const std::string& path) {
  struct statvfs s {};
  if (::statvfs(path.c_str(), &s) < 0) return -errno;
  return static_cast<IoResult>(s.f_bavail) * static_cast<IoResult>(s.f_frsize);
}

namespace {

#if defined(KVC_FAULT_POINTS)
// The memory of the call that hangs; null: none does.
std::atomic<const std::byte*> hanging{nullptr};
#endif

// Fault point "disk.hang": the call hangs, until it was asked for so many times.
bool hangs([[maybe_unused]] const IoCall& call) {
#if defined(KVC_FAULT_POINTS)
  constexpr int asked_most = 300;
  static std::atomic<int> left{0};
  if (call.memory == nullptr) return false;
  if (hanging.load() == nullptr && KVC_FAULT("disk.hang")) {
    left = asked_most;
    hanging = call.memory;
  }
  if (hanging.load() != call.memory) return false;
  if (--left > 0) return true;
  hanging = nullptr;
#endif
  return false;
}

}  // namespace

void PosixFiles::forget([[maybe_unused]] const IoCall& call) {
#if defined(KVC_FAULT_POINTS)
  const std::byte* memory = call.memory;
  if (memory != nullptr) hanging.compare_exchange_strong(memory, nullptr);
#endif
}

IoResult PosixFiles::preview(const IoCall& call) {
  if (hangs(call)) return not_yet;
  if (call.kind == IoKind::write && KVC_FAULT("disk.full")) return -ENOSPC;
  const bool fails = call.kind == IoKind::read    ? KVC_FAULT("disk.read")
                     : call.kind == IoKind::write ? KVC_FAULT("disk.write")
                     : call.kind == IoKind::sync  ? KVC_FAULT("disk.sync")
                                                  : false;
  return fails ? -EIO : go_on;
}

Files& system_files() {
  static auto* const files = new PosixFiles;
  return *files;
}

std::string errno_text(IoResult result) {
  char room[128];
  const int number = static_cast<int>(-result);
  // The GNU strerror_r: the text may lie elsewhere.
  return fmt::format("{} ({})", ::strerror_r(number, room, sizeof room), number);
}

}  // namespace kvc::disk
