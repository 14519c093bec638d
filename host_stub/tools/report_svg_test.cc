#include "host_stub/tools/report_svg.h"

#include <algorithm>
#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <boost/test/unit_test.hpp>
#include <sstream>

#include "host_stub/tools/report_example_test.h"

namespace kvc::host {
namespace {

using boost::property_tree::ptree;

ptree parsed(const std::string& svg) {
  std::istringstream in(svg);
  ptree tree;
  boost::property_tree::read_xml(in, tree);
  return tree.get_child("svg");
}

std::size_t bars_of(const ptree& svg, const std::string& colour) {
  std::size_t n = 0;
  for (const auto& [tag, node] : svg) {
    n += tag == "rect" && node.get("<xmlattr>.fill", "") == colour &&
         node.get("<xmlattr>.height", 0.0) != 11.0;
  }
  return n;
}

bool has_text(const ptree& svg, const std::string& part) {
  return std::any_of(svg.begin(), svg.end(), [&](const auto& child) {
    return child.first == "text" && child.second.data().find(part) != std::string::npos;
  });
}

BOOST_AUTO_TEST_SUITE(report_svg)

BOOST_AUTO_TEST_CASE(the_picture_is_well_formed_for_names_with_markup) {
  const ptree svg = parsed(to_svg(example_report()));
  BOOST_TEST(has_text(svg, "two & a <half>"));
  BOOST_TEST(has_text(svg, "prompt tokens per request"));
  BOOST_TEST(has_text(svg, "pool occupancy"));
  BOOST_TEST(has_text(svg, "requests finished"));
}

BOOST_AUTO_TEST_CASE(seven_hundred_requests_become_bins_of_five_that_do_not_cross_a_pass) {
  const ptree svg = parsed(to_svg(example_report()));
  BOOST_TEST(bars_of(svg, "#b8b8b8") == 140U);
  BOOST_TEST(has_text(svg, "mean of 5 requests"));
}

BOOST_AUTO_TEST_CASE(a_source_without_tokens_draws_no_bars) {
  RunReport r = example_report();
  for (RequestSample& s : r.samples) s.external_tokens = 0;
  BOOST_TEST(bars_of(parsed(to_svg(r)), "#0072b2") == 0U);
}

BOOST_AUTO_TEST_CASE(each_pool_is_one_line_per_pass_and_an_unknown_host_pool_has_none) {
  const auto lines = [](const RunReport& r) { return parsed(to_svg(r)).count("polyline"); };
  RunReport r = example_report();
  BOOST_TEST(lines(r) == 6U);
  for (RequestSample& s : r.samples) s.host_used_slots = 0;
  BOOST_TEST(lines(r) == 4U);
}

BOOST_AUTO_TEST_CASE(unlimited_pools_are_drawn_against_their_peak) {
  RunReport r = example_report();
  r.host_slots = 0;
  BOOST_TEST(has_text(parsed(to_svg(r)), "100 % = its peak of 348 slots"));
}

BOOST_AUTO_TEST_CASE(a_run_without_requests_gives_empty_panels) {
  RunReport r = example_report();
  r.samples.clear();
  r.passes.clear();
  const ptree svg = parsed(to_svg(r));
  BOOST_TEST(svg.count("polyline") == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::host
