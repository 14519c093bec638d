// What somebody meant who wrote a name that does not exist.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvc::config {

// The word of `allowed` with the smallest edit distance to `key`, if it is near enough to be a slip
// of the pen.
[[nodiscard]] std::optional<std::string> nearest(std::string_view key,
                                                 const std::vector<std::string>& allowed);

}  // namespace kvc::config
