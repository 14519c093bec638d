#include "host_stub/tools/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace kvc::host {

namespace {

// Temporary files of this process, where a signal handler can read them.
struct Temporary {
  std::atomic<bool> taken{false};
  std::atomic<bool> there{false};
  std::array<char, PATH_MAX> path{};
};
std::array<Temporary, 8> temporaries;

extern "C" void remove_temporaries(int signal) {
  for (const Temporary& t : temporaries) {
    if (t.there.load()) ::unlink(t.path.data());
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void catch_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;
    now.sa_handler = remove_temporaries;
    ::sigaction(signal, &now, nullptr);
  }
}

// More files than places are not removed by a signal.
void remember(const std::string& path) {
  catch_signals();
  for (Temporary& t : temporaries) {
    if (path.size() >= t.path.size()) return;
    if (t.taken.exchange(true)) continue;
    std::memcpy(t.path.data(), path.c_str(), path.size() + 1);
    t.there = true;
    return;
  }
}

void forget(const std::string& path) {
  for (Temporary& t : temporaries) {
    if (!t.there || path != t.path.data()) continue;
    t.there = false;
    t.taken = false;
    return;
  }
}

}  // namespace

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

namespace {

// A device, pipe or socket is written as it stands: a file renamed onto it would take its place,
// and with the rights of root /dev/null would be gone. A pipe that nobody reads is refused, not
// waited for.
Result<int> open_special(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  const int flags = descriptor < 0 ? -1 : ::fcntl(descriptor, F_GETFL);
  if (flags < 0 || ::fcntl(descriptor, F_SETFL, flags & ~O_NONBLOCK) < 0) {
    Status failed{Code::arg, fmt::format("{}: cannot be written: {}", path, std::strerror(errno))};
    if (descriptor >= 0) ::close(descriptor);
    return failed;
  }
  return descriptor;
}

// The file that a link leads to, so that the link stays; the path itself if it leads nowhere.
std::string behind_links(const std::string& path) {
  char* const real = ::realpath(path.c_str(), nullptr);
  std::string out = real == nullptr ? path : real;
  std::free(real);
  return out;
}

}  // namespace

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  if (temporary_.empty()) return;
  ::unlink(temporary_.c_str());
  forget(temporary_);
}

Result<OutputFile> OutputFile::create(const std::string& path) {
  struct stat info {};
  if (path.empty()) return Status{Code::arg, "the path of an output file is empty"};
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) {
    return Status{Code::arg, fmt::format("{}: is a directory, a file name is needed", path)};
  }
  if (exists && !S_ISREG(info.st_mode)) {
    const Result<int> special = open_special(path);
    if (!special.ok()) return special.error();
    return OutputFile(path, {}, special.value());
  }
  std::string target = exists ? behind_links(path) : path;
  std::string temporary = fmt::format("{}.tmp.{}", target, ::getpid());
  const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    return Status{Code::arg, fmt::format("{}: cannot be written: {}", path, std::strerror(errno))};
  }
  remember(temporary);
  return OutputFile(std::move(target), std::move(temporary), descriptor);
}

Status OutputFile::commit(std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(descriptor_, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      return {Code::io, fmt::format("{}: cannot be written: {}", path_, std::strerror(errno))};
    }
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::close(std::exchange(descriptor_, -1)) != 0 ||
      (!temporary_.empty() && std::rename(temporary_.c_str(), path_.c_str()) != 0)) {
    Status failed{Code::io, fmt::format("{}: cannot be written: {}", path_, std::strerror(errno))};
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
    forget(temporary_);
    return failed;
  }
  forget(temporary_);
  return {};
}

}  // namespace kvc::host
