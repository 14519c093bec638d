#include "config/simple_cpu_options.h"

#include <boost/test/unit_test.hpp>
#include <vector>

namespace {

using kvc::config::effective_toml;
using kvc::config::parse_simple_cpu;
using kvc::config::SimpleCpuOptions;

SimpleCpuOptions good(std::string_view text) {
  const auto parsed = parse_simple_cpu(text, "c.toml");
  if (!parsed.ok()) BOOST_FAIL(parsed.error().text);
  return parsed.value();
}

std::string bad(std::string_view text) {
  const auto parsed = parse_simple_cpu(text, "c.toml");
  BOOST_REQUIRE_MESSAGE(!parsed.ok(), "accepted: " << text);
  return parsed.error().text;
}

// Every part must be in the line.
void check_has(const std::string& line, const std::vector<std::string>& parts) {
  BOOST_TEST(line.find('\n') == std::string::npos);
  for (const auto& part : parts) {
    BOOST_CHECK_MESSAGE(line.find(part) != std::string::npos, line << "\n  lacks: " << part);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(simple_cpu_options)

BOOST_AUTO_TEST_CASE(an_empty_text_gives_working_defaults) {
  const auto options = good("");
  BOOST_TEST(options.host_bytes == std::uint64_t{8} << 30U);
  BOOST_TEST(options.host_blocks == 0U);
  BOOST_TEST(!options.host_unlimited);
  BOOST_TEST(options.copy_threads == 1U);
  BOOST_TEST(options.lease_steps == 1U);
  BOOST_TEST(options.max_leases == 64U);
  BOOST_TEST(options.max_pins == 32U);
  BOOST_TEST(options.max_pinned_percent == 50U);
  BOOST_TEST(options.attach_steps == UINT64_MAX);
  BOOST_TEST(options.held_device_blocks_max == 0U);
  BOOST_TEST(options.load_deadline_ms == 30'000U);
  BOOST_TEST(options.store_deadline_ms == 60'000U);
  BOOST_TEST(options.store_decode_blocks);
  BOOST_TEST(options.single_flight);
  BOOST_TEST(options.event_ring_entries == 65'536U);
  BOOST_TEST(options.plan_bytes_max == 0U);
  BOOST_TEST((options.index == kvc::config::IndexKind::chained));
  BOOST_TEST((options.eviction == kvc::config::EvictionKind::lru));
}

BOOST_AUTO_TEST_CASE(policies_but_lru_need_a_chained_index_and_known_requests) {
  using kvc::config::EvictionKind;
  const auto eviction = [](const std::string& word) {
    return good("[connector]\neviction = \"" + word + "\"").eviction;
  };
  BOOST_TEST((eviction("lru") == EvictionKind::lru));
  BOOST_TEST((eviction("arc") == EvictionKind::arc));
  BOOST_TEST((eviction("gdsf") == EvictionKind::gdsf));
  BOOST_TEST((eviction("auto") == EvictionKind::hazard));
  for (const char* word : {"arc", "gdsf", "auto"}) {
    const std::string text = "[connector]\neviction = \"" + std::string(word) + "\"\n";
    BOOST_TEST((good(effective_toml(good(text))).eviction == eviction(word)));
    check_has(bad(text + "index = \"flat\""), {"c.toml:2:", "eviction", "chained"});
    check_has(bad(text + "mode = \"lazy\""), {"c.toml:2:", "eviction", "eager"});
  }
  BOOST_TEST(
      (good("[connector]\neviction = \"lru\"\nmode = \"lazy\"").eviction == EvictionKind::lru));
  check_has(bad("[connector]\neviction = \"fifo\""), {"c.toml:2:", "lru", "arc", "gdsf", "auto"});
}

BOOST_AUTO_TEST_CASE(every_value_can_be_given) {
  const auto o = good(R"([connector]
kind = "simple_cpu"
mode = "eager"
index = "flat"
lease_steps = 8
max_leases = 3
max_pins = 0
max_pinned_percent = 100
attach_steps = 0
held_device_blocks_max = 17
load_deadline_ms = 5
store_deadline_ms = 6
store_decode_blocks = false
single_flight = false
cost_gate = "report"
prefill_tokens_per_second = 5000
event_ring = 0
plan_bytes_max = 1048576
[host]
bytes = "1.5 GiB"
blocks = 100
unlimited = true
copy_threads = 64
)");
  SimpleCpuOptions expected;
  expected.index = kvc::config::IndexKind::flat;
  expected.lease_steps = 8;
  expected.max_leases = 3;
  expected.max_pins = 0;
  expected.max_pinned_percent = 100;
  expected.attach_steps = 0;
  expected.held_device_blocks_max = 17;
  expected.load_deadline_ms = 5;
  expected.store_deadline_ms = 6;
  expected.store_decode_blocks = false;
  expected.single_flight = false;
  expected.cost_gate = kvc::config::CostGateKind::report;
  expected.prefill_tokens_per_second = 5000;
  expected.event_ring_entries = 0;
  expected.plan_bytes_max = 1U << 20U;
  expected.host_bytes = 1'610'612'736;
  expected.host_blocks = 100;
  expected.host_unlimited = true;
  expected.copy_threads = 64;
  BOOST_CHECK(o == expected);
}

BOOST_AUTO_TEST_CASE(parsing_the_effective_text_gives_the_same_options) {
  SimpleCpuOptions changed;
  changed.host_blocks = 4096;
  changed.host_bytes = 123'456'789;
  changed.attach_steps = 2;
  changed.held_device_blocks_max = 99;
  changed.plan_bytes_max = 1U << 22U;
  changed.single_flight = false;
  changed.cost_gate = kvc::config::CostGateKind::on;
  changed.host_unlimited = true;
  changed.cuda_driver = "/opt/fake \"cuda\".so";
  changed.cuda_copy_path = kvc::config::CudaCopyPath::kernel;
  changed.cuda_kernel_below_load = 0;
  changed.cuda_kernel_below_store = UINT64_MAX;
  changed.cuda_numa_node = 1023;
  for (const auto& options : {SimpleCpuOptions{}, changed}) {
    const auto text = effective_toml(options);
    BOOST_CHECK_MESSAGE(good(text) == options, text);
    BOOST_TEST(effective_toml(good(text)) == text);
  }
  for (const char* key : {"kind",
                          "mode",
                          "index",
                          "eviction",
                          "states",
                          "lease_steps",
                          "max_leases",
                          "max_pins",
                          "max_pinned_percent",
                          "attach_steps",
                          "held_device_blocks_max",
                          "load_deadline_ms",
                          "store_deadline_ms",
                          "store_decode_blocks",
                          "single_flight",
                          "cost_gate",
                          "prefill_tokens_per_second",
                          "event_ring",
                          "plan_bytes_max",
                          "bytes",
                          "unlimited",
                          "copy_threads",
                          "driver",
                          "copy_path",
                          "kernel_below_load",
                          "kernel_below_store",
                          "numa_node"}) {
    BOOST_TEST(effective_toml(SimpleCpuOptions{}).find(key) != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(the_table_of_the_cuda_device_is_read_and_its_keys_are_known) {
  const auto o = good("[cuda]\ndriver = \"x.so\"\ncopy_path = \"loop\"\nnuma_node = 0");
  BOOST_TEST(o.cuda_driver == "x.so");
  BOOST_TEST((o.cuda_copy_path == kvc::config::CudaCopyPath::loop));
  BOOST_TEST(o.cuda_numa_node == 0);
  BOOST_TEST(good("[cuda]\nnuma_node = \"any\"").cuda_numa_node == -1);
  check_has(bad("[cuda]\ndriver = \"\""), {"cuda.driver", "must name a library"});
  check_has(bad("[cuda]\nnuma_node = 1024"), {"cuda.numa_node = 1024", "1023"});
  check_has(bad("[cuda]\npath = 1"), {"unknown key \"path\"", "copy_path"});
}

BOOST_AUTO_TEST_CASE(sizes_have_units_or_none) {
  const auto bytes = [](const std::string& value) {
    return good("[host]\nbytes = " + value).host_bytes;
  };
  BOOST_TEST(bytes("4096") == 4096U);
  BOOST_TEST(bytes("\"4096\"") == 4096U);
  BOOST_TEST(bytes("\"2KiB\"") == 2048U);
  BOOST_TEST(bytes("\"2 kB\"") == 2000U);
  BOOST_TEST(bytes("\"3MB\"") == 3'000'000U);
  BOOST_TEST(bytes("\"1TiB\"") == std::uint64_t{1} << 40U);
  BOOST_TEST(bytes("\"1024PiB\"") == std::uint64_t{1} << 60U);
}

BOOST_AUTO_TEST_CASE(impossible_sizes_are_refused_with_place_key_value_and_range) {
  for (const char* value : {"0", "-1", "1152921504606846977", "\"0\"", "\"-3GiB\"", "\"8 gibi\"",
                            "\"2000PiB\"", "\"\"", "\"GiB\"", "\"nan\"", "\"inf\"", "\"1e400\"",
                            "1.5", "true", "[1]", "{ a = 1 }", "1979-05-27"}) {
    check_has(bad("[host]\nbytes = " + std::string(value)),
              {"c.toml:2:", "host.bytes = ", "1 byte to 2^60 bytes", "8GiB"});
  }
  check_has(bad("[host]\n\nblocks = 1"), {"c.toml:3:10:", "host.blocks = 1", "from 2 to "});
  check_has(bad("[host]\ncopy_threads = 65"), {"host.copy_threads = 65", "from 1 to 64"});
  check_has(bad("[connector]\nlease_steps = 0"), {"connector.lease_steps = 0", "from 1 to 8"});
  check_has(bad("[connector]\nlease_steps = 9"), {"connector.lease_steps = 9", "from 1 to 8"});
  check_has(bad("[connector]\nmax_leases = -5"), {"connector.max_leases = -5", "from 1 to 65536"});
  check_has(bad("[connector]\nmax_pins = 257"), {"connector.max_pins = 257", "from 0 to 256"});
  check_has(bad("[connector]\nmax_pinned_percent = 101"),
            {"connector.max_pinned_percent = 101", "from 0 to 100"});
  check_has(bad("[connector]\nattach_steps = \"never\""),
            {"attach_steps = \"never\"", "\"unlimited\"", "from 0 to "});
  check_has(bad("[connector]\nheld_device_blocks_max = 0"), {"from 1 to ", "\"auto\""});
  check_has(bad("[connector]\nload_deadline_ms = 0"), {"load_deadline_ms = 0", "from 1 to "});
  check_has(bad("[connector]\nprefill_tokens_per_second = 0"),
            {"from 1 to 1000000000", "\"auto\""});
  check_has(bad("[connector]\ncost_gate = true"), {"true", "a text"});
  check_has(bad("[connector]\ncost_gate = \"maybe\""), {"\"off\", \"on\", \"report\""});
}

BOOST_AUTO_TEST_CASE(wrong_types_name_the_type_and_the_allowed_one) {
  check_has(bad("[connector]\nlease_steps = \"two\""),
            {"c.toml:2:15:", "lease_steps = \"two\"", "a text", "an integer"});
  check_has(bad("[connector]\nlease_steps = 1.0"), {"a fraction", "an integer from 1 to 8"});
  check_has(bad("[connector]\nsingle_flight = 1"), {"an integer", "true or false"});
  check_has(bad("[connector]\nmode = 3"), {"an integer", "a text"});
  check_has(bad("connector = 3"), {"c.toml:1:", "connector = 3", "[connector]"});
  check_has(bad("[[host]]\nbytes = 1"), {"an array", "a table"});
}

BOOST_AUTO_TEST_CASE(an_unknown_key_names_the_allowed_ones_and_the_nearest) {
  check_has(
      bad("[connector]\nlease_step = 2"),
      {"c.toml:2:1:", "unknown key \"lease_step\" in [connector]", "did you mean \"lease_steps\"?",
       "attach_steps, cost_gate, event_ring,", "store_decode_blocks"});
  check_has(bad("[hots]\nbytes = 1"),
            {"c.toml:1:2:", "unknown key \"hots\"", "\"host\"", "connector, cuda, disk, host"});
  const auto far = bad("[host]\nzzzzzzzz = 1");
  check_has(far,
            {"unknown key \"zzzzzzzz\"", "Allowed here: blocks, bytes, copy_threads, unlimited"});
  BOOST_TEST(far.find("did you mean") == std::string::npos);
  check_has(bad("[host]\nbytes = 1\nzz = 1\naa = 2"), {"c.toml:3:1:", "\"zz\""});
}

BOOST_AUTO_TEST_CASE(modes_are_eager_and_lazy) {
  BOOST_TEST((good("").mode == kvc::config::StoreMode::eager));
  BOOST_TEST((good("[connector]\nmode = \"eager\"").mode == kvc::config::StoreMode::eager));
  const auto lazy = good("[connector]\nmode = \"lazy\"");
  BOOST_TEST((lazy.mode == kvc::config::StoreMode::lazy));
  BOOST_CHECK(good(effective_toml(lazy)) == lazy);
  check_has(bad("[connector]\nmode = \"greedy\""), {"mode = \"greedy\"", "\"eager\", \"lazy\""});
  check_has(bad("[connector]\nkind = \"offloading\""), {"kind = \"offloading\"", "\"simple_cpu\""});
}

BOOST_AUTO_TEST_CASE(lazy_mode_cannot_leave_out_the_blocks_of_outputs) {
  check_has(bad("[connector]\nmode = \"lazy\"\nstore_decode_blocks = false"),
            {"c.toml:3:23:", "store_decode_blocks = false", "\"lazy\"", "\"eager\""});
}

BOOST_AUTO_TEST_CASE(a_block_count_from_the_command_line_wins_over_every_size_in_the_text) {
  for (const char* text : {"", "[host]\nbytes = \"1GiB\"", "[host]\nblocks = 5\nunlimited = true",
                           "host = { unlimited = true }", "[connector]\nlease_steps = 3"}) {
    const auto changed = kvc::config::with_host_blocks(text, "c.toml", 77);
    if (!changed.ok()) BOOST_FAIL(changed.error().text);
    const auto options = good(changed.value());
    BOOST_TEST(options.host_blocks == 77U);
    BOOST_TEST(!options.host_unlimited);
    BOOST_TEST(options.lease_steps == good(text).lease_steps);
  }
  BOOST_TEST(!kvc::config::with_host_blocks("host = 3", "c.toml", 77).ok());
  BOOST_TEST(!kvc::config::with_host_blocks("host = ", "c.toml", 77).ok());
}

BOOST_AUTO_TEST_CASE(the_example_files_are_read) {
  const std::string folder = KVC_SOURCE_DIR "/config/examples/";
  const auto plain = kvc::config::read_text_file(folder + "simple_cpu.toml");
  if (!plain.ok()) BOOST_FAIL(plain.error().text);
  BOOST_CHECK(good(plain.value()) == SimpleCpuOptions{});
  const auto unlimited = kvc::config::read_text_file(folder + "simple_cpu_unlimited.toml");
  if (!unlimited.ok()) BOOST_FAIL(unlimited.error().text);
  SimpleCpuOptions expected;
  expected.host_unlimited = true;
  BOOST_CHECK(good(unlimited.value()) == expected);
  const auto lazy = kvc::config::read_text_file(folder + "simple_cpu_lazy.toml");
  if (!lazy.ok()) BOOST_FAIL(lazy.error().text);
  expected = {};
  expected.mode = kvc::config::StoreMode::lazy;
  BOOST_CHECK(good(lazy.value()) == expected);
}

BOOST_AUTO_TEST_CASE(a_file_that_cannot_be_read_is_named) {
  const auto missing = kvc::config::read_text_file("/nowhere/at all.toml");
  BOOST_REQUIRE(!missing.ok());
  check_has(missing.error().text, {"/nowhere/at all.toml", "No such file"});
  BOOST_TEST(!kvc::config::read_text_file("/").ok());
}

BOOST_AUTO_TEST_CASE(a_disk_tier_needs_to_know_what_a_block_continues) {
  BOOST_TEST(parse_simple_cpu("[disk]\npaths = [\"/a\"]", "c.toml").ok());
  const auto lazy =
      parse_simple_cpu("[connector]\nmode = \"lazy\"\n[disk]\npaths = [\"/a\"]", "c.toml");
  BOOST_REQUIRE(!lazy.ok());
  BOOST_TEST(lazy.error().text.find("mode = \"lazy\"") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
