// The places of one class of blocks and which key is in which: the memory of a DiskStore.
#pragma once
#include <cstdint>

#include "plugin/core/result.h"
#include "plugin/core/zeroed.h"
#include "plugin/offload/disk/format.h"

namespace kvc::disk {

inline constexpr std::uint32_t no_place = UINT32_MAX;

// What is known of a place besides its key. All zero: never used, no bytes in the file.
enum class Use : std::uint8_t {
  hole = 0,  // no bytes in the file
  free,      // bytes, for the next block
  writing,   // a task writes it
  live,      // in the key table
  queued,    // out of the key table, its record is to be written
  leaving,   // a task writes its record or punches it, or readers are not done
  bad,       // failed verification, not used again for now
  lost,      // nobody knows what its record says; not used before the next open
};

struct Place {
  Key key{};
  std::uint64_t sequence = 0;
  std::uint32_t group = 0;
  std::uint32_t next = 0;  // of its list, + 1; 0: the last
  std::uint32_t previous = 0;
  std::uint16_t readers = 0;
  Use use = Use::hole;
  bool recorded = false;   // leaving: its record says what it is
  bool condemned = false;  // queued and leaving: it will be bad, not free
};

// Threads:    one user.
// Owns:       its arrays, sized at creation, touched where they are used.
// Invariants: a place is in the list of its use (hole, free, live, queued, bad; in order of
// becoming
//             so)
//             or in none; the key table holds exactly the live places.
class Places {
 public:
  // `places` > 0. Errors: full (memory), arg (more than 2^31).
  Status create(std::uint64_t payload_bytes, std::uint64_t places);

  [[nodiscard]] std::uint64_t payload() const { return payload_; }
  // Bytes of a place in the file, and of a place with its record.
  [[nodiscard]] std::uint64_t stride() const { return place_bytes(payload_); }
  [[nodiscard]] std::uint64_t cost() const { return entry_bytes(payload_); }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  // Requires: place < size().
  [[nodiscard]] const Place& at(std::uint32_t place) const { return place_[place]; }
  [[nodiscard]] Place& at(std::uint32_t place) { return place_[place]; }

  // The live place of the key; no_place.
  [[nodiscard]] std::uint32_t find(std::uint32_t group, const Key& key) const;
  // Takes the place out of the list of its use, or the key table, and puts it into those of
  // `use`, at their end. Requires: for live, key, group and sequence are set, and no live place
  // has the key.
  void move(std::uint32_t place, Use use);

  // The first of the list, the one that is longest in it: the oldest of the live ones.
  [[nodiscard]] std::uint32_t first(Use use) const { return lists_[index(use)].first - 1; }
  [[nodiscard]] std::uint32_t next(std::uint32_t place) const { return place_[place].next - 1; }
  [[nodiscard]] std::uint32_t count(Use use) const { return count_[index(use)]; }
  // A place to write: the free one that was used last, or a hole if allowed. no_place.
  [[nodiscard]] std::uint32_t take(bool hole_allowed);
  [[nodiscard]] bool can_grow() const { return count(Use::hole) != 0 || fresh_ < size_; }
  // Places with bytes in the file.
  [[nodiscard]] std::uint64_t with_bytes() const {
    return fresh_ - std::uint64_t{count(Use::hole)};
  }
  // Places that were ever used, or skipped.
  [[nodiscard]] std::uint64_t begun() const { return fresh_; }
  // At an open: places below were in use before, and are holes unless told otherwise.
  void begin_at(std::uint32_t fresh);

  // Slow check for tests: the text of the first broken invariant.
  [[nodiscard]] std::string verify() const;

 private:
  static constexpr std::size_t uses = 8;
  struct List {
    std::uint32_t first = 0;  // + 1
    std::uint32_t last = 0;
  };
  static std::size_t index(Use use) { return static_cast<std::size_t>(use); }
  static bool listed(Use use) {
    return use == Use::hole || use == Use::free || use == Use::live || use == Use::queued ||
           use == Use::bad;
  }
  [[nodiscard]] std::uint64_t home(std::uint32_t group, const Key& key) const;
  void insert(std::uint32_t place);
  void remove(std::uint32_t place);
  void link(std::uint32_t place, List& list);
  void unlink(std::uint32_t place, List& list);

  std::uint64_t payload_ = 0;
  std::uint32_t size_ = 0;
  std::uint32_t fresh_ = 0;  // places from here on were never used: holes in no list
  std::uint64_t mask_ = 0;
  Zeroed place_memory_;
  Zeroed table_memory_;
  Place* place_ = nullptr;
  std::uint32_t* table_ = nullptr;  // place + 1, linear probing
  List lists_[uses];
  std::uint32_t count_[uses] = {};  // hole: of the list, without those never used
};

}  // namespace kvc::disk
