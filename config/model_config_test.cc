#include "config/model_config.h"

#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

namespace {

using kvc::config::effective_toml;
using kvc::config::ModelConfig;
using kvc::config::parse_model;

ModelConfig good(std::string_view text) {
  const auto parsed = parse_model(text, "m.toml");
  if (!parsed.ok()) BOOST_FAIL(parsed.error().text);
  return parsed.value();
}

std::string bad(std::string_view text) {
  const auto parsed = parse_model(text, "m.toml");
  BOOST_REQUIRE_MESSAGE(!parsed.ok(), "accepted: " << text);
  return parsed.error().text;
}

void check_has(const std::string& line, const std::vector<std::string>& parts) {
  BOOST_TEST(line.find('\n') == std::string::npos);
  for (const auto& part : parts) {
    BOOST_CHECK_MESSAGE(line.find(part) != std::string::npos, line << "\n  lacks: " << part);
  }
}

ModelConfig example(const std::string& name) {
  const auto text = kvc::config::read_text_file(KVC_SOURCE_DIR "/config/examples/models/" + name);
  if (!text.ok()) BOOST_FAIL(text.error().text);
  return good(text.value());
}

const std::string head = "[model]\nname = \"m\"\n";
std::string group(const std::string& kind, int block, const std::string& more = "") {
  return "[[group]]\nkind = \"" + kind + "\"\ntokens_per_block = " + std::to_string(block) + "\n" +
         more;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(model_config)

BOOST_AUTO_TEST_CASE(two_groups_of_one_name_are_refused_with_both_lines) {
  const std::string a = "name = \"a\"\n";
  check_has(bad(head + group("full", 16, a) + group("state", 16) + group("full", 16, a)),
            {"m.toml:13:8: group[2].name = \"a\"", "group[0].name at line 6, too"});
}

BOOST_AUTO_TEST_CASE(groups_without_a_name_get_one_that_no_other_has) {
  const std::string text = head + group("full", 16) + group("state", 16) + group("full", 16) +
                           group("full", 16, "name = \"full-2\"\n");
  const auto names_of = [](const ModelConfig& m) {
    std::vector<std::string> names;
    for (const auto& g : m.groups) names.push_back(g.name);
    return names;
  };
  const std::vector<std::string> names{"full", "state", "full-2-2", "full-2"};
  const ModelConfig m = good(text);
  BOOST_TEST(names_of(m) == names, boost::test_tools::per_element());
  BOOST_TEST(names_of(good(effective_toml(m))) == names, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_five_examples_have_the_geometry_their_comments_state) {
  struct Expected {
    const char* file;
    std::size_t groups;
    std::uint64_t hash_unit, scheduler_block, first_span, last_span, context_parallel;
  };
  for (const auto& e : {Expected{"llama.toml", 1, 16, 16, 16, 16, 1},
                        Expected{"llama-512.toml", 1, 512, 512, 512, 512, 1},
                        Expected{"gemma.toml", 4, 16, 16, 16, 16, 1},
                        Expected{"qwen3.5-4b.toml", 4, 16, 784, 784, 784, 1},
                        Expected{"kimi-k3.toml", 4, 128, 12'288, 12'288, 1'536, 8}}) {
    BOOST_TEST_CONTEXT(e.file) {
      const auto m = example(e.file);
      BOOST_TEST(m.groups.size() == e.groups);
      BOOST_TEST(m.hash_unit_tokens == e.hash_unit);
      BOOST_TEST(m.scheduler_block_tokens == e.scheduler_block);
      BOOST_TEST(m.context_parallel == e.context_parallel);
      BOOST_TEST(ModelConfig::block_span_tokens(m.groups.front(), m.context_parallel) ==
                 e.first_span);
      BOOST_TEST(ModelConfig::block_span_tokens(m.groups.back(), m.context_parallel) ==
                 e.last_span);
      BOOST_TEST(m.sim_bytes_per_token == 8U);
      BOOST_TEST(!m.origin.empty());
      for (const auto& g : m.groups) BOOST_TEST(!g.origin.empty());
    }
  }
}

BOOST_AUTO_TEST_CASE(parsing_the_effective_text_gives_the_same_model) {
  std::vector<ModelConfig> models{example("llama.toml"), example("gemma.toml"),
                                  example("qwen3.5-4b.toml"), example("kimi-k3.toml")};
  models.push_back(good("[model]\nname = \"quote \\\" and \\\\ and \\t tab\"\n" +
                        group("full", 16, "draft = true\nname = \"a\"\n") +
                        group("chunked", 16, "chunk_tokens = 64\n") +
                        group("state", 16, "mode = \"all\"\ncacheable = false\n") +
                        group("other", 8, "fine_lookup = true\n")));
  for (const auto& m : models) {
    const auto text = effective_toml(m);
    BOOST_CHECK_MESSAGE(good(text) == m, text);
  }
}

BOOST_AUTO_TEST_CASE(capabilities_follow_the_kind) {
  const auto m = good(head + group("full", 16) + group("sliding", 16, "window_tokens = 32\n") +
                      group("chunked", 16, "chunk_tokens = 64\n") + group("state", 16) +
                      group("state", 16, "mode = \"all\"\n") + group("other", 16));
  const std::vector<bool> fine{true, false, false, true, true, false};
  const std::vector<bool> stable{true, true, true, false, true, true};
  const std::vector<bool> cacheable{true, true, true, true, true, false};
  for (std::size_t i = 0; i < m.groups.size(); ++i) {
    BOOST_TEST_CONTEXT("group " << i) {
      BOOST_TEST(m.groups[i].fine_lookup == fine[i]);
      BOOST_TEST(m.groups[i].position_stable == stable[i]);
      BOOST_TEST(m.groups[i].cacheable == cacheable[i]);
      BOOST_TEST(!m.groups[i].draft);
      BOOST_TEST(!m.groups[i].sharded);
      BOOST_TEST(!m.groups[i].resume_inside_block);
    }
  }
}

BOOST_AUTO_TEST_CASE(hash_unit_and_scheduler_block_follow_r109) {
  const auto two = good(head + group("full", 48) + group("state", 64));
  BOOST_TEST(two.scheduler_block_tokens == 192U);
  BOOST_TEST(two.hash_unit_tokens == 16U);
  // A state group in `all` mode makes h = S, so blocks that differ need an explicit hash unit.
  const auto all_state = group("state", 64, "mode = \"all\"\n");
  BOOST_TEST(good(head + group("full", 64) + all_state).hash_unit_tokens == 64U);
  check_has(bad(head + group("full", 16) + all_state), {"hash unit of 64", "spans 16 tokens"});
  BOOST_TEST(good(head + "hash_unit = 16\n" + group("full", 16) + all_state).hash_unit_tokens ==
             16U);
  const auto scratch = good(head + group("full", 32) + group("state", 64) + group("other", 7));
  BOOST_TEST(scratch.scheduler_block_tokens == 448U);
  BOOST_TEST(scratch.hash_unit_tokens == 32U);
  const auto parallel =
      good(head + "context_parallel = 2\n" + group("full", 16) + group("state", 64));
  BOOST_TEST(parallel.groups[0].sharded);
  BOOST_TEST(!parallel.groups[1].sharded);
  BOOST_TEST(parallel.scheduler_block_tokens == 64U);
  BOOST_TEST(parallel.hash_unit_tokens == 32U);
  const auto given = good(head + "hash_unit = 8\nscheduler_block = 128\n" + group("full", 64));
  BOOST_TEST(given.hash_unit_tokens == 8U);
  BOOST_TEST(given.scheduler_block_tokens == 128U);
}

// Field report 61 (K7): a group whose block is smaller than the hash unit.
BOOST_AUTO_TEST_CASE(a_block_smaller_than_the_hash_unit_is_refused_naming_group_and_sizes) {
  check_has(bad(head + "hash_unit = 32\n" + group("full", 32) +
                group("sliding", 8, "window_tokens = 128\nname = \"swa\"\n")),
            {"m.toml:9:20:", "group[1].tokens_per_block = 8", "group 1 (swa)", "spans 8 tokens",
             "hash unit of 32"});
}

BOOST_AUTO_TEST_CASE(layouts_that_r110_forbids_are_refused_with_their_numbers) {
  check_has(bad(head + "hash_unit = 24\n" + group("full", 16)), {"16", "24", "hash_unit = 24"});
  check_has(bad(head + "scheduler_block = 24\nhash_unit = 8\n" + group("full", 16)),
            {"scheduler block of 24", "tokens_per_block = 16"});
  check_has(bad(head + "context_parallel = 2\n" + group("full", 16) +
                group("sliding", 16, "window_tokens = 32\nsharded = true\n")),
            {"group[1].sharded", "context_parallel is 2", "only full attention"});
  check_has(bad(head + "context_parallel = 4\n" + group("chunked", 16, "chunk_tokens = 64\n")),
            {"context_parallel is 4", "chunked"});
  check_has(bad(head + group("full", 1048575) + group("state", 1048573) + group("state", 1048571)),
            {"least common multiple", "1099511627776"});
  check_has(bad(head + group("other", 16, "cacheable = true\n")), {"never cached"});
}

// Field report 118 (K12): the error says the way out.
BOOST_AUTO_TEST_CASE(sizes_that_do_not_fit_are_refused_naming_what_would) {
  const std::string groups = group("full", 16) + group("full", 24, "draft = true\n");
  check_has(bad(head + "hash_unit = 16\nscheduler_block = 48\n" + groups),
            {"group 1", "spans 24 tokens", "hash unit of 16", "blocks span 16, 24 tokens",
             "model.hash_unit = 8 or a divisor", "model.scheduler_block"});
  check_has(bad(head + "hash_unit = 8\nscheduler_block = 32\n" + groups),
            {"group[1].tokens_per_block = 24", "scheduler block of 32", "blocks span 16, 24 tokens",
             "model.scheduler_block is a multiple of all"});
  BOOST_TEST(good(head + "hash_unit = 8\nscheduler_block = 48\n" + groups).groups.size() == 2U);
}

BOOST_AUTO_TEST_CASE(missing_and_misplaced_keys_are_named) {
  check_has(bad(""), {"m.toml", "model.name", "missing"});
  check_has(bad(head), {"group", "0 groups"});
  check_has(bad(head + "[[group]]\ntokens_per_block = 16\n"),
            {"group[0].kind", "missing", "sliding"});
  check_has(bad(head + "[[group]]\nkind = \"full\"\n"),
            {"m.toml:3:", "group[0].tokens_per_block", "missing"});
  check_has(bad(head + group("sliding", 16)), {"group[0].window_tokens", "missing"});
  check_has(bad(head + group("full", 16, "window_tokens = 4\n")), {"only for kind = \"sliding\""});
  check_has(bad(head + group("full", 16, "mode = \"align\"\n")), {"only for kind = \"state\""});
  check_has(bad(head + group("fulll", 16)), {"kind = \"fulll\"", "\"full\", \"sliding\""});
  check_has(bad(head + group("full", 16, "tokens = 4\n")),
            {"unknown key \"tokens\" in [group[0]]"});
  check_has(bad(head + "hash_units = 4\n" + group("full", 16)),
            {"unknown key \"hash_units\"", "\"hash_unit\""});
  check_has(bad(head + "sim_bytes_per_token = 12\n" + group("full", 16)), {"multiple of 8"});
  check_has(bad(head + "[group]\nkind = \"full\"\n"), {"[[group]]"});
  std::string many = head;
  for (int i = 0; i < 65; ++i) many += group("full", 16);
  check_has(bad(many), {"65 groups", "1 to 64"});
}

BOOST_AUTO_TEST_SUITE_END()
