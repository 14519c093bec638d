// How much fits into a disk tier of so many bytes (docs/formats/disk.md): for the tier itself, and
// for who is asked before there is one. Bytes are those of one rank, of all its paths together.
#pragma once
#include <cstddef>
#include <cstdint>

namespace kvc::disk {

// Every transfer of block bytes begins and ends at multiples of this: what O_DIRECT needs anywhere.
inline constexpr std::size_t alignment = 4096;
inline constexpr std::size_t block_header_bytes = 256;
inline constexpr std::size_t record_bytes = 128;
// Of a folder beside its blocks: the superblock, the lock, the probe, and what is being rewritten.
inline constexpr std::uint64_t fixed_bytes_per_path = std::uint64_t{64} << 10U;
// Entries of the scheduler's index, however many bytes there are.
inline constexpr std::uint64_t entries_most = std::uint64_t{1} << 28U;

// Bytes of a place for blocks of `payload` bytes.
[[nodiscard]] constexpr std::uint64_t place_bytes(std::uint64_t payload) {
  return (block_header_bytes + payload + alignment - 1) / alignment * alignment;
}

// What an entry costs: its place and the record of it.
[[nodiscard]] constexpr std::uint64_t entry_bytes(std::uint64_t payload) {
  return place_bytes(payload) + record_bytes;
}

// What is left of [disk] bytes for entries.
[[nodiscard]] constexpr std::uint64_t budget_bytes(std::uint64_t bytes, std::uint64_t paths) {
  const std::uint64_t fixed = paths * fixed_bytes_per_path;
  return bytes < fixed ? 0 : bytes - fixed;
}

// A tier needs room for so many entries of every group at least.
inline constexpr std::uint64_t entries_least = 2;

}  // namespace kvc::disk
