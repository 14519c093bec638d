#include "plugin/tests/seed.h"

namespace {

using namespace kvc::test;

BOOST_AUTO_TEST_SUITE(seed)

BOOST_AUTO_TEST_CASE(the_command_names_program_and_case_from_the_root_of_the_tree) {
  BOOST_TEST(from_root(KVC_SOURCE_DIR "/build/x/bin/a_test") == "build/x/bin/a_test");
  BOOST_TEST(from_root("build/dev/bin/a_test") == "build/dev/bin/a_test");
  BOOST_TEST(from_root("/elsewhere/a_test") == "/elsewhere/a_test");
  const std::string command = repeat_command(17);
  const std::string end =
      "kvc_seed_test --run_test="
      "seed/the_command_names_program_and_case_from_the_root_of_the_tree";
  BOOST_TEST(command.starts_with("repeat: KVC_SEED=17 "), command);
  BOOST_TEST(command.ends_with(end), command);
}

// Runs itself as the command of its outer run says: the seed is the one printed, the case is found.
BOOST_AUTO_TEST_CASE(the_command_runs_as_it_is_printed) {
  if (only_seed()) {
    BOOST_TEST(seed_or(3) == 4711U);
    return;
  }
  BOOST_TEST(seed_or(3) == 3U);
  std::string command = repeat_command(4711);
  command.erase(0, command.find(' ') + 1);
  const std::string there = std::string("cd '") + KVC_SOURCE_DIR + "' && " + command;
  BOOST_TEST(std::system((there + " >/dev/null").c_str()) == 0, command);
  const std::string other = "KVC_SEED=4712" + command.substr(command.find(' '));
  const std::string wrong = std::string("cd '") + KVC_SOURCE_DIR + "' && " + other;
  BOOST_TEST(std::system((wrong + " >/dev/null 2>&1").c_str()) != 0, other);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
