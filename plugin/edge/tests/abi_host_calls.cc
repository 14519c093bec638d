// The calls of World: requests, tables, steps, holds.
#include <kvc/kvc_util.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstring>

#include "plugin/edge/tests/abi_host.h"

namespace kvc::abi_test {

namespace {

std::uint64_t mix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

std::vector<kvc_block> blocks_of(const kvc_list& list) {
  std::vector<kvc_block> all(list.count);
  for (std::uint64_t i = 0; i < list.count; ++i) {
    BOOST_REQUIRE_EQUAL(KVC_READ_AT(kvc_block, &all[i], &list, i), KVC_OK);
  }
  return all;
}

}  // namespace

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
  BOOST_REQUIRE_MESSAGE(s == KVC_OK, "request_begin " << id << ": " << s << ": " << last_error());
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
  const kvc_alloc_in in{sizeof in, 0, id, accepted,
                        kvc_list_of(tables.data(), tables.size(), sizeof(kvc_table))};
  KVC_CLEAR(&out);
  const kvc_status s = api().alloc_update(sched_, &in, &out);
  check_after("alloc_update");
  if (s != KVC_OK || out.job == 0) return s;
  BOOST_REQUIRE(ended_jobs_.count(out.job) == 0 && open_jobs_.count(out.job) == 0);
  open_jobs_[out.job] = KVC_JOB_LOAD;
  loads_without_verdict_.insert(out.job);
  holds_[out.job];
  for (const kvc_block& b : blocks_of(out.held)) add_hold(out.job, b.block);
  std::uint64_t by_medium = 0;
  for (std::uint64_t i = 0; i < out.media.count; ++i) {
    kvc_medium_tokens m{};
    BOOST_REQUIRE_EQUAL(KVC_READ_AT(kvc_medium_tokens, &m, &out.media, i), KVC_OK);
    by_medium += m.tokens;
  }
  if (out.held.count != 0) BOOST_CHECK_EQUAL(by_medium, accepted);
  return s;
}

kvc_job World::take(std::uint64_t id, std::uint64_t accepted, std::uint64_t device) {
  allocate_for_load(id, device + accepted);
  kvc_alloc_out out{};
  const kvc_status s = try_take(id, accepted, out);
  BOOST_REQUIRE_MESSAGE(s == KVC_OK, "alloc_update " << id << ": " << s << ": " << last_error());
  if (accepted != 0) BOOST_REQUIRE_NE(out.job, 0U);
  return out.job;
}

std::uint64_t World::load(std::uint64_t id, std::uint64_t device) {
  const Found f = lookup(id, device);
  BOOST_REQUIRE_MESSAGE(f.status == KVC_OK, "lookup " << id << ": " << f << ", " << last_error());
  const kvc_job job = take(id, f.tokens, device);
  if (job == 0) return 0;
  const Completed c = step();
  const auto verdict = std::find_if(c.verdicts.begin(), c.verdicts.end(),
                                    [&](const kvc_verdict& v) { return v.job == job; });
  BOOST_REQUIRE(verdict != c.verdicts.end());
  BOOST_CHECK_EQUAL(verdict->status, KVC_OK);
  Request& r = request(id);
  BOOST_CHECK_EQUAL(wrong_bytes(r, device, device + f.tokens), "");
  r.computed = device + f.tokens;
  return f.tokens;
}

// ------------------------------------------------------------------------------------ steps

void World::read_jobs(const kvc_plan& plan, Planned& out) {
  out.step = plan.step;
  out.bytes.assign(plan.bytes.data, plan.bytes.data + plan.bytes.size);
  for (std::uint64_t i = 0; i < plan.jobs.count; ++i) {
    kvc_plan_job j{};
    BOOST_REQUIRE_EQUAL(KVC_READ_AT(kvc_plan_job, &j, &plan.jobs, i), KVC_OK);
    (j.kind == KVC_JOB_LOAD ? out.loads : out.stores).push_back(j.job);
    const bool known = open_jobs_.count(j.job) != 0;
    if (j.kind == KVC_JOB_LOAD) {
      BOOST_CHECK(known);
      BOOST_CHECK_EQUAL(j.held.count, 0U);
    }
    if (!known) {
      BOOST_REQUIRE(ended_jobs_.count(j.job) == 0);
      open_jobs_[j.job] = j.kind;
      holds_[j.job];
    }
    std::set<std::pair<std::uint32_t, std::int64_t>> seen;
    for (const kvc_block& b : blocks_of(j.held)) {
      add_hold(j.job, b.block);
      // K3-17: a block is named once per job, unless a tail of it is stored beside the whole block.
      const bool again = !seen.insert({b.group, b.block}).second;
      BOOST_CHECK_MESSAGE(!again || setup_.groups[b.group].kind == KVC_GROUP_FULL,
                          "job " << j.job << " names block " << b.block << " of group " << b.group
                                 << " twice, position " << b.position);
    }
  }
}

kvc_status World::try_plan(Planned& out, std::optional<std::uint64_t> number) {
  std::vector<std::vector<kvc_table>> tables;
  std::vector<kvc_step_request> records;
  tables.reserve(scheduled.size());
  for (const Scheduled& s : scheduled) {
    tables.push_back(tables_of(request(s.id), false));
    records.push_back({sizeof(kvc_step_request), s.resumed ? KVC_STEP_RESUMED : 0U, s.id,
                       s.confirmed,
                       kvc_list_of(tables.back().data(), tables.back().size(), sizeof(kvc_table))});
  }
  kvc_step step{};
  step.struct_size = sizeof step;
  step.step = number.value_or(next_step);
  step.scheduled = kvc_list_of(records.data(), records.size(), sizeof(kvc_step_request));
  step.preempted = preempted.data();
  step.n_preempted = preempted.size();
  step.handoffs = kvc_list_of(handoffs.data(), handoffs.size(), sizeof(kvc_handoff));
  step.candidates = kvc_list_of(candidates.data(), candidates.size(), sizeof(kvc_candidate));
  kvc_plan plan{};
  plan.struct_size = sizeof plan;
  const kvc_status s = api().build_store_jobs(sched_, &step, &plan);
  check_after("build_store_jobs");
  if (s != KVC_OK) return s;
  BOOST_CHECK_EQUAL(plan.step, step.step);
  read_jobs(plan, out);
  scheduled.clear();
  preempted.clear();
  handoffs.clear();
  candidates.clear();
  candidate_keys.clear();
  ++next_step;
  return s;
}

Planned World::plan() {
  Planned out;
  const kvc_status s = try_plan(out);
  BOOST_REQUIRE_MESSAGE(s == KVC_OK, "build_store_jobs: " << s << ": " << last_error());
  return out;
}

void World::submit_to(std::uint32_t rank, const Planned& plan, std::uint64_t fence) {
  kvc_fence f{};
  f.struct_size = sizeof f;
  f.kind = KVC_FENCE_COUNTER;
  f.counter = &counter_;
  f.value = fence;
  const kvc_bytes bytes = kvc_bytes_of(plan.bytes.data(), plan.bytes.size());
  BOOST_REQUIRE_EQUAL(api().submit_loads(ranks_[rank], bytes, &f), KVC_OK);
  BOOST_REQUIRE_EQUAL(api().submit_stores(ranks_[rank], bytes, &f), KVC_OK);
}

void World::submit(const Planned& plan) {
  for (std::uint32_t r = 0; r < setup_.ranks; ++r) submit_to(r, plan, 0);
}

void World::pump_one(std::uint32_t rank) {
  for (int i = 0; i < 100'000; ++i) {
    const kvc_status s = api().pump_rank(ranks_.at(rank), 64);
    BOOST_REQUIRE_GE(s, 0);
    if (s == KVC_OK) return;
  }
  BOOST_FAIL("a rank never runs out of work");
}

void World::pump() {
  for (std::uint32_t r = 0; r < setup_.ranks; ++r) pump_one(r);
}

void World::wait_all() {
  for (kvc_rank* r : ranks_) {
    BOOST_REQUIRE_EQUAL(api().wait(r, nullptr, 0, std::uint64_t{60} * 1'000'000'000), KVC_OK);
  }
}

std::vector<std::uint8_t> World::report_of(std::uint32_t rank) {
  kvc_progress p{};
  p.struct_size = sizeof p;
  BOOST_REQUIRE_EQUAL(api().progress(ranks_.at(rank), &p), KVC_OK);
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
    BOOST_REQUIRE_EQUAL(KVC_READ_AT(kvc_ended_job, &j, &out.jobs, i), KVC_OK);
    Ended e{j.job, j.kind, j.request, j.status, {}, blocks_of(j.released)};
    for (std::uint64_t k = 0; k < j.failed.count; ++k) {
      kvc_failed_block f{};
      BOOST_REQUIRE_EQUAL(KVC_READ_AT(kvc_failed_block, &f, &j.failed, k), KVC_OK);
      e.failed.push_back(f);
    }
    BOOST_REQUIRE_MESSAGE(open_jobs_.erase(e.job) == 1, "job " << e.job << " ended, is not open");
    BOOST_REQUIRE(ended_jobs_.insert(e.job).second);
    release_hold(e);
    c.jobs.push_back(std::move(e));
  }
  for (std::uint64_t i = 0; i < out.verdicts.count; ++i) {
    kvc_verdict v{};
    BOOST_REQUIRE_EQUAL(KVC_READ_AT(kvc_verdict, &v, &out.verdicts, i), KVC_OK);
    BOOST_REQUIRE_MESSAGE(loads_without_verdict_.erase(v.job) == 1,
                          "job " << v.job << " got a verdict that nobody waits for");
    c.verdicts.push_back(v);
  }
  for (std::uint64_t i = 0; i < out.rejected.count; ++i) {
    kvc_rejected r{};
    BOOST_REQUIRE_EQUAL(KVC_READ_AT(kvc_rejected, &r, &out.rejected, i), KVC_OK);
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
  BOOST_CHECK(open_jobs_.empty());
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
                      kvc_list_of(tables.data(), owns ? tables.size() : 0, sizeof(kvc_table)),
                      kvc_list_of(given.data(), given.size(), sizeof(kvc_handoff))};
  KVC_CLEAR(&out);
  const kvc_status s = api().request_end(sched_, &in, &out);
  check_after("request_end");
  if (s != KVC_OK) return s;
  const std::vector<kvc_block> still = blocks_of(out.held);
  if (out.job != 0) {
    BOOST_REQUIRE(ended_jobs_.count(out.job) == 0 && open_jobs_.count(out.job) == 0);
    open_jobs_[out.job] = KVC_JOB_STORE;
    auto& set = end_holds_[out.job];
    for (const kvc_block& b : still) set.insert(b.block);
  } else {
    for (const kvc_block& b : still) {
      BOOST_CHECK_MESSAGE(held(b.block),
                          "request_end names block " << b.block << ", no job holds it");
    }
  }
  return s;
}

kvc_job World::end(std::uint64_t id, std::int32_t reason, std::optional<std::uint64_t> confirmed,
                   const std::vector<kvc_handoff>& given) {
  kvc_end_out out{};
  const kvc_status s = try_end(id, reason, confirmed.value_or(request(id).computed), given, out);
  BOOST_REQUIRE_MESSAGE(s == KVC_OK, "request_end " << id << ": " << s << ": " << last_error());
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
  BOOST_REQUIRE_EQUAL(take(id, 0), 0U);
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
  BOOST_CHECK_MESSAGE(f.status == KVC_OK, f);
  end(id, KVC_END_ABORT);
  return f.tokens;
}

}  // namespace kvc::abi_test
