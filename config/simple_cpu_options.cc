#include "config/simple_cpu_options.h"

#include "config/toml_table.h"

namespace kvc::config {
namespace {

void read_host(TomlTable table, SimpleCpuOptions& o) {
  read_shared_host(table, o);
  table.refuse_unknown_keys();
}

void read_connector(TomlTable table, SimpleCpuOptions& o) {
  if (table.word("kind", {"simple_cpu"}).value_or(0) != 0) return;
  take(o.mode, table.word("mode", {"eager", "lazy"}));
  read_shared_connector(table, o);
  if (o.eviction != EvictionKind::lru && o.mode == StoreMode::lazy) {
    table.refuse("eviction",
                 "mode = \"lazy\" stores what the engine evicts, and which request used it is not "
                 "known; use eviction = \"lru\", or mode = \"eager\"");
  }
  if (o.mode == StoreMode::lazy && !o.store_decode_blocks) {
    table.refuse("store_decode_blocks",
                 "mode = \"lazy\" stores what the engine evicts, whoever filled it; leave it true, "
                 "or use mode = \"eager\"");
  }
  table.refuse_unknown_keys();
}

void read_disk(TomlTable table, SimpleCpuOptions& o) {
  read_shared_disk(table, o);
  if (!o.disk.paths.empty() && o.mode == StoreMode::lazy) {
    table.refuse("paths",
                 "mode = \"lazy\" stores blocks of which nobody knows what they continue, and the "
                 "disk tier needs to; use mode = \"eager\"");
  }
}

}  // namespace

Parsed<SimpleCpuOptions> parse_simple_cpu(std::string_view text, std::string_view file) {
  return without_exceptions<SimpleCpuOptions>(file, [&] {
    const toml::table document = parse_document(text, file);
    TomlTable root(document, "", file);
    SimpleCpuOptions options;
    read_connector(root.table("connector"), options);
    read_host(root.table("host"), options);
    read_shared_cuda(root.table("cuda"), options);
    read_disk(root.table("disk"), options);
    root.refuse_unknown_keys();
    return options;
  });
}

std::string effective_toml(const SimpleCpuOptions& o) {
  return "[connector]\nkind = \"simple_cpu\"\nmode = " +
         toml_quoted(o.mode == StoreMode::lazy ? "lazy" : "eager") + "\n" +
         shared_connector_toml(o) + "\n[host]\n" + shared_host_toml(o) + "\n[cuda]\n" +
         shared_cuda_toml(o) + "\n" + shared_disk_toml(o);
}

}  // namespace kvc::config
