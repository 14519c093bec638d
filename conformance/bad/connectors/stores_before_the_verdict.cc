// Takes every engine for one that heeds what ranks say of a load: what is confirmed before the
// verdict is stored.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.open_scheduler = [](const kvc_host_api* host, const kvc_open* open,
                            kvc_sched** out) noexcept {
    auto& hosts = kvc::bad::kept<kvc_host_api>;
    if (host == nullptr || host->struct_size != sizeof *host || hosts.size() == hosts.capacity()) {
      return kvc::bad::right().open_scheduler(host, open, out);
    }
    hosts.push_back(*host);
    hosts.back().caps |= KVC_HOST_RANK_VERDICTS;
    return kvc::bad::right().open_scheduler(&hosts.back(), open, out);
  };
}
