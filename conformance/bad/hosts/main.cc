// usage: kvc_bad_hosts NAME. Runs that bad host, or the right one (`right`), through
// libkvc_validate.so over libkvc_simple_cpu.so, and says what the layer found: one line each, the
// rule first. Exit code 0: the host came to its end; 1: the connector refused a call; 2: usage.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "conformance/bad/hosts/host.h"
#include "conformance/validate/validate.h"

namespace {

struct Named {
  const char* name;
  void (*spoil)(kvc::bad::Host&);
};
constexpr Named all_hosts[] = {
    {"right", [](kvc::bad::Host&) {}},
#define KVC_BAD_HOST(name, rule, consequences) {#name, kvc::bad::name},
#include "conformance/bad/hosts/hosts.def"
};

const kvc_validate_api* layer = nullptr;

// Handles that stay open are found when the layer's own end comes, before this.
void print_findings() {
  if (layer == nullptr) return;
  const auto print = [](kvc_bytes text) {
    std::printf(" %.*s", static_cast<int>(text.size), reinterpret_cast<const char*>(text.data));
  };
  for (std::uint64_t i = 0; i < layer->findings(); ++i) {
    kvc_finding f{};
    f.struct_size = sizeof f;
    if (layer->finding(i, &f) != KVC_OK) break;
    std::printf("finding");
    print(f.rule);
    print(f.slot);
    print(f.text);
    std::printf("\n");
  }
}

int run(void (*spoil)(kvc::bad::Host&)) {
  std::unique_ptr<kvc::bad::Host> host;
  try {
    host = std::make_unique<kvc::bad::Host>(KVC_LIB_DIR "/libkvc_validate.so");
    host->next = KVC_LIB_DIR "/libkvc_simple_cpu.so";
    host->toml = "[host]\nblocks = 64\n";
    layer = static_cast<const kvc_validate_api*>(
        host->call.extension(kvc_text_of(KVC_VALIDATE_EXTENSION)));
    spoil(*host);
    host->live();
    return 0;
  } catch (const kvc::bad::Refused& refused) {
    std::printf("%s: %d\n", refused.slot.c_str(), refused.status);
    if (host != nullptr) host->close();
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::atexit(print_findings);
  for (const Named& one : all_hosts) {
    if (argc > 1 && std::strcmp(argv[1], one.name) == 0) return run(one.spoil);
  }
  std::fprintf(stderr, "usage: kvc_bad_hosts NAME\n");
  return 2;
}
