#include "config/connector_file.h"

#include <boost/test/unit_test.hpp>
#include <string>
#include <utility>
#include <vector>

#include "config/simple_cpu_options.h"

namespace kvc::config {
namespace {

std::string error_of(std::string_view text) {
  const auto file = parse_connector_file(text, "c.toml");
  return file.ok() ? std::string() : file.error().text;
}

std::vector<std::string> warnings_of(const std::string& text) {
  const auto file = parse_connector_file("[connector]\nkind = \"simple_cpu\"\n" + text, "c.toml");
  BOOST_REQUIRE_MESSAGE(file.ok(), error_of(text));
  return file.value().warnings;
}

bool one_with(const std::vector<std::string>& warnings, const std::string& part) {
  return warnings.size() == 1 && warnings.front().find(part) != std::string::npos;
}

BOOST_AUTO_TEST_SUITE(connector_file)

BOOST_AUTO_TEST_CASE(the_kind_says_whose_options_the_file_holds) {
  const auto file = parse_connector_file("[connector]\nkind = \"simple_cpu\"\n", "c.toml");
  BOOST_REQUIRE(file.ok());
  BOOST_TEST(file.value().kind == "simple_cpu");
  BOOST_TEST(file.value().warnings.empty());
  const auto again = parse_simple_cpu(file.value().effective, "effective");
  BOOST_REQUIRE(again.ok());
  BOOST_TEST((again.value() == SimpleCpuOptions{}));
}

BOOST_AUTO_TEST_CASE(options_of_the_other_connector_are_read_in_its_words) {
  const auto file = parse_connector_file(
      "[connector]\nkind = \"offloading\"\nblocks_per_chunk = 4\nload_deadline_ms = 5\n", "c.toml");
  BOOST_REQUIRE(file.ok());
  BOOST_TEST(file.value().kind == "offloading");
  BOOST_TEST(file.value().effective.find("blocks_per_chunk = 4") != std::string::npos);
  BOOST_TEST(file.value().blocks_per_chunk == 4U);
  BOOST_TEST(one_with(file.value().warnings, "load_deadline_ms = 5"));
  BOOST_TEST(error_of("[connector]\nkind = \"offloading\"\nblocks_per_chunk = 0\n") != "");
  BOOST_TEST(error_of("[connector]\nkind = \"simple_cpu\"\nblocks_per_chunk = 4\n") != "");
}

BOOST_AUTO_TEST_CASE(a_file_without_a_kind_or_with_another_one_is_refused) {
  BOOST_TEST(error_of("").find("whose options are these?") != std::string::npos);
  BOOST_TEST(error_of("[connector]\nkind = \"simple\"\n").find("\"simple_cpu\"") !=
             std::string::npos);
  BOOST_TEST(error_of("connector = 3\n").find("c.toml:1:") != std::string::npos);
  BOOST_TEST(error_of("[connector\n").find("c.toml:1:") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_slip_is_named_before_the_kind_that_is_missing) {
  const auto names = [](const std::string& text, const std::string& part) {
    BOOST_TEST(error_of(text).find(part) != std::string::npos, error_of(text));
    BOOST_TEST(error_of(text).find("whose options") == std::string::npos, error_of(text));
  };
  names("[conector]\nkind = \"simple_cpu\"\n", "unknown key \"conector\"; did you mean");
  names("[connector]\nknd = \"simple_cpu\"\n", "unknown key \"knd\" in [connector]");
  names("[host]\nbytes = \"8 gigs\"\n", "host.bytes");
}

BOOST_AUTO_TEST_CASE(a_library_says_whose_options_a_file_holds_that_does_not) {
  for (const std::string kind : {"simple_cpu", "offloading"}) {
    const auto file = parse_connector_file("", "c.toml", kind);
    BOOST_REQUIRE(file.ok());
    BOOST_TEST(file.value().kind == kind);
  }
  BOOST_TEST(!parse_connector_file("", "c.toml", "minimal").ok());
  // The file's own word counts.
  const auto said =
      parse_connector_file("[connector]\nkind = \"simple_cpu\"\n", "c.toml", "offloading");
  BOOST_REQUIRE(said.ok());
  BOOST_TEST(said.value().kind == "simple_cpu");
}

BOOST_AUTO_TEST_CASE(the_table_of_the_layer_is_no_connectors) {
  const std::string text =
      "[layer]\nnext = \"x.so\"\nguard = true\n[connector]\nkind = \"simple_cpu\"\n";
  const auto file = parse_connector_file(text, "c.toml");
  BOOST_REQUIRE_MESSAGE(file.ok(), error_of(text));
  BOOST_TEST(file.value().options == "\n\n\n[connector]\nkind = \"simple_cpu\"\n");
  BOOST_TEST(error_of("[layer]\nnxt = \"x.so\"\n").find("\"next\"") != std::string::npos);
  BOOST_TEST(error_of("[layer]\nguard = 1\n").find("layer.guard") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(what_the_connector_refuses_is_refused_in_its_words) {
  const std::string text = "[connector]\nkind = \"simple_cpu\"\nlease_steps = 9\n";
  BOOST_TEST(error_of(text) == parse_simple_cpu(text, "c.toml").error().text);
}

BOOST_AUTO_TEST_CASE(values_that_others_make_void_are_warned_of) {
  BOOST_TEST(one_with(warnings_of("[host]\nbytes = \"1GiB\"\nblocks = 100\n"), "host.bytes"));
  BOOST_TEST(one_with(warnings_of("[host]\nblocks = 100\nunlimited = true\n"), "host.blocks"));
  BOOST_TEST(warnings_of("[host]\nblocks = 100\nunlimited = false\n").empty());
  BOOST_TEST(one_with(warnings_of("attach_steps = 3\nsingle_flight = false\n"), "attach_steps"));
  BOOST_TEST(warnings_of("attach_steps = 3\n").empty());
  BOOST_TEST(one_with(warnings_of("prefill_tokens_per_second = 5000\n"), "cost_gate"));
  BOOST_TEST(warnings_of("prefill_tokens_per_second = \"auto\"\n").empty());
  BOOST_TEST(warnings_of("cost_gate = \"on\"\nprefill_tokens_per_second = 5000\n").empty());
  BOOST_TEST(one_with(warnings_of("load_deadline_ms = 5\n"), "load_deadline_ms = 5"));
  BOOST_TEST(warnings_of("load_deadline_ms = 100\n").empty());
  const std::string disk = "[disk]\npaths = [\"/a\"]\n";
  BOOST_TEST(warnings_of(disk).empty());
  BOOST_TEST(one_with(warnings_of(disk + "checksum = false\n"), "disk.checksum"));
  BOOST_TEST(one_with(warnings_of(disk + "bytes = \"1GiB\"\n"), "disk.bytes"));
  BOOST_TEST(one_with(warnings_of(disk + "read_deadline_ms = 30001\n"), "disk.read_deadline_ms"));
  const std::string grows = "[host]\nunlimited = true\n" + disk;
  BOOST_TEST(one_with(warnings_of(grows + "store = \"on_eviction\"\n"), "disk.store"));
  BOOST_TEST(warnings_of(grows + "store = \"write_through\"\n").empty());
}

BOOST_AUTO_TEST_CASE(every_value_of_a_disk_tier_without_folders_is_warned_of) {
  for (const std::string folders : {"", "paths = []\n"}) {
    BOOST_TEST(warnings_of("[disk]\n" + folders).empty());
    for (const auto& [key, value] : {std::pair<std::string, std::string>("bytes", "\"1GiB\""),
                                     {"store", "\"on_eviction\""},
                                     {"open_blocks", "8"},
                                     {"read_deadline_ms", "5"},
                                     {"write_deadline_ms", "5"},
                                     {"io", "\"threads\""},
                                     {"direct", "false"},
                                     {"sync", "true"},
                                     {"checksum", "false"}}) {
      BOOST_TEST(one_with(warnings_of("[disk]\n" + folders + key + " = " + value + "\n"),
                          "disk." + key + " is not used: disk.paths names no folder"));
    }
  }
  const auto file = parse_connector_file(
      "[connector]\nkind = \"offloading\"\n[disk]\npaths = [\"/a\", \"/b\"]\nbytes = \"9GiB\"\n",
      "c.toml");
  BOOST_REQUIRE(file.ok());
  BOOST_TEST(file.value().disk.paths.size() == 2U);
  BOOST_TEST(file.value().disk.bytes == std::uint64_t{9} << 30U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::config
