#include "config/offloading_options.h"

#include <boost/test/unit_test.hpp>
#include <sstream>
#include <vector>

#include "config/connectors.h"

namespace {

using kvc::config::effective_toml;
using kvc::config::OffloadingOptions;
using kvc::config::parse_offloading;

OffloadingOptions good(std::string_view text) {
  const auto parsed = parse_offloading(text, "c.toml");
  if (!parsed.ok()) BOOST_FAIL(parsed.error().text);
  return parsed.value();
}

std::string bad(std::string_view text) {
  const auto parsed = parse_offloading(text, "c.toml");
  BOOST_REQUIRE_MESSAGE(!parsed.ok(), "accepted: " << text);
  return parsed.error().text;
}

void check_has(const std::string& line, const std::vector<std::string>& parts) {
  BOOST_TEST(line.find('\n') == std::string::npos);
  for (const auto& part : parts) {
    BOOST_CHECK_MESSAGE(line.find(part) != std::string::npos, line << "\n  lacks: " << part);
  }
}

std::string example(const char* name) {
  const auto text =
      kvc::config::read_text_file(std::string(KVC_SOURCE_DIR "/config/examples/") + name);
  if (!text.ok()) BOOST_FAIL(text.error().text);
  return text.value();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(offloading_options)

BOOST_AUTO_TEST_CASE(an_empty_text_gives_working_defaults) {
  const auto o = good("");
  BOOST_CHECK(o == OffloadingOptions{});
  BOOST_TEST(o.blocks_per_chunk == 1U);
  BOOST_TEST(o.store_threshold == 0U);
  BOOST_TEST(o.max_tracker_size == 64'000U);
  BOOST_TEST(o.host_bytes == std::uint64_t{8} << 30U);
  BOOST_TEST(o.store_decode_blocks);
}

BOOST_AUTO_TEST_CASE(its_own_options_are_read_and_printed) {
  const auto o = good(R"([connector]
kind = "offloading"
blocks_per_chunk = 4
store_threshold = 2
max_tracker_size = 3
store_decode_blocks = false
lease_steps = 2
[host]
blocks = 100
)");
  OffloadingOptions expected;
  expected.blocks_per_chunk = 4;
  expected.store_threshold = 2;
  expected.max_tracker_size = 3;
  expected.store_decode_blocks = false;
  expected.lease_steps = 2;
  expected.host_blocks = 100;
  BOOST_CHECK(o == expected);
  for (const auto& options : {OffloadingOptions{}, expected}) {
    const auto text = effective_toml(options);
    BOOST_CHECK_MESSAGE(good(text) == options, text);
  }
}

BOOST_AUTO_TEST_CASE(impossible_values_are_refused_with_place_key_value_and_range) {
  check_has(bad("[connector]\nblocks_per_chunk = 0"),
            {"c.toml:2:", "connector.blocks_per_chunk = 0", "from 1 to 64"});
  check_has(bad("[connector]\nblocks_per_chunk = 65"), {"from 1 to 64"});
  check_has(bad("[connector]\nstore_threshold = -1"), {"store_threshold = -1", "from 0 to "});
  check_has(bad("[connector]\nmax_tracker_size = 0"), {"max_tracker_size = 0", "from 1 to "});
  check_has(bad("[connector]\nmode = \"lazy\""), {"mode = \"lazy\"", "\"eager\""});
  check_has(bad("[connector]\nkind = \"simple_cpu\""), {"\"simple_cpu\"", "\"offloading\""});
  check_has(bad("[connector]\nblock_per_chunk = 2"), {"did you mean \"blocks_per_chunk\"?"});
  check_has(bad("[hots]\nbytes = 1"), {"unknown key \"hots\"", "connector, cuda, disk, host"});
}

BOOST_AUTO_TEST_CASE(the_example_is_one_line_apart_from_that_of_simple_cpu) {
  const auto mine = lines_of(example("offloading.toml"));
  const auto other = lines_of(example("simple_cpu.toml"));
  BOOST_REQUIRE(mine.size() == other.size());
  std::size_t apart = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    if (mine[i] == other[i]) continue;
    ++apart;
    BOOST_TEST(mine[i] == "kind = \"offloading\"");
    BOOST_TEST(other[i] == "kind = \"simple_cpu\"");
  }
  BOOST_TEST(apart == 1U);
  BOOST_CHECK(good(example("offloading.toml")) == OffloadingOptions{});
  BOOST_TEST(good(example("offloading_chunks.toml")).blocks_per_chunk > 1U);
}

BOOST_AUTO_TEST_CASE(a_disk_tier_is_read_printed_and_taken_out_again) {
  const auto o = good(R"([disk]
paths = ["/a", "/b"]
bytes = "3MiB"
store = "on_eviction"
open_blocks = 7
read_deadline_ms = 8
write_deadline_ms = 9
io = "threads"
direct = false
sync = true
checksum = false
)");
  kvc::config::DiskOptions expected;
  expected.paths = {"/a", "/b"};
  expected.bytes = std::uint64_t{3} << 20U;
  expected.store = kvc::config::DiskStoreWhen::on_eviction;
  expected.open_blocks = 7;
  expected.read_deadline_ms = 8;
  expected.write_deadline_ms = 9;
  expected.io = kvc::config::DiskIo::threads;
  expected.direct = false;
  expected.sync = true;
  expected.checksum = false;
  BOOST_CHECK(o.disk == expected);
  BOOST_CHECK(good(effective_toml(o)) == o);
  const auto without = kvc::config::without_disk(effective_toml(o), "c.toml");
  if (!without.ok()) BOOST_FAIL(without.error().text);
  BOOST_CHECK(good(without.value()) == OffloadingOptions{});
  BOOST_TEST(good(example("offloading_disk.toml")).disk.paths.size() == 1U);
  auto defaults = good(example("offloading_disk.toml"));
  defaults.disk.paths.clear();
  BOOST_CHECK(defaults == OffloadingOptions{});
}

BOOST_AUTO_TEST_CASE(an_impossible_disk_tier_is_refused) {
  check_has(bad("[disk]\npaths = \"/a\""), {"c.toml:2:", "disk.paths", "array of texts"});
  check_has(bad("[disk]\npaths = [1]"), {"disk.paths", "array of texts"});
  check_has(bad("[disk]\npaths = [\"\"]"), {"a path is empty"});
  check_has(bad("[disk]\npaths = [\"/a\", \"/a\"]"), {"given twice"});
  check_has(bad("[disk]\npaths = [\"/a\", \"/b\"]\nbytes = \"1MiB\""),
            {"disk.bytes", "1048576 bytes for 2 paths"});
  check_has(bad("[disk]\nopen_blocks = 0"), {"disk.open_blocks = 0", "from 1 to 65536"});
  check_has(bad("[disk]\nstore = \"lazy\""), {"\"write_through\"", "\"on_eviction\""});
  check_has(bad("[disk]\nio = \"aio\""), {"\"uring\""});
  check_has(bad("[disk]\npath = \"/a\""), {"did you mean \"paths\"?"});
}

BOOST_AUTO_TEST_CASE(the_options_of_every_connector_are_found_by_its_name) {
  BOOST_TEST(kvc::config::knows_connector("simple_cpu"));
  BOOST_TEST(kvc::config::knows_connector("offloading"));
  BOOST_TEST(!kvc::config::knows_connector("offload"));
  const auto text = kvc::config::effective_options("offloading", "", "c.toml");
  if (!text.ok()) BOOST_FAIL(text.error().text);
  BOOST_TEST(text.value() == effective_toml(OffloadingOptions{}));
  BOOST_TEST(!kvc::config::effective_options("other", "", "c.toml").ok());
  BOOST_TEST(!kvc::config::effective_options("offloading", "x", "c.toml").ok());
}

BOOST_AUTO_TEST_SUITE_END()
