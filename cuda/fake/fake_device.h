// The fake device: contexts, streams, events, memory, and the commands that wait in streams. The
// driver's entries (fake_driver.cc) are thin calls of this.
#pragma once
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/driver/cuda_types.h"
#include "cuda/fake/fake_control.h"
#include "cuda/fake/shadow.h"
#include "plugin/core/prng.h"

namespace kvc::cuda {

// The opaque types of the driver are records of the fake.
struct ContextTag {
  int device = 0;
  std::uint64_t retained = 0;
};

struct ModuleTag {
  Context context = nullptr;
};

struct FunctionTag {
  Context context = nullptr;
};

namespace fake {

// One record of an event: reached when the stream came to it.
struct Mark {
  bool reached = false;
  Clock clock;
};

struct Copy {
  std::uint64_t dst = 0;
  std::uint64_t src = 0;
  std::uint64_t bytes = 0;
  std::vector<std::byte> early;  // the source as it was at the call, if it was read then
  bool is_early = false;
};

struct Command {
  enum class Kind : std::uint8_t { copies, fragments, fill, call, wait, record };
  Kind kind = Kind::copies;
  Clock issued;                 // what the host had behind it at the call
  bool any_order = false;       // sources may have been read at the call
  std::vector<Copy> copies;     // copies; fill: one, without source
  std::uint64_t table = 0;      // fragments
  std::uint32_t count = 0;      // fragments
  unsigned groups = 0;          // fragments
  unsigned char value = 0;      // fill
  void (*fn)(void*) = nullptr;  // call
  void* arg = nullptr;
  std::shared_ptr<Mark> mark;  // wait (null: nothing to wait for), record
};

}  // namespace fake

struct StreamTag {
  Context context = nullptr;
  std::uint32_t actor = 0;
  bool held = false;
  bool gone = false;  // destroyed; what is queued still runs
  fake::Clock clock;
  std::deque<fake::Command> queue;
};

struct EventTag {
  Context context = nullptr;
  std::shared_ptr<fake::Mark> last;
};

namespace fake {

struct Range {
  enum class Kind : std::uint8_t { device, registered, host };
  std::uint64_t bytes = 0;
  Kind kind = Kind::device;
  Context context = nullptr;
  bool owned = false;  // malloc'd by the fake
};

// Threads:    any, under `mutex` (a callback may come back in).
// Owns:       everything that the driver handed out.
// Invariants: a command runs when all before it in its stream have, and what it waits for has; each
//             access is checked against the clocks of streams and host.
class FakeDevice {
 public:
  static FakeDevice& get();

  std::recursive_mutex mutex;
  kvc_fake_options options{};
  kvc_fake_counts counters{};

  void reset(const kvc_fake_options& o);
  // Begins a call of the entry: counts, injected failures, a little of the device's own progress.
  DriverResult enter(const char* entry);

  Context& current();  // top of the calling thread's stack; null: none
  std::vector<Context>& stack();
  DriverResult retain(Context* out, int device);
  DriverResult release(int device);

  DriverResult make_stream(Stream* out);
  DriverResult drop_stream(Stream s);
  DriverResult make_event(Event* out);
  DriverResult drop_event(Event e);
  // Handles of another context, or of none that lives, are faults.
  [[nodiscard]] DriverResult check(Stream s, const char* entry);
  [[nodiscard]] DriverResult check(Event e, const char* entry);

  DriverResult push(Stream s, Command&& command);
  DriverResult query(Event e);
  DriverResult wait_for(Stream s);
  DriverResult wait_for(Event e);

  DriverResult add_memory(std::uint64_t address, const Range& range);
  DriverResult drop_memory(std::uint64_t address, Range::Kind kind);
  // The range that holds all of [address, address + bytes), or null.
  [[nodiscard]] const Range* find(std::uint64_t address, std::uint64_t bytes) const;

  std::uint64_t run(std::uint64_t budget);
  std::uint64_t run_stream(Stream s, std::uint64_t budget, bool calls);
  void access(std::uint64_t address, std::uint64_t bytes, bool writes);
  void kill() { dead_ = true; }
  void fail(const char* entry, std::uint64_t nth, DriverResult result);
  // A copy of `bytes` from or to the device as the driver may do it: checked, perhaps read early.
  DriverResult push_copies(Stream s, std::vector<Copy>&& copies, bool any_order);

  [[nodiscard]] std::uint64_t faults() const { return fault_count_; }
  [[nodiscard]] const char* fault_text(std::uint64_t i) const {
    return i < faults_.size() ? faults_[i].c_str() : "";
  }
  [[nodiscard]] const std::vector<kvc_fake_access_record>& accesses() const { return accesses_; }
  void fault(const std::string& text);

 private:
  struct Failure {
    std::string entry;
    std::uint64_t left = 0;
    DriverResult result = 0;
  };
  // Who is running, and what is ordered before it.
  struct Running {
    std::uint32_t actor = 0;
    std::uint64_t time = 0;
    Clock before;
    std::string what;
  };

  [[nodiscard]] static bool may_run(const StreamTag& s);
  bool run_one();
  void execute(StreamTag& s, Command& c);
  void execute_copies(Command& c, Running& as);
  void execute_fragments(Command& c, Running& as);
  // Notes the access; false: there is no such memory, a fault.
  bool touch(const Running& as, std::uint64_t address, std::uint64_t bytes, bool writes,
             bool device_sees);
  [[nodiscard]] std::string place(std::uint64_t address, std::uint64_t bytes) const;

  Prng rng_{1};
  bool dead_ = false;
  std::array<ContextTag, 8> contexts_{};
  std::vector<std::unique_ptr<StreamTag>> streams_;
  std::map<Event, std::unique_ptr<EventTag>> events_;
  std::map<std::uint64_t, Range> memory_;
  Shadow shadow_;
  Clock host_;
  std::uint32_t actors_ = 1;
  const Running* running_ = nullptr;
  std::vector<Failure> failures_;
  std::vector<std::string> faults_;
  std::uint64_t fault_count_ = 0;
  std::vector<kvc_fake_access_record> accesses_;
};

}  // namespace fake
}  // namespace kvc::cuda
