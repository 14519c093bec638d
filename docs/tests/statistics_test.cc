// docs/statistics.md shows every statistic that the connectors have, as host_stub/tools has them.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "plugin/offload/flows/stat_list.h"

namespace {

struct Statistic {
  std::string_view name;
  std::string_view kind;
  std::string_view text;
};
constexpr Statistic table[] = {
#define KVC_STATISTIC(name, kind, text) {name, #kind, text},
#include "host_stub/tools/statistics.def"
#undef KVC_STATISTIC
};

// Rows with labels, which are not in the list of names.
constexpr std::string_view with_labels[] = {"gate_off_now", "policy_hazard_ppb_now",
                                            "policy_top_class_now", "policy_top_class_hits"};

BOOST_AUTO_TEST_SUITE(docs_statistics)

BOOST_AUTO_TEST_CASE(every_statistic_of_the_connectors_is_described) {
  std::set<std::string_view> described;
  for (const Statistic& s : table) {
    BOOST_TEST(described.insert(s.name).second, s.name << " is described twice");
  }
  for (const std::string_view name : kvc::stat_names) {
    BOOST_TEST(described.count(name) == 1U, name << " is not in host_stub/tools/statistics.def");
  }
  for (const std::string_view name : with_labels) BOOST_TEST(described.count(name) == 1U, name);
}

BOOST_AUTO_TEST_CASE(what_ends_in_now_is_a_level) {
  for (const Statistic& s : table) {
    if (s.name.ends_with("_now")) BOOST_TEST(s.kind == "level", s.name);
  }
}

BOOST_AUTO_TEST_CASE(the_page_shows_the_table) {
  std::ifstream in(KVC_SOURCE_DIR "/docs/statistics.md");
  std::ostringstream page;
  page << in.rdbuf();
  std::string rows;
  std::istringstream lines(page.str());
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("| `")) rows += line + "\n";
  }
  std::string right;
  for (const Statistic& s : table) {
    right += "| `" + std::string(s.name) + "` | " + std::string(s.kind) + " | " +
             std::string(s.text) + " |\n";
  }
  BOOST_TEST(rows == right);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
