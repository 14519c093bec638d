// The small engine of conformance/rig over the built libkvc_simple_cpu.so; what it finds is a
// failed test.
#pragma once
#include "conformance/rig/world.h"

namespace kvc::abi_test {

using namespace kvc::rig;  // NOLINT(google-build-using-namespace)

// What it hears is an error of the running test case.
Judge& boost_judge();

struct Library : rig::Library {
  static const rig::Library& simple_cpu();
};

class World : public rig::World {
 public:
  explicit World(Setup setup);
};

}  // namespace kvc::abi_test
