#include "plugin/offload/disk/tests/store_world.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace kvc::disk_test {

void flip(const std::string& path, std::uint64_t offset, std::uint8_t bits) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  BOOST_REQUIRE(fd >= 0);
  std::uint8_t byte = 0;
  BOOST_REQUIRE(::pread(fd, &byte, 1, static_cast<off_t>(offset)) == 1);
  byte ^= bits;
  BOOST_REQUIRE(::pwrite(fd, &byte, 1, static_cast<off_t>(offset)) == 1);
  ::close(fd);
}

std::uint64_t size_of(const std::string& path) { return std::filesystem::file_size(path); }

std::uint64_t allocated_in(const std::string& folder) {
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    struct stat s {};
    if (::stat(entry.path().c_str(), &s) == 0) {
      bytes += static_cast<std::uint64_t>(s.st_blocks) * 512;
    }
  }
  return bytes;
}

}  // namespace kvc::disk_test
