// The small engine of conformance/rig over a built connector: libkvc_simple_cpu.so, or that which
// KVC_TEST_CONNECTOR names ("offloading"). What it finds is a failed test.
#pragma once
#include "conformance/rig/world.h"

namespace kvc::abi_test {

using namespace kvc::rig;  // NOLINT(google-build-using-namespace)

// What it hears is an error of the running test case.
Judge& boost_judge();

struct Library : rig::Library {
  static const rig::Library& under_test();
};

class World : public rig::World {
 public:
  explicit World(Setup setup);
};

}  // namespace kvc::abi_test
