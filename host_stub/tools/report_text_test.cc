#include "host_stub/tools/report_text.h"

#include <boost/test/unit_test.hpp>

#include "host_stub/tools/report_example_test.h"

namespace kvc::host {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

BOOST_AUTO_TEST_SUITE(report_text_suite)

BOOST_AUTO_TEST_CASE(numbers_are_grouped_in_threes) {
  BOOST_TEST(grouped(0) == "0");
  BOOST_TEST(grouped(999) == "999");
  BOOST_TEST(grouped(1000) == "1,000");
  BOOST_TEST(grouped(144'800'123) == "144,800,123");
  BOOST_TEST(grouped(UINT64_MAX) == "18,446,744,073,709,551,615");
}

BOOST_AUTO_TEST_CASE(bytes_have_three_digits_and_a_unit) {
  BOOST_TEST(bytes_text(0) == "0 B");
  BOOST_TEST(bytes_text(1023) == "1023 B");
  BOOST_TEST(bytes_text(1024) == "1.00 KiB");
  BOOST_TEST(bytes_text(std::uint64_t{15} << 19U) == "7.50 MiB");
  BOOST_TEST(bytes_text(std::uint64_t{8} << 30U) == "8.00 GiB");
  BOOST_TEST(bytes_text(123'456'789) == "118 MiB");
}

BOOST_AUTO_TEST_CASE(the_table_shows_tokens_with_percent_and_only_outcomes_that_happened) {
  const std::string text = report_text(example_report());
  BOOST_TEST_INFO(text);
  BOOST_TEST(contains(text, "1,000,003   33.33 %"));
  BOOST_TEST(contains(text, "stored device blocks "));
  BOOST_TEST(contains(text, "offers to the connector, each of a block, chunk, tail or state\n"));
  BOOST_TEST(contains(text, "published 7 = stored 4 + dropped_pool_full 3"));
  BOOST_TEST(!contains(text, "dropped_reset"));
  BOOST_TEST(contains(text, "hand-offs  none"));
  BOOST_TEST(contains(text, "leaks: slots 0, holds 0, leases 0, device blocks 0"));
}

BOOST_AUTO_TEST_CASE(the_geometry_names_spans_and_windows) {
  const std::string text = geometry_text(example_report().model);
  BOOST_TEST_INFO(text);
  BOOST_TEST(contains(text, "sim_bytes_per_token 8"));
  BOOST_TEST(contains(text, "64 tokens per block and rank (128 over all ranks)"));
  BOOST_TEST(contains(text, "window 1024 tokens"));
}

BOOST_AUTO_TEST_CASE(a_wrong_run_says_what_is_wrong) {
  RunReport r = example_report();
  BOOST_TEST(r.right());
  r.passes[1].mismatched_blocks = 2;
  r.passes[0].computed_tokens += 1;
  r.passes[1].output_digest = 1;
  r.leaks.holds = 3;
  r.all_offers.counts[1] += 1;
  BOOST_TEST(r.faults().size() == 5U);
  BOOST_TEST(contains(r.faults()[0], "sum to 310, not to the 309 prompt tokens"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::host
