#include "plugin/core/program.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace kvc {

std::string version_line(std::string_view program) {
  return fmt::format("{} {}", program, KVC_VERSION);
}

int with_stdout_written(std::string_view program, int code, int failed) {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  const int error = errno;
  if (flushed && std::ferror(stdout) == 0) return code;
  std::fputs(fmt::format("{}: stdout cannot be written{}{}\n", program, error == 0 ? "" : ": ",
                         error == 0 ? "" : std::strerror(error))
                 .c_str(),
             stderr);
  return code == 0 ? failed : code;
}

}  // namespace kvc
