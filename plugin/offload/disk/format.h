// The bytes of the disk tier (design 3.2, docs/formats/disk.md): the superblock of a rank's
// directory, the header in front of every block, the record of every place in the index, and the
// inventory that register_regions hands to the scheduler role.
//
// All readers survive any bytes: Code::arg with a text that names the field and the numbers.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "plugin/core/disk_room.h"  // place_bytes and what it is made of
#include "plugin/core/result.h"
#include "plugin/offload/wire.h"

namespace kvc::disk {

inline constexpr std::uint32_t superblock_magic = 0x5343564B;  // the bytes "KVCS"
inline constexpr std::uint32_t block_magic = 0x4243564B;       // "KVCB"
inline constexpr std::uint32_t record_magic = 0x5843564B;      // "KVCX"
inline constexpr std::uint32_t inventory_magic = 0x5643564B;   // "KVCV"
inline constexpr std::uint16_t format_version = 1;

inline constexpr std::size_t superblock_bytes = 4096;
inline constexpr std::size_t superblock_header_bytes = 128;
inline constexpr std::size_t inventory_header_bytes = 64;
inline constexpr std::size_t inventory_entry_bytes = 96;
inline constexpr std::size_t key_bytes_max = 32;

using Digest = std::array<std::uint8_t, 16>;
using Key = std::array<std::uint8_t, key_bytes_max>;  // shorter keys: zeroes behind

// XXH3-128 of the engine's namespace bytes.
[[nodiscard]] Digest digest_of(std::span<const std::uint8_t> namespace_id);
// Requires: bytes.size() <= key_bytes_max.
[[nodiscard]] Key key_of(std::span<const std::uint8_t> bytes);

// Whose blocks a directory holds. Keys of different owners never meet.
struct Owner {
  Digest namespace_digest{};
  std::uint64_t namespace_bytes = 0;
  std::uint64_t hash_id = 0;  // how keys are made, as the engine numbers it; 0: not told
  std::uint32_t rank = 0;
  std::uint32_t key_bytes = 0;

  friend bool operator==(const Owner&, const Owner&) = default;
};

struct Superblock {
  Owner owner;
  std::uint64_t generation = 0;  // from 1; of the directory, grows with every reset

  friend bool operator==(const Superblock&, const Superblock&) = default;
};

// What a block is, whatever its bytes.
struct Identity {
  std::uint32_t group = 0;
  bool has_parent = false;
  std::uint64_t end_tokens = 0;
  Key key{};
  Key parent{};  // zeroes without one

  friend bool operator==(const Identity&, const Identity&) = default;
};

struct BlockHeader {
  Identity what;
  Owner owner;
  std::uint64_t generation = 0;
  std::uint64_t sequence = 0;     // of the directory's writes: the age of the block
  std::uint64_t valid_bytes = 0;  // leading bytes of the payload that mean something
  std::uint64_t payload_bytes = 0;

  friend bool operator==(const BlockHeader&, const BlockHeader&) = default;
};

enum class PlaceState : std::uint16_t {
  empty = 0,  // the record is zeroes; the file has no bytes there
  free = 1,   // the file has bytes there, nobody needs them
  live = 2,   // a whole block was written there before this record
  bad = 3,    // the block there failed verification; nobody reads it, nobody reuses the place
};

// The record of one place of a class, in the index.
struct Record {
  PlaceState state = PlaceState::empty;
  Identity what;
  std::uint64_t place = 0;
  std::uint64_t generation = 0;
  std::uint64_t sequence = 0;
  std::uint64_t valid_bytes = 0;

  friend bool operator==(const Record&, const Record&) = default;
};

// Requires: out.size() == superblock_bytes.
void write_superblock(const Superblock& block, std::span<std::uint8_t> out);
// arg: no superblock; unsupported: of another version. An owner is compared by the caller.
Result<Superblock> read_superblock(std::span<const std::uint8_t> bytes);

// Writes the header in front of the payload that already stands behind it, the zeroes up to the
// end of the place, and the checksum over both, if it is to have one. Requires: place.size() ==
// place_bytes(payload_bytes).
void seal_block(const BlockHeader& header, std::span<std::uint8_t> place,
                wire::Sum summed = wire::Sum::whole);
// The header of a place whose every byte was checked, those behind the payload too; with Sum::none
// all but the payload. arg: something is wrong; so is a block without a checksum for who wants one.
Result<BlockHeader> read_block(std::span<const std::uint8_t> place,
                               wire::Sum summed = wire::Sum::whole);

// Requires: out.size() == record_bytes.
void write_record(const Record& record, std::span<std::uint8_t> out);
// Of place number `place`. arg: torn, or of another place or version.
// Requires: bytes.size() == record_bytes.
Result<Record> read_record(std::span<const std::uint8_t> bytes, std::uint64_t place);

// One piece of an inventory: so many of all the entries. docs/formats/disk.md.
struct InventoryPiece {
  std::uint64_t generation = 0;
  std::uint64_t entries_all = 0;
  std::uint64_t first = 0;
  std::uint32_t rank = 0;
  std::uint32_t entries = 0;
};

struct InventoryEntry {
  Identity what;
  std::uint64_t sequence = 0;

  friend bool operator==(const InventoryEntry&, const InventoryEntry&) = default;
};

[[nodiscard]] constexpr std::uint64_t inventory_bytes(std::uint64_t entries) {
  return inventory_header_bytes + entries * inventory_entry_bytes;
}
// Requires: out.size() == inventory_bytes(piece.entries), entries written by write_inventory_entry.
void seal_inventory(const InventoryPiece& piece, std::span<std::uint8_t> out);
// The piece becomes one of a larger inventory; returns its entries. Requires: a sealed piece.
std::uint32_t renumber_inventory(std::span<std::uint8_t> piece, std::uint64_t first,
                                 std::uint64_t entries_all);
// Requires: out.size() == inventory_entry_bytes.
void write_inventory_entry(const InventoryEntry& entry, std::span<std::uint8_t> out);

// A piece whose every byte was checked.
//
// Threads: immutable; any thread. Owns: nothing; the bytes outlive the view.
class InventoryView {
 public:
  static Result<InventoryView> read(std::span<const std::uint8_t> bytes);
  [[nodiscard]] const InventoryPiece& piece() const { return piece_; }
  // Requires: i < piece().entries.
  [[nodiscard]] InventoryEntry entry(std::uint32_t i) const;

 private:
  InventoryPiece piece_;
  const std::uint8_t* at_ = nullptr;
};

}  // namespace kvc::disk
