// The style of this tree as a test: what a reviewer would have to look for every time.
//
// Threads: none.
// Owns:    nothing. Every rule is a function from files to findings, so that its tests can plant
// bad
//          files without a file system.
#pragma once
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace kvc::tidy {

struct File {
  std::string path;  // from the root of the tree, with '/'
  std::string text;
};

struct Finding {
  std::string path;
  std::size_t line = 0;  // 1, 2, ...; 0: the file as a whole
  std::string text;
};
using Findings = std::vector<Finding>;

// All files that the rules look at: sources, scripts, CMake and documents below the fixed top-level
// folders and at the root. Corpus data and build trees are left out. Throws
// std::filesystem::filesystem_error.
[[nodiscard]] std::vector<File> read_tree(const std::filesystem::path& root);

// A C++, C or CUDA source or header.
[[nodiscard]] bool is_code(const std::string& path);
// A test or what only tests use: x_test.cc, or below a folder named tests.
[[nodiscard]] bool is_test(const std::string& path);

// Includes against the arrows of the folders (docs/ARCHITECTURE.md).
[[nodiscard]] Findings check_arrows(const std::vector<File>& files);

// Columns, tabs, file length, marks of unfinished work, sleeps in tests.
[[nodiscard]] Findings check_text(const File& file);

// Functions longer than 70 lines. A heuristic over braces, good for formatted code.
[[nodiscard]] Findings check_functions(const File& file);

// Sources that no CMakeLists.txt names: they are not built, so their tests do not run.
[[nodiscard]] Findings check_registered(const std::vector<File>& files);

// Fault points of the code against the table in docs/testing.md, both ways.
[[nodiscard]] Findings check_fault_points(const std::vector<File>& files);

// Names of rules (R-108, CW-1, K6-50, ...) that docs/rules.md does not explain in a row.
[[nodiscard]] Findings check_rule_names(const std::vector<File>& files);

[[nodiscard]] Findings check_all(const std::vector<File>& files);

}  // namespace kvc::tidy
