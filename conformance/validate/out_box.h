// Room for an out-struct that stands between connector and host: what the connector writes behind
// the room that it was given is seen and does not reach the host (KVC-P-004).
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include <kvc/kvc.h>
#include <kvc/kvc_util.h>

#include <fmt/format.h>

namespace kvc::validate {

// Threads:    one. Owns: a copy of the room.
// Invariants: the host's struct changes in put_back only.
template <class T>
class OutBox {
 public:
  explicit OutBox(T* theirs) : theirs_(theirs) {
    if (theirs == nullptr) return;
    std::memcpy(&room_, theirs, sizeof room_);
    direct_ = room_ < sizeof room_ || room_ > KVC_STRUCT_BYTES_MAX;
    if (direct_) return;
    std::memcpy(bytes_.data(), theirs, std::min<std::size_t>(room_, sizeof(T)));
    std::memset(bytes_.data() + room_, canary, bytes_.size() - room_);
  }
  OutBox(const OutBox&) = delete;
  OutBox& operator=(const OutBox&) = delete;

  // What the connector gets in place of the host's struct.
  [[nodiscard]] T* get() {
    if (theirs_ == nullptr || direct_) return theirs_;
    return reinterpret_cast<T*>(bytes_.data());
  }
  // Hands the answer over. Not empty: how it broke KVC-P-004. `least`: the size in 1.0.
  [[nodiscard]] std::string put_back(kvc_status status, std::size_t least) {
    if (theirs_ == nullptr || direct_) return {};
    std::uint32_t filled = 0;
    std::memcpy(&filled, bytes_.data(), sizeof filled);
    std::string why;
    if (std::any_of(bytes_.data() + room_, bytes_.data() + bytes_.size(),
                    [](unsigned char b) { return b != canary; })) {
      why = fmt::format("it wrote behind a room of {} bytes", room_);
    } else if (status >= 0 && (filled > room_ || filled < std::min<std::size_t>(room_, least))) {
      why = fmt::format("it says that it filled {} bytes of a room of {}", filled, room_);
    }
    const std::size_t n =
        status >= 0 ? std::min(filled, room_) : std::min<std::size_t>(room_, sizeof(T));
    std::memcpy(theirs_, bytes_.data(), std::max(n, sizeof filled));
    if (status >= 0) std::memcpy(&value_, bytes_.data(), std::min(n, sizeof(T)));
    return why;
  }
  // Whether value() says what was answered.
  [[nodiscard]] bool judged() const { return theirs_ != nullptr && !direct_; }
  // The answer, after put_back; zero where nothing was filled.
  [[nodiscard]] const T& value() const { return value_; }

 private:
  static constexpr unsigned char canary = 0xC5;
  T* theirs_;
  std::uint32_t room_ = 0;
  bool direct_ = false;
  T value_{};
  alignas(16) std::array<unsigned char, KVC_STRUCT_BYTES_MAX + 64> bytes_{};
};

}  // namespace kvc::validate
