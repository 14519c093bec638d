// Shared by the tests of the byte formats.
#pragma once
#include <cstdint>
#include <fstream>
#include <random>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace kvc::format_test {

using Buffer = std::vector<std::uint8_t>;

// A copy of exactly these bytes on the heap, so that ASan sees a read beyond them.
inline Buffer exact(std::span<const std::uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

// The lines "offset  hex bytes  | meaning" between ```hex and ``` of a format's page, joined.
inline Buffer hex_example(const std::string& page) {
  std::ifstream in(std::string(KVC_SOURCE_DIR) + "/docs/formats/" + page);
  if (!in) throw std::runtime_error("docs/formats/" + page + " is missing");
  Buffer out;
  std::string line;
  bool inside = false;
  while (std::getline(in, line)) {
    if (line == "```hex") {
      inside = true;
    } else if (line == "```") {
      inside = false;
    } else if (inside) {
      std::istringstream words(line.substr(0, line.find('|')));
      std::string word;
      words >> word;  // offset
      if (std::stoul(word) != out.size()) throw std::runtime_error("wrong offset in: " + line);
      while (words >> word) out.push_back(static_cast<std::uint8_t>(std::stoul(word, nullptr, 16)));
    }
  }
  return out;
}

// One random way to damage bytes: flipped bits, overwritten integers, cut, grown.
inline Buffer mutated(const Buffer& good, std::mt19937_64& rng) {
  Buffer out = good;
  const std::uint64_t edits = 1 + rng() % 4;
  for (std::uint64_t e = 0; e < edits; ++e) {
    const std::uint64_t kind = rng() % 5;
    if (kind == 0 && !out.empty()) {
      out.resize(rng() % out.size());
    } else if (kind == 1) {
      out.resize(out.size() + 1 + rng() % 64, static_cast<std::uint8_t>(rng()));
    } else if (kind == 2 && out.size() >= 8) {
      static constexpr std::uint64_t favourites[] = {0,          1,          2, 0xffffffff,
                                                     UINT64_MAX, 1ull << 63, 24};
      const std::uint64_t value = favourites[rng() % 7];
      const std::size_t at = (rng() % (out.size() / 8)) * 8;
      for (std::size_t i = 0; i < 8; ++i) out[at + i] = static_cast<std::uint8_t>(value >> (8 * i));
    } else if (!out.empty()) {
      out[rng() % out.size()] ^= static_cast<std::uint8_t>(1u << (rng() % 8));
    }
  }
  return out;
}

}  // namespace kvc::format_test
