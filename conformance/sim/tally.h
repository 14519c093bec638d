// What happened in a run, summed over worlds: a simulation in which nothing happens proves nothing.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace kvc::sim {

// Threads: one user. Owns: named sums. Invariants: none.
class Tally {
 public:
  void add(std::string_view name, std::uint64_t by) {
    const auto it = sums_.find(name);
    if (it == sums_.end()) {
      sums_.emplace(std::string(name), by);
    } else {
      it->second += by;
    }
  }
  void add(const Tally& other) {
    for (const auto& [name, value] : other.sums_) add(name, value);
  }
  [[nodiscard]] std::uint64_t of(std::string_view name) const {
    const auto it = sums_.find(name);
    return it == sums_.end() ? 0 : it->second;
  }
  [[nodiscard]] const std::map<std::string, std::uint64_t, std::less<>>& sums() const {
    return sums_;
  }

 private:
  std::map<std::string, std::uint64_t, std::less<>> sums_;
};

}  // namespace kvc::sim
