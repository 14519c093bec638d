#include "config/toml_edit.h"

#include <boost/test/unit_test.hpp>
#include <string>
#include <utility>

#include "config/shared_options.h"
#include "config/toml_table.h"

namespace kvc::config {
namespace {

std::string with_nine(const std::string& text) {
  const auto changed = with_host_blocks(text, "c.toml", 9);
  BOOST_REQUIRE(changed.ok());
  return changed.value();
}

BOOST_AUTO_TEST_SUITE(toml_edit)

BOOST_AUTO_TEST_CASE(a_value_is_put_in_and_all_other_lines_stay_where_they_are) {
  for (const auto& [before, after] : {
           std::pair<std::string, std::string>("", "[host]\nblocks = 9\n"),
           {"[a]\nx = 1  # why", "[a]\nx = 1  # why\n[host]\nblocks = 9\n"},
           {"[a]\n\n[host]\n  blocks = 5 # five\n[b]\ny = 2\n",
            "[a]\n\n[host]\nblocks = 9\n[b]\ny = 2\n"},
           {"[host]\nblocks = 5\nunlimited = true\n[b]\n",
            "[host]\nblocks = 9\nunlimited = false\n[b]\n"},
           {"[host]\nbytes = 7\n\n[b]\ny = 2\n", "[host]\nbytes = 7\nblocks = 9\n[b]\ny = 2\n"},
           {"[host]\n# how much\nbytes = 7\n[b]\n", "[host]\nblocks = 9\nbytes = 7\n[b]\n"},
           {"[b]\r\n[host]\r\nbytes = 7\r\n", "[b]\r\n[host]\r\nbytes = 7\r\nblocks = 9\n"},
           // What looks like an empty line and is part of a value.
           {"[host]\nx = [\n\n1]\n\n[b]\n", "[host]\nx = [\n\n1]\nblocks = 9\n[b]\n"},
           {"[host]\nx = \"\"\"\n\n[\n\"\"\"\n", "[host]\nblocks = 9\nx = \"\"\"\n\n[\n\"\"\"\n"},
           // No line is free: those below move.
           {"[host]\nbytes = 7\n[b]\n", "[host]\nblocks = 9\nbytes = 7\n[b]\n"},
       }) {
    BOOST_TEST(with_nine(before) == after);
  }
}

BOOST_AUTO_TEST_CASE(a_table_in_no_lines_of_its_own_is_written_anew) {
  for (const char* text : {"host = { blocks = 5, bytes = 7 }\nx = 1\n", "host.bytes = 7\nx = 1\n",
                           "host.blocks = 5\nhost.bytes = 7\nx = 1\n"}) {
    const toml::table changed = parse_document(with_nine(text), "c.toml");
    BOOST_TEST(changed["host"]["blocks"].value_or(0) == 9);
    BOOST_TEST(changed["host"]["bytes"].value_or(0) == 7);
    BOOST_TEST(changed["x"].value_or(0) == 1);
  }
}

BOOST_AUTO_TEST_CASE(a_text_is_quoted_and_what_is_no_table_is_refused) {
  const auto changed = with_cuda_driver("[cuda]\ndriver = \"a\"\n[b]\n", "c.toml", "x\"y.so");
  BOOST_REQUIRE(changed.ok());
  BOOST_TEST(changed.value() == "[cuda]\ndriver = \"x\\\"y.so\"\n[b]\n");
  const auto refused = with_cuda_driver("\ncuda = 3\n", "c.toml", "x.so");
  BOOST_REQUIRE(!refused.ok());
  BOOST_TEST(refused.error().text.starts_with("c.toml:2:"), refused.error().text);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::config
