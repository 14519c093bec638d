#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <string_view>

#include "conformance/tidy/tidy.h"

namespace kvc::tidy {
namespace {

namespace fs = std::filesystem;

constexpr std::array top_folders = {"abi",       "config",      "cuda", "plugin",
                                    "host_stub", "conformance", "docs"};
constexpr std::array code_endings = {".h", ".hpp", ".def", ".c", ".cc", ".cu", ".cuh"};
constexpr std::array other_endings = {".cmake", ".txt", ".sh", ".toml", ".md", ".json"};

template <class Endings>
bool ends_in(const std::string& path, const Endings& endings) {
  return std::any_of(endings.begin(), endings.end(), [&](const char* e) {
    return path.size() > std::string_view(e).size() && path.ends_with(e);
  });
}

File read_file(const fs::path& root, const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw fs::filesystem_error("cannot read", path,
                               std::make_error_code(std::errc::permission_denied));
  }
  return {path.lexically_relative(root).generic_string(),
          std::string(std::istreambuf_iterator<char>(in), {})};
}

}  // namespace

bool is_code(const std::string& path) { return ends_in(path, code_endings); }

bool is_test(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  return name.find("_test.") != std::string::npos || path.find("/tests/") != std::string::npos;
}

std::vector<File> read_tree(const fs::path& root) {
  std::vector<File> files;
  const auto wanted = [](const std::string& path) {
    return is_code(path) || ends_in(path, other_endings);
  };
  for (const char* folder : top_folders) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string path = entry.path().lexically_relative(root).generic_string();
      if (!entry.is_regular_file() || !wanted(path)) continue;
      if (path.starts_with("conformance/corpus/") && !path.ends_with(".md")) continue;
      files.push_back(read_file(root, entry.path()));
    }
  }
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && (wanted(name) || name == "dev")) {
      files.push_back(read_file(root, entry.path()));
    }
  }
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.path < b.path; });
  return files;
}

Findings check_all(const std::vector<File>& files) {
  Findings all = check_arrows(files);
  const auto add = [&](Findings more) {
    all.insert(all.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
  };
  for (const File& file : files) {
    add(check_text(file));
    if (is_code(file.path)) add(check_functions(file));
  }
  add(check_registered(files));
  add(check_fault_points(files));
  add(check_rule_names(files));
  return all;
}

}  // namespace kvc::tidy
