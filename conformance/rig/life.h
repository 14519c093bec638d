// A random engine over a connector: requests come, look up, load all or a part, compute, are
// preempted, aborted and ended, while plans, copies and reports are late, split over ranks,
// reordered, repeated and fail. After every call the counts balance; what is offered could be
// served by every group; every load that succeeded brought the right bytes and touched nothing
// else; at the end nothing is left.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "conformance/rig/choices.h"
#include "conformance/rig/reach.h"
#include "conformance/rig/world.h"

namespace kvc::rig {

// A small layout of every kind, with few blocks on both sides. `options` adds lines of [connector]
// that simple_cpu knows; else the TOML text is empty.
Setup random_setup(Choices& choices, bool options);

// Threads:    one.
// Owns:       the world. Invariants: the choices outlive it.
class Life {
 public:
  // Requires of the setup: whole prompts of 100 tokens fit the device several times (96 blocks of
  // 8 tokens do). `faults`: copies may fail, if the library has fault points.
  Life(Choices& choices, const Setup& setup, const Library& library, Judge& judge, bool faults);

  // So many steps, or fewer if `over` says so before a step.
  template <class Over>
  void run(int steps, Over&& over) {
    for (int i = 0; i < steps && !over(); ++i) step();
    finish();
  }
  void run(int steps) {
    run(steps, [] { return false; });
  }
  // Off: the slow check of the connector's whole structure after every call.
  void check_structure(bool on) { w_.check_structure = on; }

  [[nodiscard]] std::uint64_t loads() const { return loads_; }  // that succeeded

 private:
  enum class State { waiting, loading, running };
  struct Live {
    State state = State::waiting;
    kvc_job job = 0;
    std::uint64_t accepted = 0;
    std::uint64_t prompt = 0;
  };
  struct Sent {
    Planned plan;
    std::vector<bool> to;  // rank by rank
  };

  template <class... A>
  void need(bool ok, RuleId rule, fmt::format_string<A...> text, A&&... args) {
    w_.judge().need(ok, rule, text, std::forward<A>(args)...);
  }
  Tokens prompt();
  std::uint64_t any_id();
  void step();
  void one_thing();
  void come();
  void admit(std::uint64_t id, Live& l);
  void compute(std::uint64_t id, Live& l);
  void hand_off(std::uint64_t id, std::uint64_t boundary);
  void release_windows(Request& r);
  void forget(std::uint64_t id);
  void preempt(std::uint64_t id, Live& l);
  void leave(std::uint64_t id);
  std::vector<kvc_handoff> last_states(std::uint64_t id);
  void reset();
  void plan();
  void move();
  void work(std::uint32_t rank);
  void complete();
  void take(const Completed& c);
  void drain();
  void finish();

  Choices& choices_;
  World w_;
  Reach reach_;
  bool faults_;
  std::map<std::uint64_t, Live> live_;
  std::deque<Sent> plans_;
  std::vector<std::vector<std::uint8_t>> reports_;
  std::uint64_t last_id_ = 0;
  std::uint64_t loads_ = 0;
};

}  // namespace kvc::rig
