// Runs the built programs and catches what they say.
#pragma once
#include <sys/wait.h>
#include <algorithm>
#include <boost/filesystem.hpp>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace kvc::host {

struct Outcome {
  std::string command;
  int code = -1;  // 128 + signal after a crash
  std::string out;
  std::string err;
};

// A folder of its own for the files of one test case, removed at its end.
struct ProgramFolder {
  ProgramFolder()
      : folder(boost::filesystem::temp_directory_path() /
               boost::filesystem::unique_path("kvc_run_%%%%%%%%")) {
    boost::filesystem::create_directory(folder);
  }
  ~ProgramFolder() { boost::filesystem::remove_all(folder); }
  ProgramFolder(const ProgramFolder&) = delete;
  ProgramFolder& operator=(const ProgramFolder&) = delete;

  [[nodiscard]] static std::string model(const std::string& name) {
    return std::string(KVC_SOURCE_DIR) + "/config/examples/models/" + name + ".toml";
  }
  [[nodiscard]] static std::string library(const std::string& name) {
    return std::string(KVC_LIB_DIR) + "/lib" + name + ".so";
  }
  [[nodiscard]] std::string text_of(const std::string& name) const {
    std::ifstream in((folder / name).string());
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  [[nodiscard]] Outcome run_program(const std::vector<std::string>& args,
                                    const std::string& program = "kvc-run",
                                    const std::string& out = {}) const {
    Outcome outcome;
    outcome.command = std::string(KVC_BIN_DIR) + "/" + program;
    for (const std::string& arg : args) outcome.command += " '" + arg + "'";
    const std::string redirected = outcome.command + " </dev/null >'" +
                                   (out.empty() ? (folder / "stdout").string() : out) + "' 2>'" +
                                   (folder / "stderr").string() + "'";
    const int status = std::system(redirected.c_str());
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (out.empty()) outcome.out = text_of("stdout");
    outcome.err = text_of("stderr");
    return outcome;
  }

  // --version of the program: one line with its name and a number.
  [[nodiscard]] std::string wrong_version(const std::string& program) const {
    const Outcome out = run_program({"--version"}, program);
    const bool one_line = std::count(out.out.begin(), out.out.end(), '\n') == 1;
    const std::string begin = program + " ";
    if (out.code == 0 && out.err.empty() && one_line && out.out.starts_with(begin) &&
        std::isdigit(static_cast<unsigned char>(out.out[begin.size()])) != 0) {
      return {};
    }
    return out.command + " ended with " + std::to_string(out.code) + ": " + out.out + out.err;
  }

  // With a stdout that takes nothing: this exit code, and the program says why on stderr.
  [[nodiscard]] std::string wrong_at_a_full_stdout(const std::vector<std::string>& args,
                                                   const std::string& program, int code) const {
    const Outcome full = run_program(args, program, "/dev/full");
    const std::string why = program + ": stdout cannot be written";
    if (full.code == code && full.err.find(why) != std::string::npos) return {};
    return full.command + " ended with " + std::to_string(full.code) + ": " + full.err;
  }

  boost::filesystem::path folder;
};

}  // namespace kvc::host
