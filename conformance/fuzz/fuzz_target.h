// What every fuzz target shares. A target is a function of bytes that ends the process when a
// promise is broken; libFuzzer (clang) or replay_main.cc (any compiler) feeds it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

// NOLINTNEXTLINE: the name is libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace kvc::fuzz {

// Ends the process, with a text, if the promise does not hold. Never compiled out.
inline void promise(bool holds, const std::string& text) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", text.c_str());
  std::abort();
}

}  // namespace kvc::fuzz
