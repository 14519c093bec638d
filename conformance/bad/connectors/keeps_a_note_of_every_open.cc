// Leaves a little heap behind with every handle.
#include "conformance/bad/wrapped.h"

namespace {

struct Note {
  Note* before;
  char text[24];
};
Note* newest = nullptr;  // still known: a checker of leaks sees none

}  // namespace

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.open_scheduler = [](const kvc_host_api* host, const kvc_open* open,
                            kvc_sched** out) noexcept {
    newest = new Note{newest, "opened"};
    return right().open_scheduler(host, open, out);
  };
}
