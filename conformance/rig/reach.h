// What a cache could hold at best: everything that an engine has ever written since the last reset.
// The oracle says of it whether a hit can be true.
#pragma once
#include <cstdint>
#include <set>
#include <utility>

#include "conformance/oracle/oracle.h"
#include "conformance/rig/world.h"

namespace kvc::rig {

// Threads: one. Owns: a set of prefixes, each a number that its request gave it.
class Reach {
 public:
  explicit Reach(const Setup& setup);

  // The engine has written tokens [from, upto) of the request, with what every group has of them
  // but states that live at hand-offs only.
  void wrote(const Request& r, std::uint64_t from, std::uint64_t upto);
  // The engine handed over the state behind `boundary` tokens.
  void handed_off(const Request& r, std::uint32_t group, std::uint64_t boundary);
  // Nothing older may be hit any more.
  void reset();

  // Whether every group could serve the request's first `tokens` tokens.
  [[nodiscard]] bool serves(const Request& r, std::uint64_t tokens) const;

 private:
  [[nodiscard]] bool keeps(const Request& r, std::size_t group, std::uint64_t end) const;

  oracle::World layout_;
  std::vector<bool> by_position_;                           // states that lie in every block
  std::set<std::uint64_t> written_;                         // prefixes
  std::set<std::pair<std::size_t, std::uint64_t>> states_;  // group, prefix
};

}  // namespace kvc::rig
