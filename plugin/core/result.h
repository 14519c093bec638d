// Errors are values inside; the edge turns them into the codes of kvc.h (same numbers, asserted
// there).
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "plugin/core/check.h"

namespace kvc {

enum class Code : std::int32_t {
  ok = 0,
  more = 1,
  later = 2,
  arg = -1,
  state = -2,
  room = -3,
  unsupported = -4,
  full = -5,
  io = -6,
  cancelled = -7,
  deadline = -8,
  internal = -127,
};

// A code and, for errors, a text that names the numbers involved. Hot paths use Code alone.
struct [[nodiscard]] Status {
  Code code = Code::ok;
  std::string text;

  Status() = default;
  Status(Code c, std::string t) : code(c), text(std::move(t)) {}
  [[nodiscard]] bool ok() const { return static_cast<std::int32_t>(code) >= 0; }
};

// A value or a Status that is not ok. value() of an error is a broken invariant.
template <class T>
class [[nodiscard]] Result {
 public:
  // Implicit by design: `return value;` and `return error;`.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(Status error) : v_(std::in_place_index<1>, std::move(error)) {}
  Result(Code code, std::string text) : v_(std::in_place_index<1>, code, std::move(text)) {}
  [[nodiscard]] bool ok() const { return v_.index() == 0; }
  [[nodiscard]] const T& value() const& {
    KVC_CHECK(ok());
    return std::get<0>(v_);
  }
  [[nodiscard]] T& value() & {
    KVC_CHECK(ok());
    return std::get<0>(v_);
  }
  [[nodiscard]] T&& value() && {
    KVC_CHECK(ok());
    return std::get<0>(std::move(v_));
  }
  [[nodiscard]] const Status& error() const {
    KVC_CHECK(!ok());
    return std::get<1>(v_);
  }

 private:
  std::variant<T, Status> v_;
};

}  // namespace kvc
