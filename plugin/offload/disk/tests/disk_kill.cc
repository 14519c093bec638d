// Kills a process that stores and reads blocks, again and again on one folder, and looks at what
// the next one finds (./dev test-kill).
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>

#include "plugin/core/clock.h"
#include "plugin/offload/disk/disk_store.h"
#include "plugin/offload/disk/tests/block_bytes.h"
#include "plugin/offload/disk/tests/folder.h"

namespace {

using kvc::Code;
using kvc::Prng;
using namespace kvc::disk;
using kvc::disk_test::bytes_of;
using kvc::disk_test::key_number;

constexpr std::uint64_t numbers = 512;
constexpr std::uint64_t payload[] = {20'000, 65'536};

// What a process that dies leaves to the next: shared memory, one word a block.
enum : std::uint32_t { unknown = 0, told_written = 1, told_to_go = 2 };
struct Shared {
  std::atomic<std::uint32_t> state[2][numbers];
  std::atomic<std::uint64_t> begun;  // this process works
  std::atomic<std::uint64_t> checked;
  std::atomic<std::uint64_t> written;
  std::atomic<std::uint64_t> open_ns_most;
  std::atomic<std::uint64_t> warm;  // blocks found by opens
};

struct Trouble : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// One life: opens, checks everything that is there, then stores, reads and erases for ever.
class Life {
 public:
  Life(const std::string& folder, std::uint64_t point, std::uint64_t seed, Shared& shared)
      : shared_(shared), rng_(seed) {
    options_.folder = folder;
    options_.namespace_id = {'k', 'i', 'l', 'l'};
    options_.budget = {std::uint64_t{16} << 20U};
    options_.payload_of_group = {payload[0], payload[1]};
    options_.engine = point % 3 == 0 ? EngineChoice::threads : EngineChoice::best;
    options_.direct = point % 4 != 0;
    options_.sync = point % 16 == 5;
  }

  void run(std::uint64_t lives) {
    const std::uint64_t begin = clock_.now_ns();
    auto made = DiskStore::open(options_, files_);
    if (!made.ok()) throw Trouble("open: " + made.error().text);
    store_ = std::move(made.value());
    const std::uint64_t took = clock_.now_ns() - begin;
    if (took > shared_.open_ns_most.load()) shared_.open_ns_most = took;
    check_budget();
    check_all();
    shared_.warm += store_->blocks();
    shared_.begun = lives;
    for (;;) work();
  }

  void check_budget() {
    std::uint64_t bytes = 0;
    for (const auto& e : std::filesystem::directory_iterator(options_.folder + "/rank-0")) {
      struct stat s {};
      if (::stat(e.path().c_str(), &s) == 0) bytes += static_cast<std::uint64_t>(s.st_blocks) * 512;
    }
    // What the file system itself needs to find scattered pieces is not ours to count.
    if (bytes > options_.budget.n + options_.budget.n / 50) {
      throw Trouble(fmt::format("{} bytes on disk, the budget is {}", bytes, options_.budget.n));
    }
  }

  // Every block that is there is right; every block that was told to be there is.
  void check_all() {
    for (std::uint32_t g = 0; g < 2; ++g) {
      for (std::uint64_t n = 0; n < numbers; ++n) {
        const bool there = store_->contains(g, key_number(n));
        const std::uint32_t state = shared_.state[g][n].load();
        if (!there && state == told_written) {
          throw Trouble(fmt::format("block {} of group {} was written and is not there", n, g));
        }
        shared_.state[g][n] = there ? told_written : unknown;
        if (there) start_read(g, n);
        while (store_->open_operations() > 24) finish_some();
      }
    }
    while (store_->open_operations() != 0) finish_some();
    if (store_->counters().corrupt != 0) {
      throw Trouble(fmt::format("{} blocks are not whole", store_->counters().corrupt));
    }
    if (std::string broken = store_->verify(); !broken.empty()) throw Trouble(broken);
  }

 private:
  struct Open {
    std::uint32_t group = 0;
    std::uint64_t number = 0;
    std::vector<std::byte> bytes;
  };

  void start_read(std::uint32_t g, std::uint64_t n) {
    Open& open = open_[++id_];
    open = {g, n, std::vector<std::byte>(payload[g])};
    const Code code = store_->read({id_, g, 16 * (n + 1), key_number(n), open.bytes.data()}, now());
    if (code != Code::ok) throw Trouble(fmt::format("read: code {}", static_cast<int>(code)));
  }

  void work() {
    const auto g = static_cast<std::uint32_t>(rng_.below(2));
    const std::uint64_t n = rng_.below(numbers);
    const bool there = store_->contains(g, key_number(n));
    const std::uint64_t what = rng_.below(10);
    if (store_->open_operations() >= 32) {
      finish_some();
    } else if (there && what < 3) {
      start_read(g, n);
    } else if (there && what == 3) {
      erase(g, key_number(n));
    } else if (!there) {
      start_write(g, n);
    }
  }

  void erase(std::uint32_t g, const Key& key) {
    for (std::uint64_t n = 0; n < numbers; ++n) {
      if (key_number(n) == key) shared_.state[g][n] = told_to_go;
    }
    if (!store_->erase(g, key)) throw Trouble("a block cannot be erased");
  }

  void start_write(std::uint32_t g, std::uint64_t n) {
    Open open{g, n, bytes_of(g, n, payload[g])};
    Identity what;
    what.group = g;
    what.end_tokens = 16 * (n + 1);
    what.key = key_number(n);
    const Code code = store_->write({++id_, what, open.bytes.data(), payload[g]}, now());
    if (code == Code::ok) {
      shared_.state[g][n] = unknown;
      open_.emplace(id_, std::move(open));
    } else if (code == Code::full) {
      const auto oldest = store_->oldest_like(rng_.chance(1, 8) ? 1 - g : g);
      if (oldest) erase(oldest->group, oldest->key);
    }
  }

  void finish_some() {
    DiskDone done[16];
    const std::size_t n = store_->poll(done, now());
    if (n == 0) store_->wait(5'000'000);
    for (std::size_t i = 0; i < n; ++i) {
      const auto it = open_.find(done[i].id);
      if (it == open_.end()) throw Trouble("an operation is reported that is not open");
      const Open& open = it->second;
      if (done[i].op == DiskOp::read) {
        if (done[i].status != Code::ok || done[i].gone) {
          throw Trouble(fmt::format("block {} of group {} cannot be read: code {}", open.number,
                                    open.group, static_cast<int>(done[i].status)));
        }
        if (open.bytes != bytes_of(open.group, open.number, payload[open.group])) {
          throw Trouble(
              fmt::format("block {} of group {} has wrong bytes", open.number, open.group));
        }
        ++shared_.checked;
      } else if (done[i].status == Code::ok) {
        // Erased before its end was polled: it may be gone.
        if (store_->contains(open.group, key_number(open.number))) {
          shared_.state[open.group][open.number] = told_written;
        }
        ++shared_.written;
      } else if (done[i].status != Code::full) {
        throw Trouble(fmt::format("write: code {}", static_cast<int>(done[i].status)));
      }
      open_.erase(it);
    }
  }

  std::uint64_t now() const { return clock_.now_ns(); }

  Shared& shared_;
  Prng rng_;
  kvc::SteadyClock clock_;
  PosixFiles files_;
  DiskStoreOptions options_;
  std::unique_ptr<DiskStore> store_;
  std::map<std::uint64_t, Open> open_;
  std::uint64_t id_ = 0;
};

// In a child: 0 is never reached, it works until it is killed.
[[noreturn]] void live(const std::string& folder, std::uint64_t point, std::uint64_t seed,
                       Shared& shared) {
  try {
    Life(folder, point, seed, shared).run(point + 1);
  } catch (const std::exception& e) {
    fmt::print(stderr, "point {}: {}\n", point, e.what());
  }
  std::_Exit(1);
}

// Waits until the child works, then for so long, or until it has ended by itself.
bool kill_after(pid_t child, std::uint64_t point, std::uint64_t work_ns, const Shared& shared) {
  const kvc::SteadyClock clock;
  std::uint64_t until = UINT64_MAX;
  for (;;) {
    if (::waitpid(child, nullptr, WNOHANG) == child) return false;
    if (until == UINT64_MAX && shared.begun.load() == point + 1) until = clock.now_ns() + work_ns;
    if (clock.now_ns() >= until) break;
    const timespec pause{0, 100'000};
    ::clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, nullptr);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return true;
}

int run(std::uint64_t points, std::uint64_t seed, const std::string& given) {
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw Trouble("no shared memory");
  Shared& shared = *new (memory) Shared{};
  const kvc::disk_test::Folder own;
  const std::string folder = given.empty() ? own.path() : given;
  Prng rng(seed);
  fmt::print("disk_kill: {} points, seed {}, in {}\n", points, seed, folder);
  std::fflush(stdout);
  for (std::uint64_t point = 0; point < points; ++point) {
    const std::uint64_t life_seed = rng.next();
    // Mostly soon after the start, where much is at work for the first time.
    const std::uint64_t work_ns = rng.below(rng.chance(1, 4) ? 60'000'000 : 8'000'000);
    const pid_t child = ::fork();
    if (child < 0) throw Trouble("no process");
    if (child == 0) live(folder, point, life_seed, shared);
    if (!kill_after(child, point, work_ns, shared)) {
      fmt::print(stderr, "failed at point {}\nrepeat: kvc_disk_kill --points {} --seed {}\n", point,
                 point + 1, seed);
      return 1;
    }
  }
  fmt::print(
      "disk_kill: {} kills; {} blocks written, {} read and right, {} found warm; slowest "
      "open {:.1f} ms\n",
      points, shared.written.load(), shared.checked.load(), shared.warm.load(),
      static_cast<double>(shared.open_ns_most.load()) / 1e6);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Kills a process that uses the disk tier at random moments, many times"};
  std::uint64_t points = 50;
  std::uint64_t seed = 1;
  std::string folder;
  app.add_option("--points", points, "how many times");
  app.add_option("--seed", seed, "of all choices; the moments also depend on the machine");
  app.add_option("--folder", folder, "where; default: a temporary folder");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(points, seed, folder);
  } catch (const std::exception& e) {
    fmt::print(stderr, "disk_kill: {}\n", e.what());
    return 1;
  }
}
