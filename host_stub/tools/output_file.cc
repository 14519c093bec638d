#include "host_stub/tools/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace kvc::host {

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

Result<OutputFile> OutputFile::create(const std::string& path) {
  struct stat info {};
  if (path.empty()) return Status{Code::arg, "the path of an output file is empty"};
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    return Status{Code::arg, fmt::format("{}: is a directory, a file name is needed", path)};
  }
  std::string temporary = fmt::format("{}.tmp.{}", path, ::getpid());
  const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    return Status{Code::arg, fmt::format("{}: cannot be written: {}", path, std::strerror(errno))};
  }
  return OutputFile(path, std::move(temporary), descriptor);
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
      std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    Status failed{Code::io, fmt::format("{}: cannot be written: {}", path_, std::strerror(errno))};
    ::unlink(temporary_.c_str());
    return failed;
  }
  return {};
}

}  // namespace kvc::host
