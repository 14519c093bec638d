#include "host_stub/tools/output_file.h"

#include <unistd.h>
#include <boost/filesystem.hpp>
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <sstream>

namespace kvc::host {
namespace {

namespace fs = boost::filesystem;

struct Folder {
  Folder() : path(fs::temp_directory_path() / fs::unique_path("kvc_output_%%%%%%%%")) {
    fs::create_directory(path);
  }
  ~Folder() { fs::remove_all(path); }
  [[nodiscard]] std::string operator()(const std::string& name) const {
    return (path / name).string();
  }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(path), fs::directory_iterator()));
  }
  fs::path path;
};

std::string content(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

BOOST_FIXTURE_TEST_SUITE(output_file, Folder)

BOOST_AUTO_TEST_CASE(the_file_appears_whole_at_commit_and_nothing_else_stays) {
  const Folder& at = *this;
  {
    Result<OutputFile> file = OutputFile::create(at("a.json"));
    BOOST_REQUIRE(file.ok());
    BOOST_TEST(!fs::exists(at("a.json")));
    BOOST_TEST(file.value().commit("hello").ok());
  }
  BOOST_TEST(content(at("a.json")) == "hello");
  BOOST_TEST(files() == 1U);
}

BOOST_AUTO_TEST_CASE(an_older_file_stays_when_the_work_fails) {
  const Folder& at = *this;
  std::ofstream(at("a.json")) << "old";
  { BOOST_REQUIRE(OutputFile::create(at("a.json")).ok()); }
  BOOST_TEST(content(at("a.json")) == "old");
  BOOST_TEST(files() == 1U);
}

BOOST_AUTO_TEST_CASE(paths_that_cannot_be_written_are_refused_with_their_name) {
  const Folder& at = *this;
  for (const std::string& bad : {at("no/such/a.json"), path.string(), std::string()}) {
    const Result<OutputFile> file = OutputFile::create(bad);
    BOOST_REQUIRE(!file.ok());
    BOOST_TEST((file.error().code == Code::arg));
    BOOST_TEST(file.error().text.find(bad) != std::string::npos);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::host
