// Any bytes are safe input: an answer or one line, never an exception.
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <random>

#include "config/model_config.h"
#include "config/simple_cpu_options.h"
#include "plugin/tests/seed.h"

namespace {

using kvc::config::parse_model;
using kvc::config::parse_simple_cpu;

void check_line(const std::string& line) {
  BOOST_TEST(!line.empty());
  BOOST_TEST(line.size() < 1200U);
  for (const char c : line) {
    BOOST_REQUIRE_MESSAGE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f,
                          "control byte in: " << line);
  }
  BOOST_TEST(line.compare(0, 5, "file:") == 0);
}

// Both parsers; the answer does not matter, only that it is one.
void feed(const std::string& text) {
  const auto options = parse_simple_cpu(text, "file");
  if (!options.ok()) check_line(options.error().text);
  const auto model = parse_model(text, "file");
  if (!model.ok()) check_line(model.error().text);
}

void must_refuse(const std::string& text) {
  feed(text);
  BOOST_CHECK_MESSAGE(!parse_simple_cpu(text, "file").ok(), "accepted: " << text.substr(0, 80));
}

std::uint64_t seed() { return kvc::test::seed_or(20260401); }

std::string example(const char* name) {
  const auto text =
      kvc::config::read_text_file(std::string(KVC_SOURCE_DIR "/config/examples/") + name);
  if (!text.ok()) BOOST_FAIL(text.error().text);
  return text.value();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(hostile_toml)

BOOST_AUTO_TEST_CASE(truncated_text_is_an_answer_at_every_length) {
  for (const char* name : {"simple_cpu.toml", "models/kimi-k3.toml"}) {
    const auto text = example(name);
    for (std::size_t length = 0; length <= text.size(); ++length) feed(text.substr(0, length));
  }
}

BOOST_AUTO_TEST_CASE(broken_syntax_is_refused_with_its_place) {
  for (const char* text :
       {"[connector", "[connector]\nlease_steps =", "lease_steps = 1 2", "[host]\nbytes = \"8GiB",
        "[host]\nbytes = 1\nbytes = 2", "[host]\n[host]", "= 3", "a.b.c", "[[", "\"", "'''",
        "[host]\nblocks = 99999999999999999999999", "[host]\nblocks = -99999999999999999999",
        "[host]\nblocks = 0x", "[host]\nblocks = 1e", "\xff\xfe\x01", "\x01", "[host]\nbytes = nan",
        "x = { a = 1, a = 2 }"}) {
    must_refuse(text);
  }
  const auto twice = parse_simple_cpu("[host]\nblocks = 4\nblocks = 5\n", "file");
  BOOST_REQUIRE(!twice.ok());
  BOOST_TEST(twice.error().text.find("file:3:") == 0U);
  BOOST_TEST(twice.error().text.find("blocks") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_shown_line_is_printable_utf_8) {
  using kvc::config::one_line;
  BOOST_TEST(one_line("a\x01\x7f\nb") ==
             "a\\x01\\x7f\\x0a"
             "b");
  const std::string right = "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x99\x82";  // 2, 3 and 4 bytes
  BOOST_TEST(one_line(right) == right);
  for (const char* wrong :
       {"\xff", "\x80", "\xc0\xaf", "\xe2\x82", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf0\x80\x80\xaf",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xc2\x85"}) {
    const std::string line = one_line(wrong);
    BOOST_TEST(line.size() == 4 * std::string(wrong).size());
    BOOST_TEST(line.substr(0, 2) == "\\x");
  }
  BOOST_TEST(one_line("abcdef", 3) == "abc...");
}

BOOST_AUTO_TEST_CASE(a_megabyte_of_garbage_is_one_line) {
  std::mt19937_64 rng(seed());
  std::string bytes(1U << 20U, '\0');
  for (auto& c : bytes) c = static_cast<char>(rng() & 0xffU);
  must_refuse(bytes);
  must_refuse(std::string(1U << 20U, '['));
  must_refuse(std::string(1U << 20U, '{'));
  must_refuse("a = " + std::string(1U << 20U, '['));
  must_refuse("a = " + std::string(1U << 20U, '"'));
  must_refuse(std::string(1U << 20U, 'a') + " = 1");
  must_refuse("[host]\nbytes = \"" + std::string(1U << 20U, '9') + "\"");
  must_refuse("[connector]\nmode = \"" + std::string(1U << 20U, 'x') + "\"");
  must_refuse("[connector]\nmode = \"a\\nb\\u0007c\"");
  feed(std::string(1U << 20U, '#'));
  feed(std::string(1U << 20U, '\n'));
}

BOOST_AUTO_TEST_CASE(random_damage_to_a_good_file_is_an_answer) {
  std::mt19937_64 rng(seed());
  for (const char* name : {"simple_cpu.toml", "models/qwen3.5-4b.toml"}) {
    const auto good = example(name);
    for (int round = 0; round < 2000; ++round) {
      auto text = good;
      for (std::uint64_t changes = 1 + rng() % 4; changes > 0; --changes) {
        const std::size_t at = static_cast<std::size_t>(rng() % text.size());
        const auto byte = static_cast<char>(rng() & 0xffU);
        if (rng() % 3 == 0) {
          text.erase(at, 1 + static_cast<std::size_t>(rng() % 5));
        } else if (rng() % 2 == 0) {
          text.insert(at, 1, byte);
        } else {
          text[at] = byte;
        }
        if (text.empty()) text = " ";
      }
      BOOST_TEST_CONTEXT(kvc::test::repeat_command(seed())) { feed(text); }
    }
  }
}

BOOST_AUTO_TEST_CASE(names_of_many_dots_are_refused_and_dots_in_texts_are_not) {
  std::string name = "a";
  for (int i = 0; i < 100'000; ++i) name += ".a";
  for (const std::string& text :
       {"[" + name + "]\n", name + " = 1\n", "[[" + name + "]]\n", "x = \"\\\"\"\n[" + name + "]\n",
        "x = '\"'\n" + name + " = 1\n"}) {
    const auto model = kvc::config::parse_model(text, "m.toml");
    BOOST_REQUIRE(!model.ok());
    BOOST_TEST(model.error().text.find("dots") != std::string::npos);
    BOOST_TEST(!kvc::config::parse_simple_cpu(text, "c.toml").ok());
  }
  for (const char* begin : {"x = [\"\"\"\n\"\"\", {", "x = [\"\"\"\n' \"\"\", {",
                            "x = ['''\n\" ''', {", "x = [\"\"\"a\"\"\"\"\", {"}) {
    const auto model = kvc::config::parse_model(begin + name + " = 1}]\n", "m.toml");
    BOOST_REQUIRE(!model.ok());
    BOOST_TEST(model.error().text.find("dots") != std::string::npos);
  }
  const std::string dots(1000, '.');
  BOOST_TEST(
      kvc::config::parse_simple_cpu("# " + dots + "\n[connector] # " + dots + "\n", "c").ok());
  const std::string good = "[model]\nname = \"" + dots + "\"\norigin = '" + dots +
                           "'\n[[group]]\nkind = \"full\"\ntokens_per_block = 16\n";
  BOOST_TEST(kvc::config::parse_model(good, "m.toml").ok());
}

BOOST_AUTO_TEST_SUITE_END()
