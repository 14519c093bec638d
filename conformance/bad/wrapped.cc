#include "conformance/bad/wrapped.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace kvc::bad {

const kvc_plugin_api& right() {
  static const kvc_plugin_api table = [] {
    kvc_plugin_api api{};
    api.struct_size = sizeof api;
    void* const library = ::dlopen(KVC_LIB_DIR "/libkvc_simple_cpu.so", RTLD_NOW | RTLD_LOCAL);
    void* const entry = library == nullptr ? nullptr : ::dlsym(library, KVC_PLUGIN_ENTRY_NAME);
    if (entry == nullptr) {
      std::fprintf(stderr, "no right connector: %s\n", ::dlerror());
      std::abort();
    }
    reinterpret_cast<kvc_plugin_entry_fn>(entry)(KVC_MINOR, &api);
    return api;
  }();
  return table;
}

}  // namespace kvc::bad
