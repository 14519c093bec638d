#include "host_stub/loader/loader.h"
#include "host_stub/loader/status_text.h"

#include <dlfcn.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <kvc/kvc_util.h>
#include <boost/dll/shared_library.hpp>

namespace kvc::host {
namespace {

using boost::dll::load_mode::rtld_local;
using boost::dll::load_mode::rtld_now;

constexpr unsigned majors_searched = 9;

std::string entry_name(unsigned major) { return fmt::format("kvc_plugin_entry_v{}", major); }

Status cannot_load(const std::string& path, const std::string& why) {
  return {Code::arg, fmt::format("cannot load connector {}: {}", path, why)};
}

// Why nothing can be read at `path`; empty: there is a file.
std::string unreadable(const std::string& path) {
  if (path.empty()) return "the path is empty";
  boost::dll::fs::error_code error;
  const auto status = boost::dll::fs::status(path, error);
  if (status.type() == boost::dll::fs::file_not_found) return "there is no such file";
  if (status.type() == boost::dll::fs::directory_file) return "it is a directory";
  if (::access(path.c_str(), R_OK) != 0) return std::strerror(errno);
  return {};
}

// What the system's loader says of the last library that it refused, without the path in front.
std::string loaders_words(const std::string& path) {
  const char* const said = ::dlerror();
  if (said == nullptr) return "the system's loader refused it without a reason";
  std::string words = said;
  for (const std::string& prefix : {path + ": ", "./" + path + ": "}) {
    if (words.starts_with(prefix)) words.erase(0, prefix.size());
  }
  return words;
}

// One leaked library per path (KVC-L-007, AR19): unloading code with thread-locals or live threads
// is unsafe.
Result<boost::dll::shared_library*> library_at(const std::string& path) {
  static std::mutex mutex;
  static auto* const loaded = new std::map<std::string, boost::dll::shared_library*>;
  const std::lock_guard lock(mutex);
  if (const auto it = loaded->find(path); it != loaded->end()) return it->second;
  try {
    if (const std::string why = unreadable(path); !why.empty()) return cannot_load(path, why);
    auto library = std::make_unique<boost::dll::shared_library>();
    boost::dll::fs::error_code error;
    library->load(boost::dll::fs::path(path), error, rtld_now | rtld_local);
    if (error) return cannot_load(path, loaders_words(path));
    return loaded->emplace(path, library.release()).first->second;
  } catch (const std::exception& e) {
    return cannot_load(path, e.what());
  }
}

std::string majors_of(const boost::dll::shared_library& library) {
  std::string found;
  for (unsigned major = 0; major <= majors_searched; ++major) {
    if (!library.has(entry_name(major))) continue;
    found += found.empty() ? "" : ", ";
    found += entry_name(major);
  }
  return found;
}

kvc_status no_take_events(kvc_sched*, void*, std::uint32_t, std::uint64_t,
                          std::uint64_t* count) noexcept {
  if (count != nullptr) *count = 0;
  return KVC_E_UNSUPPORTED;
}
kvc_status no_pump_scheduler(kvc_sched*, std::uint32_t) noexcept { return KVC_E_UNSUPPORTED; }
kvc_status no_pump_rank(kvc_rank*, std::uint32_t) noexcept { return KVC_E_UNSUPPORTED; }

struct SlotCheck {
  const char* name;
  std::size_t end;  // bytes of the table through this slot
  bool required;
  bool empty;
  std::uint64_t capability;
};

std::vector<SlotCheck> slots_of(const kvc_plugin_api& api) {
  enum Need : std::uint8_t { opt, req };
  std::vector<SlotCheck> slots;
#define KVC_SLOT(slot, handle, role, attributes, minor, need, capability)   \
  slots.push_back({#slot, KVC_THROUGH(kvc_plugin_api, slot), (need) == req, \
                   !KVC_CAN(&api, kvc_plugin_api, slot), capability});
#include <kvc/kvc_calls.def>
  return slots;
}

Status check_slots(const std::string& path, const kvc_plugin_api& api) {
  for (const SlotCheck& slot : slots_of(api)) {
    if (slot.required && api.struct_size < slot.end) {
      return {Code::arg,
              fmt::format("connector {}: its table has {} bytes and ends before the required slot "
                          "{} (needs {}) [KVC-L-003]",
                          path, api.struct_size, slot.name, slot.end)};
    }
    if (slot.required && slot.empty) {
      return {Code::arg,
              fmt::format("connector {}: required slot {} is NULL [KVC-L-004]", path, slot.name)};
    }
    if (slot.empty && (api.caps & slot.capability) != 0) {
      return {Code::arg,
              fmt::format(
                  "connector {}: capability bit {:#x} is set but its slot {} is NULL [KVC-L-005]",
                  path, slot.capability, slot.name)};
    }
  }
  return {};
}

std::string text_of(const kvc_bytes& bytes) {
  if (bytes.data == nullptr || bytes.size > 4096) return {};
  return {reinterpret_cast<const char*>(bytes.data), bytes.size};
}

}  // namespace

Result<LoadedConnector> check_connector(const std::string& path, kvc_plugin_entry_fn entry) {
  LoadedConnector connector;
  connector.path = path;
  kvc_plugin_api& api = connector.api;
  api.struct_size = sizeof api;
  const kvc_status status = entry(KVC_MINOR, &api);
  if (status != KVC_OK) {
    return {status == KVC_E_UNSUPPORTED ? Code::unsupported : Code::arg,
            fmt::format(
                "connector {}: its entry answered status {} to a host of version {}.{} [KVC-L-002]",
                path, host::Said{status}, KVC_MAJOR, KVC_MINOR)};
  }
  if (api.struct_size > sizeof api) {
    return {Code::arg, fmt::format("connector {}: it filled {} bytes of a table of {} [KVC-L-006]",
                                   path, api.struct_size, sizeof api)};
  }
  if (Status s = check_slots(path, api); !s.ok()) return s;
  if (api.take_events == nullptr) api.take_events = no_take_events;
  if (api.pump_scheduler == nullptr) api.pump_scheduler = no_pump_scheduler;
  if (api.pump_rank == nullptr) api.pump_rank = no_pump_rank;
  kvc_description description{};
  description.struct_size = sizeof description;
  if (const kvc_status s = api.describe(&description); s != KVC_OK) {
    return {Code::arg, fmt::format("connector {}: describe answered status {} [KVC-L-008]", path,
                                   host::Said{s})};
  }
  connector.name = text_of(description.name);
  connector.version = text_of(description.version);
  connector.build_id = text_of(description.build_id);
  return connector;
}

Result<LoadedConnector> load_connector(const std::string& path) {
  Result<boost::dll::shared_library*> library = library_at(path);
  if (!library.ok()) return library.error();
  const boost::dll::shared_library& lib = *library.value();
  if (!lib.has(KVC_PLUGIN_ENTRY_NAME)) {
    const std::string majors = majors_of(lib);
    return {
        Code::arg,
        majors.empty()
            ? fmt::format("{} is no kvc connector: it does not export {} [KVC-L-001]", path,
                          KVC_PLUGIN_ENTRY_NAME)
            : fmt::format(
                  "connector {} is of another major version: it exports {} but not {} [KVC-L-001]",
                  path, majors, KVC_PLUGIN_ENTRY_NAME)};
  }
  return check_connector(
      path, lib.get<std::remove_pointer_t<kvc_plugin_entry_fn>>(KVC_PLUGIN_ENTRY_NAME));
}

}  // namespace kvc::host
