#include <boost/test/unit_test.hpp>
#include <set>

#include "host_stub/traces/trace.h"

namespace {

using kvc::host::TokenId;
using kvc::host::Trace;

Trace good(const std::string& spec, std::size_t limit = Trace::no_limit) {
  auto trace = Trace::open(spec, limit);
  if (!trace.ok()) BOOST_FAIL(trace.error().text);
  return std::move(trace.value());
}

std::string bad(const std::string& spec) {
  const auto trace = Trace::open(spec);
  if (trace.ok()) BOOST_FAIL("accepted: " + spec);
  return trace.error().text;
}

std::vector<TokenId> prompt(const Trace& trace, std::size_t index) {
  std::vector<TokenId> tokens;
  trace.expand_prompt(index, tokens);
  return tokens;
}

std::size_t common_prefix(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(ends.first - a.begin());
}

}  // namespace

BOOST_AUTO_TEST_SUITE(trace_generator)

BOOST_AUTO_TEST_CASE(equal_specs_give_equal_traces_and_another_seed_another_one) {
  for (const std::string kind : {"gen:chat", "gen:shared", "gen:agent"}) {
    BOOST_TEST_CONTEXT(kind) {
      const auto a = good(kind + "?requests=30&seed=4");
      const auto b = good(kind + "?requests=30&seed=4");
      const auto c = good(kind + "?requests=30&seed=5");
      BOOST_REQUIRE(a.size() == 30U);
      BOOST_TEST(good(kind).size() == 100U);
      for (std::size_t i = 0; i < a.size(); ++i) {
        BOOST_TEST(a.request(i).output_tokens == b.request(i).output_tokens);
        BOOST_TEST(a.request(i).timestamp_ms == b.request(i).timestamp_ms);
        BOOST_TEST(prompt(a, i) == prompt(b, i), boost::test_tools::per_element());
        BOOST_TEST(prompt(a, i).size() == a.request(i).prompt_tokens);
        BOOST_TEST(a.request(i).output_tokens >= 1U);
      }
      BOOST_TEST(prompt(a, 0)[0] != prompt(c, 0)[0]);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_chat_turn_repeats_the_whole_conversation_before_it) {
  const auto trace =
      good("gen:chat?requests=6&users=1&turns=3&system_tokens=50&user_tokens=20&output_tokens=10");
  const auto first = prompt(trace, 0);
  const auto second = prompt(trace, 1);
  const auto third = prompt(trace, 2);
  BOOST_TEST(common_prefix(first, second) == first.size());
  BOOST_TEST(common_prefix(second, third) == second.size());
  BOOST_TEST(second.size() > first.size() + trace.request(0).output_tokens);
  // The fourth request starts a new conversation below the same system prompt.
  const auto fourth = prompt(trace, 3);
  const std::size_t system = common_prefix(first, fourth);
  BOOST_TEST(system >= 25U);
  BOOST_TEST(system <= 76U);
  BOOST_TEST(common_prefix(third, fourth) == system);
}

BOOST_AUTO_TEST_CASE(shared_prompts_begin_with_one_of_the_system_prompts) {
  const auto trace = good("gen:shared?requests=60&systems=3&system_tokens=40&user_tokens=9");
  std::set<TokenId> heads;
  for (std::size_t i = 0; i < trace.size(); ++i) heads.insert(prompt(trace, i)[0]);
  BOOST_TEST(heads.size() == 3U);
}

BOOST_AUTO_TEST_CASE(an_agent_loop_grows_until_its_steps_are_done) {
  const auto trace =
      good("gen:agent?requests=11&agents=1&steps=5&system_tokens=100&observation_tokens=30");
  for (std::size_t i = 1; i < trace.size(); ++i) {
    const bool grows = trace.request(i).prompt_tokens > trace.request(i - 1).prompt_tokens;
    BOOST_TEST(grows == (i % 5 != 0), "request " << i);
  }
}

BOOST_AUTO_TEST_CASE(a_limit_cuts_a_generated_trace) {
  const auto all = good("gen:agent?requests=20");
  const auto some = good("gen:agent?requests=20", 7);
  BOOST_REQUIRE(some.size() == 7U);
  BOOST_TEST(prompt(some, 6) == prompt(all, 6), boost::test_tools::per_element());
  BOOST_TEST(!Trace::open("gen:agent", 0).ok());
}

BOOST_AUTO_TEST_CASE(wrong_parameters_are_named_with_what_is_allowed) {
  const auto has = [](const std::string& line, const std::string& part) {
    BOOST_CHECK_MESSAGE(line.find(part) != std::string::npos, line << "\n  lacks: " << part);
  };
  has(bad("gen:chat?request=5"), "gen:chat: unknown parameter \"request\"; allowed: requests=100");
  has(bad("gen:poem"), "gen:poem: no such generator; there are chat, shared and agent");
  has(bad("gen:"), "no such generator");
  for (const char* value : {"", "0", "-1", "5x", "1.5", "99999999999999999999999", " 5"}) {
    has(bad("gen:chat?requests=" + std::string(value)),
        "it must be an integer from 1 to 100000000");
  }
  has(bad("gen:chat?seed=1&&users=2"), "unknown parameter \"\"");
  has(bad("gen:agent?steps"), "steps=; it must be an integer from 1 to 65536");
}

BOOST_AUTO_TEST_CASE(the_help_names_every_generator_and_parameter) {
  const auto help = Trace::generator_help();
  for (const char* word : {"gen:chat", "gen:shared", "gen:agent", "requests=100",
                           "observation_tokens=512", "systems=4", "turns=6"}) {
    BOOST_CHECK_MESSAGE(help.find(word) != std::string::npos, help << "\n  lacks: " << word);
  }
}

BOOST_AUTO_TEST_SUITE_END()
