#include "plugin/offload/disk/io_engine.h"

#include <fcntl.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cstring>
#include <deque>
#include <numeric>
#include <vector>

#include "plugin/core/fault.h"
#include "plugin/offload/disk/tests/faulty_files.h"
#include "plugin/offload/disk/tests/folder.h"
#include "plugin/tests/seed.h"

namespace kvc::disk {
namespace {

using disk_test::FaultyFiles;
using disk_test::Folder;

// Makes its calls one after the other and keeps the results.
class Script final : public IoTask {
 public:
  explicit Script(std::vector<IoCall> calls) : calls_(std::move(calls)) {}
  IoCall step(IoResult result) override {
    if (at_ != 0) results.push_back(result);
    return at_ < calls_.size() ? calls_[at_++] : IoCall{};
  }
  std::vector<IoResult> results;

 private:
  std::vector<IoCall> calls_;
  std::size_t at_ = 0;
};

std::unique_ptr<IoEngine> make(const std::string& kind, const IoEngineOptions& options,
                               Files& files) {
  if (kind == "threads") return make_thread_engine(options, files);
  if (kind == "stepped") return make_stepped_engine(options, files, 0);
  auto made = make_uring_engine(options, files);
  if (!made.ok()) {
    BOOST_TEST_MESSAGE("no io_uring here: " << made.error().text);
    return nullptr;
  }
  return std::move(made.value());
}

const std::vector<std::string> kinds = {"threads", "stepped", "io_uring"};

struct World {
  explicit World(const std::string& kind, IoEngineOptions given = {}) : options(given) {
    fd = files.open(folder.path() + "/file", O_RDWR | O_CREAT);
    BOOST_REQUIRE(fd >= 0);
    engine = make(kind, options, files);
  }
  ~World() {
    files.release();
    engine.reset();
    files.close(fd);
  }
  // Polls until `count` tasks have ended.
  std::vector<IoTask*> await(std::size_t count) {
    std::vector<IoTask*> all;
    while (all.size() < count) {
      IoTask* some[3];
      const std::size_t n = engine->poll(some);
      all.insert(all.end(), some, some + n);
      if (n != 0) continue;
      if (engine->stepped()) {
        BOOST_REQUIRE(engine->pump(1) == 1u);
      } else {
        engine->wait(std::chrono::seconds(10));
      }
    }
    return all;
  }
  Folder folder;
  FaultyFiles files;
  IoEngineOptions options;
  int fd = -1;
  std::unique_ptr<IoEngine> engine;
};

BOOST_AUTO_TEST_SUITE(disk_io_engine)

BOOST_AUTO_TEST_CASE(every_engine_moves_the_bytes_of_many_tasks_and_reports_each_once) {
  for (const std::string& kind : kinds) {
    BOOST_TEST_CONTEXT(kind) {
      World w(kind);
      if (w.engine == nullptr) continue;
      BOOST_TEST(w.engine->name() == kind);
      constexpr std::size_t count = 300;
      constexpr std::size_t bytes = 512;
      std::vector<std::byte> written(count * bytes);
      std::vector<std::byte> read(count * bytes);
      for (std::size_t i = 0; i < written.size(); ++i) {
        written[i] = static_cast<std::byte>(i * 7 + i / bytes);
      }
      std::deque<Script> tasks;
      for (std::size_t i = 0; i < count; ++i) {
        const IoCall write{IoKind::write, w.fd, written.data() + i * bytes, bytes, i * bytes};
        IoCall back = write;
        back.kind = IoKind::read;
        back.memory = read.data() + i * bytes;
        tasks.emplace_back(
            std::vector<IoCall>{write, IoCall{IoKind::sync, w.fd, nullptr, 0, 0}, back});
        const IoLane lane = i % 2 == 0 ? IoLane::read : IoLane::write;
        BOOST_REQUIRE(w.engine->submit(lane, tasks.back()));
      }
      std::vector<IoTask*> ended = w.await(count);
      std::sort(ended.begin(), ended.end());
      BOOST_TEST((std::unique(ended.begin(), ended.end()) == ended.end()));
      for (const Script& t : tasks) {
        BOOST_REQUIRE(t.results.size() == 3u);
        BOOST_TEST(t.results[0] == static_cast<IoResult>(bytes));
        BOOST_TEST(t.results[1] == 0);
        BOOST_TEST(t.results[2] == static_cast<IoResult>(bytes));
      }
      BOOST_TEST((read == written));
      BOOST_TEST(w.engine->close(std::chrono::seconds(10)));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_hole_is_punched_and_reads_as_zeroes) {
  for (const std::string& kind : kinds) {
    BOOST_TEST_CONTEXT(kind) {
      World w(kind);
      if (w.engine == nullptr) continue;
      std::vector<std::byte> some(8192, std::byte{7});
      Script task({{IoKind::write, w.fd, some.data(), 8192, 0},
                   {IoKind::sync, w.fd, nullptr, 0, 0},
                   {IoKind::punch, w.fd, nullptr, 4096, 4096},
                   {IoKind::read, w.fd, some.data(), 8192, 0}});
      BOOST_REQUIRE(w.engine->submit(IoLane::write, task));
      w.await(1);
      BOOST_TEST(task.results[2] == 0);
      BOOST_TEST((some[4095] == std::byte{7} && some[4096] == std::byte{0}));
      BOOST_TEST(w.files.allocated(w.fd) == 4096);
    }
  }
}

BOOST_AUTO_TEST_CASE(errors_and_short_transfers_reach_the_task_and_nobody_else) {
  for (const std::string& kind : kinds) {
    BOOST_TEST_CONTEXT(kind) {
      World w(kind, {1, 1, 2, 16, {}});
      if (w.engine == nullptr) continue;
      std::vector<std::byte> some(1000, std::byte{7});
      std::deque<Script> tasks;
      w.files.fail(IoKind::write, 2, -ENOSPC);
      for (int i = 0; i < 5; ++i) {
        tasks.emplace_back(std::vector<IoCall>{{IoKind::write, w.fd, some.data(), 1000, 0}});
        BOOST_REQUIRE(w.engine->submit(IoLane::write, tasks.back()));
      }
      w.await(5);
      for (std::size_t i = 0; i < 5; ++i) {
        BOOST_TEST(tasks[i].results[0] == (i == 2 ? -ENOSPC : 1000), "task " << i);
      }
      w.files.fail(IoKind::write, 0, FaultyFiles::half);
      Script task({{IoKind::write, w.fd, some.data(), 1000, 0},
                   {IoKind::read, w.fd, some.data(), 1000, 600},
                   {IoKind::read, -1, some.data(), 1000, 0}});
      BOOST_REQUIRE(w.engine->submit(IoLane::write, task));
      w.await(1);
      BOOST_TEST(task.results[0] == 500);
      BOOST_TEST(task.results[1] == 400);
      BOOST_TEST(task.results[2] == -EBADF);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_lane_takes_as_many_tasks_as_it_was_made_for) {
  for (const std::string& kind : kinds) {
    BOOST_TEST_CONTEXT(kind) {
      World w(kind, {1, 1, 2, 2, {}});
      if (w.engine == nullptr) continue;
      Script a({});
      Script b({});
      Script c({});
      BOOST_TEST(w.engine->submit(IoLane::read, a));
      BOOST_TEST(w.engine->submit(IoLane::read, b));
      BOOST_TEST(!w.engine->submit(IoLane::read, c));
      BOOST_TEST(w.engine->submit(IoLane::write, c));
      w.await(3);
      BOOST_TEST(w.engine->submit(IoLane::read, a));
      w.await(1);
    }
  }
}

BOOST_AUTO_TEST_CASE(reads_do_not_wait_behind_writes_that_hang) {
  for (const std::string& kind : kinds) {
    BOOST_TEST_CONTEXT(kind) {
      World w(kind, {2, 2, 2, 64, {}});
      if (w.engine == nullptr) continue;
      std::byte some[16]{};
      w.files.hold(IoKind::write, w.engine->stepped());
      std::deque<Script> writes;
      for (int i = 0; i < 20; ++i) {
        writes.emplace_back(std::vector<IoCall>{{IoKind::write, w.fd, some, 16, 0}});
        BOOST_REQUIRE(w.engine->submit(IoLane::write, writes.back()));
      }
      Script read({{IoKind::read, w.fd, some, 16, 0}});
      BOOST_REQUIRE(w.engine->submit(IoLane::read, read));
      BOOST_TEST(w.await(1)[0] == &read);
      w.files.release();
      w.await(20);
    }
  }
}

// K10-98: a read that never returns must not take the last thread with it.
BOOST_AUTO_TEST_CASE(a_task_that_is_given_up_makes_room_for_the_next) {
  for (const std::string kind : {"threads", "stepped"}) {
    BOOST_TEST_CONTEXT(kind) {
      World w(kind, {1, 1, 2, 16, {}});
      std::byte some[16]{};
      std::deque<Script> reads;
      const auto submit_read = [&]() -> Script& {
        reads.emplace_back(std::vector<IoCall>{{IoKind::read, w.fd, some, 16, 0}});
        BOOST_REQUIRE(w.engine->submit(IoLane::read, reads.back()));
        return reads.back();
      };
      const auto hang = [&](std::uint64_t count) {
        if (w.engine->stepped()) {
          while (w.engine->pump(1) != 0) {
          }
        } else {
          w.files.await_hanging(count);
        }
      };
      w.files.hold(IoKind::read, w.engine->stepped());
      Script& first = submit_read();
      hang(1);
      BOOST_TEST(w.engine->give_up(IoLane::read, first));
      Script& second = submit_read();
      hang(2);
      BOOST_TEST(w.engine->give_up(IoLane::read, second));
      Script& third = submit_read();
      hang(3);
      BOOST_TEST(!w.engine->give_up(IoLane::read, third));  // hung_max
      Script sync({{IoKind::sync, w.fd, nullptr, 0, 0}});
      BOOST_REQUIRE(w.engine->submit(IoLane::write, sync));
      BOOST_TEST(w.await(1)[0] == &sync);
      w.files.release();
      w.await(3);
      BOOST_TEST(first.results.size() == 1u);
      // Threads that took the place of others are as many as before.
      Script fourth({{IoKind::sync, w.fd, nullptr, 0, 0}});
      BOOST_REQUIRE(w.engine->submit(IoLane::read, fourth));
      w.await(1);
    }
  }
}

BOOST_AUTO_TEST_CASE(closing_does_not_wait_for_what_hangs_for_longer_than_it_is_told) {
  // Its thread never comes back: the world stays.
  static auto* const w = new World("threads", {1, 1, 2, 16, {}});
  static std::byte some[16]{};
  static auto* const read = new Script({{IoKind::read, w->fd, some, 16, 0}});
  w->files.hold(IoKind::read, false);
  BOOST_REQUIRE(w->engine->submit(IoLane::read, *read));
  w->files.await_hanging(1);
  BOOST_TEST(!w->engine->close(std::chrono::milliseconds(1)));
  w->engine.reset();
}

BOOST_AUTO_TEST_CASE(closing_waits_for_what_is_at_work_and_drops_the_rest) {
  for (const std::string& kind : kinds) {
    BOOST_TEST_CONTEXT(kind) {
      World w(kind, {1, 1, 2, 64, {}});
      if (w.engine == nullptr) continue;
      std::byte some[16]{};
      std::deque<Script> writes;
      for (int i = 0; i < 20; ++i) {
        writes.emplace_back(std::vector<IoCall>{{IoKind::write, w.fd, some, 16, 0}});
        BOOST_REQUIRE(w.engine->submit(IoLane::write, writes.back()));
      }
      BOOST_TEST(w.engine->close(std::chrono::seconds(10)));
      // Nothing moves after it: a task is whole or was not begun.
      for (const Script& s : writes) BOOST_TEST(s.results.size() <= 1u);
    }
  }
}

// What hangs when an engine is closed does not keep the calls of the next one from hanging: worlds
// of a simulation are one after the other in one process.
BOOST_AUTO_TEST_CASE(each_stepped_engine_finds_hanging_calls_as_the_first_one_does) {
  PosixFiles files;
  for (int life = 0; life < 3; ++life) {
    faults().clear();
    const auto engine = make_stepped_engine({8, 8, 2, 64, {}}, files, 0);
    std::vector<std::byte> memory(64);
    Script task({{IoKind::write, -1, memory.data(), memory.size(), 0}});
    BOOST_REQUIRE(engine->submit(IoLane::write, task));
    faults().arm("disk.hang", 0);
    BOOST_TEST(engine->pump(1) == 1u);  // begun
    BOOST_TEST(engine->pump(1) == 0u, "life " << life << ": the call does not hang");
    BOOST_TEST(faults().tripped());
    BOOST_TEST(engine->close(std::chrono::seconds(10)));
    BOOST_TEST(task.results.empty());
  }
  faults().clear();
}

BOOST_AUTO_TEST_CASE(the_seed_alone_decides_the_order_of_the_stepped_engine) {
  const auto order = [](std::uint64_t seed) {
    FaultyFiles files;
    const auto engine = make_stepped_engine({8, 8, 2, 64, {}}, files, seed);
    std::deque<Script> tasks;
    std::vector<std::size_t> ended;
    for (int i = 0; i < 16; ++i) {
      tasks.emplace_back(std::vector<IoCall>{{IoKind::read, -1, nullptr, 0, 0}});
      BOOST_REQUIRE(engine->submit(i % 2 == 0 ? IoLane::read : IoLane::write, tasks.back()));
    }
    while (engine->pump(1) != 0) {
      IoTask* some[4];
      for (std::size_t n = engine->poll(some), i = 0; i < n; ++i) {
        for (std::size_t t = 0; t < tasks.size(); ++t) {
          if (&tasks[t] == some[i]) ended.push_back(t);
        }
      }
    }
    return ended;
  };
  BOOST_TEST(order(5).size() == 16u);
  BOOST_TEST((order(5) == order(5)));
  BOOST_TEST((order(5) != order(6)));
  BOOST_TEST((order(0)[0] == 0 && order(0)[8] == 1));  // reads first
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::disk
