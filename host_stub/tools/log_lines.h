// Lines of engine and connector on their way to stderr.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace kvc::host {

// Keeps warnings and worse until release(), then writes them, and later ones at once. So a run that
// is refused says one line, its own.
//
// Threads:    any.
// Owns:       lines not yet written; those of a run that never began are dropped.
class LogLines {
 public:
  // `level` is one of KVC_LOG_*; `text` one finished line.
  void add(std::int32_t level, std::string_view text);
  void release();

 private:
  void write(const std::string& line) const;

  std::mutex mutex_;
  std::vector<std::string> kept_;
  bool released_ = false;
};

}  // namespace kvc::host
