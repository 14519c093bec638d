// The calls of World: requests, tables, steps, holds.
#include <kvc/kvc_util.h>

#include <algorithm>
#include <cstring>

#include "conformance/rig/world.h"
#include "host_stub/loader/status_text.h"

namespace kvc::rig {

namespace {

std::uint64_t mix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

}  // namespace

std::vector<kvc_block> World::blocks_of(const kvc_list& list) {
  std::vector<kvc_block> all(list.count);
  for (std::uint64_t i = 0; i < list.count; ++i) {
    need(KVC_READ_AT(kvc_block, &all[i], &list, i) == KVC_OK, "KVC-P-016",
         "element {} of a list of {} blocks cannot be read (stride {})", i, list.count,
         list.stride);
  }
  return all;
}

// ------------------------------------------------------------------------------------ requests

std::vector<std::uint8_t> World::keys_of(const Request& r, std::uint64_t n) const {
  std::vector<std::uint8_t> keys(n * setup_.key_bytes);
  for (std::uint64_t i = 0; i < n; ++i) {
    std::uint64_t word = r.chain.at((i + 1) * setup_.h - 1);
    for (std::uint32_t at = 0; at < setup_.key_bytes; at += 8) {
      word = mix64(word);
      std::memcpy(&keys[i * setup_.key_bytes + at], &word,
                  std::min<std::size_t>(8, setup_.key_bytes - at));
    }
  }
  return keys;
}

namespace {

Request make_request(const Setup& setup, std::uint64_t id, Tokens tokens, std::uint64_t salt) {
  Request r;
  r.id = id;
  r.tokens = std::move(tokens);
  r.prompt = r.tokens.size();
  r.salt = salt;
  r.tables.resize(setup.groups.size());
  return r;
}

void extend_chain(Request& r) {
  for (std::uint64_t t = r.chain.size(); t < r.tokens.size(); ++t) {
    r.chain.push_back(mix64((t == 0 ? mix64(r.salt) : r.chain[t - 1]) * 3 + r.tokens[t]));
  }
}

}  // namespace

kvc_status World::try_begin(std::uint64_t id, Tokens tokens, std::uint32_t flags,
                            std::uint64_t salt, std::uint64_t load_limit,
                            std::uint64_t store_limit) {
  Request r = make_request(setup_, id, std::move(tokens), salt);
  extend_chain(r);
  r.keyed = r.tokens.size() / setup_.h;
  const std::vector<std::uint8_t> keys = keys_of(r, r.keyed);
  const kvc_request raw{sizeof raw,  flags,   id,         r.prompt,
                        keys.data(), r.keyed, load_limit, store_limit};
  const kvc_status s = api().request_begin(sched_, &raw);
  check_after("request_begin");
  if (s == KVC_OK || s == KVC_E_FULL) requests_.insert_or_assign(id, std::move(r));
  return s;
}

Request& World::begin(std::uint64_t id, Tokens tokens, std::uint32_t flags, std::uint64_t salt) {
  const kvc_status s = try_begin(id, std::move(tokens), flags, salt);
  need(s == KVC_OK, begin_rule(s), "request_begin of {} answered {}: {}", id, host::Said{s},
       last_error());
  return requests_.at(id);
}

kvc_status World::extend(std::uint64_t id, const Tokens& more, bool keys) {
  Request& r = request(id);
  r.tokens.insert(r.tokens.end(), more.begin(), more.end());
  extend_chain(r);
  if (!keys) return KVC_OK;
  const std::uint64_t now = r.tokens.size() / setup_.h;
  if (now == r.keyed) return KVC_OK;
  const std::vector<std::uint8_t> all = keys_of(r, now);
  const kvc_extend x{sizeof x,     0, id, r.keyed, all.data() + r.keyed * setup_.key_bytes,
                     now - r.keyed};
  const kvc_status s = api().request_extend(sched_, &x);
  check_after("request_extend");
  if (s == KVC_OK) r.keyed = now;
  return s;
}

Found World::lookup(std::uint64_t id, std::uint64_t device, std::uint64_t cap) {
  const auto it = requests_.find(id);
  const std::uint64_t total = it == requests_.end() ? 0 : it->second.tokens.size();
  const kvc_lookup_in in{sizeof in, 0, id, total, device, cap};
  kvc_lookup_out out{};
  out.struct_size = sizeof out;
  Found f;
  f.status = api().lookup(sched_, &in, &out);
  check_after("lookup");
  f.tokens = out.external_tokens;
  f.why = out.why;
  return f;
}

kvc_status World::lookup_cancel(std::uint64_t id) {
  const kvc_status s = api().lookup_cancel(sched_, id);
  check_after("lookup_cancel");
  return s;
}

kvc_status World::try_take(std::uint64_t id, std::uint64_t accepted, kvc_alloc_out& out) {
  const Request& r = request(id);
  const std::vector<kvc_table> tables = tables_of(r, true);
  const kvc_alloc_in in{sizeof in, 0, id, accepted, in_list(tables, tables.size())};
  KVC_CLEAR(&out);
  const kvc_status s = api().alloc_update(sched_, &in, &out);
  check_after("alloc_update");
  if (s != KVC_OK || out.job == 0) return s;
  fresh_job(out.job, "alloc_update");
  open_jobs_[out.job] = KVC_JOB_LOAD;
  loads_without_verdict_.insert(out.job);
  holds_[out.job];
  judge_destinations(r, out);
  std::uint64_t by_medium = 0;
  for (std::uint64_t i = 0; i < out.media.count; ++i) {
    kvc_medium_tokens m{};
    need(KVC_READ_AT(kvc_medium_tokens, &m, &out.media, i) == KVC_OK, "KVC-P-073",
         "element {} of media cannot be read (stride {})", i, out.media.stride);
    by_medium += m.tokens;
  }
  expect(out.held.count == 0 || by_medium == accepted, "KVC-P-073",
         "media of job {} sum to {} tokens, {} were accepted", out.job, by_medium, accepted);
  return s;
}

// held: by group, positions ascending, each the entry of the table that was passed.
void World::judge_destinations(const Request& r, const kvc_alloc_out& out) {
  const std::vector<kvc_block> held = blocks_of(out.held);
  for (std::size_t i = 0; i < held.size(); ++i) {
    const kvc_block& b = held[i];
    add_hold(out.job, b.block);
    const bool there = b.group < r.tables.size() && b.position < r.tables[b.group].size();
    expect(there && r.tables[b.group][b.position] == b.block, "KVC-P-073",
           "job {} holds block {} as position {} of group {}, the table has another there", out.job,
           b.block, b.position, b.group);
    if (i == 0) continue;
    const kvc_block& a = held[i - 1];
    expect(a.group < b.group || (a.group == b.group && a.position < b.position), "KVC-P-073",
           "job {} lists position {} of group {} behind position {} of group {}", out.job,
           b.position, b.group, a.position, a.group);
  }
}

void World::fresh_job(kvc_job job, std::string_view slot) {
  need(ended_jobs_.count(job) == 0 && open_jobs_.count(job) == 0, "KVC-P-073",
       "{} handed out job {} a second time", slot, job);
}

kvc_job World::take(std::uint64_t id, std::uint64_t accepted, std::uint64_t device) {
  allocate_for_load(id, device + accepted);
  kvc_alloc_out out{};
  const kvc_status s = try_take(id, accepted, out);
  need(s == KVC_OK, accepted == 0 ? RuleId("KVC-P-070") : RuleId("KVC-P-065"),
       "alloc_update of {} with {} accepted tokens answered {}: {}", id, accepted, host::Said{s},
       last_error());
  need(accepted == 0 || out.job != 0, "KVC-P-073", "{} accepted tokens of {} gave no job", accepted,
       id);
  return out.job;
}

std::uint64_t World::load(std::uint64_t id, std::uint64_t device) {
  const Found f = lookup(id, device);
  need(f.status == KVC_OK, "KVC-P-063", "lookup of {} answered {}: {}", id, host::Said{f.status},
       last_error());
  const kvc_job job = take(id, f.tokens, device);
  if (job == 0) return 0;
  const Completed c = step();
  const auto verdict = std::find_if(c.verdicts.begin(), c.verdicts.end(),
                                    [&](const kvc_verdict& v) { return v.job == job; });
  need(verdict != c.verdicts.end(), "KVC-P-091",
       "the step that planned load job {} and its copies brought no verdict", job);
  expect(verdict->status == KVC_OK, "KVC-P-095", "load job {} ended {}, nothing had failed", job,
         host::Said{verdict->status});
  Request& r = request(id);
  const std::string wrong =
      verdict->status == KVC_OK ? wrong_bytes(r, device, device + f.tokens) : std::string();
  expect(wrong.empty(), "KVC-P-075", "loaded [{}, {}), wrong: {}", device, device + f.tokens,
         wrong);
  r.computed = device + f.tokens;
  return f.tokens;
}

// ------------------------------------------------------------------------------------ steps

void World::read_jobs(const kvc_plan& plan, Planned& out) {
  out.step = plan.step;
  out.bytes.assign(plan.bytes.data, plan.bytes.data + plan.bytes.size);
  for (std::uint64_t i = 0; i < plan.jobs.count; ++i) {
    kvc_plan_job j{};
    need(KVC_READ_AT(kvc_plan_job, &j, &plan.jobs, i) == KVC_OK, "KVC-P-080",
         "job {} of the plan of step {} cannot be read (stride {})", i, plan.step,
         plan.jobs.stride);
    (j.kind == KVC_JOB_LOAD ? out.loads : out.stores).push_back(j.job);
    const bool known = open_jobs_.count(j.job) != 0;
    need(planned_jobs_.insert(j.job).second, "KVC-P-080", "job {} stands in a second plan, step {}",
         j.job, plan.step);
    if (j.kind == KVC_JOB_LOAD) {
      expect(known, "KVC-P-080", "the plan of step {} has load job {}, which nobody handed out",
             plan.step, j.job);
      expect(j.held.count == 0, "KVC-P-080", "the plan of step {} lists the holds of load {} again",
             plan.step, j.job);
    }
    if (!known) {
      fresh_job(j.job, "build_store_jobs");
      open_jobs_[j.job] = j.kind;
      holds_[j.job];
    }
    std::set<std::pair<std::uint32_t, std::int64_t>> seen;
    std::map<std::uint32_t, std::uint64_t> last;
    for (const kvc_block& b : blocks_of(j.held)) {
      add_hold(j.job, b.block);
      need(b.group < setup_.groups.size(), "KVC-P-083", "job {} names group {} of {}", j.job,
           b.group, setup_.groups.size());
      const auto before = last.find(b.group);
      expect(before == last.end() || j.request == 0 || before->second >= b.position, "KVC-P-084",
             "job {} holds position {} of group {} behind a shallower one", j.job, b.position,
             b.group);
      last[b.group] = b.position;
      // K3-17: a block is named once per job, unless a tail of it is stored beside the whole block.
      const bool again = !seen.insert({b.group, b.block}).second;
      expect(!again || setup_.groups[b.group].kind == KVC_GROUP_FULL, "KVC-P-083",
             "job {} names block {} of group {} twice, position {}", j.job, b.block, b.group,
             b.position);
    }
  }
}

kvc_status World::try_plan(Planned& out, std::optional<std::uint64_t> number) {
  std::vector<std::vector<kvc_table>> tables;
  std::vector<kvc_step_request> records;
  tables.reserve(scheduled.size());
  for (const Scheduled& s : scheduled) {
    // An id that the connector should not know has no tables either.
    const auto known = requests_.find(s.id);
    tables.push_back(known == requests_.end() ? std::vector<kvc_table>()
                                              : tables_of(known->second, false));
    records.push_back({sizeof(kvc_step_request), s.resumed ? KVC_STEP_RESUMED : 0U, s.id,
                       s.confirmed, in_list(tables.back(), tables.back().size())});
  }
  kvc_step step{};
  step.struct_size = sizeof step;
  step.step = number.value_or(next_step);
  step.scheduled = in_list(records, records.size());
  step.preempted = preempted.data();
  step.n_preempted = preempted.size();
  step.handoffs = in_list(handoffs, handoffs.size());
  step.candidates = in_list(candidates, candidates.size());
  kvc_plan plan{};
  plan.struct_size = sizeof plan;
  const kvc_status s = api().build_store_jobs(sched_, &step, &plan);
  check_after("build_store_jobs");
  if (s != KVC_OK) return s;
  expect(plan.step == step.step, "KVC-P-080", "the plan of step {} says step {}", step.step,
         plan.step);
  read_jobs(plan, out);
  scheduled.clear();
  preempted.clear();
  handoffs.clear();
  candidates.clear();
  candidate_keys.clear();
  padded_.clear();
  ++next_step;
  return s;
}

Planned World::plan() {
  Planned out;
  const kvc_status s = try_plan(out);
  need(s == KVC_OK, "KVC-P-081", "build_store_jobs of step {} answered {}: {}", next_step,
       host::Said{s}, last_error());
  return out;
}

void World::submit_to(std::uint32_t rank, const Planned& plan, std::uint64_t fence) {
  kvc_fence f{};
  f.struct_size = sizeof f;
  f.kind = KVC_FENCE_COUNTER;
  f.counter = &counter_;
  f.value = fence;
  const kvc_bytes bytes = kvc_bytes_of(plan.bytes.data(), plan.bytes.size());
  fence_max_ = std::max(fence_max_, fence);
  const kvc_status loads = api().submit_loads(ranks_[rank], bytes, &f);
  need(loads == KVC_OK, "KVC-P-120", "submit_loads of step {} to rank {} answered {}: {}",
       plan.step, rank, host::Said{loads}, last_error_of(rank));
  const kvc_status stores = api().submit_stores(ranks_[rank], bytes, &f);
  need(stores == KVC_OK, "KVC-P-120", "submit_stores of step {} to rank {} answered {}: {}",
       plan.step, rank, host::Said{stores}, last_error_of(rank));
}

void World::submit(const Planned& plan) {
  for (std::uint32_t r = 0; r < setup_.ranks; ++r) submit_to(r, plan, 0);
}

void World::pump_one(std::uint32_t rank) {
  if (!stepped()) {
    // A fence that is not reached keeps its copies open: they get a moment, not for ever.
    const bool may_end = fence_max_ <= __atomic_load_n(&counter_, __ATOMIC_ACQUIRE);
    const std::uint64_t ns = may_end ? std::uint64_t{20} * 1'000'000'000 : 5'000'000;
    const kvc_status s = api().wait(ranks_.at(rank), nullptr, 0, ns);
    need(s == KVC_OK || (!may_end && s == KVC_LATER), "KVC-P-124",
         "wait for all jobs of rank {} answered {} after {} ms", rank, host::Said{s},
         ns / 1'000'000);
    return;
  }
  for (int i = 0; i < 100'000; ++i) {
    const kvc_status s = api().pump_rank(ranks_.at(rank), 64);
    need(s >= 0, "KVC-P-021", "pump_rank of rank {} answered {}", rank, host::Said{s});
    if (s == KVC_OK) return;
  }
  need(false, "KVC-P-021", "pump_rank of rank {} answers KVC_LATER for ever", rank);
}

void World::pump() {
  for (std::uint32_t r = 0; r < setup_.ranks; ++r) pump_one(r);
}

void World::wait_all() {
  for (kvc_rank* r : ranks_) {
    const kvc_status s = api().wait(r, nullptr, 0, std::uint64_t{60} * 1'000'000'000);
    need(s == KVC_OK, "KVC-P-124", "wait for all jobs answered {} after a minute", host::Said{s});
  }
}

std::vector<std::uint8_t> World::report_of(std::uint32_t rank) {
  kvc_progress p{};
  p.struct_size = sizeof p;
  const kvc_status s = api().progress(ranks_.at(rank), &p);
  need(s == KVC_OK, "KVC-P-122", "progress of rank {} answered {}", rank, host::Said{s});
  for (std::uint64_t i = 0; i < p.loads.count; ++i) {
    kvc_load_done d{};
    need(KVC_READ_AT(kvc_load_done, &d, &p.loads, i) == KVC_OK, "KVC-P-122",
         "load item {} of rank {} cannot be read (stride {})", i, rank, p.loads.stride);
    expect(load_items_.insert({rank, d.job}).second, "KVC-P-122",
           "rank {} reports load {} a second time", rank, d.job);
    items.push_back({rank, d.request, d.job, d.status});
  }
  if (p.report.size == 0) return {};
  return {p.report.data, p.report.data + p.report.size};
}

std::vector<std::vector<std::uint8_t>> World::reports() {
  std::vector<std::vector<std::uint8_t>> all;
  for (std::uint32_t r = 0; r < setup_.ranks; ++r) {
    auto bytes = report_of(r);
    if (!bytes.empty()) all.push_back(std::move(bytes));
  }
  return all;
}

Completed World::complete(const std::vector<std::vector<std::uint8_t>>& given) {
  std::vector<kvc_bytes> raw;
  for (const auto& r : given) raw.push_back(kvc_bytes_of(r.data(), r.size()));
  kvc_complete_out out{};
  out.struct_size = sizeof out;
  Completed c;
  c.status = api().complete(sched_, raw.data(), raw.size(), &out);
  check_after("complete");
  if (c.status != KVC_OK) return c;
  for (std::uint64_t i = 0; i < out.jobs.count; ++i) {
    kvc_ended_job j{};
    need(KVC_READ_AT(kvc_ended_job, &j, &out.jobs, i) == KVC_OK, "KVC-P-090",
         "element {} of the ended jobs cannot be read (stride {})", i, out.jobs.stride);
    Ended e{j.job, j.kind, j.request, j.status, {}, blocks_of(j.released)};
    for (std::uint64_t k = 0; k < j.failed.count; ++k) {
      kvc_failed_block f{};
      need(KVC_READ_AT(kvc_failed_block, &f, &j.failed, k) == KVC_OK, "KVC-P-095",
           "element {} of the failed blocks of job {} cannot be read (stride {})", k, j.job,
           j.failed.stride);
      e.failed.push_back(f);
    }
    need(open_jobs_.erase(e.job) == 1, "KVC-P-090", "job {} ended, {}", e.job,
         ended_jobs_.count(e.job) != 0 ? "a second time" : "nobody handed it out");
    ended_jobs_.insert(e.job);
    release_hold(e);
    c.jobs.push_back(std::move(e));
  }
  for (std::uint64_t i = 0; i < out.verdicts.count; ++i) {
    kvc_verdict v{};
    need(KVC_READ_AT(kvc_verdict, &v, &out.verdicts, i) == KVC_OK, "KVC-P-091",
         "verdict {} cannot be read (stride {})", i, out.verdicts.stride);
    need(loads_without_verdict_.erase(v.job) == 1, "KVC-P-091",
         "job {} got a verdict that nobody waits for", v.job);
    c.verdicts.push_back(v);
  }
  for (std::uint64_t i = 0; i < out.rejected.count; ++i) {
    kvc_rejected r{};
    need(KVC_READ_AT(kvc_rejected, &r, &out.rejected, i) == KVC_OK, "KVC-P-093",
         "element {} of rejected cannot be read (stride {})", i, out.rejected.stride);
    c.rejected.push_back(r);
  }
  return c;
}

Completed World::step() {
  submit(plan());
  pump();
  return complete(reports());
}

void World::drain() {
  for (int i = 0; i < 64 && (!open_jobs_.empty() || counts().all_offers.pending != 0); ++i) step();
  for (const auto& [job, kind] : open_jobs_) {
    expect(false, "KVC-P-090", "job {} does not end, 64 steps and reports later", job);
  }
}

// ------------------------------------------------------------------------------------ ends

kvc_status World::try_end(std::uint64_t id, std::int32_t reason, std::uint64_t confirmed,
                          const std::vector<kvc_handoff>& given, kvc_end_out& out) {
  const Request& r = request(id);
  const std::vector<kvc_table> tables = tables_of(r, true);
  const bool owns =
      std::any_of(r.tables.begin(), r.tables.end(), [](const auto& t) { return !t.empty(); });
  const kvc_end_in in{sizeof in,
                      reason,
                      id,
                      confirmed,
                      in_list(tables, owns ? tables.size() : 0),
                      in_list(given, given.size())};
  KVC_CLEAR(&out);
  const kvc_status s = api().request_end(sched_, &in, &out);
  check_after("request_end");
  if (s != KVC_OK) return s;
  const std::vector<kvc_block> still = blocks_of(out.held);
  for (const auto& table : r.tables) {
    for (const std::int64_t b : table) {
      const bool listed = std::any_of(still.begin(), still.end(),
                                      [&](const kvc_block& one) { return one.block == b; });
      expect(listed || b == setup_.null_block || !held(b), "KVC-P-097",
             "request_end of {} does not list block {}, which an open job holds", id, b);
    }
  }
  if (out.job != 0) {
    fresh_job(out.job, "request_end");
    open_jobs_[out.job] = KVC_JOB_STORE;
    auto& set = end_holds_[out.job];
    for (const kvc_block& b : still) set.insert(b.block);
  } else {
    for (const kvc_block& b : still) {
      expect(held(b.block), "KVC-P-097", "request_end of {} lists block {}, no open job holds it",
             id, b.block);
    }
  }
  return s;
}

kvc_job World::end(std::uint64_t id, std::int32_t reason, std::optional<std::uint64_t> confirmed,
                   const std::vector<kvc_handoff>& given) {
  kvc_end_out out{};
  const kvc_status s = try_end(id, reason, confirmed.value_or(request(id).computed), given, out);
  need(s == KVC_OK, "KVC-P-096", "request_end of {} answered {}: {}", id, host::Said{s},
       last_error());
  drop_blocks(id);
  requests_.erase(id);
  return out.job;
}

kvc_status World::reset(std::uint64_t flags) {
  const kvc_status s = api().reset(sched_, flags);
  check_after("reset");
  return s;
}

// ------------------------------------------------------------------------------------ short forms

void World::run(std::uint64_t id, Tokens tokens, std::uint64_t upto, std::uint64_t salt) {
  Request& r = begin(id, std::move(tokens), 0, salt);
  const kvc_job none = take(id, 0);
  need(none == 0, "KVC-P-070", "0 accepted tokens of {} gave job {}", id, none);
  const std::uint64_t n = upto == 0 ? r.prompt : upto;
  compute(id, n);
  for (std::uint32_t g = 0; g < setup_.groups.size(); ++g) {
    const Group& d = setup_.groups[g];
    if (d.kind != KVC_GROUP_STATE || (d.caps & KVC_GROUP_CAP_POSITION_STABLE) != 0) continue;
    if (n % setup_.h == 0) hand_off(id, g, r.tables[g].back(), n);
  }
  step();
}

void World::store(std::uint64_t id, Tokens tokens, std::uint64_t upto, std::uint64_t salt) {
  run(id, std::move(tokens), upto, salt);
  end(id);
  drain();
}

std::uint64_t World::hit(const Tokens& tokens, std::uint64_t salt, std::uint64_t device) {
  static std::uint64_t id = std::uint64_t{1} << 40U;
  begin(++id, tokens, 0, salt);
  const Found f = lookup(id, device);
  expect(f.status == KVC_OK, "KVC-P-063", "lookup of a fresh request answered {}, why {}",
         host::Said{f.status}, f.why);
  end(id, KVC_END_ABORT);
  return f.tokens;
}

}  // namespace kvc::rig
