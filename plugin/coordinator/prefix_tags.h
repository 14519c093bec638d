// Which prefixes recent prompts had, by an 8-byte tag per hash unit: how far a new prompt shares
// them needs no payload in any tier.
#pragma once
#include <cstdint>

#include "plugin/coordinator/keys.h"
#include "plugin/coordinator/slabs.h"

namespace kvc {

// Threads:    one user.
// Owns:       the tags, oldest to newest in a ring, and a table of them.
// Invariants: at most `capacity` tags; two keys with one tag are one prefix. No heap after make().
class PrefixTags {
 public:
  // False: no memory. Requires capacity > 0.
  [[nodiscard]] bool make(std::uint64_t capacity);

  struct Shared {
    std::uint64_t keys = 0;  // leading ones of the path that an earlier path had
    bool at_end = false;     // an earlier path ended with the last of them
  };
  // Then the path's own are known, too. What is known again is not newer for that.
  Shared note(const KeyView& path);
  void clear();
  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] std::uint64_t bytes() const {
    return (capacity_ + places_) * sizeof(std::uint64_t);
  }

 private:
  static constexpr std::uint64_t end_bit = 1;  // never in a tag
  [[nodiscard]] static std::uint64_t tag_of(const std::byte* key, std::uint32_t key_bytes);
  [[nodiscard]] std::uint64_t home(std::uint64_t tag) const {
    return ((tag >> 32U) * places_) >> 32U;
  }
  [[nodiscard]] std::uint64_t after(std::uint64_t p) const { return p + 1 == places_ ? 0 : p + 1; }
  // The place of the tag, or the empty one where it belongs.
  [[nodiscard]] std::uint64_t place(std::uint64_t tag) const;
  void insert(std::uint64_t tag);
  void erase(std::uint64_t tag);

  SlabArray<std::uint64_t> ring_;
  SlabArray<std::uint64_t> table_;  // the tag, and end_bit where a path ended; 0: empty
  std::uint64_t capacity_ = 0;
  std::uint64_t places_ = 0;
  std::uint64_t size_ = 0;
  std::uint64_t next_ = 0;  // place in the ring
};

}  // namespace kvc
