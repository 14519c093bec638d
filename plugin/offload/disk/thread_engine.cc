#include <algorithm>
#include <system_error>

#include "plugin/offload/disk/engine_core.h"
#include "plugin/offload/disk/files.h"

namespace kvc::disk {

namespace {

struct Worker {
  std::thread thread;
  std::size_t lane = 0;
  IoTask* task = nullptr;  // at work
  bool hung = false;       // given up: this thread has been replaced, and ends after its task
  bool exited = false;
};

// Shared by the threads, and kept alive by those that hang.
struct Core : EngineCore {
  Core(const IoEngineOptions& given, Files& f) : EngineCore(given), files(f) {}
  Files& files;
  std::vector<std::unique_ptr<Worker>> workers;
};

void work_on(Core& core, IoTask& task) {
  IoCall call = task.step(0);
  while (call.kind != IoKind::none) {
    IoResult result = core.files.preview(call);
    if (result == Files::go_on) result = core.files.run(call);
    call = task.step(result);
  }
}

void run_worker(const std::shared_ptr<Core>& core, Worker* me) {
  const std::size_t lane = me->lane;
  std::unique_lock lock(core->mutex);
  for (;;) {
    core->work[lane].wait(lock, [&] { return core->stopping || !core->queued[lane].empty(); });
    if (core->stopping) break;
    IoTask* const task = core->queued[lane].pop();
    me->task = task;
    lock.unlock();
    work_on(*core, *task);
    lock.lock();
    me->task = nullptr;
    const bool replaced = me->hung;
    lock.unlock();
    core->report(lane, task);
    lock.lock();
    if (replaced) break;
  }
  me->exited = true;
  core->any_exit.notify_all();
}

// A pool of threads for each lane. Contract: IoEngine.
class ThreadEngine final : public IoEngine {
 public:
  explicit ThreadEngine(std::shared_ptr<Core> core) : core_(std::move(core)) {
    for (std::size_t lane = 0; lane < io_lanes; ++lane) {
      for (std::uint32_t i = 0; i < core_->depth(lane); ++i) add(lane);
    }
  }
  ~ThreadEngine() override {
    if (!closed_) static_cast<void>(close(std::chrono::nanoseconds::max()));
  }

  [[nodiscard]] const char* name() const override { return "threads"; }
  [[nodiscard]] bool stepped() const override { return false; }
  bool submit(IoLane lane, IoTask& task) override { return core_->submit(lane, task); }
  std::size_t poll(std::span<IoTask*> out) override { return core_->poll(out); }
  void wait(std::chrono::nanoseconds timeout) override { core_->wait(timeout); }
  std::uint64_t pump(std::uint64_t /*budget*/) override { return 0; }

  bool give_up(IoLane lane, IoTask& task) override {
    {
      const std::lock_guard lock(core_->mutex);
      std::uint32_t hung = 0;
      Worker* with = nullptr;
      for (const auto& w : core_->workers) {
        if (w->exited || w->lane != EngineCore::index(lane)) continue;
        hung += w->hung ? 1 : 0;
        if (w->task == &task) with = w.get();
      }
      // Not begun, or ended by now: nothing hangs.
      if (with == nullptr) return true;
      KVC_CHECK(!with->hung);
      if (hung >= core_->options.hung_max) return false;
      with->hung = true;
    }
    reap();
    add(EngineCore::index(lane));
    return true;
  }

  bool close(std::chrono::nanoseconds patience) override {
    closed_ = true;
    bool all = true;
    {
      std::unique_lock lock(core_->mutex);
      core_->stopping = true;
      for (auto& w : core_->work) w.notify_all();
      const auto gone = [&] {
        return std::all_of(core_->workers.begin(), core_->workers.end(),
                           [](const auto& w) { return w->exited; });
      };
      if (patience == std::chrono::nanoseconds::max()) {
        core_->any_exit.wait(lock, gone);
      } else {
        all = core_->any_exit.wait_for(lock, patience, gone);
      }
      for (const auto& w : core_->workers) {
        // The thread holds the core; it will find it when it comes back.
        if (!w->exited && w->thread.joinable()) w->thread.detach();
      }
    }
    core_->silence();
    for (const auto& w : core_->workers) {
      if (w->thread.joinable()) w->thread.join();
    }
    return all;
  }

 private:
  // Without memory or threads the lane works with those it has.
  void add(std::size_t lane) {
    try {
      auto worker = std::make_unique<Worker>();
      Worker* const w = worker.get();
      w->lane = lane;
      {
        const std::lock_guard lock(core_->mutex);
        core_->workers.push_back(std::move(worker));
      }
      try {
        w->thread = std::thread(run_worker, core_, w);
      } catch (const std::system_error&) {
        const std::lock_guard lock(core_->mutex);
        w->exited = true;
      }
    } catch (const std::bad_alloc&) {
    }
  }

  // Joins threads that have ended.
  void reap() {
    std::vector<std::unique_ptr<Worker>> gone;
    {
      const std::lock_guard lock(core_->mutex);
      auto& all = core_->workers;
      for (auto& w : all) {
        if (w->exited) gone.push_back(std::move(w));
      }
      std::erase(all, nullptr);
    }
    for (const auto& w : gone) {
      if (w->thread.joinable()) w->thread.join();
    }
  }

  std::shared_ptr<Core> core_;
  bool closed_ = false;
};

}  // namespace

std::unique_ptr<IoEngine> make_thread_engine(const IoEngineOptions& options, Files& files) {
  return std::make_unique<ThreadEngine>(std::make_shared<Core>(options, files));
}

}  // namespace kvc::disk
