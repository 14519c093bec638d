// How a status is told: by its name and its number, "KVC_E_FULL (-5)".
#pragma once
#include <kvc/kvc.h>

#include <fmt/format.h>

#include <kvc/kvc.hpp>

namespace kvc::host {

// To be formatted: fmt::format("lookup answered {}", Said{status}).
struct Said {
  kvc_status status;
};

}  // namespace kvc::host

template <>
struct fmt::formatter<kvc::host::Said> {
  static constexpr auto parse(format_parse_context& context) { return context.begin(); }
  static auto format(const kvc::host::Said& said, format_context& context) {
    return fmt::format_to(context.out(), "{} ({})", kvc::abi::status_name(said.status),
                          said.status);
  }
};
