// Which entries of a tier some lookup can use: a mirror of the tier made from the keys that the
// host handed out and the events that the connector reported, judged by the rules of
// docs/semantics.md (conformance/oracle), with no index.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "config/model_config.h"
#include "conformance/oracle/oracle.h"

namespace kvc::acceptance {

using Key = std::array<std::uint8_t, 16>;

// Entries of each group, in entries.
struct Reach {
  std::vector<std::uint64_t> held;
  std::vector<std::uint64_t> unreachable;  // of them: in no needed set of a boundary that is served

  [[nodiscard]] std::uint64_t held_sum() const;
  [[nodiscard]] std::uint64_t unreachable_sum() const;
};

// An entry is reachable if, on the path of some request so far, a boundary is served by all groups
// and the entry is one that serves it: a block of the needed set, the state at the boundary, or, of
// the attention block in which the boundary lies, anything held at or behind it. The longest prefix
// is not preferred: a request that parts behind this boundary would use it. Paths count to their
// last key, since a longer request may follow. Paths of requests whose entries are all gone serve
// nothing, as every boundary needs an entry of its own path.
//
// Threads:    one user.
// Owns:       the keys of all requests that still have an entry, and what is held.
// Invariants: a key is held at most once per group (events that break it throw
//             std::logic_error).
class TierMirror {
 public:
  // Layouts without draft groups, with keys of 16 bytes.
  explicit TierMirror(const config::ModelConfig& model);

  // `keys`: count x 16 bytes that continue the request's keys.
  void keys(std::uint64_t request, const std::uint8_t* keys, std::uint64_t count);
  void ended(std::uint64_t request) { paths_.at(request).over = true; }
  void stored(std::uint32_t group, const std::uint8_t* key, std::uint64_t request);
  void removed(std::uint32_t group, const std::uint8_t* key);

  // Judges everything that is held, and forgets the paths of ended requests without an entry.
  [[nodiscard]] Reach reach();

 private:
  struct Path {
    std::vector<Key> keys;
    bool over = false;
  };
  struct Entry {
    std::uint64_t request = 0;
    bool reachable = false;
  };
  struct HashKey {
    std::size_t operator()(const Key& key) const;
  };
  using Held = std::unordered_map<Key, Entry, HashKey>;

  void judge(const Path& path);
  [[nodiscard]] bool states_are_held(const oracle::World& world, std::uint64_t t) const;
  void use(const Path& path, const oracle::World& world, std::uint64_t t);

  oracle::World layout_;
  std::map<std::uint64_t, Path> paths_;
  std::vector<Held> held_;  // of each group
};

}  // namespace kvc::acceptance
