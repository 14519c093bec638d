// Where the choices of a random run come from: a seed, or the bytes of a fuzzer.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "plugin/core/prng.h"

namespace kvc::rig {

class Choices {
 public:
  Choices() = default;
  Choices(const Choices&) = delete;
  Choices& operator=(const Choices&) = delete;
  virtual ~Choices() = default;

  // A number below n. Requires n > 0.
  virtual std::uint64_t below(std::uint64_t n) = 0;
  [[nodiscard]] bool chance(std::uint64_t one_in) { return below(one_in) == 0; }
};

class SeededChoices final : public Choices {
 public:
  explicit SeededChoices(std::uint64_t seed) : source_(seed) {}
  std::uint64_t below(std::uint64_t n) override { return source_.below(n); }

 private:
  Prng source_;
};

// One byte a choice below 256, two for larger ones; 0 when the bytes are used up.
class ByteChoices final : public Choices {
 public:
  explicit ByteChoices(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  std::uint64_t below(std::uint64_t n) override {
    std::uint64_t value = next();
    if (n > 256) value = value << 8U | next();
    return value % n;
  }
  [[nodiscard]] bool used_up() const { return at_ >= bytes_.size(); }

 private:
  std::uint64_t next() { return at_ < bytes_.size() ? bytes_[at_++] : 0; }

  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

}  // namespace kvc::rig
