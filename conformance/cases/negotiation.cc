// The entry function, describe and extension: what a loader calls before anything else.
#include <kvc/kvc_hints.h>
#include <kvc/kvc_layerwise.h>
#include <kvc/kvc_retention.h>
#include <kvc/kvc_util.h>

#include <algorithm>
#include <thread>

#include "conformance/cases/families.h"
#include "conformance/cases/support.h"
#include "conformance/rig/watch.h"
#include "host_stub/loader/status_text.h"

namespace kvc::conform {

namespace {

namespace watch = rig::watch;

std::string text_of(kvc_bytes b) {
  return b.size == 0 ? std::string() : std::string(reinterpret_cast<const char*>(b.data), b.size);
}

void table_fits_every_room(Context& c) {
  constexpr std::uint32_t head = offsetof(kvc_plugin_api, describe);
  for (std::uint32_t room = 0; room <= sizeof(kvc_plugin_api) + 64; ++room) {
    GuardedBytes bytes(std::max<std::uint32_t>(room, 4));
    std::memset(bytes.data(), 0xAB, std::max<std::uint32_t>(room, 4));
    std::memcpy(bytes.data(), &room, sizeof room);
    auto* const table = reinterpret_cast<kvc_plugin_api*>(bytes.data());
    const kvc_status s = c.entry(KVC_MINOR, table);
    if (room < head) {
      c.expect(s == KVC_E_ARG, "KVC-P-001", "a room of {} bytes, before caps end, answered {}",
               room, host::Said{s});
      continue;
    }
    c.expect(s == KVC_OK, "KVC-P-001", "a room of {} bytes answered {}", room, host::Said{s});
    std::uint32_t filled = 0;
    std::memcpy(&filled, bytes.data(), sizeof filled);
    c.need(filled >= head && filled <= room, "KVC-P-001",
           "a room of {} bytes: struct_size says that {} were filled", room, filled);
    for (std::uint32_t i = filled; i < room; ++i) {
      c.need(bytes.data()[i] == 0xAB, "KVC-P-001",
             "a room of {} bytes: byte {} was written, struct_size says {}", room, i, filled);
    }
  }
  c.expect(c.entry(KVC_MINOR, nullptr) == KVC_E_ARG, "KVC-P-001", "no table at all was accepted");
}

void entry_has_no_effects(Context& c) {
  const std::uint64_t threads = thread_count();
  kvc_plugin_api first{};
  first.struct_size = sizeof first;
  c.need(c.entry(KVC_MINOR, &first) == KVC_OK, "KVC-P-002", "the second call of the entry failed");
  watch::forget();
  for (int i = 0; i < 100; ++i) {
    kvc_plugin_api again{};
    again.struct_size = sizeof again;
    const watch::EntryScope scope;
    c.need(c.entry(KVC_MINOR, &again) == KVC_OK, "KVC-P-002", "call {} of the entry failed", i + 3);
    c.need(std::memcmp(&first, &again, sizeof first) == 0, "KVC-P-002",
           "call {} of the entry gave another table", i + 3);
  }
  for (const watch::Seen& seen : watch::seen_heap()) {
    c.expect(false, "KVC-P-002", "the entry called {} {} times", seen.function, seen.times);
  }
  kvc_status elsewhere = KVC_E_INTERNAL;
  std::thread([&] {
    kvc_plugin_api table{};
    table.struct_size = sizeof table;
    elsewhere = c.entry(KVC_MINOR, &table);
  }).join();
  c.expect(elsewhere == KVC_OK, "KVC-P-002", "the entry answered {} on another thread",
           host::Said{elsewhere});
  c.expect(thread_count() == threads, "KVC-P-002", "the entry started {} threads",
           thread_count() - threads);
}

void every_host_minor(Context& c) {
  const std::uint32_t own = c.api().abi_minor;
  for (const std::uint32_t minor : {own, own + 1, own + 7, 1U << 31U, UINT32_MAX}) {
    kvc_plugin_api table{};
    table.struct_size = sizeof table;
    const kvc_status s = c.entry(minor, &table);
    c.expect(s == KVC_OK, "KVC-P-003", "a host of version {}.{} got status {}", KVC_MAJOR, minor,
             host::Said{s});
  }
}

void description_is_static(Context& c) {
  kvc_description before{};
  before.struct_size = sizeof before;
  c.need(c.api().describe(&before) == KVC_OK, "KVC-P-023", "describe failed before any open");
  const std::string name = text_of(before.name);
  const std::string version = text_of(before.version);
  c.expect(!name.empty() && !version.empty(), "KVC-P-023", "name \"{}\", version \"{}\"", name,
           version);
  { const World w(c, c.plain()); }
  kvc_description after{};
  after.struct_size = sizeof after;
  c.need(c.api().describe(&after) == KVC_OK, "KVC-P-023", "describe failed after a close");
  c.expect(text_of(after.name) == name && text_of(after.version) == version, "KVC-P-023",
           "\"{} {}\" became \"{} {}\"", name, version, text_of(after.name),
           text_of(after.version));
  c.expect(text_of(before.name) == name, "KVC-P-023", "the first text did not stay as it was");
}

void unknown_extensions(Context& c) {
  const std::string long_id(100'000, 'k');
  for (const std::string& id : {std::string(), std::string("kvc.unknown/1"), std::string("kvc."),
                                std::string("\0\xFF\xFE", 3), long_id}) {
    const void* const table = c.api().extension(kvc_bytes_of(id.data(), id.size()));
    c.expect(table == nullptr, "KVC-P-024", "extension of {} bytes \"{}\" is a table", id.size(),
             id.substr(0, 20));
  }
  c.expect(c.api().extension({nullptr, 0}) == nullptr, "KVC-P-024", "no id at all is a table");
  c.expect(c.api().extension({nullptr, 12}) == nullptr, "KVC-P-024",
           "12 bytes without data are a table");
  for (const char* id : {KVC_HINTS_EXTENSION, KVC_LAYERWISE_EXTENSION, KVC_RETENTION_EXTENSION,
                         KVC_TEST_EXTENSION}) {
    const void* const first = c.api().extension(kvc_text_of(id));
    c.expect(first == c.api().extension(kvc_text_of(id)), "KVC-P-024",
             "two calls for {} gave two tables", id);
    const std::string longer = std::string(id) + "0";
    c.expect(c.api().extension(kvc_bytes_of(longer.data(), longer.size())) == nullptr, "KVC-P-024",
             "{} is a table", longer);
  }
}

constexpr Case cases[] = {
    {"negotiation.the_table_fits_every_room", "KVC-P-001", table_fits_every_room},
    {"negotiation.the_entry_has_no_effects", "KVC-P-002", entry_has_no_effects},
    {"negotiation.newer_hosts_are_served", "KVC-P-003", every_host_minor},
    {"negotiation.the_description_is_static", "KVC-P-023", description_is_static},
    {"negotiation.unknown_extensions_are_absent", "KVC-P-024", unknown_extensions},
};

}  // namespace

std::span<const Case> negotiation_cases() { return cases; }

}  // namespace kvc::conform
