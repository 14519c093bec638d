// Rules that the host broke: named in the log, counted, never fatal (design 2.3 "Bad elements").
#pragma once
#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>

#include "plugin/offload/scheduler_role.h"

namespace kvc {

// Threads:    scheduler role only.
// Owns:       the count. Invariants: no heap. The first `logged_max` faults are logged, then those
//             whose number is a power of two, so that a host that is wrong in every step does not
//             drown its own log.
class PeerFaults {
 public:
  static constexpr std::uint64_t logged_max = 256;

  explicit PeerFaults(HostServices& host) : host_(host) {}

  template <class... Args>
  void report(std::string_view rule, fmt::format_string<Args...> text, Args&&... args) {
    ++count_;
    if (count_ > logged_max && !std::has_single_bit(count_)) return;
    std::array<char, 320> line{};
    auto out = fmt::format_to_n(line.data(), line.size(), "the host broke rule {}: ", rule);
    std::size_t used = out.size;
    if (used < line.size()) {
      out = fmt::format_to_n(line.data() + used, line.size() - used, text,
                             std::forward<Args>(args)...);
      used += out.size;
    }
    host_.log(LogLevel::peer_fault, {line.data(), used < line.size() ? used : line.size()});
  }
  [[nodiscard]] std::uint64_t count() const { return count_; }

 private:
  HostServices& host_;
  std::uint64_t count_ = 0;
};

}  // namespace kvc
