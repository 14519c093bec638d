// kvc-tidy [--arrows] ROOT: prints what breaks the rules of the tree, one finding a line.
// Exit: 0 none, 1 findings, 2 no tree at ROOT.
#include <cstdio>
#include <exception>
#include <string_view>

#include "conformance/tidy/tidy.h"

int main(int argc, char** argv) {
  const bool arrows_only = argc == 3 && std::string_view(argv[1]) == "--arrows";
  if (argc != 2 && !arrows_only) {
    std::fprintf(stderr, "usage: kvc-tidy [--arrows] ROOT\n");
    return 2;
  }
  try {
    const auto files = kvc::tidy::read_tree(argv[argc - 1]);
    if (files.empty()) {
      std::fprintf(stderr, "kvc-tidy: no sources below %s\n", argv[argc - 1]);
      return 2;
    }
    const auto findings =
        arrows_only ? kvc::tidy::check_arrows(files) : kvc::tidy::check_all(files);
    for (const auto& f : findings) {
      std::fprintf(stderr, "%s:%zu: %s\n", f.path.c_str(), f.line, f.text.c_str());
    }
    if (!arrows_only || !findings.empty()) {
      std::fprintf(stderr, "kvc-tidy: %zu files, %zu findings\n", files.size(), findings.size());
    }
    return findings.empty() ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "kvc-tidy: %s\n", e.what());
    return 2;
  }
}
