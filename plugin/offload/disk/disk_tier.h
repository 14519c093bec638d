// The disk tier of one rank: one DiskStore a path, seen as one.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plugin/offload/disk/disk_store.h"

namespace kvc::disk {

struct DiskTierOptions {
  std::vector<std::string> paths;  // at least one; no two the same
  DiskStoreOptions store;          // for each; the budget is that of one path
};

// Threads:    one caller at a time.
// Owns:       the stores.
// Invariants: a block is in one store at most; what the stores promise holds for the whole. A path
//             that is switched off costs its own blocks only.
class DiskTier {
 public:
  // All paths or none. Errors: those of DiskStore::open; arg (no path, one twice).
  static Result<std::unique_ptr<DiskTier>> open(const DiskTierOptions& options, Files& files);

  // As of DiskStore. A write goes to the path that is on, has room, and is used the least; full if
  // one is on and none has room.
  Code write(const DiskWrite& op, std::uint64_t now_ns);
  Code read(const DiskRead& op, std::uint64_t now_ns);
  bool erase(std::uint32_t group, const Key& key);
  // Reported once, when all paths are done; ok only if all were.
  Code reset(std::uint64_t id, std::uint64_t now_ns);
  std::size_t poll(std::span<DiskDone> out, std::uint64_t now_ns);
  void wait(std::uint64_t timeout_ns);
  std::uint64_t pump(std::uint64_t budget);
  [[nodiscard]] bool stepped() const { return stores_.front()->stepped(); }
  bool close();

  [[nodiscard]] bool contains(std::uint32_t group, const Key& key) const;
  [[nodiscard]] std::uint64_t blocks() const;
  [[nodiscard]] Bytes used() const;
  [[nodiscard]] std::size_t open_operations() const;
  // The oldest block that stands in the way of a write of the group, on the path that the write
  // would take.
  [[nodiscard]] std::optional<DiskStore::Oldest> oldest_like(std::uint32_t group) const;

  // As of DiskStore, one path after the other: entries are numbered through all of them.
  std::vector<std::uint8_t> next_inventory(std::size_t room);
  [[nodiscard]] bool inventory_left() const;

  // Whether any path works. The reasons of those that do not, "; " between them.
  [[nodiscard]] bool on() const;
  [[nodiscard]] std::string off_reason() const;
  [[nodiscard]] DiskCounters counters() const;
  std::vector<std::string> take_notes();
  [[nodiscard]] std::size_t paths() const { return stores_.size(); }
  [[nodiscard]] const DiskStore& store(std::size_t i) const { return *stores_[i]; }

  [[nodiscard]] std::string verify() const;

 private:
  DiskTier() = default;
  [[nodiscard]] DiskStore* holder(std::uint32_t group, const Key& key) const;

  std::vector<std::unique_ptr<DiskStore>> stores_;
  std::uint64_t budget_ = 0;  // of one path
  std::size_t next_ = 0;      // store that poll begins with
  // A reset at work: how many stores have not answered, and what they said so far.
  std::size_t resetting_ = 0;
  Code reset_status_ = Code::ok;
  std::uint64_t inventory_all_ = 0;
  std::uint64_t inventory_told_ = 0;
};

}  // namespace kvc::disk
