// An engine with memory for random tests: device blocks with references and holds, a tier whose
// slots have contents, requests that prefill, decode, are preempted and end. Every byte is modelled
// by the digest of the prefix it was computed for, so a wrong, stale or early copy shows.
#pragma once
#include <algorithm>
#include <map>
#include <set>

#include "plugin/simple_cpu/tests/rig.h"

namespace kvc::test {

struct WorldOptions {
  Layout layout;
  std::uint64_t slots = 12;
  std::uint64_t device_blocks = 64;
  std::uint32_t ranks = 1;
  bool failures = true;
  bool resets = true;
  std::uint64_t longest_prompt = 150;
  bool lazy = false;  // blocks keep their keys when they are free, and are named as candidates
  std::uint32_t blocks_per_chunk = 1;
  bool device_cache = false;  // some requests find a prefix on the device
  bool decode_blocks = true;
  CostGateOptions cost_gate;
  bool hints = false;  // requests have priorities and times to live, and prefixes are pinned
  MakeRole make = make_simple_cpu_scheduler;
};

// Threads: one. Owns: the engine's side. Invariants: a block with references or holds is never
// given out; every check of Rig holds after every call.
class ByteWorld {
 public:
  ByteWorld(WorldOptions options, std::uint64_t seed)
      : options_(std::move(options)),
        random_(seed),
        hint_random_(~seed),
        geometry_(geometry_of(options_.layout, !options_.lazy)),
        tier_geometry_(tier_geometry_of(geometry_, options_.blocks_per_chunk).value()),
        rig_(options_.layout, options_.slots, role_options(), limits(), options_.make) {
    blocks_.resize(options_.device_blocks);
  }

  // One random thing happens.
  void act() {
    const std::uint64_t what = random_.below(100);
    if (what < 18) {
      begin();
    } else if (what < 38) {
      admit(random_.chance(1, 4));
    } else if (what < 66) {
      step();
    } else if (what < 88) {
      report();
    } else if (what < 93) {
      finish();
    } else if (what < 96) {
      if (Req* r = pick(Phase::running)) notice(*r);
    } else if (what < 98) {
      if (Req* r = pick(Phase::waiting)) BOOST_REQUIRE(rig_.role->lookup_cancel(r->id).ok());
    } else if (options_.resets) {
      BOOST_REQUIRE(rig_.role->reset(false).ok());
      pins_.clear();
    }
    if (options_.hints && hint_random_.chance(1, 8)) pin_or_unpin();
    rig_.host.now += random_.below(20'000'000'000);
  }

  // Everything ends; nothing may be left.
  void settle() {
    settling_ = true;
    while (!pins_.empty()) unpin(0);
    while (!requests_.empty()) end(requests_.begin()->second);
    for (int i = 0;
         i < 64 && (rig_.role->pending().load_jobs + rig_.role->pending().store_jobs) > 0; ++i) {
      plan({}, {}, {});
      while (!rig_.open.empty()) report_one(rig_.open.begin()->first, Code::ok);
    }
    rig_.check_quiet();
    for (std::uint64_t b = 1; b < blocks_.size(); ++b) {
      BOOST_TEST(blocks_[b].references == 0u);
      BOOST_TEST(blocks_[b].holds == 0u);
    }
    BOOST_TEST(rig_.host.faults() == 0u);
    if (options_.lazy) BOOST_TEST(rig_.handoffs().published == 0u);
  }

  // Puts something between the world and the role.
  template <class Wrap>
  void wrap_role(Wrap wrap) {
    rig_.role = wrap(std::move(rig_.role));
  }
  [[nodiscard]] std::uint64_t loads_checked() const { return loads_checked_; }
  [[nodiscard]] std::uint64_t pins_checked() const { return pins_checked_; }

 private:
  enum class Phase { waiting, loading, running };
  struct Block {
    std::uint32_t references = 0;
    std::uint32_t holds = 0;
    std::vector<std::uint64_t> bytes;
    // Lazy: the prefix whose key the engine's cache has for the block; end 0: none.
    GroupId group = 0;
    TokenIds prefix;
  };
  struct Req {
    RequestId id = 0;
    Phase phase = Phase::waiting;
    std::uint64_t outputs = 0;   // still to come
    std::uint64_t computed = 0;  // tokens with KV
    std::uint64_t device = 0;    // tokens that the device had at admission
    std::uint64_t load_end = 0;
    JobId load = 0;
    bool resumed = false;
    bool owns = false;
    std::set<std::uint64_t> handed;  // state blocks that may not be written again
    Tables tables;
  };
  struct OpenPin {
    std::uint64_t id = 0;
    std::uint64_t tokens = 0;
    TokenIds prompt;
  };

  SimpleCpuSchedulerOptions role_options() {
    SimpleCpuSchedulerOptions o;
    o.lease_steps = static_cast<std::uint32_t>(random_.between(1, 3));
    o.max_leases = static_cast<std::uint32_t>(random_.between(1, 4));
    o.held_device_blocks_max = random_.chance(1, 2) ? random_.between(1, 6) : 0;
    o.single_flight = random_.chance(1, 2);
    o.attach_steps = 3;
    o.event_ring_entries = 64;
    o.lazy = options_.lazy;
    if (!o.lazy) o.eviction = static_cast<Eviction>(random_.below(4));
    o.blocks_per_chunk = options_.blocks_per_chunk;
    o.store_decode_blocks = options_.decode_blocks;
    o.cost_gate = options_.cost_gate;
    o.max_pins = 4;
    return o;
  }
  OpenLimits limits() const {
    OpenLimits l = limits_of(options_.device_blocks);
    l.ranks = options_.ranks;
    l.max_total_tokens = Tokens{options_.longest_prompt + 40};
    l.max_prompt_tokens = Tokens{options_.longest_prompt};
    l.max_batch_tokens = Tokens{64};
    return l;
  }

  // ------------------------------------------------------------------------------------ memory
  [[nodiscard]] std::uint64_t width(GroupId g) const { return geometry_.block_tokens(g).n; }
  [[nodiscard]] bool is_state(GroupId g) const { return geometry_.group(g).state; }
  // What the model computes for token i of a request, in a group: all tokens before it count.
  std::uint64_t digest(const Req& r, GroupId g, std::uint64_t i) {
    std::vector<std::uint64_t>& known = digests_[r.id];
    const TokenIds& tokens = rig_.tokens[r.id];
    while (known.size() < tokens.size()) {
      const std::uint64_t before = known.empty() ? 1 : known.back();
      known.push_back(Prng(before ^ tokens[known.size()]).next());
    }
    return Prng(known[i] + g).next();
  }
  BlockId take_block(GroupId g) {
    std::vector<BlockId> free;
    for (std::uint64_t b = 1; b < blocks_.size(); ++b) {
      if (blocks_[b].references == 0 && blocks_[b].holds == 0) {
        free.push_back(static_cast<BlockId>(b));
      }
    }
    if (free.empty()) return null_block;
    const BlockId b = free[random_.below(free.size())];
    at(b).references = 1;
    at(b).prefix.clear();
    at(b).bytes.assign(is_state(g) ? 1 : width(g), 0);
    return b;
  }
  Block& at(BlockId b) { return blocks_[static_cast<std::uint64_t>(b)]; }
  void drop(BlockId& b) {
    if (b == null_block) return;
    BOOST_REQUIRE(at(b).references == 1u);
    at(b).references = 0;
    b = null_block;
  }
  void drop_all(Req& r) {
    for (Table& t : r.tables) {
      for (BlockId& b : t) drop(b);
      t.clear();
    }
    r.handed.clear();
    r.owns = false;
  }
  // Blocks for every position that a prefix of `end` tokens needs from `from` on; false: too few.
  bool grow(Req& r, std::uint64_t end) {
    r.tables.resize(geometry_.groups());
    for (const GroupId g : geometry_.cacheable()) {
      if (is_state(g)) continue;
      Table& t = r.tables[g];
      const std::uint64_t first = geometry_.first_needed_position(g, Tokens{r.computed + 1});
      while (t.size() < ceil_div(end, width(g))) {
        BlockId b = null_block;
        if (t.size() >= first || geometry_.group(g).kind == GroupKind::full) b = take_block(g);
        if (b == null_block && t.size() >= first) return false;
        t.push_back(b);
      }
      for (std::uint64_t p = 0; p < first && p < t.size(); ++p) drop(t[p]);
    }
    return true;
  }
  bool grow_for_load(Req& r, std::uint64_t end) {
    r.tables.resize(geometry_.groups());
    for (const GroupId g : geometry_.cacheable()) {
      Table& t = r.tables[g];
      t.assign(geometry_.end_position(g, Tokens{end}), null_block);
      for (std::uint64_t p = geometry_.first_needed_position(g, Tokens{end}); p < t.size(); ++p) {
        t[p] = take_block(g);
        if (t[p] == null_block) return false;
      }
    }
    return true;
  }

  // What the device has of the request's first tokens, as another request left it there: blocks
  // with their bytes. False: too few blocks.
  bool find_on_device(Req& r) {
    for (const GroupId g : geometry_.cacheable()) {
      if (r.device == 0) continue;
      Table& t = r.tables[g];
      for (std::uint64_t p = geometry_.first_needed_position(g, Tokens{r.device});
           p < r.device / width(g); ++p) {
        if (t[p] == null_block) t[p] = take_block(g);
        if (t[p] == null_block) return false;
        if (is_state(g)) {
          at(t[p]).bytes[0] = digest(r, g, r.device - 1);
          r.handed.insert(static_cast<std::uint64_t>(t[p]));
          continue;
        }
        for (std::uint64_t i = 0; i < width(g); ++i) {
          at(t[p]).bytes[i] = digest(r, g, p * width(g) + i);
        }
      }
    }
    return true;
  }

  // The blocks that the request's first `computed` tokens fill get their keys.
  void key_blocks(const Req& r) {
    if (!options_.lazy) return;
    const TokenIds& all = rig_.tokens[r.id];
    for (const GroupId g : geometry_.cacheable()) {
      const Table& t = r.tables[g];
      for (std::uint64_t p = 0; p < t.size() && (p + 1) * width(g) <= r.computed; ++p) {
        const std::uint64_t end = is_state(g) ? r.computed : (p + 1) * width(g);
        if (t[p] == null_block || (is_state(g) && end != (p + 1) * width(g))) continue;
        at(t[p]).group = g;
        at(t[p]).prefix.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(end));
      }
    }
  }
  // Some of the free blocks with keys stand in the next record, in any order, some twice.
  void name_candidates() {
    if (!options_.lazy || settling_) return;
    const std::uint64_t first = random_.below(blocks_.size());
    for (std::uint64_t i = 0; i < blocks_.size(); ++i) {
      const std::uint64_t b = (first + i) % blocks_.size();
      const Block& block = blocks_[b];
      if (block.references != 0 || block.holds != 0 || block.prefix.empty()) continue;
      for (std::uint64_t n = random_.below(3); n > 0; --n) {
        rig_.name(block.group, static_cast<BlockId>(b), block.prefix, block.prefix.size());
      }
    }
  }

  // ---------------------------------------------------------------------------------- requests
  Req* pick(Phase phase) {
    std::vector<Req*> of;
    for (auto& [id, r] : requests_) {
      if (r.phase == phase) of.push_back(&r);
    }
    return of.empty() ? nullptr : of[random_.below(of.size())];
  }
  void begin() {
    if (requests_.size() >= 8) return;
    const RequestId id = ++last_id_;
    // Few stems, cut and continued at random: prefixes are shared often.
    TokenIds prompt =
        tokens_of(static_cast<std::uint32_t>(random_.between(1, 3)), options_.longest_prompt);
    prompt.resize(random_.between(2, options_.longest_prompt));
    if (random_.chance(1, 3)) prompt.back() = static_cast<std::uint32_t>(id);
    BOOST_REQUIRE(rig_.begin(id, prompt) == Code::ok);
    if (options_.hints && hint_random_.chance(2, 3)) {
      Hint hint;
      hint.priority = static_cast<std::int32_t>(hint_random_.below(5)) + priority_least;
      if (hint_random_.chance(1, 2)) hint.ttl_ns = hint_random_.between(1, 2'000'000'000'000);
      BOOST_REQUIRE_EQUAL(rig_.role->hint(id, hint).text, "");
    }
    Req r;
    r.id = id;
    r.outputs = random_.between(1, 20);
    requests_[id] = r;
  }
  void pin_or_unpin() {
    if (!pins_.empty() && hint_random_.chance(1, 2)) return unpin(hint_random_.below(pins_.size()));
    if (requests_.empty()) return;
    auto it = requests_.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(hint_random_.below(requests_.size())));
    const TokenIds& tokens = rig_.tokens[it->first];
    if (tokens.size() > options_.longest_prompt) return;
    const Result<PinAnswer> answer =
        rig_.role->pin(it->first, Tokens{hint_random_.between(1, tokens.size() - 1)});
    BOOST_REQUIRE(answer.ok() || answer.error().code == Code::full);
    if (!answer.ok() || answer.value().pin == 0) return;
    pins_.push_back({answer.value().pin, answer.value().tokens.n, tokens});
  }
  // Until then the prefix is found, unless a block of it could not be read. A hit may end inside a
  // block, so that the probe has all tokens of the request that pinned.
  void unpin(std::size_t which) {
    const OpenPin pin = pins_[which];
    pins_.erase(pins_.begin() + static_cast<std::ptrdiff_t>(which));
    if (!options_.failures) {
      const RequestId probe = ++last_id_;
      BOOST_REQUIRE(rig_.begin(probe, pin.prompt) == Code::ok);
      const LookupAnswer answer = rig_.lookup(probe, 0, pin.tokens + 1);
      if (answer.code == Code::ok) {
        BOOST_REQUIRE(answer.external.n == pin.tokens);
        ++pins_checked_;
      }
      BOOST_REQUIRE_EQUAL(error_of(rig_.end_result(probe, 0, {})), "");
    }
    BOOST_REQUIRE_EQUAL(rig_.role->unpin(pin.id).text, "");
  }
  void admit(bool partly) {
    Req* r = pick(Phase::waiting);
    if (r == nullptr) return;
    const std::uint64_t total = rig_.tokens[r->id].size();
    const std::uint64_t blocks = (total - 1) / options_.layout.s;
    r->device = options_.device_cache ? random_.between(0, blocks) * options_.layout.s : 0;
    const LookupAnswer answer = rig_.lookup(r->id, r->device);
    if (answer.code == Code::ok) {  // asked again it answers the same (KVC-P-064)
      const LookupAnswer again = rig_.lookup(r->id, r->device);
      BOOST_REQUIRE(again.code == Code::ok);
      BOOST_REQUIRE(again.external == answer.external && again.why == answer.why);
    }
    if (answer.code == Code::later || random_.chance(1, 5)) return;
    std::uint64_t accepted = answer.external.n;
    const std::uint64_t units = accepted / options_.layout.h;
    if (partly && units > 0) accepted = random_.between(0, units) * options_.layout.h;
    const std::uint64_t end = r->device + accepted;
    const bool enough = end == 0 ? grow(*r, 1) : grow_for_load(*r, end) && find_on_device(*r);
    if (!enough) {
      drop_all(*r);
      BOOST_TEST(rig_.alloc(r->id, 0, {}) == 0u);
      return;
    }
    r->owns = true;
    r->load = rig_.alloc(r->id, accepted, r->tables);
    BOOST_REQUIRE((r->load != 0) == (accepted != 0));
    r->phase = accepted != 0 ? Phase::loading : Phase::running;
    r->computed = accepted != 0 ? 0 : r->device;
    r->load_end = end;
    if (r->load != 0) hold(r->load, rig_.last_held);
  }
  void notice(Req& r) {
    const LookupAnswer answer = rig_.lookup(r.id);
    BOOST_TEST(answer.external.n <= rig_.tokens[r.id].size());
    leave_running(r);
    noticed_.insert(r.id);
  }
  void leave_running(Req& r) {
    drop_all(r);
    r.phase = Phase::waiting;
    r.computed = 0;
    r.resumed = true;
  }
  void finish() {
    if (requests_.empty()) return;
    auto it = requests_.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(random_.below(requests_.size())));
    end(it->second);
  }
  void end(Req& r) {
    Tables tables = r.tables;
    if (!r.owns) tables.clear();
    std::vector<Handoff> last;
    if (r.phase == Phase::running && r.computed % options_.layout.h == 0 && r.computed > 0) {
      for (const GroupId g : geometry_.cacheable()) {
        if (is_state(g) && !r.tables[g].empty()) {
          last.push_back({g, r.id, r.tables[g].back(), Tokens{r.computed}});
        }
      }
    }
    const bool running = r.phase == Phase::running;
    const Result<EndResult> out = rig_.end_result(r.id, running ? r.computed : 0, tables,
                                                  running ? last : std::vector<Handoff>{});
    BOOST_REQUIRE_EQUAL(error_of(out), "");
    if (out.value().job != 0) hold_new(out.value().job);
    drop_all(r);
    requests_.erase(r.id);
  }

  // -------------------------------------------------------------------------------------- steps
  // Computes tokens [computed, computed + n): writes digests; false: no blocks.
  bool compute(Req& r, std::uint64_t n, std::vector<Handoff>& handoffs) {
    const std::uint64_t end = r.computed + n;
    if (!grow(r, end)) return false;
    for (const GroupId g : geometry_.cacheable()) {
      Table& t = r.tables[g];
      if (is_state(g)) {
        if (!write_state(r, g, end, handoffs)) return false;
        continue;
      }
      for (std::uint64_t i = r.computed; i < end; ++i) {
        const BlockId b = t[i / width(g)];
        if (b != null_block) at(b).bytes[i % width(g)] = digest(r, g, i);
      }
    }
    r.computed = end;
    key_blocks(r);
    return true;
  }
  bool write_state(Req& r, GroupId g, std::uint64_t end, std::vector<Handoff>& handoffs) {
    Table& t = r.tables[g];
    const std::uint64_t position = (end - 1) / width(g);
    const bool reuse = t.size() == position + 1 && t.back() != null_block &&
                       !r.handed.contains(static_cast<std::uint64_t>(t.back()));
    if (!reuse) {
      const BlockId b = take_block(g);
      if (b == null_block) return false;
      for (BlockId& old : t) drop(old);  // only the last state is kept
      t.resize(position + 1, null_block);
      t[position] = b;
    }
    at(t[position]).bytes[0] = digest(r, g, end - 1);
    at(t[position]).prefix.clear();
    if (end % options_.layout.h == 0) {
      handoffs.push_back({g, r.id, t[position], Tokens{end}});
      r.handed.insert(static_cast<std::uint64_t>(t[position]));
    }
    return true;
  }
  void step() {
    std::vector<Sched> scheduled;
    std::vector<RequestId> preempted;
    std::vector<Handoff> handoffs;
    std::vector<RequestId> over;
    for (auto& [id, r] : requests_) {
      if (r.phase != Phase::running || random_.chance(1, 5)) continue;
      const std::uint64_t total = rig_.tokens[id].size();
      if (random_.chance(1, 25) || !advance(r, total, handoffs)) {
        std::erase_if(handoffs, [gone = r.id](const Handoff& h) { return h.request == gone; });
        leave_running(r);
        preempted.push_back(id);
        continue;
      }
      Sched s{id, r.computed, r.tables, r.resumed};
      for (const GroupId g : geometry_.cacheable()) {
        if (is_state(g)) s.tables[g].clear();
      }
      r.resumed = false;
      scheduled.push_back(s);
      if (r.computed == rig_.tokens[id].size() && r.outputs == 0) over.push_back(id);
    }
    for (const RequestId id : noticed_) {
      if (requests_.contains(id) && random_.chance(1, 2)) preempted.push_back(id);
    }
    noticed_.clear();
    plan(scheduled, preempted, handoffs);
    for (const RequestId id : over) end(requests_[id]);
    for (auto& [id, r] : requests_) {
      if (r.phase == Phase::running && r.computed == rig_.tokens[id].size() && r.outputs > 0) {
        --r.outputs;
        rig_.extend(id, {static_cast<std::uint32_t>(id * 1000 + r.outputs)});
      }
    }
  }
  bool advance(Req& r, std::uint64_t total, std::vector<Handoff>& handoffs) {
    if (r.computed >= total) return true;
    return compute(r, std::min(total - r.computed, random_.between(1, 48)), handoffs);
  }
  void plan(const std::vector<Sched>& scheduled, const std::vector<RequestId>& preempted,
            const std::vector<Handoff>& handoffs) {
    name_candidates();
    for (const PlanCopyOf& job : rig_.step(scheduled, preempted, handoffs)) {
      hold(job.job, job.held);
      if (job.kind == JobKind::load) {
        check_needed(job);
      }
      if (random_.chance(1, 2)) move(job);
    }
  }
  // A load has exactly the needed set, or nothing.
  void check_needed(const PlanCopyOf& job) {
    const auto it = requests_.find(job.request);
    if (it == requests_.end() || job.copies.empty()) return;
    std::set<std::pair<GroupId, std::uint64_t>> planned;
    for (const PlanCopy& c : job.copies) planned.insert({c.group, c.position});
    BOOST_TEST(planned.size() == job.copies.size());
    std::set<std::pair<GroupId, std::uint64_t>> needed;
    for_each_needed(geometry_, Tokens{it->second.device}, Tokens{it->second.load_end},
                    [&](GroupId g, std::uint64_t p) {
                      needed.insert({g, p});
                    });
    BOOST_TEST((planned == needed));
  }

  // --------------------------------------------------------------------------------------- jobs
  void hold(JobId job, const std::vector<HeldBlock>& held) {
    for (const HeldBlock& h : held) {
      ++at(h.block).holds;
      holds_[job].push_back(h.block);
    }
  }
  // The list of request_end repeats what older jobs hold: the rest belongs to the new job.
  void hold_new(JobId job) {
    std::map<BlockId, std::uint32_t> listed;
    for (const HeldBlock& h : rig_.last_held) ++listed[h.block];
    for (const auto& [block, count] : listed) {
      while (at(block).holds < count) {
        ++at(block).holds;
        holds_[job].push_back(block);
      }
    }
  }
  // The place of a copy in the tier: as ranks find it (docs/formats/plan.md).
  std::vector<std::uint64_t>& place(const PlanCopy& c) {
    return tier_[{c.slot, c.position % tier_geometry_.blocks_per_chunk(c.group)}];
  }
  void move(const PlanCopyOf& job) {
    if (!moved_.insert(job.job).second) return;
    // What a slot held goes with its next store.
    for (const PlanCopy& c : job.copies) {
      if (job.kind != JobKind::store) continue;
      for (std::uint64_t i = 0; i < chunk_max; ++i) tier_.erase({c.slot, i});
    }
    for (const PlanCopy& c : job.copies) {
      if (job.kind == JobKind::store) {
        BOOST_TEST(
            !tier_.contains({c.slot, c.position % tier_geometry_.blocks_per_chunk(c.group)}));
        place(c) = at(c.block).bytes;
      } else {
        at(c.block).bytes = place(c);
      }
    }
  }
  void report() {
    for (std::uint64_t n = random_.below(3); n > 0 && !rig_.open.empty(); --n) {
      auto it = rig_.open.begin();
      std::advance(it, static_cast<std::ptrdiff_t>(random_.below(rig_.open.size())));
      const bool fails = options_.failures && random_.chance(1, 12);
      report_one(it->first, fails ? Code::io : Code::ok);
    }
  }
  void report_one(JobId id, Code status) {
    const PlanCopyOf job = rig_.open.at(id);
    std::vector<FailedBlock> failed;
    if (status != Code::ok && !job.copies.empty()) {
      const PlanCopy& c = job.copies[random_.below(job.copies.size())];
      failed.push_back({c.group, c.block, c.position, 0, Code::io,
                        random_.chance(1, 2) ? FailedSide::source : FailedSide::destination});
    }
    if (options_.failures && random_.chance(1, 20) && overdue_.insert(id).second) {
      take(rig_.report(id, 0, Code::deadline, {}, ReportPhase::deadline), job);
    }
    move(job);
    if (status != Code::ok && job.kind == JobKind::store) {
      for (const PlanCopy& c : job.copies) place(c).assign(1, 0xBAD);
    }
    for (std::uint32_t r = 0; r < options_.ranks; ++r) {
      take(rig_.report(id, r, r == 0 ? status : Code::ok,
                       r == 0 ? failed : std::vector<FailedBlock>{}),
           job);
    }
  }
  void take(const Completed& done, const PlanCopyOf& job) {
    BOOST_TEST(done.rejected.empty());
    for (const Verdict& v : done.verdicts) verdict(v, job);
    for (const EndedCopy& e : done.jobs) {
      std::multiset<BlockId> released;
      for (const HeldBlock& h : e.released) released.insert(h.block);
      const std::multiset<BlockId> held(holds_[e.job].begin(), holds_[e.job].end());
      BOOST_TEST((released == held));
      for (const BlockId b : holds_[e.job]) --at(b).holds;
      holds_.erase(e.job);
    }
  }
  void verdict(const Verdict& v, const PlanCopyOf& job) {
    const auto it = requests_.find(v.request);
    if (it == requests_.end() || it->second.load != v.job) return;
    Req& r = it->second;
    r.load = 0;
    if (v.status != Code::ok) {
      drop_all(r);
      r.phase = Phase::waiting;
      return;
    }
    BOOST_TEST(!job.copies.empty());
    r.phase = Phase::running;
    r.computed = r.load_end;
    key_blocks(r);
    for_each_needed(geometry_, Tokens{}, Tokens{r.load_end}, [&](GroupId g, std::uint64_t p) {
      const std::vector<std::uint64_t>& bytes = at(r.tables[g][p]).bytes;
      if (is_state(g)) {
        BOOST_REQUIRE(bytes.at(0) == digest(r, g, r.load_end - 1));
        return;
      }
      for (std::uint64_t i = p * width(g); i < std::min((p + 1) * width(g), r.load_end); ++i) {
        BOOST_REQUIRE(bytes.at(i % width(g)) == digest(r, g, i));
      }
    });
    // A state that was loaded is written by the next chunk: the engine copies it first.
    for (const GroupId g : geometry_.cacheable()) {
      if (is_state(g)) r.handed.insert(static_cast<std::uint64_t>(r.tables[g].back()));
    }
    ++loads_checked_;
  }

  WorldOptions options_;
  Prng random_;
  Prng hint_random_;  // apart: worlds without hints are what they were
  Geometry geometry_;
  Geometry tier_geometry_;
  Rig rig_;
  std::vector<Block> blocks_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::vector<std::uint64_t>> tier_;
  std::map<RequestId, Req> requests_;
  std::map<RequestId, std::vector<std::uint64_t>> digests_;
  std::map<JobId, std::vector<BlockId>> holds_;
  std::set<JobId> moved_;
  std::set<JobId> overdue_;
  std::set<RequestId> noticed_;
  RequestId last_id_ = 0;
  bool settling_ = false;
  std::uint64_t loads_checked_ = 0;
  std::vector<OpenPin> pins_;
  std::uint64_t pins_checked_ = 0;
};

}  // namespace kvc::test
