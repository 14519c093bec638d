// Values as bytes and back: numbers in groups of 7 bits, lowest first, the top bit says that more
// follow; signed ones fold 0, -1, 1, -2, ... to 0, 1, 2, 3, ...; bytes and lists have their count
// in front (docs/formats/calls.md).
#pragma once
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/validate/calls.h"

namespace kvc::validate {

// Threads: one. Owns: nothing. Invariants: none.
class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  template <class... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }
  void number(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7U) out_ += static_cast<char>(value | 0x80U);
    out_ += static_cast<char>(value);
  }

 private:
  void put(bool value) { number(value ? 1 : 0); }
  template <std::unsigned_integral T>
  void put(T value) {
    number(value);
  }
  template <std::signed_integral T>
  void put(T value) {
    const auto wide = static_cast<std::int64_t>(value);
    number((static_cast<std::uint64_t>(wide) << 1U) ^ static_cast<std::uint64_t>(wide >> 63));
  }
  void put(const ByteString& bytes) {
    number(bytes.size());
    out_ += bytes;
  }
  template <class T>
  void put(const std::vector<T>& values) {
    number(values.size());
    for (const T& value : values) put(value);
  }
  template <class T>
  requires requires(const T& t, Writer& w) { t.fields(w); }
  void put(const T& value) { value.fields(*this); }

  std::string& out_;
};

// Survives any bytes: after the first wrong one ok() is false and all that is read is 0.
//
// Threads: one. Owns: nothing; the bytes outlive it. Invariants: never reads behind them.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <class... T>
  void operator()(T&... values) {
    (get(values), ...);
  }
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ >= bytes_.size()) break;
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      const std::uint64_t part = byte & 0x7FU;
      if (shift == 63 && part > 1) break;
      value |= part << shift;
      if (byte < 0x80U) return ok_ ? value : 0;
    }
    ok_ = false;
    return 0;
  }
  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] bool at_end() const { return at_ == bytes_.size(); }

 private:
  void get(bool& value) { value = number() != 0; }
  template <std::unsigned_integral T>
  void get(T& value) {
    const std::uint64_t wide = number();
    value = static_cast<T>(wide);
    if (static_cast<std::uint64_t>(value) != wide) ok_ = false;
  }
  template <std::signed_integral T>
  void get(T& value) {
    const std::uint64_t folded = number();
    const auto wide = static_cast<std::int64_t>((folded >> 1U) ^ (~(folded & 1U) + 1U));
    value = static_cast<T>(wide);
    if (static_cast<std::int64_t>(value) != wide) ok_ = false;
  }
  // Every element takes a byte at least: a count beyond what is left is wrong.
  std::uint64_t count() {
    const std::uint64_t n = number();
    if (ok_ && n > bytes_.size() - at_) ok_ = false;
    return ok_ ? n : 0;
  }
  void get(ByteString& bytes) {
    const std::uint64_t n = count();
    bytes.assign(bytes_.substr(at_, n));
    at_ += n;
  }
  template <class T>
  void get(std::vector<T>& values) {
    const std::uint64_t n = count();
    values.clear();
    for (std::uint64_t i = 0; i < n && ok_; ++i) get(values.emplace_back());
  }
  template <class T>
  requires requires(T& t, Reader& r) { t.fields(r); }
  void get(T& value) { value.fields(*this); }

  std::string_view bytes_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace kvc::validate
