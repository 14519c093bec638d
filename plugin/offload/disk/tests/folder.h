// A folder of its own for a test, gone afterwards.
#pragma once
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace kvc::disk_test {

class Folder {
 public:
  Folder() : Folder("kvc-disk-test-XXXXXX") {}
  explicit Folder(const std::string& pattern) {
    std::string path = (std::filesystem::temp_directory_path() / pattern).string();
    if (::mkdtemp(path.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = path;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace kvc::disk_test
