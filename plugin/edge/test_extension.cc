// The extension "kvc.test/1" (kvc_fault.h): compiled in with the fault points only.
#include "plugin/edge/test_extension.h"

#if defined(KVC_FAULT_POINTS)
#include <kvc/kvc_fault.h>
#include <kvc/kvc_util.h>

#include <atomic>
#include <string>

#include "plugin/core/fault.h"
#include "plugin/edge/sched_handle.h"

namespace kvc::edge {

namespace {

std::string_view text_of(kvc_bytes b) { return {reinterpret_cast<const char*>(b.data), b.size}; }

kvc_status set_fault(kvc_bytes name, std::uint64_t countdown) noexcept {
  if (name.size != 0 && name.data == nullptr) return KVC_E_ARG;
  try {
    if (name.size == 0) {
      faults().arm_any(countdown);
    } else {
      faults().arm(text_of(name), countdown);
    }
  } catch (...) {
    return KVC_E_FULL;
  }
  return KVC_OK;
}

void clear_faults() noexcept { faults().clear(); }

std::int32_t tripped() noexcept { return faults().tripped() ? 1 : 0; }

std::uint64_t visits(kvc_bytes name) noexcept {
  return name.data == nullptr ? 0 : faults().visits(text_of(name));
}

kvc_status verify(const kvc_sched* s, char* buf, std::uint64_t cap,
                  std::uint64_t* needed) noexcept {
  if (s == nullptr || needed == nullptr) return KVC_E_ARG;
  try {
    const std::string text = s->role->verify();
    return kvc_put(buf, cap, needed, kvc_bytes_of(text.data(), text.size()));
  } catch (...) {
    return KVC_E_INTERNAL;
  }
}

std::atomic<std::uint64_t> copy_order{0};

void set_copy_order(std::uint64_t seed) noexcept { copy_order.store(seed); }

constexpr kvc_test_api api{
    sizeof(kvc_test_api), 0, set_fault, clear_faults, tripped, visits, verify, set_copy_order};

}  // namespace

const void* test_extension(std::string_view id) {
  return id == KVC_TEST_EXTENSION ? &api : nullptr;
}

std::uint64_t copy_order_seed() { return copy_order.load(); }

}  // namespace kvc::edge

#else

namespace kvc::edge {

const void* test_extension(std::string_view /*id*/) { return nullptr; }
std::uint64_t copy_order_seed() { return 0; }

}  // namespace kvc::edge
#endif
