#include "cuda/fake/fake_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "cuda/kernel/copy_fragments.h"

namespace kvc::cuda::fake {

namespace {

constexpr std::uint64_t queue_entries_default = 1024;
constexpr std::uint64_t register_bytes_default = std::uint64_t{64} << 30U;
constexpr std::size_t fault_texts_max = 64;
// One call in so many lets the device go on by a command.
constexpr std::uint64_t progress_one_in = 4;

std::byte* at(std::uint64_t address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): device addresses are numbers in the driver's calls
  return reinterpret_cast<std::byte*>(address);
}

}  // namespace

FakeDevice& FakeDevice::get() {
  // Never destroyed: handles may be dropped by other static objects.
  static FakeDevice* const device = [] {
    auto* d = new FakeDevice();
    d->reset({});
    return d;
  }();
  return *device;
}

void FakeDevice::reset(const kvc_fake_options& o) {
  options = o;
  if (options.queue_entries == 0) options.queue_entries = queue_entries_default;
  if (options.register_bytes_max == 0) options.register_bytes_max = register_bytes_default;
  if (options.devices == 0) options.devices = 1;
  options.devices = std::min(options.devices, static_cast<std::uint32_t>(contexts_.size()));
  counters = {};
  rng_ = Prng(o.seed);
  dead_ = false;
  for (std::size_t i = 0; i < contexts_.size(); ++i) contexts_[i] = {static_cast<int>(i), 0};
  streams_.clear();
  events_.clear();
  for (const auto& [address, range] : memory_) {
    if (range.owned) std::free(at(address));
  }
  memory_.clear();
  shadow_.clear();
  host_ = {};
  actors_ = 1;
  failures_.clear();
  faults_.clear();
  fault_count_ = 0;
  accesses_.clear();
  stack().clear();
}

DriverResult FakeDevice::enter(const char* entry) {
  host_.tick(0);
  for (auto it = failures_.begin(); it != failures_.end(); ++it) {
    if (it->entry != entry) continue;
    if (it->left-- != 0) continue;
    const DriverResult result = it->result;
    failures_.erase(it);
    return result;
  }
  if (dead_) return driver_launch_failed;
  if (options.idle_calls == 0 && running_ == nullptr && rng_.chance(1, progress_one_in)) {
    static_cast<void>(run_one());
  }
  return driver_success;
}

void FakeDevice::fail(const char* entry, std::uint64_t nth, DriverResult result) {
  failures_.push_back({entry, nth, result});
}

void FakeDevice::fault(const std::string& text) {
  ++fault_count_;
  if (faults_.size() < fault_texts_max) faults_.push_back(text);
}

std::vector<Context>& FakeDevice::stack() {
  thread_local std::vector<Context> contexts;
  return contexts;
}

Context& FakeDevice::current() {
  static thread_local Context none = nullptr;
  none = nullptr;
  return stack().empty() ? none : stack().back();
}

DriverResult FakeDevice::retain(Context* out, int device) {
  if (device < 0 || device >= static_cast<int>(options.devices)) return driver_invalid_device;
  ContextTag& c = contexts_[static_cast<std::size_t>(device)];
  ++c.retained;
  *out = &c;
  return driver_success;
}

DriverResult FakeDevice::release(int device) {
  if (device < 0 || device >= static_cast<int>(options.devices)) return driver_invalid_device;
  ContextTag& c = contexts_[static_cast<std::size_t>(device)];
  if (c.retained == 0) {
    fault(fmt::format("the context of device {} was released more often than retained", device));
    return driver_invalid_context;
  }
  --c.retained;
  return driver_success;
}

DriverResult FakeDevice::make_stream(Stream* out) {
  if (current() == nullptr) return driver_invalid_context;
  auto s = std::make_unique<StreamTag>();
  s->context = current();
  s->actor = actors_++;
  *out = s.get();
  streams_.push_back(std::move(s));
  return driver_success;
}

DriverResult FakeDevice::drop_stream(Stream s) {
  if (const DriverResult r = check(s, "cuStreamDestroy"); r != driver_success) return r;
  s->gone = true;
  return driver_success;
}

DriverResult FakeDevice::make_event(Event* out) {
  if (current() == nullptr) return driver_invalid_context;
  auto e = std::make_unique<EventTag>();
  e->context = current();
  *out = e.get();
  events_.emplace(e.get(), std::move(e));
  return driver_success;
}

DriverResult FakeDevice::drop_event(Event e) {
  if (const DriverResult r = check(e, "cuEventDestroy"); r != driver_success) return r;
  events_.erase(e);
  return driver_success;
}

DriverResult FakeDevice::check(Stream s, const char* entry) {
  const auto it = std::find_if(streams_.begin(), streams_.end(),
                               [&](const auto& have) { return have.get() == s && !have->gone; });
  if (it == streams_.end()) {
    fault(fmt::format("{}: stream {} does not live", entry, static_cast<const void*>(s)));
    return driver_invalid_handle;
  }
  if (s->context != current()) {
    fault(fmt::format("{}: stream {} is of device {}, another context is current", entry, s->actor,
                      s->context->device));
    return driver_invalid_context;
  }
  return driver_success;
}

DriverResult FakeDevice::check(Event e, const char* entry) {
  if (events_.find(e) == events_.end()) {
    fault(fmt::format("{}: event {} does not live", entry, static_cast<const void*>(e)));
    return driver_invalid_handle;
  }
  if (e->context != current()) {
    fault(fmt::format("{}: an event of device {}, another context is current", entry,
                      e->context->device));
    return driver_invalid_context;
  }
  return driver_success;
}

DriverResult FakeDevice::push(Stream s, Command&& command) {
  if (s->queue.size() >= options.queue_entries) {
    ++counters.blocked_calls;
    while (s->queue.size() >= options.queue_entries) {
      if (run_one()) continue;
      fault(fmt::format(
          "a call blocks for ever: the queue of stream {} is full and nothing can run", s->actor));
      return driver_launch_failed;
    }
  }
  command.issued = host_;
  s->queue.push_back(std::move(command));
  return driver_success;
}

DriverResult FakeDevice::push_copies(Stream s, std::vector<Copy>&& copies, bool any_order) {
  Command c;
  c.kind = Command::Kind::copies;
  c.any_order = any_order;
  c.copies = std::move(copies);
  if (any_order) {
    for (Copy& copy : c.copies) {
      if (find(copy.src, copy.bytes) == nullptr || rng_.chance(1, 2)) continue;
      copy.early.assign(at(copy.src), at(copy.src) + copy.bytes);
      copy.is_early = true;
    }
  }
  ++counters.submissions;
  return push(s, std::move(c));
}

DriverResult FakeDevice::query(Event e) {
  ++counters.queries;
  const std::shared_ptr<Mark> mark = e->last;
  if (mark == nullptr) return driver_success;
  if (!mark->reached) {
    // Somebody who asks again and again gets on.
    static_cast<void>(run_one());
    if (!mark->reached) return driver_not_ready;
  }
  host_.join(mark->clock);
  return driver_success;
}

DriverResult FakeDevice::wait_for(Stream s) {
  while (!s->queue.empty()) {
    if (run_one()) continue;
    fault(fmt::format("waiting for stream {} never ends: nothing can run", s->actor));
    return driver_launch_failed;
  }
  host_.join(s->clock);
  return driver_success;
}

DriverResult FakeDevice::wait_for(Event e) {
  const std::shared_ptr<Mark> mark = e->last;
  if (mark == nullptr) return driver_success;
  while (!mark->reached) {
    if (run_one()) continue;
    fault("waiting for an event never ends: nothing can run");
    return driver_launch_failed;
  }
  host_.join(mark->clock);
  return driver_success;
}

std::string FakeDevice::place(std::uint64_t address, std::uint64_t bytes) const {
  const auto it = memory_.upper_bound(address);
  if (it == memory_.begin()) return fmt::format("{:#x}, {} bytes", address, bytes);
  const auto& [base, range] = *std::prev(it);
  constexpr std::string_view kinds[] = {"device", "registered", "pinned"};
  return fmt::format("{} memory at offset {} of {}, {} bytes",
                     kinds[static_cast<std::size_t>(range.kind)], address - base, range.bytes,
                     bytes);
}

DriverResult FakeDevice::add_memory(std::uint64_t address, const Range& range) {
  const auto next = memory_.lower_bound(address);
  const bool overlaps =
      (next != memory_.end() && next->first < address + range.bytes) ||
      (next != memory_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > address);
  if (overlaps) return driver_already_registered;
  memory_.emplace(address, range);
  if (range.kind == Range::Kind::registered) {
    counters.registered_bytes += range.bytes;
    ++counters.registered_pieces;
  }
  return driver_success;
}

DriverResult FakeDevice::drop_memory(std::uint64_t address, Range::Kind kind) {
  const auto it = memory_.find(address);
  if (it == memory_.end() || it->second.kind != kind) {
    fault(fmt::format("{:#x} is not what such memory begins with", address));
    return kind == Range::Kind::registered ? driver_not_registered : driver_invalid_value;
  }
  const Range range = it->second;
  if (const auto race = shadow_.unordered(address, range.bytes, host_)) {
    fault(fmt::format("{} is given back while stream {} may still use it",
                      place(race->address, race->bytes), race->earlier.actor));
  }
  shadow_.forget(address, range.bytes);
  memory_.erase(it);
  if (range.owned) std::free(at(address));
  if (kind == Range::Kind::registered) {
    counters.registered_bytes -= range.bytes;
    --counters.registered_pieces;
  }
  return driver_success;
}

const Range* FakeDevice::find(std::uint64_t address, std::uint64_t bytes) const {
  auto it = memory_.upper_bound(address);
  if (it == memory_.begin()) return nullptr;
  --it;
  return address - it->first <= it->second.bytes &&
                 bytes <= it->second.bytes - (address - it->first)
             ? &it->second
             : nullptr;
}

bool FakeDevice::may_run(const StreamTag& s) {
  if (s.held || s.queue.empty()) return false;
  const Command& c = s.queue.front();
  return c.kind != Command::Kind::wait || c.mark == nullptr || c.mark->reached;
}

bool FakeDevice::run_one() {
  if (dead_ || running_ != nullptr) return false;
  std::vector<StreamTag*> able;
  for (const auto& s : streams_) {
    if (may_run(*s)) able.push_back(s.get());
  }
  if (able.empty()) return false;
  StreamTag& s = *able[rng_.below(able.size())];
  Command c = std::move(s.queue.front());
  s.queue.pop_front();
  execute(s, c);
  ++counters.commands_run;
  return true;
}

std::uint64_t FakeDevice::run(std::uint64_t budget) {
  std::uint64_t did = 0;
  while (did < budget && run_one()) ++did;
  return did;
}

std::uint64_t FakeDevice::run_stream(Stream s, std::uint64_t budget, bool calls) {
  std::uint64_t did = 0;
  for (; did < budget && !dead_ && running_ == nullptr && !s->queue.empty(); ++did) {
    const Command& next = s->queue.front();
    const bool waits =
        next.kind == Command::Kind::wait && next.mark != nullptr && !next.mark->reached;
    if (waits || (next.kind == Command::Kind::call && !calls)) break;
    Command c = std::move(s->queue.front());
    s->queue.pop_front();
    s->clock.join(host_);
    execute(*s, c);
    ++counters.commands_run;
  }
  return did;
}

void FakeDevice::execute(StreamTag& s, Command& c) {
  s.clock.join(c.issued);
  Running as;
  as.actor = s.actor;
  // Of sources in any order only what the host knew to be over is certain.
  as.before = c.any_order ? c.issued : s.clock;
  const Clock in_order = s.clock;
  as.time = s.clock.tick(s.actor);
  switch (c.kind) {
    case Command::Kind::wait:
      if (c.mark != nullptr) s.clock.join(c.mark->clock);
      break;
    case Command::Kind::record:
      c.mark->reached = true;
      c.mark->clock = s.clock;
      break;
    case Command::Kind::copies: {
      as.what = "a copy";
      for (Copy& copy : c.copies) {
        as.before = c.any_order ? c.issued : in_order;
        if (!touch(as, copy.src, copy.bytes, false, true)) copy.bytes = 0;
      }
      as.before = in_order;
      execute_copies(c, as);
      break;
    }
    case Command::Kind::fragments:
      as.what = "the kernel";
      execute_fragments(c, as);
      break;
    case Command::Kind::fill:
      as.what = "a fill";
      if (touch(as, c.copies[0].dst, c.copies[0].bytes, true, true)) {
        std::memset(at(c.copies[0].dst), c.value, c.copies[0].bytes);
      }
      break;
    case Command::Kind::call:
      as.what = "a callback";
      as.before = s.clock;  // its own accesses are one after the other
      running_ = &as;
      c.fn(c.arg);
      running_ = nullptr;
      break;
  }
}

void FakeDevice::execute_copies(Command& c, Running& as) {
  for (std::size_t i = c.copies.size(); i > 1; --i) {
    std::swap(c.copies[i - 1], c.copies[rng_.below(i)]);
  }
  for (const Copy& copy : c.copies) {
    if (copy.bytes == 0 || !touch(as, copy.dst, copy.bytes, true, true)) continue;
    std::memcpy(at(copy.dst), copy.is_early ? copy.early.data() : at(copy.src), copy.bytes);
  }
}

void FakeDevice::execute_fragments(Command& c, Running& as) {
  if (!touch(as, c.table, c.count * sizeof(Fragment), false, true)) return;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): as the kernel gets it
  const auto* table = reinterpret_cast<const Fragment*>(c.table);
  for (std::uint32_t i = 0; i < c.count; ++i) {
    if (!touch(as, table[i].src, table[i].bytes, false, true) ||
        !touch(as, table[i].dst, table[i].bytes, true, true)) {
      return;
    }
  }
  for (unsigned group = 0; group < c.groups; ++group) {
    for (unsigned lane = 0; lane < fragment_lanes; ++lane) {
      copy_fragments(table, c.count, group, c.groups, lane, fragment_lanes);
    }
  }
}

bool FakeDevice::touch(const Running& as, std::uint64_t address, std::uint64_t bytes, bool writes,
                       bool device_sees) {
  if (bytes == 0) return true;
  if (device_sees && find(address, bytes) == nullptr) {
    fault(
        fmt::format("{} of stream {} {} {}: not (or no longer) memory of one piece that the "
                    "device may use",
                    as.what, as.actor, writes ? "writes" : "reads", place(address, bytes)));
    return false;
  }
  if (options.record_accesses != 0) {
    accesses_.push_back({as.actor, counters.commands_run, address, bytes, writes ? 1U : 0U, 0});
  }
  if (const auto race = shadow_.touch(address, bytes, writes, {as.actor, as.time}, as.before)) {
    fault(fmt::format(
        "race: {} of stream {} {} {}, which stream {} {} without order between them "
        "(stream 0 is the host)",
        as.what, as.actor, writes ? "writes" : "reads", place(race->address, race->bytes),
        race->earlier.actor, race->earlier_writes ? "wrote" : "read"));
  }
  return true;
}

void FakeDevice::access(std::uint64_t address, std::uint64_t bytes, bool writes) {
  if (running_ != nullptr) {
    static_cast<void>(touch(*running_, address, bytes, writes, true));
    return;
  }
  Running host;
  host.what = "host code";
  host.before = host_;
  host.time = host_.tick(0);
  static_cast<void>(touch(host, address, bytes, writes, false));
}

}  // namespace kvc::cuda::fake
