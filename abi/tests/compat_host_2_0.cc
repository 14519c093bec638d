// A host of major 2: the tree's loader, built with headers of that major (compat.cmake).
#include <cstdio>
#include <string>

#include "host_stub/loader/loader.h"

static_assert(KVC_MAJOR == 2);

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto loaded = kvc::host::load_connector(argv[1]);
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n", loaded.error().text.c_str());
    return 1;
  }
  std::printf("%s: loaded by a host of 2.0\n", loaded.value().name.c_str());
  return 0;
}
