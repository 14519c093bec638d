#include "plugin/edge/tests/abi_host.h"

#include <boost/test/unit_test.hpp>

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
  const auto loaded = host::load_connector(KVC_LIB_DIR "/libkvc_simple_cpu.so");
  if (!loaded.ok()) BOOST_FAIL(loaded.error().text);
  return rig::Library(loaded.value().api);
}

}  // namespace

Judge& boost_judge() {
  static BoostJudge one;
  return one;
}

const rig::Library& Library::simple_cpu() {
  static const rig::Library library = load();
  return library;
}

World::World(Setup setup) : rig::World(std::move(setup), Library::simple_cpu(), boost_judge()) {}

}  // namespace kvc::abi_test
