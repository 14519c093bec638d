#include "conformance/tidy/tidy.h"

#include <boost/test/unit_test.hpp>
#include <string>

namespace {

using kvc::tidy::check_arrows;
using kvc::tidy::check_fault_points;
using kvc::tidy::check_functions;
using kvc::tidy::check_registered;
using kvc::tidy::check_rule_names;
using kvc::tidy::check_text;
using kvc::tidy::File;

bool refused(const std::string& path, const std::string& include) {
  return check_arrows({File{path, "#pragma once\n#include " + include + "\n"}}).size() == 1;
}

std::string lines(std::size_t n, const std::string& line) {
  std::string s;
  for (std::size_t i = 0; i < n; ++i) s += line + "\n";
  return s;
}

std::size_t long_functions(const std::string& text) {
  return check_functions({"plugin/core/x.cc", text}).size();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tidy)

BOOST_AUTO_TEST_CASE(includes_along_the_arrows_pass) {
  BOOST_TEST(!refused("plugin/coordinator/a.h", "\"plugin/core/units.h\""));
  BOOST_TEST(!refused("plugin/offload/a.h", "\"plugin/coordinator/geometry.h\""));
  BOOST_TEST(!refused("plugin/offload/a.h", "\"cuda/copy_engine.h\""));
  BOOST_TEST(!refused("plugin/simple_cpu/a.h", "\"plugin/offload/jobs.h\""));
  BOOST_TEST(!refused("plugin/edge/a.cc", "<kvc/kvc.h>"));
  BOOST_TEST(!refused("plugin/edge/a.cc", "\"config/simple_cpu_options.h\""));
  BOOST_TEST(!refused("plugin/edge/a.cc", "\"cuda/host_copy_engine.h\""));
  BOOST_TEST(!refused("host_stub/engine/a.cc", "\"plugin/coordinator/lookup.h\""));
  BOOST_TEST(!refused("conformance/runner/a.cc", "\"host_stub/loader/loader.h\""));
  BOOST_TEST(!refused("plugin/core/a.cc", "<vector>"));
  BOOST_TEST(!refused("conformance/sim/a.cc", "\"plugin/core/prng.h\""));
}

BOOST_AUTO_TEST_CASE(files_to_copy_name_their_neighbours_without_a_folder) {
  BOOST_TEST(!refused("docs/minimal/connector.c", "\"role.h\""));
  BOOST_TEST(!refused("docs/minimal/role.h", "<kvc/kvc_util.h>"));
  BOOST_TEST(refused("docs/minimal/role.h", "\"plugin/core/units.h\""));
  BOOST_TEST(refused("plugin/core/a.h", "\"units.h\""));
}

BOOST_AUTO_TEST_CASE(includes_against_the_arrows_are_refused) {
  BOOST_TEST(refused("plugin/core/a.h", "\"plugin/coordinator/lookup.h\""));
  BOOST_TEST(refused("plugin/coordinator/a.h", "\"plugin/offload/jobs.h\""));
  BOOST_TEST(refused("plugin/coordinator/a.h", "<kvc/kvc.h>"));
  BOOST_TEST(refused("plugin/offload/a.h", "\"plugin/simple_cpu/policy.h\""));
  BOOST_TEST(refused("plugin/offload/a.h", "<kvc/kvc_util.h>"));
  BOOST_TEST(refused("plugin/offload/a.h", "\"cuda/host_copy_engine.h\""));
  BOOST_TEST(refused("plugin/simple_cpu/a.h", "\"cuda/copy_engine.h\""));
  BOOST_TEST(refused("plugin/simple_cpu/a.h", "\"config/simple_cpu_options.h\""));
  BOOST_TEST(refused("plugin/simple_cpu/a.h", "\"plugin/offloading/policy.h\""));
  BOOST_TEST(refused("plugin/simple_cpu/a.h", "\"plugin/edge/thunks.h\""));
  BOOST_TEST(refused("host_stub/engine/a.h", "\"plugin/offload/jobs.h\""));
  BOOST_TEST(refused("host_stub/engine/a.h", "\"conformance/oracle/oracle.h\""));
  BOOST_TEST(refused("conformance/oracle/a.h", "\"plugin/core/units.h\""));
  BOOST_TEST(refused("conformance/oracle/a.h", "<kvc/kvc.h>"));
  BOOST_TEST(refused("conformance/runner/a.h", "\"plugin/coordinator/lookup.h\""));
  BOOST_TEST(refused("abi/include/kvc/kvc.h", "\"plugin/core/units.h\""));
  BOOST_TEST(refused("config/a.h", "<kvc/kvc.h>"));
  BOOST_TEST(refused("cuda/a.h", "\"plugin/offload/jobs.h\""));
  BOOST_TEST(refused("plugin/core/a.h", "\"units.h\""));  // paths start at the root
}

BOOST_AUTO_TEST_CASE(tests_and_tools_may_include_all_and_nothing_includes_them) {
  BOOST_TEST(!refused("plugin/core/a_test.cc", "\"conformance/oracle/oracle.h\""));
  BOOST_TEST(!refused("plugin/offload/tests/world.h", "\"host_stub/engine/engine.h\""));
  BOOST_TEST(!refused("host_stub/tools/kvc_vectors.cc", "\"conformance/oracle/oracle.h\""));
  BOOST_TEST(!refused("conformance/bench/a.cc", "\"plugin/simple_cpu/scheduler.h\""));
  BOOST_TEST(!refused("conformance/bench/a.cc", "\"conformance/bench/harness.h\""));
  BOOST_TEST(refused("conformance/sim/a.cc", "\"conformance/bench/harness.h\""));
  BOOST_TEST(refused("plugin/core/a_test_helper.cc", "\"conformance/bench/harness.h\""));
  BOOST_TEST(refused("plugin/offload/a.cc", "\"plugin/offload/tests/world.h\""));
  BOOST_TEST(refused("host_stub/tools/kvc_run.cc", "\"conformance/oracle/oracle.h\""));
}

BOOST_AUTO_TEST_CASE(the_coordinator_stays_pure) {
  BOOST_TEST(refused("plugin/coordinator/a.cc", "<thread>"));
  BOOST_TEST(refused("plugin/coordinator/a.cc", "<chrono>"));
  BOOST_TEST(refused("plugin/coordinator/a.cc", "<fstream>"));
  BOOST_TEST(refused("plugin/coordinator/a.cc", "\"plugin/core/clock.h\""));
  BOOST_TEST(!refused("plugin/core/clock.cc", "<chrono>"));
}

BOOST_AUTO_TEST_CASE(long_lines_tabs_and_unfinished_marks_are_found) {
  const std::string mark = std::string("TO") + "DO";
  BOOST_TEST(check_text({"plugin/core/a.cc", std::string(100, 'x') + "\n"}).empty());
  BOOST_TEST(check_text({"plugin/core/a.cc", std::string(101, 'x') + "\n"}).size() == 1u);
  BOOST_TEST(check_text({"docs/a.md", std::string(101, 'x') + "\n"}).empty());
  BOOST_TEST(check_text({"plugin/core/a.cc", "R\"(" + std::string(99, 'x') + ")\"\n"}).empty());
  BOOST_TEST(check_text({"plugin/core/a.cc", "a\tb\n"}).size() == 1u);
  BOOST_TEST(check_text({"plugin/core/a.cc", "int a; \n"}).size() == 1u);
  BOOST_TEST(check_text({"docs/a.md", "// " + mark + ": later\n"}).size() == 1u);
  BOOST_TEST(check_text({"plugin/core/a.cc", mark + "S are words\n"}).empty());
  const auto found = check_text({"plugin/core/a.cc", "\n\n// " + mark + "\n"});
  BOOST_REQUIRE_EQUAL(found.size(), 1u);
  BOOST_TEST(found[0].line == 3u);
}

BOOST_AUTO_TEST_CASE(files_of_more_than_700_lines_are_found) {
  BOOST_TEST(check_text({"plugin/core/a.cc", lines(700, "x")}).empty());
  BOOST_TEST(check_text({"plugin/core/a.cc", lines(701, "x")}).size() == 1u);
  BOOST_TEST(check_text({"abi/include/kvc/kvc.h", lines(701, "x")}).empty());
}

BOOST_AUTO_TEST_CASE(bare_prefetches_are_found_in_the_plugin_only) {
  const std::string call = std::string("__builtin") + "_prefetch(p);\n";
  BOOST_TEST(check_text({"plugin/core/a.cc", call}).size() == 1U);
  BOOST_TEST(check_text({"plugin/core/prefetch.h", call}).empty());
  BOOST_TEST(check_text({"conformance/bench/a.cc", call}).empty());
}

BOOST_AUTO_TEST_CASE(sleeps_are_found_in_tests_only) {
  const std::string call = std::string("std::this_thread::sleep") + "_for(1ms);\n";
  BOOST_TEST(check_text({"plugin/core/a_test.cc", call}).size() == 1u);
  BOOST_TEST(check_text({"cuda/tests/helper.h", std::string("us") + "leep(5);\n"}).size() == 1u);
  BOOST_TEST(check_text({"cuda/worker.cc", call}).empty());
  BOOST_TEST(check_text({"plugin/core/a_test.cc", "no_sleeping(1);\n"}).empty());
}

BOOST_AUTO_TEST_CASE(functions_of_more_than_70_lines_are_found) {
  const std::string body68 = lines(68, "  f();");
  BOOST_TEST(long_functions("void a() {\n" + body68 + "}\n") == 0u);
  BOOST_TEST(long_functions("void a() {\n" + body68 + "  f();\n}\n") == 1u);
  BOOST_TEST(long_functions("namespace x {\nclass A {\n int a() const noexcept {\n" + body68 +
                            "  f();\n }\n};\n}\n") == 1u);
  BOOST_TEST(long_functions("BOOST_AUTO_TEST_CASE(a) {\n" + body68 + "  f();\n}\n") == 1u);
  // A constructor with braces in its list of members.
  BOOST_TEST(long_functions("A::A(int x) : a_{x}, b_(x), c_{1} {\n" + body68 + "  f();\n}\n") ==
             1u);
  BOOST_TEST(long_functions("A::A(int x)\n    : a_(x) {\n" + body68 + "}\n") == 1u);
}

BOOST_AUTO_TEST_CASE(what_is_no_function_may_be_long) {
  const std::string items = lines(90, "  {1, 2},");
  BOOST_TEST(long_functions("namespace a {\n" + lines(90, "int f();") + "}\n") == 0u);
  BOOST_TEST(long_functions("class A {\n" + lines(90, "  int f();") + "};\n") == 0u);
  BOOST_TEST(long_functions("constexpr int t[] = {\n" + items + "};\n") == 0u);
  BOOST_TEST(long_functions("enum class E : int {\n" + lines(90, "  a,") + "};\n") == 0u);
  BOOST_TEST(long_functions("extern \"C\" {\n" + lines(90, "int f();") + "}\n") == 0u);
}

BOOST_AUTO_TEST_CASE(braces_in_literals_and_comments_do_not_count) {
  const std::string noise =
      "  s = \"{\";\n  c = '{';\n  // {\n  /* { */\n  r = R\"x({{{)x\";\n  n = 1'000;\n"
      "#define A {\n";
  const std::string text = "void a() {\n" + noise + "}\nvoid b() {\n" + lines(60, "  f();") + "}\n";
  BOOST_TEST(long_functions(text) == 0u);
  BOOST_TEST(long_functions("void a() {\n" + noise + lines(70, "  f();") + "}\n") == 1u);
}

BOOST_AUTO_TEST_CASE(a_source_that_no_list_names_is_found) {
  const File list{"cuda/CMakeLists.txt", "kvc_test(a SOURCES a_test.cc tests/b_test.cc)\n"};
  BOOST_TEST(
      check_registered({list, {"cuda/a_test.cc", ""}, {"cuda/tests/b_test.cc", ""}}).empty());
  BOOST_TEST(check_registered({list, {"cuda/b_test.cc", ""}}).size() == 1u);
  BOOST_TEST(check_registered({list, {"cuda/test.cc", ""}}).size() == 1u);
  BOOST_TEST(check_registered({list, {"plugin/a_test.cc", ""}}).size() == 1u);
  const File root{"CMakeLists.txt",
                  "add_library(m \"${CMAKE_SOURCE_DIR}/plugin/tests/main.cc\")\n"};
  BOOST_TEST(check_registered({root, {"plugin/tests/main.cc", ""}}).empty());
}

BOOST_AUTO_TEST_CASE(fault_points_and_their_list_are_the_same) {
  const File code{"plugin/edge/a.cc", "if (KVC_" + std::string("FAULT(\"copy.load\")) return;\n")};
  const File right{"docs/testing.md", "## Fault points\n| `copy.load` | a copy |\n## Next\n"};
  const File lacks{"docs/testing.md", "## Fault points\n\n## Next\n| `copy.load` | no |\n"};
  const File more{"docs/testing.md", "## Fault points\n\n| `copy.load`, `copy.x` | |\n"};
  BOOST_TEST(check_fault_points({code, right}).empty());
  BOOST_TEST(check_fault_points({code, lacks}).size() == 1u);
  BOOST_TEST(check_fault_points({code, more}).size() == 1u);
}

BOOST_AUTO_TEST_CASE(each_name_of_a_rule_has_a_row_that_explains_it) {
  const auto name = [](const char* family, const char* number) {  // in pieces: read here too
    return std::string(family) + "-" + number;
  };
  const File rules{"docs/rules.md", "| name | what |\n|---|---|\n| " + name("R", "901") +
                                        " | this |\n| " + name("K6", "902") + " | that |\n"};
  const File code{"plugin/edge/a.cc", "// " + name("R", "901") + ", (" + name("K6", "902") + ")\n"};
  BOOST_TEST(check_rule_names({rules, code}).empty());
  const File more{"cuda/b.h", "\n// " + name("CW", "903") + "; " + name("CW", "903") + " again, " +
                                  name("OW", "904") + ".\n"};
  const auto findings = check_rule_names({rules, code, more});
  BOOST_REQUIRE(findings.size() == 2u);  // each once
  BOOST_TEST(findings[0].line == 2u);
  BOOST_TEST(findings[0].text == "docs/rules.md has no row for " + name("CW", "903"));
  BOOST_TEST(check_rule_names({code}).size() == 2u);
}

// The tree itself.
BOOST_AUTO_TEST_CASE(this_tree_keeps_the_rules) {
  const auto files = kvc::tidy::read_tree(KVC_SOURCE_DIR);
  BOOST_REQUIRE(files.size() > 20u);
  for (const auto& f : kvc::tidy::check_all(files)) {
    BOOST_ERROR(f.path << ":" << f.line << ": " << f.text);
  }
}

BOOST_AUTO_TEST_SUITE_END()
