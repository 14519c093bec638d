// Runs the examples of docs/semantics.md: fenced blocks kvc-lookup, kvc-needed and kvc-tail, one
// "word values..." a line. An example that cannot be read is a failure, as is a word that does not
// exist.
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "plugin/coordinator/geometry.h"
#include "plugin/coordinator/key_index.h"
#include "plugin/coordinator/lookup.h"

namespace {

using namespace kvc;

constexpr std::uint32_t key_bytes = 16;

struct Example {
  std::string kind;  // lookup, needed, tail
  std::string name;
  std::size_t line = 0;
  GeometryOptions options;
  std::vector<std::vector<std::uint64_t>> held;
  std::map<std::string, std::vector<std::string>> values;  // prompt, hit, positions, real, ...

  [[nodiscard]] std::vector<std::uint64_t> numbers(const std::string& word) const {
    std::vector<std::uint64_t> out;
    for (const std::string& v : values.at(word)) out.push_back(std::stoull(v));
    return out;
  }
  [[nodiscard]] std::uint64_t number(const std::string& word) const { return numbers(word).at(0); }
  [[nodiscard]] bool has(const std::string& word) const { return values.count(word) != 0; }
};

GroupKind kind_of(const std::string& word) {
  for (const GroupKind k : {GroupKind::full, GroupKind::sliding, GroupKind::chunked,
                            GroupKind::state, GroupKind::other}) {
    if (name_of(k) == word) return k;
  }
  throw std::runtime_error("unknown kind of group: " + word);
}

// full 16 [window W] [draft] [all] [held e e ...]
void parse_group(std::istringstream& in, Example& e) {
  std::string kind, word;
  std::uint64_t block = 0;
  if (!(in >> kind >> block)) throw std::runtime_error("a group needs a kind and a block size");
  Tokens window;
  bool draft = false, all = false;
  std::vector<std::uint64_t> held;
  while (in >> word) {
    if (word == "window") {
      in >> window.n;
    } else if (word == "draft") {
      draft = true;
    } else if (word == "all") {
      all = true;
    } else if (word == "held") {
      for (std::uint64_t end = 0; in >> end;) held.push_back(end);
    } else {
      throw std::runtime_error("unknown word in a group: " + word);
    }
  }
  GroupSpec spec = group_spec(kind_of(kind), {block}, window, all);
  spec.draft = draft;
  e.options.draft_drop = e.options.draft_drop || draft;
  e.options.groups.push_back(spec);
  e.held.push_back(held);
}

void parse_line(const std::string& line, Example& e) {
  static const std::set<std::string> words = {"prompt", "hit",    "positions", "real",
                                              "gate",   "needed", "end",       "tail"};
  std::istringstream in(line);
  std::string word;
  in >> word;
  std::uint64_t number = 0;
  if (word == "name") {
    std::getline(in >> std::ws, e.name);
  } else if (word == "group") {
    parse_group(in, e);
  } else if (word == "hash_unit" && in >> number) {
    e.options.hash_unit = {number};
  } else if (word == "scheduler_block" && in >> number) {
    e.options.scheduler_block = {number};
  } else if (word == "context_parallel" && in >> number) {
    e.options.context_parallel = static_cast<std::uint32_t>(number);
  } else if (word == "fine_hits") {
    in >> word;
    e.options.fine_hits_allowed = word == "on";
  } else if (words.count(word) != 0) {
    auto& values = e.values[word];
    for (std::string v; in >> v;) values.push_back(v);
  } else {
    throw std::runtime_error("cannot read: " + line);
  }
}

std::vector<Example> read_examples() {
  std::ifstream in(std::string(KVC_SOURCE_DIR) + "/docs/semantics.md");
  if (!in) throw std::runtime_error("docs/semantics.md is missing");
  const std::string fence = "```kvc-";
  std::vector<Example> examples;
  std::optional<Example> open;
  std::string line;
  for (std::size_t number = 1; std::getline(in, line); ++number) {
    if (!open && line.rfind(fence, 0) == 0) {
      open.emplace();
      open->kind = line.substr(fence.size());
      open->line = number;
    } else if (open && line == "```") {
      examples.push_back(std::move(*open));
      open.reset();
    } else if (open) {
      parse_line(line, *open);
    }
  }
  if (open) throw std::runtime_error("a fenced example has no end");
  return examples;
}

std::vector<std::byte> keys_for(std::uint64_t units) {
  std::vector<std::byte> keys(units * key_bytes);
  for (std::uint64_t i = 0; i < units; ++i) std::memcpy(&keys[i * key_bytes], &i, sizeof i);
  return keys;
}

Geometry geometry_of(const Example& e) {
  Result<Geometry> made = Geometry::make(e.options);
  if (!made.ok()) BOOST_FAIL(made.error().text);
  return std::move(made).value();
}

// Holds the given prefix ends and looks up a prompt of so many tokens.
Hit hit_of(const Geometry& geometry, const std::vector<std::vector<std::uint64_t>>& held,
           std::uint64_t prompt) {
  const std::uint64_t h = geometry.hash_unit().n;
  std::uint64_t last = prompt, entries = 1;
  for (const auto& ends : held) {
    entries += ends.size();
    for (const std::uint64_t end : ends) last = std::max(last, end);
  }
  const std::vector<std::byte> keys = keys_for(last / h);
  Result<FlatIndex> index = FlatIndex::make({key_bytes, entries, 0, false});
  BOOST_REQUIRE(index.ok());
  SlotId slot = 0;
  for (GroupId g = 0; g < held.size(); ++g) {
    for (const std::uint64_t end : held[g]) {
      const Code c = index.value().insert(g, &keys[(end / h - 1) * key_bytes], slot++, {end});
      BOOST_REQUIRE(c == Code::ok);
    }
  }
  Hit hit;
  const KeyView view{keys.data(), key_bytes, prompt / h};
  BOOST_REQUIRE(lookup(geometry, index.value(), view, {}, {prompt - 1}, hit) == Code::ok);
  return hit;
}

void check_gate(const Example& e, const Geometry& geometry) {
  if (!e.has("gate")) return;
  const std::string& want = e.values.at("gate").at(0);
  bool found = false;
  for (const Gate& gate : geometry.gates()) found = found || gate.feature == want;
  BOOST_TEST(found, "no gate " << want);
}

void run_lookup(const Example& e) {
  const Geometry geometry = geometry_of(e);
  const Hit hit = hit_of(geometry, e.held, e.number("prompt"));
  BOOST_TEST(hit.tokens.n == e.number("hit"));
  check_gate(e, geometry);
  const auto per_group = [&](const char* word, auto get) {
    if (!e.has(word)) return;
    const auto want = e.numbers(word);
    BOOST_REQUIRE_EQUAL(want.size(), hit.groups.size());
    for (std::size_t g = 0; g < want.size(); ++g) {
      BOOST_TEST(get(hit.groups[g]) == want[g], word << " of group " << g);
    }
  };
  per_group("positions", [](const GroupHit& g) { return g.list_length(); });
  per_group("real", [](const GroupHit& g) { return std::uint64_t{g.slots.size()}; });
}

void run_needed(const Example& e) {
  const Geometry geometry = geometry_of(e);
  const Tokens end{e.number("end")};
  const auto& want = e.values.at("needed");
  BOOST_REQUIRE_EQUAL(want.size(), geometry.groups());
  for (GroupId g = 0; g < geometry.groups(); ++g) {
    const std::string got = "[" + std::to_string(geometry.first_needed_position(g, end)) + "," +
                            std::to_string(geometry.end_position(g, end)) + ")";
    BOOST_TEST(got == want[g], "group " << g << ": " << got << ", the text says " << want[g]);
  }
}

// The tail boundary of every group; and when blocks and tails up to it are held, the same prompt
// hits what the text says.
void run_tail(const Example& e) {
  const Geometry geometry = geometry_of(e);
  const Tokens prompt{e.number("prompt")};
  const auto want = e.numbers("tail");
  BOOST_REQUIRE_EQUAL(want.size(), geometry.groups());
  std::vector<std::vector<std::uint64_t>> held(geometry.groups());
  for (GroupId g = 0; g < geometry.groups(); ++g) {
    const std::uint64_t tail = geometry.prompt_tail_boundary(g, prompt).n;
    BOOST_TEST(tail == want[g], "group " << g);
    const std::uint64_t block = geometry.block_tokens(g).n;
    for (std::uint64_t end = block; end < tail; end += block) held[g].push_back(end);
    if (tail != 0) held[g].push_back(tail);
  }
  BOOST_TEST(hit_of(geometry, held, prompt.n).tokens.n == e.number("hit"));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(semantics)

BOOST_AUTO_TEST_CASE(every_example_of_the_document_holds) {
  const auto examples = read_examples();
  BOOST_TEST(examples.size() >= 15u);
  std::set<std::string> names;
  for (const Example& e : examples) {
    BOOST_TEST_CONTEXT("docs/semantics.md:" << e.line << " " << e.name) {
      BOOST_TEST(!e.name.empty());
      BOOST_TEST(names.insert(e.name).second, "two examples have this name");
      if (e.kind == "lookup") {
        run_lookup(e);
      } else if (e.kind == "needed") {
        run_needed(e);
      } else if (e.kind == "tail") {
        run_tail(e);
      } else {
        BOOST_ERROR("unknown kind of example: " << e.kind);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_named_recorded_cases_are_among_the_examples) {
  std::set<std::string> labels;
  std::set<std::uint64_t> prompts;
  for (const Example& e : read_examples()) {
    labels.insert(e.name.substr(0, e.name.find(':')));
    if (e.kind == "tail") prompts.insert(e.number("prompt"));
  }
  for (const char* v : {"V1", "V3", "V5", "V9", "V16", "V22", "V30"}) {
    BOOST_TEST(labels.count(v) == 1u, v);
  }
  BOOST_TEST(prompts == (std::set<std::uint64_t>{96, 97, 100, 112}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_line_that_means_nothing_is_refused) {
  Example e;
  BOOST_CHECK_THROW(parse_line("promtp 12", e), std::runtime_error);
  BOOST_CHECK_THROW(parse_line("group round 16", e), std::runtime_error);
  BOOST_CHECK_THROW(parse_line("group full 16 hold 16", e), std::runtime_error);
  BOOST_CHECK_THROW(parse_line("hash_unit many", e), std::runtime_error);
}

BOOST_AUTO_TEST_SUITE_END()
