#include <algorithm>
#include <array>
#include <vector>

#include "plugin/core/prng.h"
#include "plugin/offload/disk/files.h"

namespace kvc::disk {

namespace {

// Threads:    one. Owns: its lists, sized at creation.
// Invariants: a pump moves one task by one call; what moves is a function of the seed and of the
//             calls before.
class SteppedEngine final : public IoEngine {
 public:
  SteppedEngine(const IoEngineOptions& options, Files& files, std::uint64_t seed)
      : options_(options), files_(files), random_(seed != 0), rng_(seed) {
    for (auto& lane : lanes_) lane.reserve(options.tasks_max);
    ended_.reserve(io_lanes * options.tasks_max);
    ready_.reserve(io_lanes * options.tasks_max);
  }

  [[nodiscard]] const char* name() const override { return "stepped"; }
  [[nodiscard]] bool stepped() const override { return true; }

  bool submit(IoLane lane, IoTask& task) override {
    std::vector<Open>& open = lanes_[index(lane)];
    if (open.size() + ended_of_[index(lane)] >= options_.tasks_max) return false;
    open.push_back({&task, {}, false, false});
    return true;
  }

  std::size_t poll(std::span<IoTask*> out) override {
    const std::size_t n = std::min(out.size(), ended_.size());
    for (std::size_t i = 0; i < n; ++i) {
      out[i] = ended_[i].task;
      --ended_of_[index(ended_[i].lane)];
    }
    ended_.erase(ended_.begin(), ended_.begin() + static_cast<std::ptrdiff_t>(n));
    return n;
  }

  bool give_up(IoLane lane, IoTask& task) override {
    std::vector<Open>& open = lanes_[index(lane)];
    const auto hung = std::count_if(open.begin(), open.end(), [](const Open& o) { return o.hung; });
    if (static_cast<std::uint64_t>(hung) >= options_.hung_max) return false;
    const auto it =
        std::find_if(open.begin(), open.end(), [&](const Open& o) { return o.task == &task; });
    KVC_CHECK(it != open.end() && !it->hung);
    it->hung = true;
    return true;
  }

  void wait(std::chrono::nanoseconds /*timeout*/) override {}

  std::uint64_t pump(std::uint64_t budget) override {
    std::uint64_t did = 0;
    while (did < budget && move_one()) ++did;
    return did;
  }

  bool close(std::chrono::nanoseconds /*patience*/) override {
    for (auto& lane : lanes_) std::erase_if(lane, [](const Open& o) { return !o.begun; });
    // What is at work ends; a call that the files never let go is not made.
    while (move_one()) {
    }
    for (const auto& lane : lanes_)
      for (const Open& open : lane) files_.forget(open.call);
    return true;
  }

 private:
  struct Open {
    IoTask* task;
    IoCall call;
    bool begun;
    bool hung;
  };
  struct Ended {
    IoTask* task;
    IoLane lane;
  };
  struct Choice {
    IoLane lane;
    std::size_t at;
  };
  static std::size_t index(IoLane lane) { return static_cast<std::size_t>(lane); }

  // Puts tasks that may move into ready_: as many of each lane as its depth, and the hung ones.
  void choose() {
    ready_.clear();
    for (const IoLane lane : {IoLane::read, IoLane::write}) {
      std::uint32_t depth = lane == IoLane::read ? options_.read_depth : options_.write_depth;
      const std::vector<Open>& open = lanes_[index(lane)];
      for (std::size_t i = 0; i < open.size(); ++i) {
        if (open[i].hung) {
          ready_.push_back({lane, i});
        } else if (depth != 0) {
          --depth;
          ready_.push_back({lane, i});
        }
      }
    }
  }

  bool move_one() {
    choose();
    while (!ready_.empty()) {
      const std::size_t pick = random_ ? rng_.below(ready_.size()) : 0;
      const Choice choice = ready_[pick];
      if (move(choice)) return true;
      ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(pick));
    }
    return false;
  }

  // False: the system has not answered yet.
  bool move(const Choice& choice) {
    std::vector<Open>& open = lanes_[index(choice.lane)];
    Open& o = open[choice.at];
    IoResult result = 0;
    if (o.begun) {
      result = files_.preview(o.call);
      if (result == Files::not_yet) return false;
      if (result == Files::go_on) result = files_.run(o.call);
    }
    o.begun = true;
    o.call = o.task->step(result);
    if (o.call.kind != IoKind::none) return true;
    ended_.push_back({o.task, choice.lane});
    ++ended_of_[index(choice.lane)];
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(choice.at));
    if (options_.on_ended) options_.on_ended();
    return true;
  }

  const IoEngineOptions options_;
  Files& files_;
  const bool random_;
  Prng rng_;
  std::array<std::vector<Open>, io_lanes> lanes_;
  std::array<std::size_t, io_lanes> ended_of_{};
  std::vector<Ended> ended_;
  std::vector<Choice> ready_;
};

}  // namespace

std::unique_ptr<IoEngine> make_stepped_engine(const IoEngineOptions& options, Files& files,
                                              std::uint64_t seed) {
  return std::make_unique<SteppedEngine>(options, files, seed);
}

}  // namespace kvc::disk
