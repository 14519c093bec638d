#include "conformance/bad/wrapped.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace kvc::bad {
namespace {

const char* replaced_id = "";
const void* replacement = nullptr;

const void* extension(kvc_bytes id) noexcept {
  const void* const known = right().extension(id);
  const kvc_bytes replaced = kvc_text_of(replaced_id);
  const bool mine = known != nullptr && id.size == replaced.size &&
                    std::memcmp(id.data, replaced.data, id.size) == 0;
  return mine ? replacement : known;
}

}  // namespace

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

void replace_extension(kvc_plugin_api& table, const char* id, const void* mine) {
  replaced_id = id;
  replacement = mine;
  table.extension = extension;
}

}  // namespace kvc::bad
