#include "config/shared_options.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <string>

#include "config/toml_edit.h"
#include "config/toml_table.h"

namespace kvc::config {
namespace {

constexpr std::uint64_t blocks_largest = std::uint64_t{1} << 40U;
constexpr std::uint64_t day_ms = 86'400'000;

const char* word_of(EvictionKind kind) {
  switch (kind) {
    case EvictionKind::lru:
      break;
    case EvictionKind::arc:
      return "arc";
    case EvictionKind::gdsf:
      return "gdsf";
    case EvictionKind::hazard:
      return "auto";
  }
  return "lru";
}

const char* word_of(StatesKind kind) {
  switch (kind) {
    case StatesKind::dense:
      break;
    case StatesKind::tail:
      return "tail";
    case StatesKind::automatic:
      return "auto";
  }
  return "dense";
}

const char* word_of(CostGateKind kind) {
  switch (kind) {
    case CostGateKind::off:
      break;
    case CostGateKind::on:
      return "on";
    case CostGateKind::report:
      return "report";
  }
  return "off";
}

std::string number_or(std::uint64_t value, std::uint64_t special, const char* word) {
  return value == special ? toml_quoted(word) : std::to_string(value);
}

}  // namespace

void read_shared_host(TomlTable& table, SharedOptions& o) {
  take(o.host_bytes, table.bytes("bytes"));
  // Two blocks is the smallest pool that can keep anything beside what is being replaced (CW-24).
  take(o.host_blocks, table.integer("blocks", 2, blocks_largest));
  take(o.host_unlimited, table.boolean("unlimited"));
  take(o.copy_threads, table.integer("copy_threads", 1, 64));
}

void read_shared_connector(TomlTable& table, SharedOptions& o) {
  take(o.index, table.word("index", {"chained", "flat"}));
  take(o.eviction, table.word("eviction", {"lru", "arc", "gdsf", "auto"}));
  if (o.eviction != EvictionKind::lru && o.index == IndexKind::flat) {
    table.refuse("eviction",
                 "a flat index does not know which block continues which; use eviction = \"lru\", "
                 "or index = \"chained\"");
  }
  take(o.states, table.word("states", {"dense", "tail", "auto"}));
  take(o.lease_steps, table.integer("lease_steps", 1, 8));
  take(o.max_leases, table.integer("max_leases", 1, 65'536));
  take(o.max_pins, table.integer("max_pins", 0, 256));
  take(o.max_pinned_percent, table.integer("max_pinned_percent", 0, 100));
  take(o.attach_steps,
       table.integer_or_word("attach_steps", 0, INT64_MAX, "unlimited", UINT64_MAX));
  take(o.held_device_blocks_max,
       table.integer_or_word("held_device_blocks_max", 1, blocks_largest, "auto", 0));
  take(o.load_deadline_ms, table.integer("load_deadline_ms", 1, day_ms));
  take(o.store_deadline_ms, table.integer("store_deadline_ms", 1, day_ms));
  take(o.store_decode_blocks, table.boolean("store_decode_blocks"));
  take(o.single_flight, table.boolean("single_flight"));
  take(o.cost_gate, table.word("cost_gate", {"off", "on", "report"}));
  take(o.prefill_tokens_per_second,
       table.integer_or_word("prefill_tokens_per_second", 1, 1'000'000'000, "auto", 0));
  take(o.event_ring_entries, table.integer("event_ring", 0, std::uint64_t{1} << 28U));
  take(o.plan_bytes_max,
       table.integer_or_word("plan_bytes_max", 4096, std::uint64_t{1} << 40U, "auto", 0));
}

void read_shared_cuda(TomlTable table, SharedOptions& o) {
  take(o.cuda_driver, table.text("driver"));
  if (o.cuda_driver.empty()) table.refuse("driver", "must name a library");
  take(o.cuda_copy_path, table.word("copy_path", {"auto", "batch", "loop", "kernel"}));
  const auto below = [&](const char* key) {
    return table.integer_or_word(key, 0, std::uint64_t{1} << 30U, "auto", UINT64_MAX);
  };
  take(o.cuda_kernel_below_load, below("kernel_below_load"));
  take(o.cuda_kernel_below_store, below("kernel_below_store"));
  if (const auto node = table.integer_or_word("numa_node", 0, 1023, "any", UINT64_MAX)) {
    o.cuda_numa_node = *node == UINT64_MAX ? -1 : static_cast<std::int32_t>(*node);
  }
  table.refuse_unknown_keys();
}

std::string shared_cuda_toml(const SharedOptions& o) {
  constexpr std::array paths{"auto", "batch", "loop", "kernel"};
  std::ostringstream out;
  out << "driver = " << toml_quoted(o.cuda_driver) << "\n"
      << "copy_path = " << toml_quoted(paths[static_cast<std::size_t>(o.cuda_copy_path)]) << "\n"
      << "kernel_below_load = " << number_or(o.cuda_kernel_below_load, UINT64_MAX, "auto") << "\n"
      << "kernel_below_store = " << number_or(o.cuda_kernel_below_store, UINT64_MAX, "auto") << "\n"
      << "numa_node = "
      << (o.cuda_numa_node < 0 ? toml_quoted("any") : std::to_string(o.cuda_numa_node)) << "\n";
  return out.str();
}

std::string shared_connector_toml(const SharedOptions& o) {
  const auto flag = [](bool b) { return b ? "true" : "false"; };
  std::ostringstream out;
  out << "index = " << (o.index == IndexKind::chained ? "\"chained\"" : "\"flat\"") << "\n"
      << "eviction = " << toml_quoted(word_of(o.eviction)) << "\n"
      << "states = " << toml_quoted(word_of(o.states)) << "\n"
      << "lease_steps = " << o.lease_steps << "\n"
      << "max_leases = " << o.max_leases << "\n"
      << "max_pins = " << o.max_pins << "\n"
      << "max_pinned_percent = " << o.max_pinned_percent << "\n"
      << "attach_steps = " << number_or(o.attach_steps, UINT64_MAX, "unlimited") << "\n"
      << "held_device_blocks_max = " << number_or(o.held_device_blocks_max, 0, "auto") << "\n"
      << "load_deadline_ms = " << o.load_deadline_ms << "\n"
      << "store_deadline_ms = " << o.store_deadline_ms << "\n"
      << "store_decode_blocks = " << flag(o.store_decode_blocks) << "\n"
      << "single_flight = " << flag(o.single_flight) << "\n"
      << "cost_gate = " << toml_quoted(word_of(o.cost_gate)) << "\n"
      << "prefill_tokens_per_second = " << number_or(o.prefill_tokens_per_second, 0, "auto") << "\n"
      << "event_ring = " << o.event_ring_entries << "\n"
      << "plan_bytes_max = " << number_or(o.plan_bytes_max, 0, "auto") << "\n";
  return out.str();
}

std::string shared_host_toml(const SharedOptions& o) {
  std::ostringstream out;
  out << "bytes = " << o.host_bytes << "\n";
  if (o.host_blocks != 0) out << "blocks = " << o.host_blocks << "\n";
  out << "unlimited = " << (o.host_unlimited ? "true" : "false") << "\n"
      << "copy_threads = " << o.copy_threads << "\n";
  return out.str();
}

void read_shared_disk(TomlTable table, SharedOptions& options) {
  constexpr std::size_t paths_max = 64;
  // The files of a folder take some before they hold a block.
  constexpr std::uint64_t path_bytes_min = std::uint64_t{1} << 20U;
  DiskOptions& o = options.disk;
  take(o.paths, table.texts("paths"));
  take(o.bytes, table.bytes("bytes"));
  take(o.store, table.word("store", {"write_through", "on_eviction"}));
  take(o.open_blocks, table.integer("open_blocks", 1, 65'536));
  take(o.read_deadline_ms, table.integer("read_deadline_ms", 1, day_ms));
  take(o.write_deadline_ms, table.integer("write_deadline_ms", 1, day_ms));
  take(o.io, table.word("io", {"auto", "uring", "threads"}));
  take(o.direct, table.boolean("direct"));
  take(o.sync, table.boolean("sync"));
  take(o.checksum, table.boolean("checksum"));
  table.refuse_unknown_keys();
  if (o.paths.size() > paths_max) {
    table.refuse("paths", std::to_string(o.paths.size()) + " paths; at most " +
                              std::to_string(paths_max) + " are allowed");
  }
  for (const std::string& path : o.paths) {
    if (path.empty()) table.refuse("paths", "a path is empty");
    if (std::count(o.paths.begin(), o.paths.end(), path) != 1) {
      table.refuse("paths", "a path is given twice");
    }
  }
  if (!o.paths.empty() && o.bytes / o.paths.size() < path_bytes_min) {
    table.refuse("bytes", std::to_string(o.bytes) + " bytes for " + std::to_string(o.paths.size()) +
                              " paths; each needs at least " + std::to_string(path_bytes_min));
  }
}

std::string shared_disk_toml(const SharedOptions& options) {
  const DiskOptions& o = options.disk;
  const auto flag = [](bool b) { return b ? "true" : "false"; };
  std::string paths;
  for (const std::string& path : o.paths) paths += (paths.empty() ? "" : ", ") + toml_quoted(path);
  const char* const io = o.io == DiskIo::uring     ? "uring"
                         : o.io == DiskIo::threads ? "threads"
                                                   : "auto";
  std::ostringstream out;
  out << "[disk]\npaths = [" << paths << "]\n"
      << "bytes = " << o.bytes << "\n"
      << "store = "
      << toml_quoted(o.store == DiskStoreWhen::on_eviction ? "on_eviction" : "write_through")
      << "\n"
      << "open_blocks = " << o.open_blocks << "\n"
      << "read_deadline_ms = " << o.read_deadline_ms << "\n"
      << "write_deadline_ms = " << o.write_deadline_ms << "\n"
      << "io = " << toml_quoted(io) << "\n"
      << "direct = " << flag(o.direct) << "\n"
      << "sync = " << flag(o.sync) << "\n"
      << "checksum = " << flag(o.checksum) << "\n";
  return out.str();
}

Parsed<std::string> without_disk(std::string_view text, std::string_view file) {
  return without_exceptions<std::string>(file, [&] {
    toml::table document = parse_document(text, file);
    document.erase("disk");
    std::ostringstream out;
    out << document << "\n";
    return out.str();
  });
}

Parsed<std::string> with_host_blocks(std::string_view text, std::string_view file,
                                     std::uint64_t blocks) {
  return without_exceptions<std::string>(file, [&] {
    const std::string sized =
        with_value(text, file, "host", "blocks", std::to_string(blocks & INT64_MAX));
    const toml::table document = parse_document(sized, file);
    return document["host"]["unlimited"] ? with_value(sized, file, "host", "unlimited", "false")
                                         : sized;
  });
}

Parsed<std::string> with_cuda_driver(std::string_view text, std::string_view file,
                                     std::string_view driver) {
  return without_exceptions<std::string>(
      file, [&] { return with_value(text, file, "cuda", "driver", toml_quoted(driver)); });
}

}  // namespace kvc::config
