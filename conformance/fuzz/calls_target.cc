// Any call with any numbers gets a status: the bytes are raw structs for the slots of an open
// connector. Only memory is what the line asks for: lists and buffers are as long as they say,
// unless they say what no memory can be. After every call the counts balance; at the end every
// handle closes.
#include <kvc/kvc_util.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <tuple>
#include <vector>

#include "conformance/fuzz/fuzz_library.h"
#include "conformance/rig/choices.h"

namespace {

using kvc::fuzz::promise;
using kvc::rig::ByteChoices;

class EndingJudge final : public kvc::rig::Judge {
 public:
  void fail(kvc::rig::RuleId rule, const std::string& text) override {
    promise(false, std::string(rule.text()) + ": " + text);
  }
};

constexpr std::size_t arena_bytes = std::size_t{64} << 10U;
constexpr std::uint64_t elements_most = 12;

class Calls {
 public:
  Calls(ByteChoices& choices, kvc::rig::World& world) : c_(choices), w_(world) {
    // Requests with something stored and something open, so that ids mean something.
    w_.store(1, kvc::rig::tokens_of(1, 65), 64);
    w_.begin(2, kvc::rig::tokens_of(1, 65));
    w_.run(3, kvc::rig::tokens_of(2, 49));
    w_.check_counts = false;  // jobs of raw calls are not the world's
  }

  void one() {
    switch (c_.below(14)) {
      case 0:
        return begin();
      case 1:
        return extend();
      case 2:
        return lookup();
      case 3:
        return status(api().lookup_cancel(sched(), id()));
      case 4:
        return alloc();
      case 5:
        return step();
      case 6:
        return complete();
      case 7:
        return end();
      case 8:
        return status(api().reset(sched(), number()));
      case 9:
        return submit();
      case 10:
        return progress();
      case 11:
        return queries();
      case 12:
        return status(api().pump_rank(w_.rank(0), 1 + static_cast<std::uint32_t>(c_.below(9))));
      default:
        return registrations();
    }
  }

  void check_balance() {
    kvc_boundary_stats stats{};
    stats.struct_size = sizeof stats;
    promise(api().boundary_stats(sched(), &stats) == KVC_OK, "boundary_stats");
    promise(balanced(stats.handoffs) && balanced(stats.all_offers), "published is not the sum");
  }

 private:
  static bool balanced(const kvc_offer_counts& counts) {
    std::array<std::uint64_t, sizeof counts / 8> row{};
    std::memcpy(row.data(), &counts, sizeof counts);
    std::uint64_t sum = 0;
    for (std::size_t i = 1; i < row.size(); ++i) sum += row[i];
    return row[0] == sum;
  }

  const kvc_plugin_api& api() { return w_.api(); }
  kvc_sched* sched() { return w_.sched(); }
  static void status(kvc_status s) {
    promise(s != KVC_E_INTERNAL, "a call broke an invariant of the connector");
  }

  // Small, near a limit, or anything.
  std::uint64_t number() {
    const std::uint64_t kind = c_.below(8);
    if (kind < 4) return c_.below(256);
    if (kind == 4) return UINT64_MAX - c_.below(4);
    if (kind == 5) return (std::uint64_t{1} << c_.below(64)) + c_.below(3) - 1;
    return c_.below(8) * 16;
  }
  std::uint64_t id() { return c_.chance(8) ? number() : 1 + c_.below(8); }
  std::int64_t block() {
    return c_.chance(8) ? static_cast<std::int64_t>(number())
                        : static_cast<std::int64_t>(c_.below(64));
  }
  std::uint32_t size(std::size_t right) {
    return c_.chance(16) ? static_cast<std::uint32_t>(number()) : static_cast<std::uint32_t>(right);
  }
  // Of an answer: never more than there is.
  std::uint32_t room(std::size_t right) {
    return size(right) % (static_cast<std::uint32_t>(right) + 1);
  }
  std::uint32_t word() { return c_.chance(8) ? static_cast<std::uint32_t>(number()) : 0; }

  void flip(std::vector<std::uint8_t>& bytes) {
    std::uint8_t& byte = bytes[c_.below(bytes.size())];
    byte = static_cast<std::uint8_t>(byte ^ (1U << c_.below(8)));
  }

  // A struct whose tail, should struct_size claim one, is memory of ours.
  template <class T>
  struct Padded {
    T value{};
    std::array<std::uint8_t, 8192> tail{};
  };

  // Elements made by `make`; sometimes a list that no memory can be, or one of another stride.
  template <class T, class Make>
  kvc_list list(Make&& make) {
    auto& room = std::get<std::deque<std::vector<T>>>(rooms_).emplace_back();
    room.reserve(elements_most);
    if (c_.chance(24)) return {nullptr, number(), sizeof(T), 0};
    for (std::uint64_t n = c_.below(elements_most); n != 0; --n) room.push_back(make());
    if (c_.chance(24)) return {room.data(), std::uint64_t{1} << 62U, sizeof(T), 0};
    if (c_.chance(24)) {
      const auto stride = static_cast<std::uint32_t>(c_.below(2 * sizeof(T) + 1));
      return {room.data(), room.size() / 2, stride, word()};
    }
    return kvc_list_of(room.data(), room.size(), sizeof(T));
  }

  kvc_list tables() {
    std::uint64_t group = 0;
    return list<kvc_table>([&] {
      auto& entries = entries_.emplace_back(c_.below(elements_most));
      for (auto& e : entries) e = block();
      kvc_table t{};
      t.struct_size = size(sizeof t);
      t.group = static_cast<std::uint32_t>(c_.chance(8) ? number() : group++);
      t.blocks = c_.chance(24) ? nullptr : entries.data();
      t.count = entries.size();
      t.first_changed = c_.chance(3) ? number() : 0;
      return t;
    });
  }
  kvc_list handoffs() {
    return list<kvc_handoff>([&] {
      return kvc_handoff{size(sizeof(kvc_handoff)), word(), id(), block(), number()};
    });
  }

  void begin() {
    const std::uint64_t n = c_.below(elements_most);
    kvc_request r{};
    r.struct_size = size(sizeof r);
    r.flags = word();
    r.request = id();
    r.prompt_tokens = number();
    r.keys = c_.chance(24) ? nullptr : arena_.data();
    r.n_keys = c_.chance(24) ? UINT64_MAX / 8 : n;
    r.load_limit_tokens = r.store_limit_tokens = KVC_NO_LIMIT;
    if (r.n_keys > arena_bytes / 16) r.prompt_tokens = c_.below(256);  // more keys than tokens hold
    status(call(r, [&](const kvc_request* in) { return api().request_begin(sched(), in); }));
  }
  void extend() {
    kvc_extend e{};
    e.struct_size = size(sizeof e);
    e.reserved0 = word();
    e.request = id();
    e.first_key = number();
    e.keys = arena_.data();
    e.n_keys = c_.below(elements_most);
    status(call(e, [&](const kvc_extend* in) { return api().request_extend(sched(), in); }));
  }
  void lookup() {
    const kvc_lookup_in in{size(sizeof in), word(), id(), number(), number(), number()};
    kvc_lookup_out out{};
    out.struct_size = room(sizeof out);
    status(call(in, [&](const kvc_lookup_in* i) { return api().lookup(sched(), i, &out); }));
  }
  void alloc() {
    const kvc_alloc_in in{size(sizeof in), word(), id(), number(), tables()};
    kvc_alloc_out out{};
    out.struct_size = room(sizeof out);
    status(call(in, [&](const kvc_alloc_in* i) { return api().alloc_update(sched(), i, &out); }));
  }
  void step() {
    std::vector<std::uint64_t> preempted(c_.below(4));
    for (auto& p : preempted) p = id();
    kvc_step in{};
    in.struct_size = size(sizeof in);
    in.reserved0 = word();
    in.step = c_.chance(8) ? number() : w_.next_step;
    in.scheduled = list<kvc_step_request>([&] {
      return kvc_step_request{size(sizeof(kvc_step_request)), word(), id(), number(), tables()};
    });
    in.preempted = preempted.data();
    in.n_preempted = preempted.size();
    in.handoffs = handoffs();
    in.candidates = list<kvc_candidate>([&] {
      return kvc_candidate{size(sizeof(kvc_candidate)), word(), block(), arena_.data(), number()};
    });
    kvc_plan out{};
    out.struct_size = sizeof out;
    const kvc_status s =
        call(in, [&](const kvc_step* i) { return api().build_store_jobs(sched(), i, &out); });
    status(s);
    if (s != KVC_OK) return;
    ++w_.next_step;
    plan_.assign(out.bytes.data, out.bytes.data + out.bytes.size);
  }
  // Of a rank, or wild, or a rank's with a byte changed.
  void complete() {
    std::vector<std::uint8_t> report = reported_;
    if (!report.empty() && c_.chance(4)) flip(report);
    if (c_.chance(8)) report.assign(c_.below(200), static_cast<std::uint8_t>(c_.below(256)));
    const kvc_bytes given[] = {kvc_bytes_of(report.data(), report.size()),
                               kvc_bytes_of(report.data(), report.size() / 2)};
    kvc_complete_out out{};
    out.struct_size = sizeof out;
    status(api().complete(sched(), given, c_.below(3), &out));
  }
  void end() {
    kvc_end_in in{};
    in.struct_size = size(sizeof in);
    in.reason = static_cast<std::int32_t>(c_.below(6));
    in.request = id();
    in.confirmed_tokens = number();
    in.tables = tables();
    in.handoffs = handoffs();
    kvc_end_out out{};
    out.struct_size = sizeof out;
    status(call(in, [&](const kvc_end_in* i) { return api().request_end(sched(), i, &out); }));
  }
  void submit() {
    std::vector<std::uint8_t> plan = plan_;
    if (!plan.empty() && c_.chance(4)) flip(plan);
    if (c_.chance(8)) plan.resize(c_.below(plan.size() + 1));
    alignas(8) static const std::uint64_t reached = UINT64_MAX;
    kvc_fence fence{};
    fence.struct_size = size(sizeof fence);
    fence.kind = c_.chance(4) ? static_cast<std::int32_t>(number()) : KVC_FENCE_NONE;
    if (fence.kind == KVC_FENCE_COUNTER) fence.counter = &reached;
    // Events and streams are a device's, which this rank has not.
    const kvc_bytes bytes = kvc_bytes_of(plan.data(), plan.size());
    status(
        call(fence, [&](const kvc_fence* f) { return api().submit_loads(w_.rank(0), bytes, f); }));
    status(
        call(fence, [&](const kvc_fence* f) { return api().submit_stores(w_.rank(0), bytes, f); }));
  }
  void progress() {
    kvc_progress out{};
    out.struct_size = room(sizeof out);
    const kvc_status s = api().progress(w_.rank(0), &out);
    status(s);
    if (s != KVC_OK || out.struct_size < sizeof out || out.report.size == 0) return;
    reported_.assign(out.report.data, out.report.data + out.report.size);
  }
  void queries() {
    std::array<char, 512> text{};
    std::uint64_t needed = 0;
    status(api().explain(sched(), id(), text.data(), c_.below(text.size()), &needed));
    std::array<kvc_stat, 8> stats{};
    status(api().stats(sched(), stats.data(), size(sizeof(kvc_stat)) % 49, c_.below(9), &needed));
    std::array<kvc_event, 4> events{};
    status(api().take_events(sched(), events.data(), size(sizeof(kvc_event)) % 113, c_.below(5),
                             &needed));
    status(api().take_log_scheduler(sched(), text.data(), c_.below(text.size()), &needed));
    const kvc_job jobs[] = {number(), id()};
    status(api().wait(w_.rank(0), jobs, c_.below(3), 0));
  }
  void registrations() {
    kvc_list usable{};
    const kvc_list ranks = list<kvc_rank_info>([&] {
      kvc_rank_info info{};
      info.struct_size = size(sizeof info);
      info.rank = word();
      info.pages = number();
      return info;
    });
    status(api().set_ranks(sched(), &ranks, &usable));
    kvc_rank_info out{};
    out.struct_size = sizeof out;
    const kvc_list given = list<kvc_region>([&] {
      return kvc_region{size(sizeof(kvc_region)),
                        static_cast<std::int32_t>(word()),
                        0,
                        word(),
                        arena_.data(),
                        number(),
                        number(),
                        number(),
                        number()};
    });
    status(api().register_regions(w_.rank(0), &given, &out));
  }

  template <class T, class Call>
  kvc_status call(const T& in, Call&& make) {
    auto padded = std::make_unique<Padded<T>>();
    padded->value = in;
    if (c_.chance(16)) padded->tail[c_.below(64)] = 1;
    return make(&padded->value);
  }

  ByteChoices& c_;
  kvc::rig::World& w_;
  std::vector<std::uint8_t> arena_ = std::vector<std::uint8_t>(arena_bytes, 7);
  // Kept until the run is over: what lists of this run point to.
  std::deque<std::vector<std::int64_t>> entries_;
  template <class... T>
  using Rooms = std::tuple<std::deque<std::vector<T>>...>;
  Rooms<kvc_table, kvc_handoff, kvc_step_request, kvc_candidate, kvc_rank_info, kvc_region> rooms_;
  std::vector<std::uint8_t> plan_, reported_;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  EndingJudge judge;
  ByteChoices choices({data, size});
  kvc::rig::Setup setup;
  if (choices.chance(2)) {
    setup.groups = {kvc::rig::full(16), kvc::rig::state_align(16), kvc::rig::sliding(16, 40)};
  }
  setup.host_blocks = 8;
  kvc::rig::World world(setup, kvc::fuzz::library(), judge);
  world.check_structure = false;
  Calls calls(choices, world);
  for (int i = 0; i < 100 && !choices.used_up(); ++i) {
    calls.one();
    calls.check_balance();
  }
  return 0;
}
