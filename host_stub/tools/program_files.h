// Which files a program may write.
#pragma once
#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace kvc::host {

// A file as an option has it. An empty path, or gen:..., is none.
struct NamedFile {
  const char* option = "";
  std::string path;
};

// Whether two paths lead to one file; of files that are not there yet, by their names.
inline bool same_file(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return false;
  if (a == b) return true;
  std::error_code failed;
  if (std::filesystem::equivalent(a, b, failed) && !failed) return true;
  const auto whole_a = std::filesystem::weakly_canonical(std::filesystem::absolute(a), failed);
  if (failed) return false;
  const auto whole_b = std::filesystem::weakly_canonical(std::filesystem::absolute(b), failed);
  return !failed && whole_a == whole_b;
}

// Why the outputs must not be written: one of them is an input, or is named twice. An output would
// replace the input when the work is done.
[[nodiscard]] inline std::optional<std::string> file_named_twice(
    const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs) {
  const auto both = [](const NamedFile& a, const NamedFile& b) {
    return fmt::format("{} and {} both name {}", a.option, b.option, b.path);
  };
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (const NamedFile& input : inputs) {
      if (same_file(outputs[i].path, input.path)) return both(outputs[i], input);
    }
    for (std::size_t k = i + 1; k < outputs.size(); ++k) {
      if (same_file(outputs[i].path, outputs[k].path)) return both(outputs[i], outputs[k]);
    }
  }
  return std::nullopt;
}

}  // namespace kvc::host
