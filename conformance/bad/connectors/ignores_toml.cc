// Does not read its options.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.open_scheduler = [](const kvc_host_api* host, const kvc_open* open,
                            kvc_sched** out) noexcept {
    if (open == nullptr || open->struct_size != sizeof *open) {
      return kvc::bad::right().open_scheduler(host, open, out);
    }
    kvc_open without = *open;
    without.config_toml = kvc_bytes_of(nullptr, 0);
    return kvc::bad::right().open_scheduler(host, &without, out);
  };
}
