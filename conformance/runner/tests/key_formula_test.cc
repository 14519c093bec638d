// Keys are made by one implementation, host_stub/engine/key_chain.h; here is a second one, written
// from its comment, and recorded keys, so that no side can change alone (field report 144).
#include <xxhash.h>

#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "host_stub/engine/key_chain.h"

namespace kvc::conform {

BOOST_AUTO_TEST_SUITE(key_formula)

namespace {

using Bytes = std::vector<unsigned char>;

Bytes hash_of(const Bytes& input) {
  const XXH128_hash_t h = XXH3_128bits(input.data(), input.size());
  Bytes out;
  for (const std::uint64_t half : {h.high64, h.low64}) {  // most significant byte first
    for (unsigned shift = 64; shift != 0; shift -= 8) {
      out.push_back(static_cast<unsigned char>(half >> (shift - 8)));
    }
  }
  return out;
}

void put(Bytes& to, std::uint64_t value, unsigned bytes) {
  for (unsigned i = 0; i < bytes; ++i) to.push_back(static_cast<unsigned char>(value >> (8 * i)));
}

// Every key of the tokens, one after the other.
Bytes keys_of(std::uint64_t unit, std::uint64_t seed, const std::string& salt,
              const std::vector<std::uint32_t>& tokens) {
  Bytes parent = {'k', 'v', 'c', ' ', 'r', 'o', 'o', 't'};
  put(parent, seed, 8);
  parent = hash_of(parent);
  Bytes all;
  for (std::uint64_t first = 0; first + unit <= tokens.size(); first += unit) {
    Bytes input = parent;
    for (std::uint64_t t = first; t < first + unit; ++t) put(input, tokens[t], 4);
    if (first == 0) input.insert(input.end(), salt.begin(), salt.end());
    parent = hash_of(input);
    all.insert(all.end(), parent.begin(), parent.end());
  }
  return all;
}

std::vector<std::uint32_t> tokens_of(std::uint32_t n) {
  std::vector<std::uint32_t> tokens(n);
  for (std::uint32_t i = 0; i < n; ++i) tokens[i] = i * 2654435761U + 12345U;
  return tokens;
}

Bytes engine_keys(std::uint64_t unit, std::uint64_t seed, const std::string& salt,
                  const std::vector<std::uint32_t>& tokens) {
  host::KeyChain chain(unit, seed, salt);
  chain.extend(tokens);
  Bytes bytes(chain.count() * host::engine_key_bytes);
  if (!bytes.empty()) std::memcpy(bytes.data(), chain.data(), bytes.size());
  return bytes;
}

std::string hex(const Bytes& bytes) {
  std::string text;
  char two[3];
  for (const unsigned char b : bytes) {
    std::snprintf(two, sizeof two, "%02x", b);
    text += two;
  }
  return text;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_engines_keys_are_those_of_the_formula) {
  for (const std::uint64_t unit : {1U, 4U, 16U, 528U}) {
    for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{7}, UINT64_MAX}) {
      for (const std::string salt : {"", "tenant-a", "a longer salt than the others"}) {
        const auto tokens = tokens_of(1100);
        BOOST_TEST(hex(engine_keys(unit, seed, salt, tokens)) ==
                   hex(keys_of(unit, seed, salt, tokens)));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(recorded_keys_stay_as_they_are) {
  const auto tokens = tokens_of(40);
  BOOST_TEST(hex(engine_keys(16, 7, "tenant-a", tokens)) ==
             "37a758c687773b989d6d6fedad478f2381eae7a85d7e5335b2a19eaf1afd90e7");
  BOOST_TEST(hex(engine_keys(16, 0, "", tokens)) ==
             "592d8cae2df152ac506e845476298c58a620d5cff3de7ef3a0310733f37afdb8");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvc::conform
