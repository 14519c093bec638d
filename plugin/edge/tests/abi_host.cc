#include "plugin/edge/tests/abi_host.h"

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <string>

#include "host_stub/loader/loader.h"

namespace kvc::abi_test {

namespace {

class BoostJudge final : public Judge {
 public:
  void fail(RuleId rule, const std::string& text) override {
    BOOST_ERROR(rule.text() << ": " << text);
  }
};

rig::Library load() {
  const char* name = std::getenv("KVC_TEST_CONNECTOR");
  const auto loaded = host::load_connector(std::string(KVC_LIB_DIR "/libkvc_") +
                                           (name == nullptr ? "simple_cpu" : name) + ".so");
  if (!loaded.ok()) BOOST_FAIL(loaded.error().text);
  return rig::Library(loaded.value().api);
}

}  // namespace

Judge& boost_judge() {
  static BoostJudge one;
  return one;
}

const rig::Library& Library::under_test() {
  static const rig::Library library = load();
  return library;
}

World::World(Setup setup) : rig::World(std::move(setup), Library::under_test(), boost_judge()) {}

}  // namespace kvc::abi_test
