#include "plugin/edge/tests/scripted_role.h"

#include "cuda/host_copy_engine.h"

namespace kvc::edge {

namespace testing {

Script& script() {
  static Script s;
  return s;
}

namespace {

class ScriptedRole final : public SchedulerRole {
 public:
  ScriptedRole() { ++script().live_roles; }
  ~ScriptedRole() override { --script().live_roles; }

  Result<std::span<const SlotClass>> set_ranks(std::span<const RankInfo> ranks) override {
    if (Status s = called("set_ranks"); !s.ok()) return s;
    script().ranks.assign(ranks.begin(), ranks.end());
    script().rank_classes.clear();
    for (const RankInfo& r : ranks) {
      script().rank_classes.insert(script().rank_classes.end(), r.classes.begin(), r.classes.end());
    }
    return std::span<const SlotClass>(script().classes);
  }
  Status request_begin(const RequestBegin& begin) override {
    script().begin = begin;
    script().keys.assign(begin.keys, begin.keys + begin.key_count * script().limits.key_bytes);
    return called("request_begin");
  }
  Status request_extend(RequestId request, std::uint64_t first, const std::uint8_t* keys,
                        std::uint64_t count) override {
    script().request = request;
    script().begin.key_count = first;
    script().keys.assign(keys, keys + count * script().limits.key_bytes);
    return called("request_extend");
  }
  Result<LookupAnswer> lookup(const LookupQuery& query) override {
    script().query = query;
    if (Status s = called("lookup"); !s.ok()) return s;
    return script().found;
  }
  Status lookup_cancel(RequestId request) override {
    script().request = request;
    return called("lookup_cancel");
  }
  Result<AllocResult> alloc_update(RequestId request, Tokens accepted,
                                   std::span<const TableView> tables) override {
    script().request = request;
    script().accepted = accepted;
    take_tables(tables);
    if (Status s = called("alloc_update"); !s.ok()) return s;
    return script().alloc;
  }
  Result<PlanResult> build_store_jobs(const StepRecord& step) override {
    Script& s = script();
    s.step = step;
    s.scheduled.assign(step.scheduled.begin(), step.scheduled.end());
    s.preempted.assign(step.preempted.begin(), step.preempted.end());
    s.handoffs.assign(step.handoffs.begin(), step.handoffs.end());
    s.candidates.assign(step.candidates.begin(), step.candidates.end());
    s.tables.clear();
    s.first_changed.clear();
    for (const ScheduledRequest& r : step.scheduled) add_tables(r.tables);
    if (Status e = called("build_store_jobs"); !e.ok()) return e;
    return s.plan;
  }
  Result<CompleteResult> complete(std::span<const std::span<const std::uint8_t>> reports) override {
    script().reports.clear();
    for (const auto& r : reports) script().reports.emplace_back(r.begin(), r.end());
    if (Status s = called("complete"); !s.ok()) return s;
    return script().complete;
  }
  Result<EndResult> request_end(const RequestEnd& end) override {
    script().request = end.request;
    script().accepted = end.confirmed;
    script().handoffs.assign(end.handoffs.begin(), end.handoffs.end());
    take_tables(end.tables);
    if (Status s = called("request_end"); !s.ok()) return s;
    return script().end;
  }
  bool take_events(std::span<CacheEvent> out, std::size_t& count) override {
    count = std::min(out.size(), script().events.size());
    std::copy_n(script().events.begin(), count, out.begin());
    script().events.erase(script().events.begin(),
                          script().events.begin() + static_cast<std::ptrdiff_t>(count));
    return !script().events.empty();
  }
  Status reset(bool invalidate) override {
    script().invalidate = invalidate;
    if (Status s = called("reset"); !s.ok()) return s;
    return {script().reset, {}};
  }
  Status pump(std::uint32_t /*budget*/) override { return called("pump_scheduler"); }
  BoundaryStats counts() const override { return script().counts; }
  PendingWork pending() const override {
    if (script().pending_breaks) throw BrokenInvariant("held is below 0");
    return script().pending;
  }
  std::size_t stat_count() const override { return script().stats.size(); }
  void stats(std::span<Stat> out) const override {
    std::copy_n(script().stats.begin(), out.size(), out.begin());
  }
  Result<std::string> explain(RequestId request) const override {
    if (request == 404) return Status(Code::arg, "unknown");
    return script().explain;
  }
  std::string verify() const override { return {}; }

 private:
  static Status called(std::string_view name) {
    script().calls.emplace_back(name);
    if (script().on_call) script().on_call(name);
    return script().answer;
  }
  static void add_tables(std::span<const TableView> tables) {
    for (const TableView& t : tables) {
      script().tables.emplace_back(t.blocks, t.blocks + t.count);
      script().first_changed.push_back(t.first_changed);
    }
  }
  static void take_tables(std::span<const TableView> tables) {
    script().tables.clear();
    script().first_changed.clear();
    add_tables(tables);
  }
};

}  // namespace

}  // namespace testing

std::string_view connector_name() { return "scripted"; }

std::uint64_t connector_caps() { return KVC_CAP_STEPPED | KVC_CAP_EVENTS; }

Result<std::unique_ptr<SchedulerRole>> make_scheduler(const OpenConfig& open, HostAdapter& host) {
  testing::Script& s = testing::script();
  if (!s.open_error.empty()) return Status(Code::arg, s.open_error);
  s.limits = open.limits;
  s.host = &host;
  return std::unique_ptr<SchedulerRole>(std::make_unique<testing::ScriptedRole>());
}

Result<std::unique_ptr<RankEngine>> make_rank(const OpenConfig& open, HostAdapter& host) {
  HostCopyOptions copy;
  copy.workers = 0;
  auto copies = HostCopyEngine::create(copy);
  if (!copies.ok()) return copies.error();
  RankOptions options;
  options.rank = open.rank;
  options.layout.groups = open.geometry.groups();
  options.layout.cacheable_mask = 1;
  options.layout.device_blocks = open.limits.device_blocks;
  options.layout.host_blocks = 8;
  return RankEngine::create(options, std::move(copies).value(), host);
}

}  // namespace kvc::edge
