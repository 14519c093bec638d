#include "host_stub/engine/toy_connector.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <kvc/kvc_util.h>

#include "host_stub/engine/connector_link.h"
#include "host_stub/engine/toy_rank.h"
#include "plugin/coordinator/lookup.h"

namespace kvc::host::testing {
namespace {

ToyCounts counts;
std::vector<std::string> complaints;

void complain(const std::string& text) {
  if (complaints.size() < 20) complaints.push_back(text);
}

GroupSpec spec_of(const kvc_group& g) {
  GroupSpec s;
  const auto has = [&](std::uint64_t cap) { return (g.caps & cap) != 0; };
  s.kind = static_cast<GroupKind>(g.kind);
  s.tokens_per_block = {g.tokens_per_block};
  s.window = {g.window_tokens};
  s.extra_retained = {g.extra_retained_tokens};
  s.cacheable = has(KVC_GROUP_CAP_CACHEABLE);
  s.position_stable = has(KVC_GROUP_CAP_POSITION_STABLE);
  s.fine_lookup = has(KVC_GROUP_CAP_FINE_LOOKUP);
  s.state = has(KVC_GROUP_CAP_STATE);
  s.sharded = has(KVC_GROUP_CAP_SHARDED);
  s.draft = has(KVC_GROUP_CAP_DRAFT);
  return s;
}

Geometry geometry_of(const kvc_open& open) {
  GeometryOptions o;
  for (std::uint64_t i = 0; i < open.groups.count; ++i) {
    o.groups.push_back(spec_of(list_element<kvc_group>(open.groups, i)));
  }
  o.hash_unit = {open.hash_unit_tokens};
  o.scheduler_block = {open.scheduler_block_tokens};
  o.context_parallel = open.context_parallel;
  o.cp_interleave = {open.cp_interleave_tokens};
  o.draft_drop = (open.flags & KVC_OPEN_DRAFT_DROP) != 0;
  o.retention = open.retention_tokens;
  return Geometry::make(std::move(o)).value();
}

struct Entry {
  GroupId group = 0;
  std::uint64_t end = 0;
  SlotId slot = 0;
  std::vector<std::byte> key;
};

struct Job {
  std::int32_t kind = KVC_JOB_STORE;
  std::uint64_t request = 0;
  std::vector<Copy> copies;
  std::vector<kvc_block> held;
  std::vector<Entry> entries;
  std::uint64_t ranks_ended = 0;
  bool planned = false;
  bool fails = false;
};

struct Known {
  std::vector<std::byte> keys;
  std::uint64_t prompt = 0;
  std::uint64_t confirmed = 0;
  std::uint64_t later_left = 0;
  std::uint64_t device = 0;
  std::uint64_t offered = 0;
  std::uint64_t open_load = 0;
  std::vector<std::vector<std::int64_t>> tables;
  std::vector<std::uint64_t> cursors;
  std::vector<bool> tails;
  bool has_tables = false;
  bool load_failed = false;  // until it has run once (design 2.4)

  [[nodiscard]] KeyView view() const { return {keys.data(), 16, keys.size() / 16}; }
};

class Toy {
 public:
  explicit Toy(const kvc_open& open)
      : settings(toy_settings()),
        geometry(geometry_of(open)),
        ranks_(open.ranks),
        index_(FlatIndex::make({16, 0, 0, false}).value()) {
    counts = {};
    complaints.clear();
  }

  // The n-th call of the chosen slot, and every later call of any slot, is poisoned.
  bool poisoned(const char* slot) {
    if (!poison_ && settings.internal_slot == slot && ++poison_calls_ == settings.internal_call) {
      poison_ = true;
    }
    return poison_;
  }

  kvc_status begin(const kvc_request& in) {
    if (poisoned("request_begin")) return KVC_E_INTERNAL;
    if (settings.full_every_begin != 0 && ++begins_ % settings.full_every_begin == 0) {
      untracked_.insert(in.request);
      return KVC_E_FULL;
    }
    Known known;
    known.prompt = in.prompt_tokens;
    known.later_left = settings.later_answers;
    known.tables.resize(geometry.groups());
    known.cursors.resize(geometry.groups());
    known.tails.resize(geometry.groups());
    add_keys(known, in.keys, in.n_keys);
    if (!known_.emplace(in.request, known).second) complain("request_begin of a known id");
    return KVC_OK;
  }

  kvc_status extend(const kvc_extend& in) {
    if (poisoned("request_extend")) return KVC_E_INTERNAL;
    Known* known = find(in.request, "request_extend");
    if (known == nullptr) return KVC_E_ARG;
    if (in.first_key != known->keys.size() / 16) complain("request_extend is not append only");
    add_keys(*known, in.keys, in.n_keys);
    return KVC_OK;
  }

  kvc_status lookup(const kvc_lookup_in& in, kvc_lookup_out& out) {
    if (poisoned("lookup")) return KVC_E_INTERNAL;
    ++counts.lookups;
    Known* known = find(in.request, "lookup");
    if (known == nullptr) return KVC_E_ARG;
    if (known->open_load != 0) complain("lookup while a load has no verdict");
    if (in.device_tokens % geometry.scheduler_block().n != 0) complain("unaligned device_tokens");
    if (known->later_left > 0) {
      --known->later_left;
      ++counts.later;
      return KVC_LATER;
    }
    find_hit(*known, in.device_tokens, known->load_failed ? in.device_tokens : in.total_tokens - 1);
    known->device = in.device_tokens;
    known->offered = hit_.tokens.n - in.device_tokens;
    out.external_tokens = known->offered;
    return KVC_OK;
  }

  kvc_status alloc(const kvc_alloc_in& in, kvc_alloc_out& out) {
    if (poisoned("alloc_update")) return KVC_E_INTERNAL;
    Known* known = find(in.request, "alloc_update");
    if (known == nullptr) return KVC_E_ARG;
    take_tables(*known, in.tables);
    if (in.accepted_tokens == 0) return KVC_OK;
    if (in.accepted_tokens > known->offered) complain("accepted more than offered");
    if (settings.refuse_alloc_every != 0 && ++allocs_ % settings.refuse_alloc_every == 0) {
      return KVC_E_ARG;
    }
    const std::uint64_t end = known->device + in.accepted_tokens;
    find_hit(*known, known->device, end);
    const std::uint64_t id = next_job_++;
    Job& job = jobs_[id];
    job.kind = KVC_JOB_LOAD;
    job.request = in.request;
    ++counts.loads;
    job.fails = hit_.tokens.n != end ||
                (settings.fail_every_load != 0 && counts.loads % settings.fail_every_load == 0);
    const bool spoil =
        settings.spoil_every_load != 0 && counts.loads % settings.spoil_every_load == 0;
    if (hit_.tokens.n == end) {
      for_each_needed(geometry, Tokens{known->device}, Tokens{end},
                      [&](GroupId g, std::uint64_t p) { add_load(*known, job, id, g, p, spoil); });
    }
    counts.load_blocks += job.held.size();
    known->open_load = id;
    out.job = id;
    alloc_held_ = job.held;
    out.held = kvc_list_of(alloc_held_.data(), alloc_held_.size(), sizeof(kvc_block));
    return KVC_OK;
  }

  kvc_status build(const kvc_step& in, kvc_plan& out) {
    if (poisoned("build_store_jobs")) return KVC_E_INTERNAL;
    if (in.step != ++step_) complain(fmt::format("step {} after {}", in.step, step_ - 1));
    for (std::uint64_t i = 0; i < in.n_preempted; ++i) {
      if (Known* known = find(in.preempted[i], "preempted")) forget_tables(*known);
    }
    const std::uint64_t id = next_job_;
    Job job;
    for (std::uint64_t i = 0; i < in.scheduled.count; ++i) {
      scheduled(list_element<kvc_step_request>(in.scheduled, i), job, id);
    }
    for (std::uint64_t i = 0; i < in.handoffs.count; ++i) {
      const auto h = list_element<kvc_handoff>(in.handoffs, i);
      ++counts.handoffs;
      Known* known = find(h.request, "hand-off");
      if (known != nullptr && h.boundary_tokens > known->confirmed) {
        complain(fmt::format("request {} hands a state at {} tokens off, {} are confirmed",
                             h.request, h.boundary_tokens, known->confirmed));
      }
      if (known != nullptr) offer(*known, job, id, h.group, h.block, h.boundary_tokens);
    }
    if (!job.copies.empty()) {
      ++next_job_;
      ++counts.stores;
      jobs_.emplace(id, std::move(job));
    }
    return plan(in.step, out);
  }

  kvc_status end(const kvc_end_in& in, kvc_end_out& out) {
    if (poisoned("request_end")) return KVC_E_INTERNAL;
    if (untracked_.count(in.request) != 0) return KVC_OK;
    Known* known = find(in.request, "request_end");
    if (known == nullptr) return KVC_E_ARG;
    const std::uint64_t id = next_job_;
    Job job;
    if (in.tables.count > 0 && known->open_load == 0 && known->has_tables) {
      take_tables(*known, in.tables);
      if (in.confirmed_tokens < known->confirmed) complain("confirmed_tokens fell at the end");
      offer_positions(*known, in.confirmed_tokens, job, id);
    }
    for (std::uint64_t i = 0; i < in.handoffs.count; ++i) {
      const auto h = list_element<kvc_handoff>(in.handoffs, i);
      ++counts.end_handoffs;
      offer(*known, job, id, h.group, h.block, h.boundary_tokens);
    }
    if (!job.copies.empty()) {
      ++next_job_;
      ++counts.stores;
      out.job = id;
      end_held_ = job.held;
      out.held = kvc_list_of(end_held_.data(), end_held_.size(), sizeof(kvc_block));
      jobs_.emplace(id, std::move(job));
    }
    known_.erase(in.request);
    return KVC_OK;
  }

  kvc_status complete(const kvc_bytes* reports, std::uint64_t n, kvc_complete_out& out) {
    if (poisoned("complete")) return KVC_E_INTERNAL;
    ended_.clear();
    verdicts_.clear();
    ended_jobs_.clear();
    for (std::uint64_t r = 0; r < n; ++r) {
      for (std::uint64_t at = 0; at + sizeof(RankReport) <= reports[r].size;
           at += sizeof(RankReport)) {
        RankReport report;
        std::memcpy(&report, reports[r].data + at, sizeof report);
        rank_ended(report);
      }
    }
    for (std::size_t i = 0; i < ended_.size(); ++i) {
      ended_[i].released =
          kvc_list_of(ended_jobs_[i].held.data(), ended_jobs_[i].held.size(), sizeof(kvc_block));
    }
    out.jobs = kvc_list_of(ended_.data(), ended_.size(), sizeof(kvc_ended_job));
    out.verdicts = kvc_list_of(verdicts_.data(), verdicts_.size(), sizeof(kvc_verdict));
    return KVC_OK;
  }

  [[nodiscard]] std::uint64_t open_jobs(std::int32_t kind) const {
    std::uint64_t n = 0;
    for (const auto& [id, job] : jobs_) n += job.kind == kind ? 1 : 0;
    return n;
  }
  [[nodiscard]] std::uint64_t held() const {
    std::uint64_t n = 0;
    for (const auto& [id, job] : jobs_) n += job.held.size();
    return n;
  }

  const ToySettings settings;
  const Geometry geometry;

 private:
  Known* find(std::uint64_t id, const char* what) {
    const auto it = known_.find(id);
    if (it != known_.end()) return &it->second;
    if (untracked_.count(id) == 0) complain(fmt::format("{} names unknown request {}", what, id));
    return nullptr;
  }

  static void add_keys(Known& known, const std::uint8_t* keys, std::uint64_t n) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(keys);
    known.keys.insert(known.keys.end(), bytes, bytes + n * 16);
  }

  void find_hit(const Known& known, std::uint64_t device, std::uint64_t max_tokens) {
    const Code code =
        kvc::lookup(geometry, index_, known.view(), Tokens{device}, Tokens{max_tokens}, hit_);
    if (code != Code::ok) complain("lookup with arguments that the coordinator refuses");
  }

  void take_tables(Known& known, const kvc_list& list) {
    if (list.count != geometry.groups()) complain("a list of tables without one per group");
    for (std::uint64_t g = 0; g < list.count; ++g) {
      const auto table = list_element<kvc_table>(list, g);
      if (table.count == 0) continue;
      std::vector<std::int64_t>& mine = known.tables[g];
      const std::vector<std::int64_t> now(table.blocks, table.blocks + table.count);
      for (std::uint64_t p = 0; p < std::min<std::uint64_t>(table.first_changed, mine.size());
           ++p) {
        if (mine[p] != now[p]) complain(fmt::format("group {} position {} changed unsaid", g, p));
      }
      mine = now;
      known.has_tables = true;
    }
  }

  void forget_tables(Known& known) {
    for (auto& table : known.tables) table.clear();
    std::fill(known.cursors.begin(), known.cursors.end(), 0);
    std::fill(known.tails.begin(), known.tails.end(), false);
    known.confirmed = 0;
    known.has_tables = false;
  }

  void add_load(Known& known, Job& job, std::uint64_t id, GroupId g, std::uint64_t p, bool spoil) {
    const GroupHit& found = hit_.groups[g];
    const auto& table = known.tables[g];
    if (p >= table.size() || table[p] <= 0) {
      complain(fmt::format("no destination for group {} position {}", g, p));
      return;
    }
    job.copies.push_back({id, found.slots[p - found.first_position], table[p], 1, spoil ? 1U : 0U});
    job.held.push_back({sizeof(kvc_block), g, table[p], p});
  }

  void scheduled(const kvc_step_request& r, Job& job, std::uint64_t id) {
    Known* known = find(r.request, "scheduled");
    if (known == nullptr) return;
    if (known->open_load != 0)
      complain(fmt::format("request {} runs before its verdict", r.request));
    if ((r.flags & KVC_STEP_RESUMED) != 0) {
      std::fill(known->cursors.begin(), known->cursors.end(), 0);
      known->confirmed = 0;
    }
    if (r.confirmed_tokens < known->confirmed) complain("confirmed_tokens fell");
    take_tables(*known, r.tables);
    known->load_failed = false;
    offer_positions(*known, r.confirmed_tokens, job, id);
    known->confirmed = r.confirmed_tokens;
  }

  void offer_positions(Known& known, std::uint64_t confirmed, Job& job, std::uint64_t id) {
    for (const GroupId g : geometry.cacheable()) {
      if (!geometry.group(g).position_stable) continue;
      const std::uint64_t span = geometry.block_tokens(g).n;
      const std::uint64_t ready = geometry.cacheable_tokens(g, {confirmed}).n / span;
      std::uint64_t& p = known.cursors[g];
      for (; p < ready && (p + 1) * span <= known.keys.size() / 16 * geometry.hash_unit().n; ++p) {
        if (p >= known.tables[g].size()) {
          complain(fmt::format("group {}: table of {} is shorter than {} confirmed tokens", g,
                               known.tables[g].size(), confirmed));
          return;
        }
        offer(known, job, id, g, known.tables[g][p], (p + 1) * span);
      }
      const std::uint64_t tail = geometry.partial_tail(g, {known.prompt}).n;
      if (tail == 0 || tail > confirmed || known.tails[g]) continue;
      known.tails[g] = true;
      offer(known, job, id, g, known.tables[g][tail / span], tail);
    }
  }

  void offer(Known& known, Job& job, std::uint64_t id, GroupId g, std::int64_t block,
             std::uint64_t end) {
    if (block == 0) return;
    if (end == 0 || end % geometry.hash_unit().n != 0 ||
        end / geometry.hash_unit().n > known.keys.size() / 16) {
      complain(fmt::format("group {}: an offer at {} tokens without its key", g, end));
      return;
    }
    const std::byte* const key = block_key(known.view(), {end}, geometry.hash_unit());
    Entry entry{g, end, 0, {key, key + 16}};
    if (index_.find(g, key) != no_slot || !open_keys_.insert({g, entry.key}).second) return;
    entry.slot = next_slot_++;
    const std::uint64_t span = geometry.block_tokens(g).n;
    job.copies.push_back({id, entry.slot, block, 0, 0});
    job.held.push_back({sizeof(kvc_block), g, block, (end - 1) / span});
    job.entries.push_back(std::move(entry));
    ++counts.store_blocks;
  }

  kvc_status plan(std::uint64_t step, kvc_plan& out) {
    plan_jobs_.clear();
    plan_copies_.clear();
    for (auto& [id, job] : jobs_) {
      if (job.planned) continue;
      job.planned = true;
      kvc_plan_job j{};
      j.struct_size = sizeof j;
      j.kind = job.kind;
      j.job = id;
      j.request = job.request;
      if (job.kind == KVC_JOB_STORE && !announced_.count(id)) {
        j.held = kvc_list_of(job.held.data(), job.held.size(), sizeof(kvc_block));
      }
      plan_jobs_.push_back(j);
      plan_copies_.insert(plan_copies_.end(), job.copies.begin(), job.copies.end());
      if (job.copies.empty()) plan_copies_.push_back({id, 0, 0, 1, 0});
    }
    out.step = step;
    out.jobs = kvc_list_of(plan_jobs_.data(), plan_jobs_.size(), sizeof(kvc_plan_job));
    out.bytes = kvc_bytes_of(plan_copies_.data(), plan_copies_.size() * sizeof(Copy));
    return KVC_OK;
  }

  void rank_ended(const RankReport& report) {
    const auto it = jobs_.find(report.job);
    if (it == jobs_.end()) {
      complain(fmt::format("a report of unknown job {}", report.job));
      return;
    }
    if (++it->second.ranks_ended < ranks_) return;
    Job job = std::move(it->second);
    jobs_.erase(it);
    kvc_ended_job ended{};
    ended.struct_size = sizeof ended;
    ended.kind = job.kind;
    ended.job = report.job;
    ended.request = job.request;
    ended.status = job.fails ? KVC_E_IO : KVC_OK;
    if (settings.release_foreign) job.held.push_back({sizeof(kvc_block), 0, 1, 0});
    for (const Entry& e : job.entries) {
      open_keys_.erase({e.group, e.key});
      if (index_.insert(e.group, e.key.data(), e.slot, {e.end}) != Code::ok) complain("index");
    }
    if (job.kind == KVC_JOB_LOAD) {
      verdicts_.push_back({sizeof(kvc_verdict), ended.status, job.request, report.job});
      const auto known = known_.find(job.request);
      if (known != known_.end() && known->second.open_load == report.job) {
        known->second.open_load = 0;
        known->second.load_failed = job.fails;
      }
    }
    ended_.push_back(ended);
    ended_jobs_.push_back(std::move(job));
  }

 public:
  // Finish-time jobs: request_end listed their holds.
  void announce(std::uint64_t job) { announced_.insert(job); }

 private:
  std::uint64_t ranks_;
  FlatIndex index_;
  Hit hit_;
  std::map<std::uint64_t, Known> known_;
  std::set<std::uint64_t> untracked_;
  std::map<std::uint64_t, Job> jobs_;
  std::set<std::uint64_t> announced_;
  std::set<std::pair<GroupId, std::vector<std::byte>>> open_keys_;
  std::vector<kvc_block> alloc_held_;
  std::vector<kvc_block> end_held_;
  std::vector<kvc_plan_job> plan_jobs_;
  std::vector<Copy> plan_copies_;
  std::vector<kvc_ended_job> ended_;
  std::vector<kvc_verdict> verdicts_;
  std::vector<Job> ended_jobs_;
  std::uint64_t step_ = 0;
  std::uint64_t next_job_ = 1;
  SlotId next_slot_ = 0;
  std::uint64_t begins_ = 0;
  std::uint64_t allocs_ = 0;
  std::uint64_t poison_calls_ = 0;
  bool poison_ = false;
};

Toy& toy(kvc_sched* s) { return *reinterpret_cast<Toy*>(s); }
const Toy& toy(const kvc_sched* s) { return *reinterpret_cast<const Toy*>(s); }
ToyRank& toy(kvc_rank* r) { return *reinterpret_cast<ToyRank*>(r); }

void fill_openings(kvc_plugin_api& t) {
  t.describe = [](kvc_description* d) noexcept -> kvc_status {
    d->name = kvc_text_of("toy");
    d->version = kvc_text_of("1");
    d->build_id = kvc_text_of("");
    return KVC_OK;
  };
  t.open_scheduler = [](const kvc_host_api*, const kvc_open* o,
                        kvc_sched** s) noexcept -> kvc_status {
    *s = reinterpret_cast<kvc_sched*>(new (std::nothrow) Toy(*o));
    return *s == nullptr ? KVC_E_FULL : KVC_OK;
  };
  t.open_rank = [](const kvc_host_api* h, const kvc_open* o, kvc_rank** r) noexcept -> kvc_status {
    *r = reinterpret_cast<kvc_rank*>(new (std::nothrow) ToyRank(o->rank, *h));
    return *r == nullptr ? KVC_E_FULL : KVC_OK;
  };
  t.close_scheduler = [](kvc_sched* s) noexcept { delete reinterpret_cast<Toy*>(s); };
  t.close_rank = [](kvc_rank* r) noexcept { delete reinterpret_cast<ToyRank*>(r); };
}

void fill_scheduler(kvc_plugin_api& t) {
  t.last_error_scheduler = [](const kvc_sched*, char*, std::uint64_t,
                              std::uint64_t* n) noexcept -> kvc_status { return *n = 0, KVC_OK; };
  t.last_error_rank = [](const kvc_rank*, char*, std::uint64_t,
                         std::uint64_t* n) noexcept -> kvc_status { return *n = 0, KVC_OK; };
  t.set_ranks = [](kvc_sched*, const kvc_list*, kvc_list*) noexcept -> kvc_status {
    return KVC_OK;
  };
  t.request_begin = [](kvc_sched* s, const kvc_request* r) noexcept { return toy(s).begin(*r); };
  t.request_extend = [](kvc_sched* s, const kvc_extend* e) noexcept { return toy(s).extend(*e); };
  t.lookup = [](kvc_sched* s, const kvc_lookup_in* in, kvc_lookup_out* o) noexcept {
    return toy(s).lookup(*in, *o);
  };
  t.lookup_cancel = [](kvc_sched*, std::uint64_t) noexcept -> kvc_status { return KVC_OK; };
  t.alloc_update = [](kvc_sched* s, const kvc_alloc_in* in, kvc_alloc_out* o) noexcept {
    return toy(s).alloc(*in, *o);
  };
  t.build_store_jobs = [](kvc_sched* s, const kvc_step* in, kvc_plan* o) noexcept {
    return toy(s).build(*in, *o);
  };
  t.complete = [](kvc_sched* s, const kvc_bytes* r, std::uint64_t n, kvc_complete_out* o) noexcept {
    return toy(s).complete(r, n, *o);
  };
  t.request_end = [](kvc_sched* s, const kvc_end_in* in, kvc_end_out* o) noexcept {
    const kvc_status status = toy(s).end(*in, *o);
    if (o->job != 0) toy(s).announce(o->job);
    return status;
  };
  t.boundary_stats = [](const kvc_sched*, kvc_boundary_stats*) noexcept -> kvc_status {
    return KVC_OK;
  };
  t.stats = [](const kvc_sched*, void*, std::uint32_t, std::uint64_t,
               std::uint64_t* n) noexcept -> kvc_status { return *n = 0, KVC_OK; };
  t.has_pending = [](const kvc_sched* s, kvc_pending* o) noexcept -> kvc_status {
    o->load_jobs = toy(s).open_jobs(KVC_JOB_LOAD);
    o->store_jobs = toy(s).open_jobs(KVC_JOB_STORE);
    o->held_blocks = toy(s).held();
    return KVC_OK;
  };
  t.explain = [](const kvc_sched*, std::uint64_t, char*, std::uint64_t,
                 std::uint64_t* n) noexcept -> kvc_status { return *n = 0, KVC_OK; };
  t.take_log_scheduler = [](kvc_sched*, char*, std::uint64_t,
                            std::uint64_t* n) noexcept -> kvc_status { return *n = 0, KVC_OK; };
  t.take_log_rank = [](kvc_rank*, char*, std::uint64_t, std::uint64_t* n) noexcept -> kvc_status {
    return *n = 0, KVC_OK;
  };
  t.reset = [](kvc_sched*, std::uint64_t) noexcept -> kvc_status { return KVC_OK; };
  t.pump_scheduler = [](kvc_sched*, std::uint32_t) noexcept -> kvc_status { return KVC_OK; };
}

void fill_rank(kvc_plugin_api& t) {
  t.pump_rank = [](kvc_rank* r, std::uint32_t budget) noexcept -> kvc_status {
    const std::uint64_t most = toy(r).settings.copies_per_pump;
    toy(r).work(most == 0 ? budget : most);
    return toy(r).busy() ? KVC_LATER : KVC_OK;
  };
  t.register_regions = [](kvc_rank* r, const kvc_list* l, kvc_rank_info*) noexcept -> kvc_status {
    toy(r).set_region(list_element<kvc_region>(*l, 0));
    return KVC_OK;
  };
  t.submit_loads = [](kvc_rank* r, kvc_bytes plan, const kvc_fence* f) noexcept -> kvc_status {
    toy(r).submit(plan, *f, 1);
    return KVC_OK;
  };
  t.submit_stores = [](kvc_rank* r, kvc_bytes plan, const kvc_fence* f) noexcept -> kvc_status {
    toy(r).submit(plan, *f, 0);
    return KVC_OK;
  };
  t.progress = [](kvc_rank* r, kvc_progress* o) noexcept -> kvc_status {
    toy(r).progress(*o);
    return KVC_OK;
  };
  t.wait = [](kvc_rank* r, const kvc_job*, std::uint64_t, std::uint64_t) noexcept -> kvc_status {
    toy(r).work(UINT64_MAX);
    return toy(r).busy() ? KVC_LATER : KVC_OK;
  };
  t.extension = [](kvc_bytes) noexcept -> const void* { return nullptr; };
}

kvc_status entry(std::uint32_t, kvc_plugin_api* out) noexcept {
  kvc_plugin_api t{};
  t.struct_size = sizeof t;
  t.caps = KVC_CAP_STEPPED | KVC_CAP_FINE_HITS | KVC_CAP_STATES;
  fill_openings(t);
  fill_scheduler(t);
  fill_rank(t);
  std::memcpy(out, &t, sizeof t);
  return KVC_OK;
}

}  // namespace

ToySettings& toy_settings() {
  static ToySettings settings;
  return settings;
}

LoadedConnector toy_connector(const ToySettings& settings) {
  toy_settings() = settings;
  return check_connector("toy", entry).value();
}

ToyCounts toy_counts() { return counts; }
const std::vector<std::string>& toy_complaints() { return complaints; }

}  // namespace kvc::host::testing
