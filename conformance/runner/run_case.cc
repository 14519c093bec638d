#include "conformance/runner/run_case.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "conformance/rig/device_memory.h"
#include "conformance/rig/watch.h"
#include "host_stub/engine/compute_device.h"
#include "host_stub/loader/loader.h"

namespace kvc::conform {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t findings_max = 20;  // of one case; the rest is counted

std::uint64_t ms_since(Clock::time_point from) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - from).count());
}

// What a case says while it runs: one letter, a rule or nothing, a text.
//   F rule text   a finding
//   W text        it passed with a remark
//   S text        it was skipped
//   P             it ran to its end
struct Message {
  char kind = 0;
  std::string rule;
  std::string text;
};

// Hears the findings of one case. Threads: any.
class Recorder final : public rig::Judge {
 public:
  explicit Recorder(std::function<void(const Message&)> say) : say_(std::move(say)) {}

  void fail(RuleId rule, const std::string& text) override {
    const rig::watch::Pause pause;
    const std::lock_guard lock(mutex_);
    if (++findings_ <= findings_max) say_({'F', std::string(rule.text()), text});
  }
  [[nodiscard]] std::size_t findings() const { return findings_; }
  void say(const Message& m) {
    const std::lock_guard lock(mutex_);
    say_(m);
  }

 private:
  std::function<void(const Message&)> say_;
  std::mutex mutex_;
  std::size_t findings_ = 0;
};

// While it lives, the rig's blocks lie on a fake CUDA device; what that finds is a finding.
class BlocksOnDevice final : public rig::DeviceMemory {
 public:
  BlocksOnDevice(const std::string& library, std::uint64_t seed, Recorder& recorder)
      : recorder_(recorder) {
    if (library.empty()) return;
    auto device = host::ComputeDevice::open(library, seed);
    if (!device.ok()) throw std::runtime_error(device.error().text);
    device_ = std::move(device.value());
    rig::set_device_memory(this);
  }
  ~BlocksOnDevice() override { end(); }
  // All worlds are gone: says what the device found.
  void end() {
    rig::set_device_memory(nullptr);
    const std::unique_ptr<host::ComputeDevice> device = std::move(device_);
    if (device == nullptr) return;
    if (const std::string faults = device->faults(); !faults.empty()) {
      recorder_.say({'F', "KVC-P-121", faults});
    }
  }
  [[nodiscard]] std::int32_t kind() const override { return KVC_DEVICE_CUDA; }
  std::uint8_t* allocate(std::uint64_t bytes) override {
    std::byte* const p = device_->allocate({bytes});
    if (p == nullptr) throw std::bad_alloc();
    return reinterpret_cast<std::uint8_t*>(p);
  }
  void release(std::uint8_t* memory) override {
    device_->free(reinterpret_cast<std::byte*>(memory));
  }

 private:
  Recorder& recorder_;
  std::unique_ptr<host::ComputeDevice> device_;
};

// Loads the library and runs the case.
void run_here(const Case& one, const RunOptions& options, Recorder& recorder) {
  const auto loaded = host::load_connector(options.path);
  if (!loaded.ok()) {
    recorder.say({'F', "KVC-L-001", loaded.error().text});
    return;
  }
  void* const lib = ::dlopen(options.path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (lib == nullptr) {
    recorder.say({'F', "KVC-L-001", fmt::format("{} is loaded and not found", options.path)});
    return;
  }
  Context context;
  context.entry = reinterpret_cast<kvc_plugin_entry_fn>(::dlsym(lib, KVC_PLUGIN_ENTRY_NAME));
  rig::watch::set_judge(&recorder);
  const rig::Library library(rig::watch::watched(loaded.value().api));
  context.library = &library;
  context.judge = &recorder;
  context.config_toml = options.config_toml;
  context.seed = options.seed;
  context.one_seed = options.one_seed;
  context.param = one.param;
  context.repeat = repeat_command(options, one.id);
  rig::watch::forget();
  BlocksOnDevice blocks(options.fake_device, options.seed, recorder);
  try {
    one.run(context);
  } catch (const rig::Stop&) {
    // The judge has heard of it.
  } catch (const rig::Declined& declined) {
    if (recorder.findings() == 0) recorder.say({'S', {}, declined.what()});
  } catch (const std::exception& e) {
    recorder.fail(one.rule, fmt::format("the case could not go on: {}", e.what()));
  }
  rig::watch::set_judge(nullptr);
  blocks.end();
  if (!context.warning().empty()) recorder.say({'W', {}, context.warning()});
  recorder.say({'P', {}, {}});
}

// What the messages of a case that ended by itself make.
void add_message(CaseResult& result, bool& ended, const Message& m) {
  switch (m.kind) {
    case 'F': {
      const std::string line = m.rule + ": " + m.text;
      if (result.outcome != Outcome::fail) {
        result.rule = m.rule;
        result.detail.clear();
      }
      result.outcome = Outcome::fail;
      if (("\n" + result.detail + "\n").find("\n" + line + "\n") != std::string::npos) break;
      if (!result.detail.empty()) result.detail += "\n";
      result.detail += line;
      break;
    }
    case 'S':
    case 'W':
      if (result.outcome == Outcome::fail) break;
      result.outcome = m.kind == 'S' ? Outcome::skipped : Outcome::warning;
      result.detail = m.text;
      break;
    default:
      ended = true;
  }
}

// Fields travel as lengths and bytes: texts may contain anything.
void write_all(int to, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(to, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

void send(int to, const Message& m) {
  const auto rule = static_cast<std::uint32_t>(m.rule.size());
  const auto text = static_cast<std::uint32_t>(m.text.size());
  std::string bytes(9, m.kind);
  std::memcpy(&bytes[1], &rule, 4);
  std::memcpy(&bytes[5], &text, 4);
  write_all(to, bytes + m.rule + m.text);
}

std::optional<Message> take_message(std::string& bytes) {
  if (bytes.size() < 9) return std::nullopt;
  std::uint32_t rule = 0;
  std::uint32_t text = 0;
  std::memcpy(&rule, &bytes[1], 4);
  std::memcpy(&text, &bytes[5], 4);
  if (bytes.size() < std::size_t{9} + rule + text) return std::nullopt;
  Message m{bytes[0], bytes.substr(9, rule), bytes.substr(9 + std::size_t{rule}, text)};
  bytes.erase(0, std::size_t{9} + rule + text);
  return m;
}

// What a child process tells of the call that it makes.
class SharedTrace {
 public:
  SharedTrace() {
    void* const memory = ::mmap(nullptr, sizeof(rig::watch::Trace), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no shared memory");
    trace_.reset(new (memory) rig::watch::Trace);
  }
  [[nodiscard]] rig::watch::Trace* get() { return trace_.get(); }

 private:
  struct Unmap {
    void operator()(rig::watch::Trace* t) const { ::munmap(t, sizeof *t); }
  };
  std::unique_ptr<rig::watch::Trace, Unmap> trace_;
};

// "exit code 3", "signal 11 (SIGSEGV)".
std::string end_of_process(int status) {
  return WIFSIGNALED(status)
             ? fmt::format("signal {} (SIG{})", WTERMSIG(status), ::sigabbrev_np(WTERMSIG(status)))
             : fmt::format("exit code {}", WEXITSTATUS(status));
}

struct Child {
  const Case* one = nullptr;
  std::size_t index = 0;
  pid_t pid = 0;
  int from = -1;
  Clock::time_point begun;
  std::string bytes;
  CaseResult result;
  bool ended = false;
  bool killed = false;
  SharedTrace trace;
};

Child start(const Case& one, std::size_t index, const RunOptions& options) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
  std::fflush(stdout);
  std::fflush(stderr);
  Child child;
  child.one = &one;
  child.index = index;
  child.begun = Clock::now();
  child.pid = ::fork();
  if (child.pid < 0) throw std::runtime_error("no child process");
  if (child.pid == 0) {
    ::setpgid(0, 0);
    ::close(ends[0]);
    rig::watch::trace_into(child.trace.get());
    Recorder recorder([to = ends[1]](const Message& m) { send(to, m); });
    run_here(one, options, recorder);
    // Not exit: handlers of the connector are not what is tested, and there may be threads of it.
    std::fflush(stdout);
    ::_exit(0);
  }
  ::setpgid(child.pid, child.pid);
  ::close(ends[1]);
  child.from = ends[0];
  child.result.id = one.id;
  child.result.rule = one.rule.text();
  return child;
}

void add_detail(CaseResult& result, const std::string& text) {
  result.detail += (result.detail.empty() ? "" : "\n") + text;
}

// The child's pipe is closed: it is over.
void finish(Child& child) {
  ::close(child.from);
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  ::kill(-child.pid, SIGKILL);  // what it may have started
  CaseResult& r = child.result;
  r.ms = ms_since(child.begun);
  if (child.killed) {
    if (r.outcome != Outcome::fail) r.detail.clear();
    r.outcome = Outcome::timed_out;
    add_detail(r, fmt::format("not over after {} s, {}", r.ms / 1000,
                              rig::watch::where(*child.trace.get())));
  } else if (!child.ended || WIFSIGNALED(status)) {
    if (r.outcome != Outcome::fail) r.detail.clear();
    r.outcome = Outcome::crashed;
    add_detail(r, fmt::format("the process ended by {} {}", end_of_process(status),
                              rig::watch::where(*child.trace.get())));
  }
}

// Reads what there is; true at the end of the pipe.
bool read_some(Child& child) {
  char buffer[4096];
  const ssize_t n = ::read(child.from, buffer, sizeof buffer);
  if (n < 0) return errno != EINTR;
  child.bytes.append(buffer, static_cast<std::size_t>(n));
  while (auto m = take_message(child.bytes)) add_message(child.result, child.ended, *m);
  return n == 0;
}

// The process has ended. Its pipe may be open all the same: in one that it has left behind.
bool has_ended(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

bool readable(int from) {
  pollfd wait{from, POLLIN, 0};
  return ::poll(&wait, 1, 0) > 0;
}

// Reads what the child says; true when it is over.
bool is_over(Child& child) {
  const bool ended = has_ended(child.pid);  // before the last look at its pipe
  while (readable(child.from)) {
    if (read_some(child)) return true;
    if (!ended) return false;
  }
  return ended;
}

CaseResult run_in_this_process(const Case& one, const RunOptions& options) {
  CaseResult result;
  result.id = one.id;
  result.rule = one.rule.text();
  bool ended = false;
  const auto begun = Clock::now();
  Recorder recorder([&](const Message& m) { add_message(result, ended, m); });
  run_here(one, options, recorder);
  result.ms = ms_since(begun);
  return result;
}

}  // namespace

std::string repeat_command(const RunOptions& options, std::string_view id) {
  std::string pattern;
  for (const char c : id) {
    if (c == '.') pattern += '\\';
    pattern += c;
  }
  return fmt::format("{} --only '^{}$'", options.command, pattern);
}

std::vector<CaseResult> run_cases(std::span<const Case> cases, const RunOptions& options,
                                  const std::function<void(const CaseResult&)>& on_result) {
  std::vector<CaseResult> results(cases.size());
  if (options.in_process) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      results[i] = run_in_this_process(cases[i], options);
      on_result(results[i]);
    }
    return results;
  }
  std::vector<Child> children;
  std::size_t next = 0;
  while (next < cases.size() || !children.empty()) {
    while (next < cases.size() && children.size() < options.parallel) {
      children.push_back(start(cases[next], next, options));
      ++next;
    }
    std::vector<pollfd> waits;
    for (const Child& c : children) waits.push_back({c.from, POLLIN, 0});
    ::poll(waits.data(), waits.size(), 100);
    for (std::size_t i = children.size(); i-- != 0;) {
      Child& c = children[i];
      const std::uint64_t seconds = options.seconds != 0
                                        ? options.seconds
                                        : std::uint64_t{c.one->seconds} * options.seconds_factor;
      const std::uint64_t limit = 1000 * seconds;
      if (!c.killed && ms_since(c.begun) > limit) {
        c.killed = true;
        ::kill(-c.pid, SIGKILL);
      }
      if (!is_over(c)) continue;
      finish(c);
      results[c.index] = c.result;
      on_result(c.result);
      children.erase(children.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return results;
}

namespace {

// In the process that may be lost.
Loaded look(const RunOptions& options) {
  Loaded loaded;
  loaded.plugin.path = options.path;
  const auto library = host::load_connector(options.path);
  if (!library.ok()) {
    loaded.refusal = library.error().text;
    return loaded;
  }
  loaded.plugin.name = library.value().name;
  loaded.plugin.version = library.value().version;
  loaded.plugin.build_id = library.value().build_id;
  if (options.fake_device.empty()) return loaded;
  const auto device = host::ComputeDevice::open(options.fake_device, options.seed);
  if (!device.ok())
    loaded.refusal = fmt::format("--fake-device {}: {}", options.fake_device, device.error().text);
  return loaded;
}

}  // namespace

Loaded look_at_library(const RunOptions& options) {
  if (options.in_process) return look(options);
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error("no child process");
  if (pid == 0) {
    ::setpgid(0, 0);
    const Loaded loaded = look(options);
    send(ends[1], {'L', loaded.plugin.name, loaded.refusal});
    send(ends[1], {'V', loaded.plugin.version, loaded.plugin.build_id});
    ::_exit(0);
  }
  ::setpgid(pid, pid);
  ::close(ends[1]);
  const unsigned seconds = options.seconds != 0 ? options.seconds : 60 * options.seconds_factor;
  const auto begun = Clock::now();
  std::string bytes;
  std::optional<Message> first;
  std::optional<Message> second;
  while (!second && ms_since(begun) <= std::uint64_t{1000} * seconds) {
    const bool ended = has_ended(pid);
    pollfd wait{ends[0], POLLIN, 0};
    if (::poll(&wait, 1, ended ? 0 : 100) <= 0) {
      if (ended) break;
      continue;
    }
    char buffer[4096];
    const ssize_t n = ::read(ends[0], buffer, sizeof buffer);
    if (n == 0) break;
    if (n > 0) bytes.append(buffer, static_cast<std::size_t>(n));
    if (!first) first = take_message(bytes);
    if (first) second = take_message(bytes);
  }
  ::close(ends[0]);
  const bool late = !second && ms_since(begun) > std::uint64_t{1000} * seconds;
  if (late) ::kill(-pid, SIGKILL);
  int status = 0;
  ::waitpid(pid, &status, 0);
  Loaded loaded;
  loaded.plugin.path = options.path;
  if (late) {
    loaded.refusal =
        fmt::format("{}: loading it is not over after {} s [KVC-P-002]", options.path, seconds);
    return loaded;
  }
  if (!first || !second) {
    loaded.refusal = fmt::format("{}: loading it ends the process by {} [KVC-P-002]", options.path,
                                 end_of_process(status));
    return loaded;
  }
  loaded.plugin.name = first->rule;
  loaded.refusal = first->text;
  loaded.plugin.version = second->rule;
  loaded.plugin.build_id = second->text;
  return loaded;
}

}  // namespace kvc::conform
