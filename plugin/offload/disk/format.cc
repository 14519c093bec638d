#include "plugin/offload/disk/format.h"

#include <xxhash.h>

#include <algorithm>

#include "plugin/offload/wire.h"

namespace kvc::disk {

namespace {

using wire::get;
using wire::put;

constexpr std::uint32_t flag_parent = 1;

constexpr wire::HeaderRules superblock_rules{
    "superblock", superblock_magic, format_version, superblock_header_bytes, 64, 72, 56};
constexpr wire::HeaderRules block_rules{
    "block", block_magic, format_version, block_header_bytes, 88, 176, 80};
constexpr wire::HeaderRules inventory_rules{
    "inventory", inventory_magic, format_version, inventory_header_bytes, 48, 56, 8};

// Fields of a record.
constexpr std::size_t record_checksum = 8;

void put_key(std::uint8_t* at, const Key& key) { std::copy(key.begin(), key.end(), at); }

Key get_key(const std::uint8_t* at) {
  Key key;
  std::copy_n(at, key.size(), key.begin());
  return key;
}

Digest get_digest(const std::uint8_t* at) {
  Digest digest;
  std::copy_n(at, digest.size(), digest.begin());
  return digest;
}

// A flag word with one meaning, and no parent key without it.
Status check_parent(const char* format, std::uint32_t flags, const Key& parent) {
  if (flags > flag_parent) return wire::bad(format, "flags {:#x} are not known", flags);
  if (flags == 0 && parent != Key{}) return wire::bad(format, "a parent key without its flag");
  return {};
}

}  // namespace

Digest digest_of(std::span<const std::uint8_t> namespace_id) {
  const XXH128_hash_t hash = XXH3_128bits(namespace_id.data(), namespace_id.size());
  Digest digest;
  put(digest.data(), static_cast<std::uint64_t>(hash.low64));
  put(digest.data() + 8, static_cast<std::uint64_t>(hash.high64));
  return digest;
}

Key key_of(std::span<const std::uint8_t> bytes) {
  KVC_CHECK(bytes.size() <= key_bytes_max);
  Key key{};
  std::copy(bytes.begin(), bytes.end(), key.begin());
  return key;
}

void write_superblock(const Superblock& block, std::span<std::uint8_t> out) {
  KVC_CHECK(out.size() == superblock_bytes);
  std::fill(out.begin(), out.end(), std::uint8_t{0});
  std::uint8_t* p = out.data();
  put(p + 16, block.generation);
  put(p + 24, block.owner.namespace_bytes);
  std::copy(block.owner.namespace_digest.begin(), block.owner.namespace_digest.end(), p + 32);
  put(p + 48, block.owner.hash_id);
  put(p + 56, block.owner.rank);
  put(p + 60, block.owner.key_bytes);
  wire::seal_header(out, superblock_rules);
}

Result<Superblock> read_superblock(std::span<const std::uint8_t> bytes) {
  if (bytes.size() >= 8 && get<std::uint32_t>(bytes.data()) == superblock_magic &&
      get<std::uint16_t>(bytes.data() + 4) > format_version) {
    return {Code::unsupported, fmt::format("superblock: version {}, known is {}",
                                           get<std::uint16_t>(bytes.data() + 4), format_version)};
  }
  if (Status s = wire::check_header(bytes, superblock_rules); !s.ok()) return s;
  if (bytes.size() != superblock_bytes) {
    return wire::bad("superblock", "{} bytes, not {}", bytes.size(), superblock_bytes);
  }
  const std::uint8_t* p = bytes.data();
  Superblock block;
  block.generation = get<std::uint64_t>(p + 16);
  block.owner.namespace_bytes = get<std::uint64_t>(p + 24);
  block.owner.namespace_digest = get_digest(p + 32);
  block.owner.hash_id = get<std::uint64_t>(p + 48);
  block.owner.rank = get<std::uint32_t>(p + 56);
  block.owner.key_bytes = get<std::uint32_t>(p + 60);
  if (block.generation == 0) return wire::bad("superblock", "generation 0");
  return block;
}

void seal_block(const BlockHeader& header, std::span<std::uint8_t> place, wire::Sum summed) {
  KVC_CHECK(place.size() == place_bytes(header.payload_bytes));
  std::uint8_t* p = place.data();
  const std::size_t whole = block_header_bytes + header.payload_bytes;
  std::fill(p, p + block_header_bytes, std::uint8_t{0});
  std::fill(p + whole, p + place.size(), std::uint8_t{0});
  put(p + 16, header.generation);
  std::copy(header.owner.namespace_digest.begin(), header.owner.namespace_digest.end(), p + 24);
  put(p + 40, header.owner.hash_id);
  put(p + 48, header.what.group);
  put(p + 52, header.owner.key_bytes);
  put(p + 56, header.what.end_tokens);
  put(p + 64, header.valid_bytes);
  put(p + 72, header.payload_bytes);
  put(p + 80, header.sequence);
  put_key(p + 96, header.what.key);
  put_key(p + 128, header.what.parent);
  put(p + 160, header.what.has_parent ? flag_parent : 0U);
  put(p + 164, header.owner.rank);
  put(p + 168, header.owner.namespace_bytes);
  wire::seal_header(place.first(whole), block_rules, summed);
}

Result<BlockHeader> read_block(std::span<const std::uint8_t> place, wire::Sum summed) {
  if (place.size() < block_header_bytes) {
    return wire::bad("block", "{} bytes are shorter than the header of {}", place.size(),
                     block_header_bytes);
  }
  const std::uint8_t* p = place.data();
  // The length is believed only as far as there are bytes; the checksum covers it.
  const auto whole = get<std::uint64_t>(p + wire::at_total);
  if (whole < block_header_bytes || whole > place.size()) {
    return wire::bad("block", "{} bytes named in the header, the place has {}", whole,
                     place.size());
  }
  if (Status s = wire::check_header(place.first(whole), block_rules, summed); !s.ok()) return s;
  const auto padding = place.subspan(whole);
  if (!std::all_of(padding.begin(), padding.end(), [](std::uint8_t b) { return b == 0; })) {
    return wire::bad("block", "the {} bytes behind the payload are not 0", padding.size());
  }
  BlockHeader header;
  header.generation = get<std::uint64_t>(p + 16);
  header.owner.namespace_digest = get_digest(p + 24);
  header.owner.hash_id = get<std::uint64_t>(p + 40);
  header.what.group = get<std::uint32_t>(p + 48);
  header.owner.key_bytes = get<std::uint32_t>(p + 52);
  header.what.end_tokens = get<std::uint64_t>(p + 56);
  header.valid_bytes = get<std::uint64_t>(p + 64);
  header.payload_bytes = get<std::uint64_t>(p + 72);
  header.sequence = get<std::uint64_t>(p + 80);
  header.what.key = get_key(p + 96);
  header.what.parent = get_key(p + 128);
  const auto flags = get<std::uint32_t>(p + 160);
  header.owner.rank = get<std::uint32_t>(p + 164);
  header.owner.namespace_bytes = get<std::uint64_t>(p + 168);
  if (Status f = check_parent("block", flags, header.what.parent); !f.ok()) return f;
  header.what.has_parent = flags != 0;
  if (header.payload_bytes != whole - block_header_bytes ||
      header.valid_bytes > header.payload_bytes) {
    return wire::bad("block", "payload of {} bytes ({} valid) behind the header of a whole of {}",
                     header.payload_bytes, header.valid_bytes, whole);
  }
  return header;
}

void write_record(const Record& record, std::span<std::uint8_t> out) {
  KVC_CHECK(out.size() == record_bytes);
  std::fill(out.begin(), out.end(), std::uint8_t{0});
  if (record.state == PlaceState::empty) return;
  std::uint8_t* p = out.data();
  put(p, record_magic);
  put(p + 4, format_version);
  put(p + 6, static_cast<std::uint16_t>(record.state));
  put(p + 16, record.generation);
  put(p + 24, record.sequence);
  put(p + 32, record.what.end_tokens);
  put(p + 40, record.valid_bytes);
  put(p + 48, record.what.group);
  put(p + 52, record.what.has_parent ? flag_parent : 0U);
  put(p + 56, record.place);
  put_key(p + 64, record.what.key);
  put_key(p + 96, record.what.parent);
  put(p + record_checksum, wire::checksum(out, record_checksum));
}

Result<Record> read_record(std::span<const std::uint8_t> bytes, std::uint64_t place) {
  KVC_CHECK(bytes.size() == record_bytes);
  const std::uint8_t* p = bytes.data();
  Record record;
  record.place = place;
  if (get<std::uint32_t>(p) == 0 &&
      std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t b) { return b == 0; })) {
    return record;
  }
  if (const auto magic = get<std::uint32_t>(p); magic != record_magic) {
    return wire::bad("record", "place {}: magic {:#010x} is not {:#010x}", place, magic,
                     record_magic);
  }
  if (const auto version = get<std::uint16_t>(p + 4); version != format_version) {
    return wire::bad("record", "place {}: version {} is not {}", place, version, format_version);
  }
  if (get<std::uint64_t>(p + record_checksum) != wire::checksum(bytes, record_checksum)) {
    return wire::bad("record", "place {}: the checksum does not match the bytes", place);
  }
  const auto state = get<std::uint16_t>(p + 6);
  if (state == 0 || state > static_cast<std::uint16_t>(PlaceState::bad)) {
    return wire::bad("record", "place {}: state {} is not known", place, state);
  }
  if (const auto named = get<std::uint64_t>(p + 56); named != place) {
    return wire::bad("record", "place {}: the record is that of place {}", place, named);
  }
  record.state = static_cast<PlaceState>(state);
  record.generation = get<std::uint64_t>(p + 16);
  record.sequence = get<std::uint64_t>(p + 24);
  record.what.end_tokens = get<std::uint64_t>(p + 32);
  record.valid_bytes = get<std::uint64_t>(p + 40);
  record.what.group = get<std::uint32_t>(p + 48);
  const auto flags = get<std::uint32_t>(p + 52);
  record.what.key = get_key(p + 64);
  record.what.parent = get_key(p + 96);
  if (Status f = check_parent("record", flags, record.what.parent); !f.ok()) return f;
  record.what.has_parent = flags != 0;
  return record;
}

void write_inventory_entry(const InventoryEntry& entry, std::span<std::uint8_t> out) {
  KVC_CHECK(out.size() == inventory_entry_bytes);
  std::uint8_t* p = out.data();
  put(p, entry.what.group);
  put(p + 4, entry.what.has_parent ? flag_parent : 0U);
  put(p + 8, entry.what.end_tokens);
  put(p + 16, entry.sequence);
  put(p + 24, std::uint64_t{0});
  put_key(p + 32, entry.what.key);
  put_key(p + 64, entry.what.parent);
}

void seal_inventory(const InventoryPiece& piece, std::span<std::uint8_t> out) {
  KVC_CHECK(out.size() == inventory_bytes(piece.entries));
  std::uint8_t* p = out.data();
  put(p + 16, piece.generation);
  put(p + 24, piece.rank);
  put(p + 28, piece.entries);
  put(p + 32, piece.entries_all);
  put(p + 40, piece.first);
  wire::seal_header(out, inventory_rules);
}

std::uint32_t renumber_inventory(std::span<std::uint8_t> piece, std::uint64_t first,
                                 std::uint64_t entries_all) {
  const auto view = InventoryView::read(piece);
  KVC_CHECK(view.ok());
  InventoryPiece changed = view.value().piece();
  changed.first = first;
  changed.entries_all = entries_all;
  seal_inventory(changed, piece);
  return changed.entries;
}

Result<InventoryView> InventoryView::read(std::span<const std::uint8_t> bytes) {
  if (Status s = wire::check_header(bytes, inventory_rules); !s.ok()) return s;
  const std::uint8_t* p = bytes.data();
  InventoryView view;
  view.piece_.generation = get<std::uint64_t>(p + 16);
  view.piece_.rank = get<std::uint32_t>(p + 24);
  view.piece_.entries = get<std::uint32_t>(p + 28);
  view.piece_.entries_all = get<std::uint64_t>(p + 32);
  view.piece_.first = get<std::uint64_t>(p + 40);
  view.at_ = p + inventory_header_bytes;
  const InventoryPiece& piece = view.piece_;
  if (bytes.size() != inventory_bytes(piece.entries)) {
    return wire::bad("inventory", "{} bytes for {} entries, not {}", bytes.size(), piece.entries,
                     inventory_bytes(piece.entries));
  }
  if (piece.first > piece.entries_all || piece.entries > piece.entries_all - piece.first) {
    return wire::bad("inventory", "entries {} to {} of {}", piece.first,
                     piece.first + piece.entries, piece.entries_all);
  }
  for (std::uint32_t i = 0; i < piece.entries; ++i) {
    const std::uint8_t* at = view.at_ + i * inventory_entry_bytes;
    if (get<std::uint64_t>(at + 24) != 0) {
      return wire::bad("inventory", "entry {}: reserved bytes are not 0", piece.first + i);
    }
    Status f = check_parent("inventory", get<std::uint32_t>(at + 4), get_key(at + 64));
    if (!f.ok()) return f;
  }
  return view;
}

InventoryEntry InventoryView::entry(std::uint32_t i) const {
  KVC_CHECK(i < piece_.entries);
  const std::uint8_t* at = at_ + i * inventory_entry_bytes;
  InventoryEntry entry;
  entry.what.group = get<std::uint32_t>(at);
  entry.what.has_parent = get<std::uint32_t>(at + 4) != 0;
  entry.what.end_tokens = get<std::uint64_t>(at + 8);
  entry.sequence = get<std::uint64_t>(at + 16);
  entry.what.key = get_key(at + 32);
  entry.what.parent = get_key(at + 64);
  return entry;
}

}  // namespace kvc::disk
