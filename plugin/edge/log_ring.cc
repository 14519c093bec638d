#include "plugin/edge/log_ring.h"

#include <algorithm>
#include <charconv>

namespace kvc::edge {

std::string_view name_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return "debug";
    case LogLevel::info:
      return "info";
    case LogLevel::warn:
      return "warn";
    case LogLevel::error:
      return "error";
    case LogLevel::peer_fault:
      return "peer_fault";
  }
  return "error";
}

void LogRing::put(std::string_view part) noexcept {
  for (const char c : part) {
    // One line is one entry: a line feed inside a text would split it.
    room_[(first_ + size_) % room_.size()] = c;
    ++size_;
  }
}

std::size_t LogRing::line_bytes() const noexcept {
  std::size_t n = 0;
  while (n < size_ && at(n) != '\n') ++n;
  return n < size_ ? n + 1 : n;
}

void LogRing::drop_line() noexcept {
  const std::size_t n = line_bytes();
  first_ = (first_ + n) % room_.size();
  size_ -= n;
  ++lost_;
}

void LogRing::add(LogLevel level, std::string_view text) noexcept {
  const std::lock_guard lock(mutex_);
  const std::string_view name = name_of(level);
  const std::size_t frame = name.size() + 2;  // the space and the line feed
  if (frame >= room_.size()) {
    ++lost_;
    return;
  }
  text = text.substr(0, std::min(text.size(), room_.size() - frame));
  while (size_ + frame + text.size() > room_.size()) drop_line();
  put(name);
  put(" ");
  const std::size_t begin = size_;
  put(text);
  for (std::size_t i = begin; i < size_; ++i) {
    char& c = room_[(first_ + i) % room_.size()];
    if (c == '\n') c = ' ';
  }
  put("\n");
}

std::size_t LogRing::take(char* buf, std::size_t cap, bool& more) noexcept {
  const std::lock_guard lock(mutex_);
  std::size_t written = 0;
  if (lost_ != 0) {
    char line[64];
    constexpr std::string_view head = "warn lines lost: ";
    head.copy(line, head.size());
    char* end = std::to_chars(line + head.size(), line + sizeof line - 1, lost_).ptr;
    *end++ = '\n';
    const auto n = static_cast<std::size_t>(end - line);
    if (n <= cap) {
      std::copy(line, end, buf);
      written = n;
      lost_ = 0;
    }
  }
  while (size_ != 0) {
    const std::size_t n = line_bytes();
    const bool cut = n > cap && written == 0 && cap != 0;
    if (written + n > cap && !cut) break;
    const std::size_t take = cut ? cap : n;
    for (std::size_t i = 0; i < take; ++i) buf[written + i] = at(i);
    if (cut) buf[cap - 1] = '\n';
    written += take;
    first_ = (first_ + n) % room_.size();
    size_ -= n;
  }
  more = size_ != 0;
  return written;
}

}  // namespace kvc::edge
