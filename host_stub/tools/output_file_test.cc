#include "host_stub/tools/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <boost/filesystem.hpp>
#include <boost/test/unit_test.hpp>
#include <csignal>
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

BOOST_AUTO_TEST_CASE(a_process_that_is_interrupted_leaves_no_temporary_file) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::signal(signal, SIG_DFL);
      Result<OutputFile> committed = OutputFile::create((*this)("done"));
      const bool ok = committed.ok() && committed.value().commit("x").ok();
      const Result<OutputFile> file = OutputFile::create((*this)("a.json"));
      if (!ok || !file.ok() || files() != 2) ::_exit(1);
      std::raise(signal);
      ::_exit(2);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    BOOST_TEST((WIFSIGNALED(status) && WTERMSIG(status) == signal));
    BOOST_TEST(files() == 1U);  // what was committed
    fs::remove((*this)("done"));
  }
}

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

BOOST_AUTO_TEST_CASE(a_pipe_is_written_and_stays_a_pipe) {
  const Folder& at = *this;
  BOOST_REQUIRE_EQUAL(::mkfifo(at("p").c_str(), 0600), 0);
  BOOST_TEST(!OutputFile::create(at("p")).ok());  // nobody reads
  const int reader = ::open(at("p").c_str(), O_RDONLY | O_NONBLOCK);
  BOOST_REQUIRE(reader >= 0);
  {
    Result<OutputFile> file = OutputFile::create(at("p"));
    BOOST_REQUIRE(file.ok());
    BOOST_TEST(file.value().commit("hello").ok());
  }
  char got[8] = {};
  BOOST_TEST(::read(reader, got, sizeof got) == 5);
  BOOST_TEST(std::string(got) == "hello");
  ::close(reader);
  { BOOST_REQUIRE(!OutputFile::create(at("p")).ok()); }
  BOOST_TEST((fs::status(at("p")).type() == fs::fifo_file));
  BOOST_TEST(files() == 1U);
}

BOOST_AUTO_TEST_CASE(a_link_stays_a_link_and_its_file_is_replaced) {
  const Folder& at = *this;
  std::ofstream(at("a.json")) << "old";
  fs::create_symlink("a.json", at("link"));
  {
    Result<OutputFile> file = OutputFile::create(at("link"));
    BOOST_REQUIRE(file.ok());
    BOOST_TEST(file.value().commit("new").ok());
  }
  BOOST_TEST(fs::is_symlink(at("link")));
  BOOST_TEST(content(at("a.json")) == "new");
  BOOST_TEST(files() == 2U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::host
