#include "host_stub/tools/capacity.h"

#include <algorithm>

#include <fmt/format.h>

#include "config/shared_options.h"
#include "host_stub/engine/engine.h"
#include "host_stub/tools/report_text.h"
#include "plugin/core/disk_room.h"

namespace kvc::host {
namespace {

std::uint64_t ceil_of(std::uint64_t value, std::uint64_t unit) {
  return value / unit + (value % unit != 0 ? 1 : 0);
}

// Blocks of the group that must be in the tier so that the longest hit of a prompt is one
// (docs/semantics.md section 3): all of full attention, what a window reaches, one state.
std::uint64_t hit_blocks(const GroupSpec& group, std::uint64_t block, std::uint64_t prompt) {
  const std::uint64_t all = prompt / block;
  switch (group.kind) {
    case GroupKind::sliding:
      return std::min(all, ceil_of(group.window.n - 1 + group.extra_retained.n, block) + 1);
    case GroupKind::chunked:
      return std::min(all, ceil_of(group.window.n, block));
    case GroupKind::state:
      return std::min<std::uint64_t>(all, 1);
    default:
      return all;
  }
}

const char* kind_name(GroupKind kind) {
  switch (kind) {
    case GroupKind::full:
      return "full attention";
    case GroupKind::sliding:
      return "sliding window";
    case GroupKind::chunked:
      return "chunked attention";
    case GroupKind::state:
      return "state";
    default:
      return "other";
  }
}

std::uint64_t stat(const Engine& engine, const std::string& name) {
  for (const StatValue& s : engine.stats()) {
    if (s.name == name) return s.value;
  }
  return 0;
}

void warn_of_blocks(Capacity& c, std::uint64_t prompt) {
  for (const GroupCapacity& g : c.groups) {
    if (g.block_tokens < prompt) continue;
    c.warnings.push_back(fmt::format(
        "group {}: a block of {} tokens is not shorter than the longest prompt of {}: no prompt "
        "ever fills one, so none is a hit (a hit leaves one token to compute)",
        g.name, g.block_tokens, prompt));
  }
}

void warn_of_pool(Capacity& c, std::uint64_t prompt) {
  if (c.grows) {
    c.warnings.push_back("the pool grows without bound: for measuring only");
  } else if (c.blocks < c.prompt_blocks) {
    c.warnings.push_back(fmt::format(
        "the pool of {} blocks is smaller than the {} of one prompt of {} tokens: its head pushes "
        "out its tail, and the longest hit is shorter than the prompt",
        c.blocks, c.prompt_blocks, prompt));
  } else if (c.blocks < 4 * c.prompt_blocks) {
    c.warnings.push_back(fmt::format(
        "the pool holds {:.1f} prompts of {} tokens: few requests find what others left",
        static_cast<double>(c.blocks) / static_cast<double>(c.prompt_blocks), prompt));
  }
}

// Requires: c.groups and c.chunk_blocks are there.
Status count_disk(const CapacityQuestion& question, Capacity& c) {
  DiskCapacity& d = c.disk;
  d.paths = question.disk_paths;
  if (d.paths == 0) return {};
  d.bytes = question.disk_bytes;
  const std::uint64_t budget = disk::budget_bytes(d.bytes, d.paths);
  std::uint64_t one_of_each = 0;
  std::uint64_t smallest = UINT64_MAX;
  for (const GroupCapacity& g : c.groups) {
    const std::uint64_t entry = disk::entry_bytes(g.chunk_blocks * c.block_bytes);
    d.entry_bytes = std::max(d.entry_bytes, entry);
    smallest = std::min(smallest, entry);
    one_of_each += entry;
    d.prompt_bytes += g.prompt_room / g.chunk_blocks * entry;
  }
  if (budget < disk::entries_least * one_of_each) {
    return {Code::arg,
            fmt::format("connector would refuse the options: [disk] bytes = {} in {} path{} is {} "
                        "for blocks, and has no room for {} of every group, which take {}",
                        d.bytes, d.paths, d.paths == 1 ? "" : "s", budget, disk::entries_least,
                        disk::entries_least * one_of_each)};
  }
  if (d.entry_bytes == 0) return {};
  const std::uint64_t entries = std::min(budget / d.entry_bytes, disk::entries_most);
  if (budget / smallest > disk::entries_most) {
    c.warnings.push_back(fmt::format(
        "[disk] bytes = {} is room for {} slots, of which {} can be used: no more are counted",
        d.bytes, budget / smallest, disk::entries_most));
  }
  d.blocks = entries * c.chunk_blocks;
  if (!c.grows && d.bytes >= c.host_bytes && d.blocks < c.blocks) {
    c.warnings.push_back(fmt::format(
        "the disk tier of {} holds {} blocks, the host pool {}: {} bytes of blocks take {} there",
        bytes_text(d.bytes), d.blocks, c.blocks, c.chunk_blocks * c.block_bytes, d.entry_bytes));
  }
  return {};
}

std::string disk_text(const Capacity& c, std::uint64_t prompt_tokens) {
  const DiskCapacity& d = c.disk;
  if (d.paths == 0) return {};
  std::string out = fmt::format(
      "the disk tier: not opened, its folders were not looked at; {} in {} path{} on each rank "
      "would hold {} blocks, {} {}\n",
      bytes_text(d.bytes), d.paths, d.paths == 1 ? "" : "s", d.blocks, bytes_text(d.entry_bytes),
      c.chunk_blocks == 1 ? "each" : fmt::format("for {} of them", c.chunk_blocks));
  if (d.prompt_bytes == 0) return out;
  const double hits = static_cast<double>(disk::budget_bytes(d.bytes, d.paths)) /
                      static_cast<double>(d.prompt_bytes);
  return out + fmt::format("it would hold {:.1f} hits of {} tokens ({} each): {:.0f} tokens\n",
                           hits, prompt_tokens, bytes_text(d.prompt_bytes),
                           hits * static_cast<double>(prompt_tokens));
}

}  // namespace

Result<Capacity> capacity_of(const LoadedConnector& connector, const CapacityQuestion& question) {
  EngineOptions options;
  options.model = question.model;
  options.ranks = question.ranks;
  options.max_running = 1;
  options.max_prompt_tokens = question.prompt_tokens;
  options.max_total_tokens = question.prompt_tokens + 1;
  options.token_budget = question.prompt_tokens;
  // The folders of a disk tier may be those of an engine that runs: count_disk says what it holds.
  const auto without_disk =
      config::without_disk(question.connector_toml, "the connector's options");
  if (!without_disk.ok()) return Status{Code::arg, without_disk.error().text};
  options.connector_toml = without_disk.value();
  options.hooks.log = [](std::int32_t, std::string_view) {};
  if (question.device_blocks == 0) {
    auto needed = Engine::blocks_needed(options);
    if (!needed.ok()) return needed.error();
    options.device_blocks = needed.value();
  } else {
    options.device_blocks = question.device_blocks;
  }
  auto made = Engine::make(options, connector);
  if (!made.ok()) return made.error();
  const Engine& engine = *made.value();
  Capacity c;
  c.ranks = engine.ranks();
  c.block_bytes = engine.block_bytes();
  c.slots = stat(engine, "host_slots_total");
  c.grows = c.slots == UINT64_MAX || stat(engine, "host_slots_unlimited") != 0;
  c.index_bytes = stat(engine, "index_bytes_now");
  const Geometry& geometry = engine.geometry();
  GeometryOptions chunked = geometry.options();
  chunked.blocks_per_chunk = question.blocks_per_chunk;
  const Result<Geometry> tier = Geometry::make(std::move(chunked));
  if (!tier.ok()) return tier.error();
  for (const GroupId g : geometry.cacheable()) {
    const std::uint64_t block = geometry.block_tokens(g).n;
    const std::uint64_t blocks = hit_blocks(geometry.group(g), block, question.prompt_tokens);
    const std::uint64_t per = tier.value().blocks_per_chunk(g);
    // Windows begin inside a slot.
    const bool aligned = per == 1 || geometry.group(g).kind == GroupKind::full;
    const std::uint64_t room = (ceil_of(blocks, per) + (aligned ? 0 : 1)) * per;
    c.groups.push_back({question.model.groups[g].name, kind_name(geometry.group(g).kind), block,
                        blocks, per, room});
    c.chunk_blocks = std::max(c.chunk_blocks, per);
    c.prompt_blocks += room;
  }
  // The connector counts slots of its largest blocks.
  c.blocks = c.grows ? c.slots : c.slots * c.chunk_blocks;
  c.host_bytes = c.grows ? 0 : c.blocks * c.block_bytes;
  warn_of_blocks(c, question.prompt_tokens);
  warn_of_pool(c, question.prompt_tokens);
  if (Status s = count_disk(question, c); !s.ok()) return s;
  return c;
}

std::string capacity_text(const Capacity& c, std::uint64_t prompt_tokens) {
  std::string out = fmt::format("{:<16} {:<18} {:>12} {:>24}\n", "group", "kind", "tokens/block",
                                "blocks of one long hit");
  for (const GroupCapacity& g : c.groups) {
    out += fmt::format("{:<16} {:<18} {:>12} {:>24}\n", g.name, g.kind, g.block_tokens,
                       g.prompt_blocks);
  }
  out += fmt::format("a block: {} on each of {} ranks\n", bytes_text(c.block_bytes), c.ranks);
  if (c.grows) {
    out += "the pool: grows\n";
  } else {
    out += fmt::format("the pool: {} blocks{}, {} on each rank\n", c.blocks,
                       c.chunk_blocks == 1
                           ? std::string()
                           : fmt::format(" in {} chunks of {}", c.slots, c.chunk_blocks),
                       bytes_text(c.host_bytes));
    if (c.prompt_blocks != 0) {
      const double hits = static_cast<double>(c.blocks) / static_cast<double>(c.prompt_blocks);
      out +=
          fmt::format("it holds {:.1f} hits of {} tokens ({} blocks each): {:.0f} tokens\n", hits,
                      prompt_tokens, c.prompt_blocks, hits * static_cast<double>(prompt_tokens));
    }
  }
  out += fmt::format("its index: {} when empty, in the scheduler's process\n",
                     bytes_text(c.index_bytes));
  return out + disk_text(c, prompt_tokens);
}

}  // namespace kvc::host
