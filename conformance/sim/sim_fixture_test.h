// What the programs of the simulation share: the connector, seeds, and the line that repeats a
// world.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <fmt/format.h>
#include <boost/test/unit_test.hpp>

#include "conformance/sim/simulation.h"
#include "host_stub/loader/loader.h"
#include "plugin/tests/seed.h"

// Sanitizers end the process without unwinding; they call this before.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): their name
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace kvc::sim::testing {

#if defined(KVC_SANITIZED)
inline constexpr std::uint64_t seeds_default = 50;
#else
inline constexpr std::uint64_t seeds_default = 1200;
#endif

inline std::uint64_t number_of(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// The connector under test: simple_cpu, or that which KVC_TEST_CONNECTOR names.
inline std::string connector_name() {
  const char* name = std::getenv("KVC_TEST_CONNECTOR");
  return name == nullptr ? "simple_cpu" : name;
}
inline std::string connector_library() {
  return std::string(KVC_LIB_DIR "/libkvc_") + connector_name() + ".so";
}
inline World world_of(std::uint64_t seed) { return draw_world(seed, connector_name()); }

inline const host::LoadedConnector& connector() {
  static const host::LoadedConnector loaded = [] {
    auto made = host::load_connector(connector_library());
    BOOST_REQUIRE_MESSAGE(made.ok(), (made.ok() ? "" : made.error().text));
    return std::move(made).value();
  }();
  return loaded;
}

// Names the world that runs if the process dies in it: an abort, a sanitizer's finding.
class InWorld {
 public:
  explicit InWorld(const World& world) {
    std::snprintf(text(), text_bytes, "%s\n", kvc::test::repeat_command(world.seed).c_str());
    if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(say);
  }
  InWorld(const InWorld&) = delete;
  InWorld& operator=(const InWorld&) = delete;
  ~InWorld() { text()[0] = 0; }

 private:
  static constexpr std::size_t text_bytes = 512;
  static char* text() {
    static char line[text_bytes];
    return line;
  }
  static void say() { std::fputs(text(), stderr); }
};

}  // namespace kvc::sim::testing
