#include "conformance/probe/script.h"

#include <boost/test/unit_test.hpp>

using kvc::Code;
using kvc::probe::Script;

namespace {

Script right(const char* toml) {
  const auto script = Script::parse(toml, "/lib");
  BOOST_REQUIRE_MESSAGE(script.ok(), (script.ok() ? "" : script.error().text));
  return script.value();
}

void refused(const char* toml, const char* says) {
  const auto script = Script::parse(toml, "/lib");
  BOOST_TEST_CONTEXT(toml) {
    BOOST_REQUIRE(!script.ok());
    BOOST_TEST((script.error().code == Code::arg));
    BOOST_TEST_INFO(script.error().text);
    BOOST_TEST(script.error().text.find(says) != std::string::npos);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(probe_script)

BOOST_AUTO_TEST_CASE(without_a_table_the_probe_does_nothing_and_passes_the_text_on) {
  const Script s = right("[host]\nblocks = 7\n");
  BOOST_TEST(s.next == "/lib/libkvc_simple_cpu.so");
  BOOST_TEST(s.faults.empty());
  BOOST_TEST(s.answers.empty());
  BOOST_TEST(s.rest.find("blocks = 7") != std::string::npos);
  BOOST_TEST(right("").rest.empty());
}

BOOST_AUTO_TEST_CASE(its_own_table_is_read_and_taken_out) {
  const Script s = right(
      "[probe]\nnext = 'x.so'\nscript = ['full', 'late']\nevery = 4\nfirst = 2\n"
      "[[probe.answer]]\nslot = 'lookup'\nat = 3\nstatus = 77\n[host]\nblocks = 7\n");
  BOOST_TEST(s.next == "x.so");
  BOOST_TEST((s.has("full") && s.has("late") && !s.has("later")));
  BOOST_TEST(s.rest.find("probe") == std::string::npos);
  BOOST_TEST(s.rest.find("blocks = 7") != std::string::npos);
  BOOST_REQUIRE(s.answers.size() == 1U);
  BOOST_TEST(s.answers[0].at == 3U);
  BOOST_TEST(s.answers[0].status == 77);
  BOOST_TEST((!s.meets(1) && s.meets(2) && !s.meets(3) && s.meets(6)));
  BOOST_TEST((s.meets_job("full", 6) && !s.meets_job("full", 7) && !s.meets_job("later", 6)));
}

BOOST_AUTO_TEST_CASE(mistakes_are_refused_with_what_is_wrong) {
  refused("[probe\n", "line 1");
  refused("probe = 3\n", "table");
  refused("[probe]\nscritp = 'full'\n", "unknown key scritp");
  refused("[probe]\nscript = 'ful'\n", "'ful'");
  refused("[probe]\nevery = 0\n", "every");
  refused("[probe]\nanswer = 1\n", "answer");
  refused("[[probe.answer]]\nslot = 'stats'\nstatus = 1\n", "stats");
  refused("[[probe.answer]]\nslot = 'lookup'\n", "status");
  refused("[[probe.answer]]\nslot = 'lookup'\nstatus = 0\n", "status");
  refused("[[probe.answer]]\nslot = 'build_store_jobs'\nstatus = 77\n", "nothing done");
}

BOOST_AUTO_TEST_CASE(statuses_are_known_as_in_the_header) {
  using namespace kvc::probe;
  BOOST_TEST((is_fatal(KVC_E_INTERNAL) && is_fatal(-9) && !is_fatal(KVC_E_DEADLINE)));
  BOOST_TEST((is_unknown_positive(3) && !is_unknown_positive(KVC_LATER)));
}

BOOST_AUTO_TEST_SUITE_END()
