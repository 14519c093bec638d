// docs/formats/model.md and trace.md say what the readers take: every key, default and example.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "config/model_config.h"
#include "host_stub/traces/trace.h"

namespace {

using kvc::config::parse_model;
using kvc::host::Trace;

std::string page(const std::string& name) {
  std::ifstream in(std::string(KVC_SOURCE_DIR) + "/docs/formats/" + name);
  BOOST_REQUIRE_MESSAGE(in.good(), "docs/formats/" + name + " is missing");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// From the heading that begins so to the next one.
std::string section(const std::string& page, const std::string& heading) {
  const std::size_t from = page.find("\n" + heading);
  BOOST_REQUIRE_MESSAGE(from != std::string::npos, "no section " + heading);
  const std::size_t to = page.find("\n## ", from + 1);
  return page.substr(from, to == std::string::npos ? to : to - from);
}

// The names in the first cells of a section's table.
std::set<std::string> first_cells(const std::string& text) {
  std::set<std::string> names;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("| `")) continue;
    names.insert(line.substr(3, line.find('`', 3) - 3));
  }
  return names;
}

// What stands between ```kind and ```, all blocks in order.
std::vector<std::string> blocks(const std::string& text, const std::string& kind) {
  std::vector<std::string> found;
  const std::string begin = "```" + kind + "\n";
  for (std::size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
    const std::size_t from = at + begin.size();
    found.push_back(text.substr(from, text.find("```", from) - from));
  }
  return found;
}

// The keys that the reader of model files allows where `wrong` is refused.
std::set<std::string> allowed(const std::string& wrong) {
  const auto refused = parse_model(wrong, "m.toml");
  BOOST_REQUIRE(!refused.ok());
  const std::string& why = refused.error().text;
  const std::string before = "Allowed here: ";
  BOOST_REQUIRE_MESSAGE(why.find(before) != std::string::npos, why);
  std::istringstream list(why.substr(why.find(before) + before.size()));
  std::set<std::string> keys;
  for (std::string key; std::getline(list, key, ',');)
    keys.insert(key.substr(key.find_first_not_of(' ')));
  return keys;
}

std::set<std::string> lines_of(const std::string& text) {
  std::set<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.insert(line);
  return lines;
}

BOOST_AUTO_TEST_SUITE(formats)

BOOST_AUTO_TEST_CASE(the_page_of_model_files_has_exactly_the_keys_that_are_read) {
  const std::string text = page("model.md");
  const std::set<std::string> model = allowed("[model]\nname = \"a\"\nwrong = 1\n");
  const std::set<std::string> group = allowed(
      "[model]\nname = \"a\"\n[[group]]\nkind = \"full\"\ntokens_per_block = 16\nwrong = 1\n");
  BOOST_TEST(first_cells(section(text, "## [model]")) == model, boost::test_tools::per_element());
  BOOST_TEST(first_cells(section(text, "## [[group]]")) == group, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_example_of_a_model_file_is_read_and_its_defaults_are_those_of_the_page) {
  const std::vector<std::string> examples = blocks(page("model.md"), "toml");
  BOOST_REQUIRE(examples.size() == 1U);
  const auto model = parse_model(examples[0], "model.md");
  BOOST_REQUIRE_MESSAGE(model.ok(), (model.ok() ? "" : model.error().text));
  const auto& m = model.value();
  BOOST_TEST(m.scheduler_block_tokens == 784U);
  BOOST_TEST(m.context_parallel == 1U);
  BOOST_TEST(m.cp_interleave_tokens == 1U);
  BOOST_TEST(m.sim_bytes_per_token == 8U);
  BOOST_TEST(m.vocabulary == 65'536U);
  BOOST_REQUIRE(m.groups.size() == 2U);
  BOOST_TEST((m.groups[1].mode == kvc::config::StateMode::align));
  BOOST_TEST(!m.groups[1].position_stable);
  BOOST_TEST(m.groups[1].fine_lookup);
  BOOST_TEST(m.groups[0].position_stable);
  BOOST_TEST(!m.groups[0].sharded);
}

BOOST_AUTO_TEST_CASE(the_examples_of_traces_are_read) {
  const std::vector<std::string> examples = blocks(page("trace.md"), "json");
  BOOST_REQUIRE(examples.size() == 2U);
  const std::string path = "docs_formats_test.jsonl";
  const std::uint64_t prompts[] = {1100, 4};
  const std::uint64_t outputs[] = {52, 16};
  for (std::size_t i = 0; i < 2; ++i) {
    std::ofstream(path) << examples[i];
    const auto trace = Trace::open(path);
    std::remove(path.c_str());
    BOOST_REQUIRE_MESSAGE(trace.ok(), (trace.ok() ? "" : trace.error().text));
    BOOST_TEST(trace.value().request(0).prompt_tokens == prompts[i]);
    BOOST_TEST(trace.value().request(0).output_tokens == outputs[i]);
  }
}

BOOST_AUTO_TEST_CASE(the_page_of_traces_has_every_parameter_of_the_generators_with_its_default) {
  std::istringstream help(Trace::generator_help());
  const std::set<std::string> rows = lines_of(section(page("trace.md"), "## Generators"));
  std::set<std::string> named;
  std::string generator;
  for (std::string line; std::getline(help, line);) {
    if (line.starts_with("gen:")) {
      generator = line.substr(4);
      named.insert(generator);
      continue;
    }
    const std::string name = line.substr(2, line.find('=') - 2);
    const std::string value =
        line.substr(line.find('=') + 1, line.find("  ", 2) - line.find('=') - 1);
    named.insert(name);
    const auto has = [&](const std::string& of) {
      const std::string begin = "| `" + name + "` | " + of + " | " + value + " |";
      return std::any_of(rows.begin(), rows.end(),
                         [&](const std::string& row) { return row.starts_with(begin); });
    };
    BOOST_TEST((has("all") || has("`" + generator + "`")), generator << ": " << line);
  }
  BOOST_TEST(first_cells(section(page("trace.md"), "## Generators")) == named,
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
