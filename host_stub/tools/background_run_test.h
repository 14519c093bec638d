// kvc-run in the background: what it says on stderr can be read, and it is killed at the end.
#pragma once
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "host_stub/tools/run_program_test.h"

namespace kvc::host {

struct Background : ProgramFolder {
  void start(const std::vector<std::string>& args) {
    std::array<int, 2> ends{};
    BOOST_REQUIRE(::pipe(ends.data()) == 0);
    std::fflush(stdout);  // or the child says it again
    child = ::fork();
    if (child == 0) {
      ::dup2(ends[1], 2);
      ::close(ends[0]);
      std::FILE* const out = std::freopen((folder / "stdout").string().c_str(), "w", stdout);
      const std::string program = std::string(KVC_BIN_DIR) + "/kvc-run";
      std::vector<char*> argv{const_cast<char*>(program.c_str())};
      for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
      argv.push_back(nullptr);
      if (out != nullptr) ::execv(program.c_str(), argv.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    err = ::fdopen(ends[0], "r");
  }
  // SIGKILL, and it is gone.
  void kill() {
    if (child > 0) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    child = -1;
    if (err != nullptr) std::fclose(err);
    err = nullptr;
  }
  ~Background() { kill(); }
  // The port that the first line names; 0: it ended without one.
  [[nodiscard]] int port() const {
    char line[256];
    int found = 0;
    while (found == 0 && std::fgets(line, sizeof line, err) != nullptr) {
      if (std::sscanf(line, "kvc-run: http://127.0.0.1:%d/metrics", &found) != 1) found = 0;
    }
    return found;
  }

  pid_t child = -1;
  std::FILE* err = nullptr;
};

// The value of a sample without labels; -1: there is none.
inline double value_of(const std::string& metrics, const std::string& name) {
  const std::size_t at = ("\n" + metrics).find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::atof(metrics.c_str() + at + name.size());
}

}  // namespace kvc::host
