#include "config/connector_file.h"

#include <fmt/format.h>

#include <array>
#include <optional>

#include "config/layer_table.h"
#include "config/offloading_options.h"
#include "config/simple_cpu_options.h"
#include "config/toml_table.h"

namespace kvc::config {
namespace {

bool given(const toml::table& document, std::string_view table, std::string_view key) {
  const toml::node_view<const toml::node> node = document[table][key];
  return static_cast<bool>(node);
}

// Values that another one makes void.
void warn_of_unused(const toml::table& document, std::vector<std::string>& warnings) {
  const auto both = [&](std::string_view table, std::string_view loser, std::string_view winner) {
    if (given(document, table, loser) && given(document, table, winner)) {
      warnings.push_back(
          fmt::format("{0}.{1} is not used: {0}.{2} wins over it", table, loser, winner));
    }
  };
  both("host", "bytes", "blocks");
  if (document["host"]["unlimited"].value_or(false)) {
    both("host", "bytes", "unlimited");
    both("host", "blocks", "unlimited");
  }
  if (given(document, "connector", "attach_steps") &&
      !document["connector"]["single_flight"].value_or(true)) {
    warnings.push_back("connector.attach_steps is not used: single_flight = false never waits");
  }
  if (document["connector"]["prefill_tokens_per_second"].is_integer() &&  // "auto" asks for nothing
      document["connector"]["cost_gate"].value_or(std::string_view("off")) == "off") {
    warnings.push_back(
        "connector.prefill_tokens_per_second is not used: cost_gate = \"off\" asks for no times");
  }
}

// All of [disk] is about the folders that `paths` names.
void warn_of_keys_without_paths(const toml::table& document, std::vector<std::string>& warnings) {
  const toml::table* const disk = document["disk"].as_table();
  if (disk == nullptr) return;
  for (const auto& [key, value] : *disk) {
    static_cast<void>(value);
    if (key.str() == "paths") continue;
    warnings.push_back(fmt::format(
        "disk.{} is not used: disk.paths names no folder, so there is no disk tier", key.str()));
  }
}

void warn_of_disk(const toml::table& document, const SharedOptions& o,
                  std::vector<std::string>& warnings) {
  const DiskOptions& d = o.disk;
  if (d.paths.empty()) {
    warn_of_keys_without_paths(document, warnings);
    return;
  }
  if (d.store == DiskStoreWhen::on_eviction && o.host_unlimited) {
    warnings.push_back(
        "disk.store = \"on_eviction\" with host.unlimited = true: nothing leaves the host pool, so "
        "nothing is written to disk");
  }
  if (!d.checksum) {
    warnings.push_back("disk.checksum = false: what comes back from disk is not verified");
  }
  if (!o.host_unlimited && o.host_blocks == 0 && d.bytes < o.host_bytes) {
    warnings.push_back(
        fmt::format("disk.bytes = {} is less than host.bytes = {}: the host pool alone holds more",
                    d.bytes, o.host_bytes));
  }
  if (d.read_deadline_ms > o.load_deadline_ms) {
    warnings.push_back(fmt::format(
        "disk.read_deadline_ms = {} is above connector.load_deadline_ms = {}: a load that waits "
        "for the disk has failed before",
        d.read_deadline_ms, o.load_deadline_ms));
  }
}

void warn_of_times(std::uint64_t load_ms, std::uint64_t store_ms,
                   std::vector<std::string>& warnings) {
  constexpr std::uint64_t short_ms = 100;
  for (const auto& [name, ms] :
       {std::pair("load_deadline_ms", load_ms), {"store_deadline_ms", store_ms}}) {
    if (ms >= short_ms) continue;
    warnings.push_back(fmt::format(
        "connector.{} = {}: what a busy machine does not copy in {} ms counts as failed", name, ms,
        ms));
  }
}

}  // namespace

namespace {

std::uint32_t chunk_of(const SimpleCpuOptions&) { return 1; }
std::uint32_t chunk_of(const OffloadingOptions& o) { return o.blocks_per_chunk; }

// The options in the words of their connector.
template <class Options>
Parsed<ConnectorFile> with_options(const Parsed<Options>& options, std::string_view text,
                                   std::string_view file) {
  if (!options.ok()) return options.error();
  ConnectorFile out;
  out.effective = effective_toml(options.value());
  out.blocks_per_chunk = chunk_of(options.value());
  out.disk = options.value().disk;
  const toml::table document = parse_document(text, file);  // it did parse
  warn_of_unused(document, out.warnings);
  warn_of_disk(document, options.value(), out.warnings);
  warn_of_times(options.value().load_deadline_ms, options.value().store_deadline_ms, out.warnings);
  return out;
}

constexpr std::array<const char*, 2> kinds{"simple_cpu", "offloading"};

Parsed<ConnectorFile> parse_as(std::size_t kind, std::string_view text, std::string_view file) {
  Parsed<ConnectorFile> out = kind == 0 ? with_options(parse_simple_cpu(text, file), text, file)
                                        : with_options(parse_offloading(text, file), text, file);
  if (out.ok()) out.value().kind = kinds[kind];
  return out;
}

// The kind that the file names; nothing: none.
Parsed<std::optional<std::size_t>> kind_in(std::string_view text, std::string_view file) {
  return without_exceptions<std::optional<std::size_t>>(file, [&] {
    const toml::table document = parse_document(text, file);
    TomlTable root(document, "", file);
    return root.table("connector").word("kind", {kinds[0], kinds[1]});
  });
}

}  // namespace

Parsed<ConnectorFile> parse_connector_file(std::string_view text, std::string_view file,
                                           std::string_view kind_of_library) {
  auto layer = take_layer_table(text, file);
  if (!layer.ok()) return layer.error();
  const std::string& rest = layer.value().rest;
  const auto named = kind_in(rest, file);
  if (!named.ok()) return named.error();
  std::optional<std::size_t> kind = named.value();
  for (std::size_t k = 0; !kind && k < kinds.size(); ++k) {
    if (kind_of_library == kinds[k]) kind = k;
  }
  // A slip is named before what is missing, whose absence may be its consequence.
  for (std::size_t k = 0; !kind && k < kinds.size(); ++k) {
    const auto read = parse_as(k, rest, file);
    if (read.ok()) {
      return ParseError{one_line(file) +
                        ": connector.kind: whose options are these? kind = \"simple_cpu\" or "
                        "\"offloading\" in [connector] says it"};
    }
    if (k + 1 == kinds.size()) return read.error();
  }
  Parsed<ConnectorFile> out = parse_as(*kind, rest, file);
  if (out.ok()) out.value().options = rest;
  return out;
}

}  // namespace kvc::config
