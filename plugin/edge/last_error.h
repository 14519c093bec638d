// The text of the last failed call of one handle.
#pragma once
#include <array>
#include <cstddef>
#include <string_view>

namespace kvc::edge {

// Threads:    the role of its handle.
// Owns:       fixed room, so that reporting an error cannot fail. A longer text is cut.
// Invariants: holds whole bytes of the newest text that was set.
class LastError {
 public:
  void set(std::string_view slot, std::string_view why) noexcept {
    size_ = 0;
    add(slot);
    if (!why.empty()) {
      add(": ");
      add(why);
    }
  }
  [[nodiscard]] std::string_view text() const noexcept { return {text_.data(), size_}; }

 private:
  void add(std::string_view part) noexcept {
    std::size_t n = part.size() < text_.size() - size_ ? part.size() : text_.size() - size_;
    // A cut never leaves half of a UTF-8 character behind.
    while (n != 0 && n != part.size() && (static_cast<unsigned char>(part[n]) & 0xC0U) == 0x80U)
      --n;
    part.copy(text_.data() + size_, n);
    size_ += n;
  }

  std::array<char, 1000> text_{};
  std::size_t size_ = 0;
};

}  // namespace kvc::edge
