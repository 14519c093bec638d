#include <algorithm>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>

#include "conformance/tidy/tidy.h"

namespace kvc::tidy {
namespace {

// The folders between which arrows run, longest first where one holds another.
constexpr std::string_view folders[] = {"plugin/core",
                                        "plugin/coordinator",
                                        "plugin/offload",
                                        "plugin/simple_cpu",
                                        "plugin/offloading",
                                        "plugin/edge",
                                        "plugin/tests",
                                        "conformance/bench",
                                        "conformance/fuzz",
                                        "conformance/oracle",
                                        "conformance",
                                        "abi",
                                        "config",
                                        "cuda",
                                        "host_stub",
                                        "docs"};

// What each folder may include besides itself. offload sees of cuda only the interface (below).
const std::map<std::string_view, std::set<std::string_view>>& arrows() {
  static const std::map<std::string_view, std::set<std::string_view>> table = {
      {"abi", {}},
      {"config", {}},
      {"plugin/core", {}},
      {"cuda", {"plugin/core"}},
      {"plugin/coordinator", {"plugin/core"}},
      {"plugin/offload", {"plugin/core", "plugin/coordinator", "cuda"}},
      {"plugin/simple_cpu", {"plugin/core", "plugin/coordinator", "plugin/offload"}},
      {"plugin/offloading", {"plugin/core", "plugin/coordinator", "plugin/offload"}},
      {"plugin/edge",
       {"plugin/core", "plugin/coordinator", "plugin/offload", "plugin/simple_cpu",
        "plugin/offloading", "abi", "config", "cuda"}},
      {"host_stub", {"abi", "config", "plugin/core", "plugin/coordinator", "cuda"}},
      // core comes with the headers of host_stub: results and units
      {"conformance", {"abi", "config", "host_stub", "plugin/core", "conformance/oracle"}},
      {"conformance/oracle", {}},
      {"plugin/tests", {}},
      {"docs", {"abi"}},
  };
  return table;
}

constexpr std::string_view copy_interface = "cuda/copy_engine.h";

// The coordinator is a pure state machine: no clock, thread, file or parser, not even a standard
// one.
constexpr std::string_view impure[] = {
    "chrono", "condition_variable", "ctime", "filesystem",   "fstream",
    "future", "iostream",           "mutex", "shared_mutex", "stop_token",
    "thread", "toml++/toml.h"};
constexpr std::string_view impure_core[] = {"plugin/core/clock.h", "plugin/core/executor.h"};

// Files to be copied elsewhere, in one piece: they name their neighbours without a folder.
constexpr std::string_view to_copy[] = {"docs/minimal/", "abi/frozen/"};

bool names_neighbour(const std::string& path, const std::string& header) {
  return header.find('/') == std::string::npos &&
         std::any_of(std::begin(to_copy), std::end(to_copy),
                     [&](std::string_view f) { return path.starts_with(f); });
}

std::string_view folder_of(std::string_view path) {
  for (const std::string_view f : folders) {
    if (path.starts_with(f) && path.size() > f.size() && path[f.size()] == '/') return f;
  }
  return {};
}

// Programs that may look everywhere. kvc-bench and the fuzz targets have folders of their own.
bool is_free_program(const std::string& path) {
  if (folder_of(path) == "conformance/bench" || folder_of(path) == "conformance/fuzz") return true;
  const std::string name = path.substr(path.rfind('/') + 1);
  return name.starts_with("kvc_vectors.") || name.starts_with("kvc_bench.") ||
         name.starts_with("kvc_size.");
}

// Why the file may not include `target` (a path from the root); nullopt: it may.
std::optional<std::string> refusal(const std::string& path, const std::string& target) {
  const std::string_view from = folder_of(path);
  const std::string_view to = folder_of(target);
  if (to.empty()) return "\"" + target + "\" is in no folder of the tree";
  if (is_test(target) || is_free_program(target)) {
    return "\"" + target + "\" belongs to a test or a tool: nothing may include it";
  }
  if (from == to) return std::nullopt;
  const auto allowed = arrows().find(from);
  if (allowed == arrows().end() || allowed->second.count(to) == 0) {
    return std::string(from) + " may not include " + std::string(to) + " (\"" + target + "\")";
  }
  if (from == "plugin/offload" && to == "cuda" && target != copy_interface) {
    return "plugin/offload may include of cuda only \"" + std::string(copy_interface) +
           "\", not \"" + target + "\"";
  }
  return std::nullopt;
}

std::optional<std::string> impurity(const std::string& path, const std::string& header) {
  if (folder_of(path) != "plugin/coordinator") return std::nullopt;
  const auto same = [&](std::string_view h) { return header == h; };
  if (std::any_of(std::begin(impure), std::end(impure), same) ||
      std::any_of(std::begin(impure_core), std::end(impure_core), same)) {
    return "the coordinator has no clock, thread, file or parser: <" + header + ">";
  }
  return std::nullopt;
}

}  // namespace

Findings check_arrows(const std::vector<File>& files) {
  static const std::regex include(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  Findings findings;
  for (const File& file : files) {
    if (!is_code(file.path)) continue;
    const bool free = is_test(file.path) || is_free_program(file.path);
    std::istringstream in(file.text);
    std::string line;
    for (std::size_t number = 1; std::getline(in, line); ++number) {
      std::smatch m;
      if (line.find("include") == std::string::npos || !std::regex_search(line, m, include)) {
        continue;
      }
      const bool quoted = m[1] == "\"";
      const std::string header = m[2];
      if (free) continue;
      std::optional<std::string> why = impurity(file.path, header);
      if (!why && quoted && !names_neighbour(file.path, header)) {
        why = refusal(file.path, header);
      }
      if (!why && header.starts_with("kvc/")) why = refusal(file.path, "abi/include/" + header);
      if (why) findings.push_back({file.path, number, *why});
    }
  }
  return findings;
}

}  // namespace kvc::tidy
