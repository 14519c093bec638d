#include "cuda/fake/fake_control.h"

#include <dlfcn.h>

namespace kvc::cuda {

bool FakeControl::find(const Driver& driver) {
  const auto get = [&](const char* name, auto& out) {
    out = reinterpret_cast<std::remove_reference_t<decltype(out)>>(dlsym(driver.library, name));
    return out != nullptr;
  };
  return get("kvc_fake_reset", reset) && get("kvc_fake_run", run) &&
         get("kvc_fake_run_stream", run_stream) && get("kvc_fake_hold", hold) &&
         get("kvc_fake_launch", launch) && get("kvc_fake_access", access) &&
         get("kvc_fake_faults", faults) && get("kvc_fake_fault_text", fault_text) &&
         get("kvc_fake_counters", counters) && get("kvc_fake_accesses", accesses) &&
         get("kvc_fake_fail", fail) && get("kvc_fake_kill", kill);
}

std::vector<std::string> FakeControl::all_faults() const {
  std::vector<std::string> out;
  const std::uint64_t n = faults();
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::string text = fault_text(i);
    if (text.empty()) break;
    out.push_back(text);
  }
  return out;
}

}  // namespace kvc::cuda
