// A file that appears whole or not at all.
#pragma once
#include <string>
#include <string_view>
#include <utility>

#include "plugin/core/result.h"

namespace kvc::host {

// A temporary file beside its final path, renamed when it is complete. A link stays and its file is
// replaced; a device, pipe or socket is never replaced but written at commit().
//
// Threads:    one.
// Owns:       the temporary file, until commit() or the destructor, which removes it.
// Invariants: the final path is untouched before commit() and whole after it. SIGINT, SIGTERM and
//             SIGHUP, where the program leaves them alone, remove the temporary file too.
class OutputFile {
 public:
  OutputFile() = default;
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  // Creates the temporary file, so that a path that cannot be written is known before the work.
  // Code::arg: empty path, a directory, no such folder, no permission, a pipe without a reader; the
  // text names the path.
  static Result<OutputFile> create(const std::string& path);

  // Writes the content and renames. Code::io with the path and the system's reason.
  Status commit(std::string_view content);

 private:
  OutputFile(std::string path, std::string temporary, int descriptor)
      : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}

  std::string path_;
  std::string temporary_;  // empty: path_ is written in place
  int descriptor_ = -1;
};

}  // namespace kvc::host
