#include "config/offloading_options.h"

#include "config/toml_table.h"

namespace kvc::config {
namespace {

void read_host(TomlTable table, OffloadingOptions& o) {
  read_shared_host(table, o);
  table.refuse_unknown_keys();
}

void read_connector(TomlTable table, OffloadingOptions& o) {
  if (table.word("kind", {"offloading"}).value_or(0) != 0) return;
  static_cast<void>(table.word("mode", {"eager"}));
  take(o.blocks_per_chunk, table.integer("blocks_per_chunk", 1, 64));
  take(o.store_threshold, table.integer("store_threshold", 0, std::uint64_t{1} << 31U));
  take(o.max_tracker_size, table.integer("max_tracker_size", 1, std::uint64_t{1} << 24U));
  read_shared_connector(table, o);
  table.refuse_unknown_keys();
}

}  // namespace

Parsed<OffloadingOptions> parse_offloading(std::string_view text, std::string_view file) {
  return without_exceptions<OffloadingOptions>(file, [&] {
    const toml::table document = parse_document(text, file);
    TomlTable root(document, "", file);
    OffloadingOptions options;
    read_connector(root.table("connector"), options);
    read_host(root.table("host"), options);
    read_shared_cuda(root.table("cuda"), options);
    read_shared_disk(root.table("disk"), options);
    root.refuse_unknown_keys();
    return options;
  });
}

std::string effective_toml(const OffloadingOptions& o) {
  return "[connector]\nkind = \"offloading\"\nmode = \"eager\"\nblocks_per_chunk = " +
         std::to_string(o.blocks_per_chunk) +
         "\nstore_threshold = " + std::to_string(o.store_threshold) +
         "\nmax_tracker_size = " + std::to_string(o.max_tracker_size) + "\n" +
         shared_connector_toml(o) + "\n[host]\n" + shared_host_toml(o) + "\n[cuda]\n" +
         shared_cuda_toml(o) + "\n" + shared_disk_toml(o);
}

}  // namespace kvc::config
