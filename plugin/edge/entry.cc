// The one exported function, and the slots that need no handle.
#include <kvc/kvc.h>
#include <kvc/kvc_util.h>

#include <cstddef>
#include <string_view>

#include "plugin/edge/connector.h"
#include "plugin/edge/hints_extension.h"
#include "plugin/edge/layerwise_extension.h"
#include "plugin/edge/retention_extension.h"
#include "plugin/edge/slots.h"
#include "plugin/edge/test_extension.h"

namespace kvc::edge {

namespace {

kvc_bytes bytes_of(std::string_view text) { return kvc_bytes_of(text.data(), text.size()); }

kvc_status describe(kvc_description* out) noexcept {
  const kvc_description mine{sizeof mine, 0, bytes_of(connector_name()), bytes_of(KVC_EDGE_VERSION),
                             bytes_of(KVC_EDGE_BUILD_ID)};
  return KVC_WRITE(out, &mine);
}

const void* extension(kvc_bytes id) noexcept {
  if (id.data == nullptr) return nullptr;
  const std::string_view name(reinterpret_cast<const char*>(id.data), id.size);
  const void* table = retention_extension(name);
  if (table == nullptr) table = layerwise_extension(name);
  if (table == nullptr) table = hints_extension(name);
  return table != nullptr ? table : test_extension(name);
}

}  // namespace

void fill_fixed_slots(kvc_plugin_api& api) {
  api.describe = describe;
  api.extension = extension;
}

}  // namespace kvc::edge

extern "C" KVC_EXPORT kvc_status kvc_plugin_entry_v1(std::uint32_t host_minor,
                                                     kvc_plugin_api* out) noexcept {
  // Every slot of 1.0 is here for hosts of any minor of major 1: none is too old.
  static_cast<void>(host_minor);
  kvc_plugin_api mine{};
  mine.struct_size = sizeof mine;
  mine.abi_minor = KVC_MINOR;
  mine.caps = kvc::edge::connector_caps();
  kvc::edge::fill_fixed_slots(mine);
  kvc::edge::fill_open_slots(mine);
  kvc::edge::fill_sched_slots(mine);
  kvc::edge::fill_query_slots(mine);
  kvc::edge::fill_rank_slots(mine);
  return kvc_write(out, &mine, sizeof mine, offsetof(kvc_plugin_api, describe));
}
