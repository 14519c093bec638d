#include "conformance/acceptance/trace_rules.h"

#include <boost/test/unit_test.hpp>

namespace kvc::acceptance {
namespace {

const std::string& conversation() {
  static const std::string path = std::string(KVC_CORPUS) + "/traces/mooncake_conversation.jsonl";
  return path;
}

BOOST_AUTO_TEST_SUITE(trace_rules)

BOOST_AUTO_TEST_CASE(the_conversation_trace_has_the_counts_that_were_published_with_it) {
  const auto rows = read_rows(conversation());
  BOOST_TEST(rows.size() == 12'031U);
  BOOST_TEST(ideal_hit_tokens(rows, 16) == 54'097'440U);
  const std::uint64_t unique = unique_ids(rows);
  const double percent[] = {2, 5, 10, 20};
  const double published[] = {8.20, 20.17, 28.66, 35.41};
  for (std::size_t i = 0; i < 4; ++i) {
    const auto capacity =
        static_cast<std::uint64_t>(static_cast<double>(unique) * percent[i] / 100);
    const double share = 100 * static_cast<double>(lru_hit_tokens(rows, capacity)) /
                         static_cast<double>(sum_of_prompts(rows));
    BOOST_TEST(share == published[i], boost::test_tools::tolerance(0.005 / published[i]));
  }
}

BOOST_AUTO_TEST_CASE(four_blocks_in_four_slots_lose_the_tail_to_one_later_block) {
  const Row four{2049, 1, {1, 2, 3, 4, 5}};
  const Row one{513, 1, {9, 10}};
  BOOST_TEST(lru_hit_tokens({four, four}, 4) == 4 * 512U);
  BOOST_TEST(lru_hit_tokens({four, one, four}, 4) == 3 * 512U);
}

BOOST_AUTO_TEST_CASE(a_prompt_never_hits_its_last_token) {
  const Row row{1024, 1, {1, 2}};
  BOOST_TEST(replay_limit_tokens({row}, 16) == 1008U);
  BOOST_TEST(ideal_hit_tokens({row, row}, 16) == 1008U);
  BOOST_TEST(lru_hit_tokens({row, row}, 10) == 512U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::acceptance
