// The functions of the layer's table, one per slot and of the slot's name.
#pragma once
#include <type_traits>

#include <kvc/kvc.h>

namespace kvc::validate::slots {

#define KVC_SLOT(slot, handle, role, attributes, minor, need, capability) \
  std::remove_pointer_t<decltype(kvc_plugin_api::slot)> slot;
#include <kvc/kvc_calls.def>

}  // namespace kvc::validate::slots
