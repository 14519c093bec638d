#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "plugin/offload/disk/engine_core.h"
#include "plugin/offload/disk/files.h"
#include "plugin/offload/disk/uring.h"

namespace kvc::disk {

namespace {

constexpr std::uint64_t bell_id = UINT64_MAX;

// A task at work. `task` and `hung` are guarded by the core's lock, `call` is the thread's.
struct Slot {
  IoTask* task = nullptr;
  bool hung = false;
  IoCall call;
};

struct Lane {
  Uring ring;
  int bell = -1;           // eventfd: there is news for the thread
  std::uint64_t rung = 0;  // what a read of the bell wrote
  bool bell_armed = false;
  std::vector<Slot> slots;    // depth + hung_max
  std::uint32_t at_work = 0;  // slots in use, of them `hung` given up
  std::uint32_t hung = 0;
  bool exited = false;
};

struct Core : EngineCore {
  Core(const IoEngineOptions& given, Files& f) : EngineCore(given), files(f) {}
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;
  ~Core() {
    for (const Lane& l : lanes) {
      if (l.bell >= 0) ::close(l.bell);
    }
  }
  Files& files;
  std::array<Lane, io_lanes> lanes;
  bool abandoning = false;  // the threads leave at once, whatever is at work
};

// The thread of one lane: takes tasks, hands their calls to the ring, goes on with what ended.
class LaneThread {
 public:
  LaneThread(Core& core, std::size_t lane) : core_(core), lane_(core.lanes[lane]), index_(lane) {}

  void run() {
    while (take_tasks()) {
      arm_bell();
      // EINTR, EAGAIN, EBUSY: the loop comes again.
      static_cast<void>(lane_.ring.submit(1));
      Uring::Done done;
      while (lane_.ring.pop(done)) {
        if (done.id == bell_id) {
          lane_.bell_armed = false;
        } else {
          go_on(static_cast<std::size_t>(done.id), done.result);
        }
      }
    }
  }

 private:
  // False: the thread is to end.
  bool take_tasks() {
    for (;;) {
      std::size_t at = 0;
      {
        const std::lock_guard lock(core_.mutex);
        if (core_.abandoning) return false;
        if (core_.stopping) return lane_.at_work != 0;
        if (core_.queued[index_].empty() || lane_.at_work - lane_.hung >= core_.depth(index_)) {
          return true;
        }
        while (lane_.slots[at].task != nullptr) ++at;
        lane_.slots[at].task = core_.queued[index_].pop();
        lane_.slots[at].hung = false;
        ++lane_.at_work;
      }
      step(at, 0);
    }
  }

  void arm_bell() {
    if (lane_.bell_armed) return;
    const IoCall call{IoKind::read, lane_.bell, reinterpret_cast<std::byte*>(&lane_.rung),
                      sizeof lane_.rung, 0};
    lane_.bell_armed = push(call, bell_id);
  }

  bool push(const IoCall& call, std::uint64_t id) {
    // The ring has an entry for every slot and the bell; what was not taken yet goes now.
    while (!lane_.ring.push(call, id)) {
      const int r = lane_.ring.submit(0);
      if (r < 0 && r != -EINTR) return false;
    }
    return true;
  }

  void go_on(std::size_t at, IoResult result) {
    if (result == -EINTR || result == -EAGAIN) {
      if (push(lane_.slots[at].call, at)) return;
      result = -EIO;
    }
    step(at, result);
  }

  void step(std::size_t at, IoResult result) {
    Slot& slot = lane_.slots[at];
    for (;;) {
      slot.call = slot.task->step(result);
      if (slot.call.kind == IoKind::none) break;
      result = core_.files.preview(slot.call);
      if (result != Files::go_on) continue;
      if (push(slot.call, at)) return;
      result = -EIO;
    }
    IoTask* task = nullptr;
    {
      const std::lock_guard lock(core_.mutex);
      std::swap(task, slot.task);
      lane_.hung -= slot.hung ? 1 : 0;
      --lane_.at_work;
    }
    core_.report(index_, task);
  }

  Core& core_;
  Lane& lane_;
  const std::size_t index_;
};

void run_lane(const std::shared_ptr<Core>& core, std::size_t lane) {
  LaneThread(*core, lane).run();
  const std::lock_guard lock(core->mutex);
  core->lanes[lane].exited = true;
  core->any_exit.notify_all();
}

void keep_for_ever(std::shared_ptr<Core> core) {
  static auto* const kept = new std::vector<std::shared_ptr<Core>>;
  kept->push_back(std::move(core));
}

// A ring and a thread for each lane. Contract: IoEngine.
class UringEngine final : public IoEngine {
 public:
  explicit UringEngine(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  ~UringEngine() override {
    if (!closed_) static_cast<void>(close(std::chrono::nanoseconds::max()));
  }

  Status start() {
    for (std::size_t l = 0; l < io_lanes; ++l) {
      try {
        threads_[l] = std::thread(run_lane, core_, l);
      } catch (const std::system_error& e) {
        for (; l < io_lanes; ++l) core_->lanes[l].exited = true;
        return {Code::unsupported, std::string("io_uring: no thread: ") + e.what()};
      }
    }
    return {};
  }

  [[nodiscard]] const char* name() const override { return "io_uring"; }
  [[nodiscard]] bool stepped() const override { return false; }
  bool submit(IoLane lane, IoTask& task) override {
    if (!core_->submit(lane, task)) return false;
    ring_bell(EngineCore::index(lane));
    return true;
  }
  std::size_t poll(std::span<IoTask*> out) override { return core_->poll(out); }
  void wait(std::chrono::nanoseconds timeout) override { core_->wait(timeout); }
  std::uint64_t pump(std::uint64_t /*budget*/) override { return 0; }

  bool give_up(IoLane lane, IoTask& task) override {
    const std::size_t l = EngineCore::index(lane);
    {
      const std::lock_guard lock(core_->mutex);
      Lane& mine = core_->lanes[l];
      const auto slot = std::find_if(mine.slots.begin(), mine.slots.end(),
                                     [&](const Slot& s) { return s.task == &task; });
      if (slot == mine.slots.end()) return true;  // not begun, or ended by now
      KVC_CHECK(!slot->hung);
      if (mine.hung >= core_->options.hung_max) return false;
      slot->hung = true;
      ++mine.hung;
    }
    ring_bell(l);
    return true;
  }

  bool close(std::chrono::nanoseconds patience) override {
    closed_ = true;
    bool all = leave(patience, false);
    // Threads that wait for calls that hang come out; one that is inside a call itself does not.
    if (!all) static_cast<void>(leave(std::chrono::milliseconds(200), true));
    for (std::size_t l = 0; l < io_lanes; ++l) {
      if (!threads_[l].joinable()) continue;
      std::unique_lock lock(core_->mutex);
      const bool out = core_->lanes[l].exited;
      lock.unlock();
      if (out) {
        threads_[l].join();
      } else {
        threads_[l].detach();
      }
    }
    core_->silence();
    // What hangs still belongs to the ring: it must not be torn down below the kernel's feet.
    if (!all) keep_for_ever(core_);
    return all;
  }

 private:
  void ring_bell(std::size_t lane) {
    const std::uint64_t one = 1;
    // Full: it rings already.
    static_cast<void>(!::write(core_->lanes[lane].bell, &one, sizeof one));
  }

  bool leave(std::chrono::nanoseconds patience, bool abandon) {
    std::unique_lock lock(core_->mutex);
    core_->stopping = true;
    core_->abandoning = abandon;
    for (std::size_t l = 0; l < io_lanes; ++l) ring_bell(l);
    const auto gone = [&] { return core_->lanes[0].exited && core_->lanes[1].exited; };
    if (patience == std::chrono::nanoseconds::max()) {
      core_->any_exit.wait(lock, gone);
      return true;
    }
    return core_->any_exit.wait_for(lock, patience, gone);
  }

  std::shared_ptr<Core> core_;
  std::array<std::thread, io_lanes> threads_;
  bool closed_ = false;
};

}  // namespace

Result<std::unique_ptr<IoEngine>> make_uring_engine(const IoEngineOptions& options, Files& files) {
  auto core = std::make_shared<Core>(options, files);
  for (std::size_t l = 0; l < io_lanes; ++l) {
    Lane& lane = core->lanes[l];
    lane.slots.resize(core->depth(l) + options.hung_max);
    const auto entries = static_cast<std::uint32_t>(lane.slots.size() + 1);
    if (Status s = lane.ring.open(entries); !s.ok()) return s;
    lane.bell = ::eventfd(0, EFD_CLOEXEC);
    if (lane.bell < 0) {
      return {Code::unsupported, "io_uring: no eventfd: " + errno_text(-errno)};
    }
  }
  auto engine = std::make_unique<UringEngine>(std::move(core));
  if (Status s = engine->start(); !s.ok()) return s;
  return std::unique_ptr<IoEngine>(std::move(engine));
}

}  // namespace kvc::disk
