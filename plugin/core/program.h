// What all programs of the product have in common.
#pragma once
#include <string>
#include <string_view>

namespace kvc {

// What --version prints, without a newline: "kvc-run 1.0.0".
[[nodiscard]] std::string version_line(std::string_view program);

// What main returns: `code`, or, where stdout did not take all that was printed, a line on stderr
// and `failed` in place of 0.
[[nodiscard]] int with_stdout_written(std::string_view program, int code, int failed);

}  // namespace kvc
