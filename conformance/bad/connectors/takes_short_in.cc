// Takes a kvc_lookup_in that ends before its last field.
#include <algorithm>
#include <cstring>

#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.lookup = [](kvc_sched* s, const kvc_lookup_in* in, kvc_lookup_out* out) noexcept {
    kvc_lookup_in whole{};
    if (in != nullptr)
      std::memcpy(&whole, in, std::min<std::size_t>(in->struct_size, sizeof whole));
    whole.struct_size = sizeof whole;
    return kvc::bad::right().lookup(s, in == nullptr ? nullptr : &whole, out);
  };
}
