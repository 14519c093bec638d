// A progress bar for people.
#pragma once
#include <cstdint>
#include <string>

namespace kvc::host {

// Draws on stderr, on a terminal only, at most ten times a second; the line is gone after finish().
//
// Threads:    one.
// Owns:       the last line of the terminal between the first show() and finish().
class Progress {
 public:
  // `enabled` false: never draws. Use stderr_is_terminal().
  explicit Progress(bool enabled) : enabled_(enabled) {}
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const std::string& label, std::uint64_t done, std::uint64_t total);
  void finish();

  [[nodiscard]] static bool stderr_is_terminal();

 private:
  bool enabled_;
  bool drawn_ = false;
  double next_s_ = 0;
};

}  // namespace kvc::host
