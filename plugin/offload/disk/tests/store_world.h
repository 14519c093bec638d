// A DiskStore in a folder of its own, driven to the end of what it was asked.
#pragma once
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plugin/offload/disk/disk_store.h"
#include "plugin/offload/disk/tests/block_bytes.h"
#include "plugin/offload/disk/tests/faulty_files.h"
#include "plugin/offload/disk/tests/folder.h"

namespace kvc::disk_test {

using disk::DiskDone;
using disk::DiskOp;
using disk::DiskStore;
using disk::DiskStoreOptions;
using disk::Identity;

// Blocks of group 0 are of 5000 bytes, of groups 1 and 3 of 20000; group 2 is not stored.
inline DiskStoreOptions small_options(const std::string& folder) {
  DiskStoreOptions o;
  o.folder = folder;
  o.namespace_id = {'m', 'o', 'd', 'e', 'l'};
  o.rank = 1;
  o.key_bytes = 16;
  o.budget = {std::uint64_t{1} << 20U};
  o.payload_of_group = {5000, 20000, 0, 20000};
  o.engine = disk::EngineChoice::stepped;
  o.io.tasks_max = 64;
  o.close_patience_ns = 10'000'000'000;
  o.direct = false;  // for speed; tests of O_DIRECT ask for it
  return o;
}

struct StoreWorld {
  explicit StoreWorld(disk::EngineChoice engine = disk::EngineChoice::stepped)
      : options(small_options(folder.path())) {
    options.engine = engine;
  }
  ~StoreWorld() {
    files.release();
    store.reset();
  }

  void open() {
    store.reset();
    auto made = DiskStore::open(options, files);
    if (!made.ok()) BOOST_FAIL("open: " << made.error().text);
    store = std::move(made.value());
  }
  std::string open_error() {
    store.reset();
    const auto made = DiskStore::open(options, files);
    return made.ok() ? std::string() : made.error().text;
  }

  [[nodiscard]] Identity identity(std::uint32_t group, std::uint64_t number) const {
    Identity what;
    what.group = group;
    what.has_parent = number % 4 != 0;
    what.end_tokens = 16 * (number % 4 + 1);
    what.key = key_number(number);
    if (what.has_parent) what.parent = key_number(number - 1);
    return what;
  }
  [[nodiscard]] std::uint64_t payload(std::uint32_t group) const {
    return options.payload_of_group[group];
  }

  // Memory of an open operation: one buffer an id.
  std::byte* memory(std::uint64_t id, std::uint64_t bytes) {
    auto& m = memories[id];
    m.assign(bytes, std::byte{0xcc});
    return m.data();
  }

  Code write(std::uint32_t group, std::uint64_t number, std::uint64_t id) {
    std::byte* const m = memory(id, payload(group));
    const auto bytes = bytes_of(group, number, payload(group));
    std::copy(bytes.begin(), bytes.end(), m);
    return store->write({id, identity(group, number), m, payload(group)}, now);
  }
  Code read(std::uint32_t group, std::uint64_t number, std::uint64_t id) {
    const Identity what = identity(group, number);
    return store->read({id, group, what.end_tokens, what.key, memory(id, payload(group))}, now);
  }
  bool holds(std::uint64_t id, std::uint32_t group, std::uint64_t number) {
    return memories[id] == bytes_of(group, number, payload(group));
  }

  // One poll; what it reported is kept in `done`.
  std::size_t poll() {
    DiskDone some[7];
    std::size_t all = 0;
    while (const std::size_t n = store->poll(some, now)) {
      for (std::size_t i = 0; i < n; ++i) {
        BOOST_REQUIRE(done.emplace(some[i].id, some[i]).second);
      }
      all += n;
    }
    return all;
  }
  // Until nothing moves any more.
  void settle() {
    for (;;) {
      if (store->stepped()) {
        if (poll() + store->pump(1) == 0) break;
      } else {
        poll();
        if (store->open_operations() == 0) break;
        store->wait(1'000'000'000);
      }
    }
  }
  Code finished(std::uint64_t id) {
    settle();
    const auto it = done.find(id);
    if (it == done.end()) BOOST_FAIL("operation " << id << " was not reported");
    const Code status = it->second.status;
    done.erase(it);
    return status;
  }
  Code write_now(std::uint32_t group, std::uint64_t number) {
    const std::uint64_t id = next_id++;
    const Code code = write(group, number, id);
    return code == Code::ok ? finished(id) : code;
  }
  // ok only if the bytes are right.
  Code read_now(std::uint32_t group, std::uint64_t number) {
    const std::uint64_t id = next_id++;
    Code code = read(group, number, id);
    if (code == Code::ok) code = finished(id);
    if (code == Code::ok) BOOST_REQUIRE(holds(id, group, number));
    return code;
  }
  [[nodiscard]] std::string path(const std::string& name) const {
    return folder.path() + "/rank-1/" + name;
  }

  Folder folder;
  FaultyFiles files;
  DiskStoreOptions options;
  std::unique_ptr<DiskStore> store;
  std::uint64_t now = 1'000'000;
  std::uint64_t next_id = 1'000'000;
  std::map<std::uint64_t, std::vector<std::byte>> memories;
  std::map<std::uint64_t, DiskDone> done;
};

// Changes one byte of a file.
void flip(const std::string& path, std::uint64_t offset, std::uint8_t bits);
std::uint64_t size_of(const std::string& path);
std::uint64_t allocated_in(const std::string& folder);

}  // namespace kvc::disk_test
