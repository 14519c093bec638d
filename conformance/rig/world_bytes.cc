// What the bytes of device blocks are, and whether they are it.
#include <algorithm>
#include <cstring>
#include <sstream>

#include "conformance/rig/world.h"

namespace kvc::rig {

Group full(std::uint64_t tokens, std::uint64_t caps) {
  return {KVC_GROUP_FULL, tokens, 0,
          KVC_GROUP_CAP_POSITION_STABLE | KVC_GROUP_CAP_FINE_LOOKUP | caps, 0};
}
Group sliding(std::uint64_t tokens, std::uint64_t window) {
  return {KVC_GROUP_SLIDING, tokens, window, KVC_GROUP_CAP_POSITION_STABLE, 0};
}
Group chunked(std::uint64_t tokens, std::uint64_t chunk) {
  return {KVC_GROUP_CHUNKED, tokens, chunk, KVC_GROUP_CAP_POSITION_STABLE, 0};
}
Group state_align(std::uint64_t tokens) {
  return {KVC_GROUP_STATE, tokens, 0, KVC_GROUP_CAP_STATE | KVC_GROUP_CAP_FINE_LOOKUP, 0};
}
Group state_all(std::uint64_t tokens) {
  return {KVC_GROUP_STATE, tokens, 0,
          KVC_GROUP_CAP_STATE | KVC_GROUP_CAP_FINE_LOOKUP | KVC_GROUP_CAP_POSITION_STABLE, 0};
}
Group scratch(std::uint64_t tokens) {
  return {KVC_GROUP_OTHER, tokens, 0, 0, KVC_GROUP_CAP_CACHEABLE};
}

Tokens tokens_of(std::uint64_t seed, std::uint64_t n) {
  Tokens t(n);
  for (std::uint64_t i = 0; i < n; ++i) t[i] = seed * 1'000'003 + i;
  return t;
}

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9E3779B97F4A7C15U ^ (b + 0x632BE59BD9B4E019U + (a << 6U) + (a >> 2U));
  x ^= x >> 30U;
  x *= 0xBF58476D1CE4E5B9U;
  x ^= x >> 27U;
  x *= 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

bool has(const Group& g, std::uint64_t cap) { return (g.caps & cap) != 0; }

constexpr std::uint64_t state_bytes = 64;
constexpr std::uint64_t gap_bytes = 24;  // behind every block: must never change

bool is_state(const Group& g) { return g.kind == KVC_GROUP_STATE; }

std::uint64_t bytes_of(const Setup& s, const Group& g) {
  return is_state(g) ? state_bytes : g.tokens * s.token_bytes;
}

}  // namespace

RankMemory::RankMemory(const Setup& setup, std::uint32_t rank) : setup_(setup) {
  for (std::uint32_t g = 0; g < setup.groups.size(); ++g) {
    std::uint32_t same = 0;
    while (bytes_of(setup, setup.groups[same]) != bytes_of(setup, setup.groups[g])) ++same;
    if (setup.memory != MemoryOrder::shared || same == g) {
      first_region_.push_back(regions_.size());
      add_regions(g, rank);
      continue;
    }
    first_region_.push_back(first_region_[same]);
    for (std::uint32_t layer = 0; layer < setup.layers; ++layer) {
      regions_[first_region_[g] + layer].group_mask |= std::uint64_t{1} << g;
    }
  }
}

void RankMemory::add_regions(std::uint32_t group, std::uint32_t rank) {
  const std::uint64_t bytes = block_bytes(group);
  const std::uint64_t piece = bytes + gap_bytes;
  const bool interleaved = setup_.memory == MemoryOrder::interleaved;
  const std::uint64_t stride = interleaved ? piece * setup_.layers : piece;
  const std::uint64_t size = stride * setup_.device_blocks;
  DeviceMemory& device = device_memory();
  for (std::uint32_t layer = 0; layer < setup_.layers; ++layer) {
    if (layer == 0 || !interleaved) {
      memory_.emplace_back(device.allocate(size), Release{&device});
      std::memset(memory_.back().get(), static_cast<int>(0xE0U + rank), size);
    }
    const std::uint64_t offset = interleaved ? piece * layer : 0;
    kvc_region region{};
    region.struct_size = sizeof region;
    region.device_kind = device.kind();
    region.layer = layer;
    region.base = memory_.back().get() + offset;
    region.size_bytes = size - offset;
    region.block_stride_bytes = stride;
    region.block_bytes = bytes;
    region.group_mask = std::uint64_t{1} << group;
    regions_.push_back(region);
  }
}

std::vector<std::vector<std::uint8_t>> RankMemory::snapshot() const {
  std::vector<std::vector<std::uint8_t>> all;
  for (const kvc_region& r : regions_) all.emplace_back(r.base, r.base + r.size_bytes);
  return all;
}

std::uint8_t* RankMemory::block(std::uint32_t group, std::uint32_t layer, std::int64_t block) {
  const kvc_region& r = regions_.at(first_region_.at(group) + layer);
  return r.base + static_cast<std::uint64_t>(block) * r.block_stride_bytes;
}

std::uint64_t RankMemory::block_bytes(std::uint32_t group) const {
  return bytes_of(setup_, setup_.groups.at(group));
}

// ------------------------------------------------------------------------------------ bytes

namespace {

struct Place {
  std::uint64_t slot = 0;
  bool here = true;
};

// Where token t of a block that starts at `first` lives on the rank.
Place place_of(const Group& g, std::uint32_t cp, std::uint32_t rank, std::uint64_t first,
               std::uint64_t t) {
  if (!has(g, KVC_GROUP_CAP_SHARDED)) return {t - first, true};
  return {(t - first) / cp, t % cp == rank % cp};
}

std::uint64_t word_of(std::uint64_t chain, std::uint32_t group, std::uint32_t layer,
                      std::uint32_t rank, std::uint64_t i) {
  return mix(chain, mix((std::uint64_t{group} << 32U) | layer, (std::uint64_t{rank} << 32U) | i));
}

}  // namespace

void World::write_state(const Request& r, std::uint32_t group, std::int64_t block,
                        std::uint64_t boundary) {
  for (std::uint32_t rank = 0; rank < setup_.ranks; ++rank) {
    for (std::uint32_t layer = 0; layer < setup_.layers; ++layer) {
      std::uint8_t* at = memory(rank).block(group, layer, block);
      for (std::uint64_t i = 0; i < state_bytes / 8; ++i) {
        const std::uint64_t word = word_of(r.chain.at(boundary - 1), group, layer, rank, i);
        std::memcpy(at + i * 8, &word, 8);
      }
    }
  }
}

void World::write(Request& r, std::uint64_t from, std::uint64_t to) {
  for (std::uint32_t g = 0; g < setup_.groups.size(); ++g) {
    const Group& d = setup_.groups[g];
    if (d.kind == KVC_GROUP_OTHER) continue;
    const std::uint64_t b = block_tokens(g);
    const auto& table = r.tables.at(g);
    if (is_state(d)) {
      for (std::uint64_t p = from / b; p * b < to; ++p) {
        const std::uint64_t end = std::min((p + 1) * b, to);
        if (table.at(p) != setup_.null_block && end > from) write_state(r, g, table[p], end);
      }
      continue;
    }
    for (std::uint64_t t = from; t < to; ++t) {
      const std::int64_t block = table.at(t / b);
      if (block == setup_.null_block) continue;
      for (std::uint32_t rank = 0; rank < setup_.ranks; ++rank) {
        const Place place = place_of(d, setup_.cp, rank, t / b * b, t);
        if (!place.here) continue;
        for (std::uint32_t layer = 0; layer < setup_.layers; ++layer) {
          const std::uint64_t word = word_of(r.chain.at(t), g, layer, rank, 0);
          std::memcpy(memory(rank).block(g, layer, block) + place.slot * setup_.token_bytes, &word,
                      8);
        }
      }
    }
  }
}

std::string World::wrong_bytes(const Request& r, std::uint64_t from, std::uint64_t to) {
  std::ostringstream why;
  const auto differs = [&](std::uint32_t rank, std::uint32_t g, std::uint32_t layer,
                           std::int64_t block, std::uint64_t offset, std::uint64_t word) {
    return std::memcmp(memory(rank).block(g, layer, block) + offset, &word, 8) != 0;
  };
  for (std::uint32_t g = 0; g < setup_.groups.size() && to != 0; ++g) {
    const Group& d = setup_.groups[g];
    if (d.kind == KVC_GROUP_OTHER) continue;
    const std::uint64_t b = block_tokens(g);
    const auto& table = r.tables.at(g);
    for (std::uint32_t rank = 0; rank < setup_.ranks; ++rank) {
      for (std::uint32_t layer = 0; layer < setup_.layers; ++layer) {
        if (is_state(d)) {
          const std::int64_t block = table.at((to - 1) / b);
          for (std::uint64_t i = 0; i < state_bytes / 8; ++i) {
            if (!differs(rank, g, layer, block, i * 8,
                         word_of(r.chain.at(to - 1), g, layer, rank, i)))
              continue;
            why << "state of group " << g << " at " << to << ", rank " << rank << ", layer "
                << layer << ", block " << block << ", word " << i;
            return why.str();
          }
          continue;
        }
        for (std::uint64_t t = std::max(from, first_needed(g, to) * b); t < to; ++t) {
          const Place place = place_of(d, setup_.cp, rank, t / b * b, t);
          if (!place.here) continue;
          const std::int64_t block = table.at(t / b);
          if (differs(rank, g, layer, block, place.slot * setup_.token_bytes,
                      word_of(r.chain.at(t), g, layer, rank, 0))) {
            why << "group " << g << ", token " << t << ", rank " << rank << ", layer " << layer
                << ", block " << block << " slot " << place.slot;
            return why.str();
          }
        }
      }
    }
  }
  return {};
}

std::vector<std::vector<std::vector<std::uint8_t>>> World::snapshot() const {
  std::vector<std::vector<std::vector<std::uint8_t>>> all;
  for (const auto& m : memory_) all.push_back(m->snapshot());
  return all;
}

std::string World::touched(const std::vector<std::vector<std::vector<std::uint8_t>>>& before,
                           const std::set<std::int64_t>& but) {
  std::ostringstream why;
  for (std::uint32_t rank = 0; rank < setup_.ranks; ++rank) {
    const auto& regions = memory(rank).regions();
    for (std::size_t i = 0; i < regions.size(); ++i) {
      const kvc_region& region = regions[i];
      for (std::uint64_t block = 0; block < setup_.device_blocks; ++block) {
        const std::uint64_t at = block * region.block_stride_bytes;
        const bool named = but.count(static_cast<std::int64_t>(block)) != 0;
        const std::uint64_t skip = named ? region.block_bytes : 0;
        // The block and the gap behind it; other layers may follow within the stride.
        if (std::memcmp(region.base + at + skip, before[rank][i].data() + at + skip,
                        region.block_bytes + gap_bytes - skip) == 0) {
          continue;
        }
        why << "rank " << rank << ", region " << i << ", block " << block
            << (named ? ": the gap behind it" : "");
        return why.str();
      }
    }
  }
  return {};
}

}  // namespace kvc::rig
