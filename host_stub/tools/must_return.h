// A program whose libraries are not its own must not end well because one of them called exit(0).
#pragma once
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace kvc::host {

// Made first in main, told last what main returns: whoever ends the process in between gets exit
// code 1 and a line on stderr.
//
// Threads:    one. Owns: nothing. Invariants: one per process.
class MustReturn {
 public:
  // `line` must stay: "PROGRAM: .. ended the process\n".
  explicit MustReturn(const char* line) {
    line_of_process() = line;
    static_cast<void>(std::atexit([] {
      const char* const unreturned = line_of_process();
      if (unreturned == nullptr) return;
      static_cast<void>(!::write(STDERR_FILENO, unreturned, std::strlen(unreturned)));
      ::_exit(1);
    }));
  }
  MustReturn(const MustReturn&) = delete;
  MustReturn& operator=(const MustReturn&) = delete;

  // Passes `code` through: return guard.with(code).
  [[nodiscard]] int with(int code) const {
    line_of_process() = nullptr;
    return code;
  }

 private:
  static const char*& line_of_process() {
    static const char* line = nullptr;
    return line;
  }
};

}  // namespace kvc::host
