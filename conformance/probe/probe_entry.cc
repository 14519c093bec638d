// libkvc_probe.so: opens the next connector and stands before it. Its table says that it is of a
// newer minor, and is longer if there is room.
#include <dlfcn.h>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <optional>

#include <fmt/format.h>
#include <kvc/kvc_util.h>

#include "conformance/probe/handle.h"
#include "host_stub/loader/status_text.h"

namespace kvc::probe {

bool Role::answers(const char* slot, kvc_status& status) {
  if (!judge.called(slot)) {
    status = dead;
    return true;
  }
  const std::uint64_t n = ++calls[slot];
  for (const Answer& a : script.answers) {
    const bool now = n == a.at || (a.every != 0 && n > a.at && (n - a.at) % a.every == 0);
    if (a.slot != slot || !now) continue;
    status = a.status;
    error =
        fmt::format("the probe's script answers {} to call {} of {}", host::Said{status}, n, slot);
    if (is_fatal(status)) {
      dead = status;
      judge.answered_fatal(slot);
    } else {
      if (status < 0 && status != KVC_E_FULL) judge.contradicted();
      if (status >= 0 || status == KVC_E_FULL) judge.acted();
      if (is_unknown_positive(status)) judge.answered_unknown();
    }
    return true;
  }
  error.clear();
  return false;
}

namespace {

std::string own_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&kvc_plugin_entry_v1), &info) == 0) return ".";
  const std::string path = info.dli_fname;
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string(".") : path.substr(0, slash);
}

// Says why in the host's log, for there is no handle to ask.
kvc_status refuse(const kvc_host_api& host, const Status& why) {
  if (host.log != nullptr) {
    host.log(host.self, KVC_LOG_ERROR, kvc_bytes_of(why.text.data(), why.text.size()));
  }
  return static_cast<kvc_status>(why.code);
}

// The script and the library behind it; the open struct gets the TOML that is left.
struct Opening {
  kvc_host_api host{};
  kvc_open open{};
  std::optional<Script> script;
  std::optional<host::LoadedConnector> next;

  kvc_status read(const kvc_host_api* h, const kvc_open* o) {
    kvc_status s = KVC_READ(kvc_host_api, &host, h);
    if (s == KVC_OK) s = KVC_READ(kvc_open, &open, o);
    if (s == KVC_OK) s = KVC_LIST_CHECK(kvc_group, &open.groups);
    if (s != KVC_OK) return s;
    const kvc_bytes& toml = open.config_toml;
    if (toml.data == nullptr && toml.size != 0) return KVC_E_ARG;
    const std::string_view text(reinterpret_cast<const char*>(toml.data), toml.size);
    auto parsed = Script::parse(toml.size == 0 ? std::string_view() : text, own_folder());
    if (!parsed.ok()) return refuse(host, parsed.error());
    script = std::move(parsed).value();
    const std::string& findings = script->findings;
    if (!findings.empty() && !std::ofstream(findings, std::ios::app)) {
      return refuse(host, {Code::arg, fmt::format("probe: cannot write the findings {}: {}",
                                                  findings, std::strerror(errno))});
    }
    auto loaded = host::load_connector(script->next);
    if (!loaded.ok()) return refuse(host, loaded.error());
    next = std::move(loaded).value();
    open.config_toml = kvc_bytes_of(script->rest.data(), script->rest.size());
    return KVC_OK;
  }
};

template <class Handle, class Opaque, class Open>
kvc_status open_role(const kvc_host_api* host, const kvc_open* open, Opaque** out,
                     Open open_next) noexcept {
  if (out == nullptr) return KVC_E_ARG;
  *out = nullptr;
  Opening opening;
  if (const kvc_status s = opening.read(host, open); s != KVC_OK) return s;
  auto handle =
      std::make_unique<Handle>(*opening.script, *opening.next, opening.host, opening.open);
  // The host's own struct: its table must stay valid, and so it does until close.
  const kvc_status s = open_next(handle->next.api, host, opening.open, handle->inner);
  if (s != KVC_OK) return s < 0 ? s : KVC_E_INTERNAL;
  *out = reinterpret_cast<Opaque*>(handle.release());
  return KVC_OK;
}

kvc_status open_scheduler(const kvc_host_api* host, const kvc_open* open,
                          kvc_sched** out) noexcept {
  return open_role<SchedHandle>(
      host, open, out,
      [](const kvc_plugin_api& api, const kvc_host_api* h, const kvc_open& o, kvc_sched*& inner) {
        return api.open_scheduler(h, &o, &inner);
      });
}

kvc_status open_rank(const kvc_host_api* host, const kvc_open* open, kvc_rank** out) noexcept {
  return open_role<RankHandle>(
      host, open, out,
      [](const kvc_plugin_api& api, const kvc_host_api* h, const kvc_open& o, kvc_rank*& inner) {
        return api.open_rank(h, &o, &inner);
      });
}

void close_scheduler(kvc_sched* s) noexcept {
  const std::unique_ptr<SchedHandle> p(reinterpret_cast<SchedHandle*>(s));
  if (p == nullptr) return;
  p->judge.closing();
  if (!p->script.findings.empty()) static_cast<void>(p->judge.write(p->script.findings));
  p->next.api.close_scheduler(p->inner);
}

void close_rank(kvc_rank* r) noexcept {
  const std::unique_ptr<RankHandle> p(reinterpret_cast<RankHandle*>(r));
  if (p == nullptr) return;
  if (!p->script.findings.empty()) {
    static_cast<void>(p->judge.write(fmt::format("{}.rank-{}", p->script.findings, p->number)));
  }
  p->next.api.close_rank(p->inner);
}

kvc_status describe(kvc_description* out) noexcept {
  kvc_description mine{};
  mine.struct_size = sizeof mine;
  mine.name = kvc_text_of("probe");
  mine.version = kvc_text_of("1");
  mine.build_id = kvc_text_of("");
  return KVC_WRITE(out, &mine);
}

const void* extension(kvc_bytes) noexcept { return nullptr; }

// A table of a later minor: slots that today's hosts do not know.
struct NewerTable {
  kvc_plugin_api known{};
  kvc_status (*later_slots[3])() noexcept = {};
};

kvc_status from_the_future() noexcept { return KVC_E_UNSUPPORTED; }

}  // namespace

void fill_openings(kvc_plugin_api& t) {
  t.describe = describe;
  t.open_scheduler = open_scheduler;
  t.open_rank = open_rank;
  t.close_scheduler = close_scheduler;
  t.close_rank = close_rank;
  t.extension = extension;
}

}  // namespace kvc::probe

kvc_status kvc_plugin_entry_v1(std::uint32_t, kvc_plugin_api* out) noexcept {
  using namespace kvc::probe;
  NewerTable table;
  table.known.struct_size = sizeof table;
  table.known.abi_minor = KVC_MINOR + 1;
  table.known.caps = KVC_CAP_STEPPED | KVC_CAP_FINE_HITS | KVC_CAP_STATES | KVC_CAP_EVENTS |
                     KVC_CAP_CANDIDATES | UINT64_C(1) << 63;
  fill_openings(table.known);
  fill_scheduler(table.known);
  fill_queries(table.known);
  fill_rank(table.known);
  for (auto& slot : table.later_slots) slot = from_the_future;
  return kvc_write(out, &table, sizeof table, offsetof(kvc_plugin_api, describe));
}
