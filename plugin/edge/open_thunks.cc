// Opening and closing of both roles.
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string_view>

#include "plugin/edge/connector.h"
#include "plugin/edge/rank_handle.h"
#include "plugin/edge/sched_handle.h"
#include "plugin/edge/slots.h"

kvc_sched::kvc_sched(const kvc_host_api& table, kvc::edge::OpenConfig opened)
    : HandleBase(table),
      config(std::move(opened)),
      bounds(kvc::edge::InBounds::of(config)),
      reserved(kvc::edge::Reserved::of(config, bounds)),
      in(bounds, reserved, host.memory()),
      out(reserved, host.memory()) {
  // The vector moved with the config; the span follows it.
  config.limits.namespace_id = config.namespace_id;
}

kvc_rank::kvc_rank(const kvc_host_api& table, kvc::edge::OpenConfig opened)
    : HandleBase(table),
      config(std::move(opened)),
      reserved(kvc::edge::Reserved::of(config, kvc::edge::InBounds::of(config))),
      out(reserved, host.memory()) {
  config.limits.namespace_id = config.namespace_id;
}

namespace kvc::edge {

namespace {

void log_failure(const kvc_host_api& host, std::string_view slot, std::string_view why) noexcept {
  if (host.log == nullptr) return;
  LastError text;
  text.set(slot, why);
  host.log(host.self, KVC_LOG_ERROR,
           {reinterpret_cast<const std::uint8_t*>(text.text().data()), text.text().size()});
}

// Makes a handle of a checked open. Handle: kvc_sched or kvc_rank; make: its connector function.
template <class Handle, class Make>
Status open_role(const kvc_host_api& table, const kvc_open* open, Role role, Make make,
                 std::unique_ptr<Handle>& made) {
  std::optional<HostAdapter> probe(std::in_place, table);
  Result<OpenConfig> config = read_open(open, role, *probe);
  probe.reset();
  if (!config.ok()) return config.error();
  auto handle = std::make_unique<Handle>(table, std::move(config).value());
  auto part = make(handle->config, handle->host);
  if (!part.ok()) return part.error();
  handle->role = std::move(part).value();
  made = std::move(handle);
  return {};
}

template <class Handle, class Make>
kvc_status open_any(std::string_view slot, const kvc_host_api* host, const kvc_open* open,
                    Handle** out, Role role, Make make) noexcept {
  if (out == nullptr) return KVC_E_ARG;
  *out = nullptr;
  kvc_host_api table{};
  Code code = Code::internal;
  try {
    Result<kvc_host_api> read = read_host(host);
    if (!read.ok()) {
      const LogTarget to = log_target(host);
      table.log = to.log;
      table.self = to.self;
      log_failure(table, slot, read.error().text);
      return to_abi(read.error().code);
    }
    table = read.value();
    std::unique_ptr<Handle> made;
    const Status s = open_role(table, open, role, make, made);
    if (s.ok()) {
      *out = made.release();
      return KVC_OK;
    }
    log_failure(table, slot, s.text);
    return to_abi(s.code);
  } catch (const std::bad_alloc&) {
    log_failure(table, slot, "out of memory");
    code = Code::full;
  } catch (const std::exception& e) {
    log_failure(table, slot, e.what());
  } catch (...) {
    log_failure(table, slot, "unknown exception");
  }
  return to_abi(code);
}

kvc_status open_scheduler(const kvc_host_api* host, const kvc_open* open,
                          kvc_sched** out) noexcept {
  return open_any("open_scheduler", host, open, out, Role::scheduler, make_scheduler);
}

kvc_status open_rank(const kvc_host_api* host, const kvc_open* open, kvc_rank** out) noexcept {
  return open_any("open_rank", host, open, out, Role::rank, make_rank);
}

void close_scheduler(kvc_sched* s) noexcept { delete s; }

void close_rank(kvc_rank* r) noexcept { delete r; }

}  // namespace

void fill_open_slots(kvc_plugin_api& api) {
  api.open_scheduler = open_scheduler;
  api.open_rank = open_rank;
  api.close_scheduler = close_scheduler;
  api.close_rank = close_rank;
}

}  // namespace kvc::edge
