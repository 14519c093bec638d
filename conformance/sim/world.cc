#include "conformance/sim/world.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include <fmt/format.h>

#include "host_stub/engine/engine.h"

namespace kvc::sim {
namespace {

using config::GroupConfig;
using config::GroupKind;
using config::ModelConfig;

GroupConfig group(GroupKind kind, std::uint64_t block) {
  GroupConfig g;
  g.name = fmt::format("{}-{}", static_cast<int>(kind), block);
  g.kind = kind;
  g.tokens_per_block = block;
  g.cacheable = kind != GroupKind::other;
  g.fine_lookup = kind == GroupKind::full || kind == GroupKind::state;
  g.position_stable = kind != GroupKind::state;
  return g;
}

bool is_flat(std::uint64_t seed) { return Prng(seed ^ 0x1DE7U).chance(1, 4); }

// A quarter of the worlds has layers, and requests that run in the step of their load.
void draw_layers(World& world) {
  Prng draw(world.seed ^ 0x57E9U);
  if (!draw.chance(1, 4)) return;
  world.options.layers = draw.between(1, 4);
  world.options.loads_in_step = true;
}

class Drawer {
 public:
  explicit Drawer(World& world)
      : world_(world), draw_(world.seed * 2 + 1), more_(world.seed ^ 0x6D6F7265U) {}

  void run() {
    crowded_ = more_.chance(1, 12);
    layout();
    model();
    sizes();
    requests();
    engine();
    trouble();
    connector();
  }

 private:
  std::uint64_t pick(std::initializer_list<std::uint64_t> of) {
    return of.begin()[draw_.below(of.size())];
  }

  GroupConfig full(std::uint64_t units) {
    GroupConfig g = group(GroupKind::full, h_ * units);
    if (cp_ > 1) g.sharded = true;
    return g;
  }
  GroupConfig sliding() {
    GroupConfig g = group(GroupKind::sliding, h_ * pick({1, 1, 2, 3}));
    // A window of one token needs nothing of the past: every lookup would hit.
    g.window_tokens = draw_.between(2, 3 * g.tokens_per_block + h_);
    if (draw_.chance(1, 3)) g.extra_retained_tokens = draw_.between(1, 2 * h_);
    g.resume_inside_block = draw_.chance(1, 4);
    return g;
  }
  GroupConfig chunked() {
    GroupConfig g = group(GroupKind::chunked, h_ * pick({1, 2}));
    g.chunk_tokens = g.tokens_per_block * draw_.between(1, 4);
    return g;
  }
  GroupConfig state() { return group(GroupKind::state, h_ * pick({1, 2, 2, 3, 4})); }

  void states_beside_full() {
    const std::uint64_t count = draw_.between(1, 3);
    const bool same = draw_.chance(1, 2);
    const GroupConfig first = state();
    groups_.push_back(full(pick({1, 2, 4})));
    for (std::uint64_t i = 0; i < count; ++i) groups_.push_back(same ? first : state());
  }

  // Loads that fill whole plans, while others hand states off: what does not fit must wait or go.
  void crowded_layout() {
    h_ = 4;
    world_.layout = "crowded: full and states";
    groups_.push_back(full(1));
    for (int i = 0; i < 3; ++i) groups_.push_back(group(GroupKind::state, 2 * h_));
  }

  void layout() {
    if (crowded_) return crowded_layout();
    h_ = pick({4, 4, 8, 16});
    cp_ = draw_.chance(1, 4) ? draw_.between(2, 4) : 1;
    switch (draw_.below(11)) {
      case 0:
        world_.layout = "full";
        groups_.push_back(full(1));
        break;
      case 1:
        world_.layout = "full and sliding";
        groups_ = {full(pick({1, 1, 2})), sliding()};
        break;
      case 2:
        world_.layout = "full and chunked";
        cp_ = 1;
        groups_ = {full(pick({1, 2})), chunked()};
        break;
      case 3:
      case 4:
        world_.layout = "full and states";
        states_beside_full();
        break;
      case 5: {
        world_.layout = "full and states everywhere";
        cp_ = 1;
        GroupConfig everywhere = group(GroupKind::state, h_);
        everywhere.mode = config::StateMode::all;
        everywhere.position_stable = true;
        groups_ = {full(1), everywhere};
        break;
      }
      case 6:
        world_.layout = "two full";
        groups_ = {full(pick({1, 2})), full(pick({1, 2, 3}))};
        break;
      case 7:
        world_.layout = "full and draft";
        groups_ = {full(pick({1, 2})), draw_.chance(1, 2) ? full(1) : sliding()};
        groups_.back().draft = true;
        world_.options.draft_drop = true;
        break;
      case 8:
        world_.layout = "full, states and draft";
        states_beside_full();
        if (draw_.chance(1, 2)) groups_.push_back(full(pick({1, 2})));
        groups_[draw_.chance(1, 2) ? 0 : groups_.size() - 1].draft = true;
        if (groups_.back().kind == GroupKind::state && groups_.back().draft) {
          groups_.back().draft = false;
          groups_.front().draft = true;
        }
        world_.options.draft_drop = true;
        break;
      case 9:
        world_.layout = "sliding alone";
        cp_ = 1;
        groups_ = {sliding()};
        groups_.back().tokens_per_block = h_;
        break;
      default:
        world_.layout = "scratch, sliding, full and state";
        groups_ = {group(GroupKind::other, h_), sliding(), full(pick({1, 2})), state()};
        break;
    }
  }

  void model() {
    std::uint64_t s = h_;
    for (const GroupConfig& g : groups_) {
      s = std::lcm(s, ModelConfig::block_span_tokens(g, cp_));
      s = std::lcm(s, g.tokens_per_block);
    }
    // One group, and states in every block: the hash unit is the block.
    const bool coarse = groups_.size() == 1;
    if (coarse) h_ = s;
    span_ = s;
    ModelConfig& m = world_.options.model;
    m.name = world_.layout;
    m.groups = groups_;
    m.hash_unit_tokens = h_;
    m.scheduler_block_tokens = s;
    m.context_parallel = cp_;
    m.cp_interleave_tokens = cp_ > 1 ? pick({1, 2, 4}) : 1;
    m.sim_bytes_per_token = draw_.chance(1, 5) ? 16 : 8;
    world_.options.ranks = cp_ * (cp_ < 3 && draw_.chance(1, 4) ? 2 : 1);
  }

  void sizes() {
    longest_prompt_ = std::clamp<std::uint64_t>(span_ * draw_.between(2, 8), 4 * h_, 320);
    longest_output_ = pick({2, 8, 24, 40});
    // Long prompts in small units: their loads fill a plan.
    long_ = draw_.chance(1, 8);
    if (long_) longest_prompt_ *= 4;
    if (crowded_) longest_prompt_ = more_.between(800, 1'200);
    host::EngineOptions& o = world_.options;
    o.seed = draw_.next();
    o.max_running = draw_.between(1, 6);
    o.steps_in_flight = draw_.between(1, 3);
    o.rank_verdicts = draw_.chance(1, 2);
    o.device_cache = draw_.chance(2, 3);
    o.block_query = o.device_cache && draw_.chance(1, 2);
    o.stepped = true;
    if (crowded_) {
      o.max_running = 6;
      o.device_cache = o.block_query = false;  // each of equal requests loads for itself
    }
    bool retains = false;
    for (const GroupConfig& g : groups_) {
      retains = retains || g.kind == GroupKind::sliding || g.kind == GroupKind::state;
    }
    switch (draw_.below(6)) {
      case 0:
        o.retention_tokens = 0;
        break;
      case 1:
        o.retention_tokens = retains ? static_cast<std::int64_t>(span_ * draw_.between(1, 2)) : -1;
        break;
      default:
        break;
    }
  }

  std::uint64_t prompt_of(const RequestPlan& r) const {
    if (r.parent == RequestPlan::no_parent) return r.shared + r.own;
    const RequestPlan& p = world_.requests[r.parent];
    return p.spec.prompt_tokens + p.spec.output_tokens + r.own;
  }

  // A few long prompts, each several times.
  void crowded_requests() {
    for (std::uint64_t i = 0; i < 18; ++i) {
      RequestPlan r;
      r.origin = more_.below(3);
      r.own = longest_prompt_ - 17 * r.origin;
      r.spec.prompt_tokens = r.own;
      r.spec.output_tokens = more_.between(1, longest_output_);
      world_.requests.push_back(r);
    }
  }

  void requests() {
    if (crowded_) {
      crowded_requests();
    } else {
      plain_requests();
    }
    host::EngineOptions& o = world_.options;
    for (const RequestPlan& r : world_.requests) {
      o.max_prompt_tokens = std::max(o.max_prompt_tokens, r.spec.prompt_tokens);
      o.max_total_tokens =
          std::max(o.max_total_tokens, r.spec.prompt_tokens + r.spec.output_tokens);
    }
  }

  void plain_requests() {
    const std::uint64_t count = long_ ? draw_.between(6, 12) : draw_.between(8, 28);
    for (std::uint64_t i = 0; i < count; ++i) {
      RequestPlan r;
      r.origin = i;
      if (i > 0 && draw_.chance(1, 6)) {
        // The same prompt again, often while the first is still there.
        r = world_.requests[draw_.chance(1, 2) ? i - 1 : draw_.below(i)];
        r.spec.output_tokens = draw_.between(1, longest_output_);
        world_.requests.push_back(r);
        continue;
      }
      r.own = draw_.chance(1, 2)
                  ? draw_.between(1, longest_prompt_ / 2)
                  : h_ * draw_.between(1, std::max<std::uint64_t>(1, longest_prompt_ / 3 / h_));
      if (draw_.chance(2, 5) && !world_.requests.empty()) {
        r.parent = draw_.below(world_.requests.size());
        r.spec.salt = world_.requests[r.parent].spec.salt;
        if (prompt_of(r) > longest_prompt_ * 2) r.parent = RequestPlan::no_parent;
      }
      if (r.parent == RequestPlan::no_parent) {
        r.base = draw_.below(3);
        r.shared = draw_.chance(3, 4) ? draw_.between(1, longest_prompt_ / 2) : 0;
        r.spec.salt = draw_.chance(1, 8) ? "tenant" : "";
      }
      r.spec.prompt_tokens = prompt_of(r);
      r.spec.output_tokens = draw_.between(1, longest_output_);
      limits(r);
      world_.requests.push_back(r);
    }
  }

  void limits(RequestPlan& r) {
    if (draw_.chance(1, 16)) r.spec.flags |= KVC_REQUEST_NO_READ;
    if (draw_.chance(1, 16)) r.spec.flags |= KVC_REQUEST_NO_WRITE;
    if (draw_.chance(1, 16)) r.spec.load_limit_tokens = draw_.between(0, r.spec.prompt_tokens);
    if (draw_.chance(1, 16)) r.spec.store_limit_tokens = draw_.between(0, r.spec.prompt_tokens);
  }

  void engine() {
    host::EngineOptions& o = world_.options;
    std::uint64_t widest = span_;
    for (const GroupConfig& g : groups_) {
      widest = std::max(widest, ModelConfig::block_span_tokens(g, cp_));
    }
    o.token_budget = widest * draw_.between(1, 3) + (draw_.chance(1, 2) ? draw_.below(span_) : 0);
    if (draw_.chance(1, 4)) o.token_budget += 1000;
    if (draw_.chance(1, 8)) o.max_request_bytes = draw_.between(256, 6000);
    const auto blocks = host::Engine::blocks_needed(o);
    KVC_CHECK(blocks.ok());
    const std::uint64_t needed = blocks.value();
    o.device_blocks = needed + (draw_.chance(1, 4) ? 0 : draw_.below(3 * needed));
    world_.burst = draw_.between(1, 6);
    if (crowded_) {
      world_.burst = 6;
      o.device_blocks = 4 * needed;
    }
  }

  void trouble() {
    Trouble& t = world_.trouble;
    world_.step_ns_max = pick({100'000, 1'000'000, 4'000'000});
    // One world in eight has none at all: then nothing may fail.
    if (draw_.chance(1, 8)) return;
    const auto some = [&](std::uint64_t times, std::uint64_t of, std::uint64_t chance_max) {
      return draw_.chance(times, of) ? draw_.between(1, chance_max) : 0;
    };
    t.copy_fault = some(1, 2, 300);
    t.stall = some(1, 2, 100);
    t.stall_steps_max = pick({3, 10, 40});
    t.small_budgets = draw_.chance(1, 2);
    t.delay_report = some(1, 2, 500);
    t.repeat_report = some(1, 4, 200);
    t.shuffle_reports = draw_.chance(1, 2);
    t.shuffle_copies = draw_.chance(1, 2);
    t.accept_less = some(1, 3, 500);
    t.abort = some(1, 2, 60);
    t.preempt = some(1, 2, 80);
    t.reset = some(1, 4, 40);
    t.invalidate = some(1, 2, 1000);
    t.empty_device_cache = some(1, 2, 300);
    t.repeat_lookup = some(1, 2, 500);
    t.cancel_lookup = some(1, 4, 500);
    if (draw_.chance(1, 12)) t.poison_step = draw_.between(1, 150);
    t.poison_after = draw_.chance(1, 2);
    if (t.poison_step == 0 && draw_.chance(1, 16)) t.close_step = draw_.between(1, 150);
    if (more_.chance(1, 4)) t.late_handoff = more_.between(1, 200);
    if (more_.chance(1, 8)) t.bad_handoff = more_.between(1, 100);
    if (crowded_ || more_.chance(1, 2)) t.abort_waiting = more_.between(200, 700);
  }

  void connector() {
    const std::uint64_t pool = draw_.chance(1, 6)   ? 2
                               : draw_.chance(1, 2) ? draw_.between(3, 24)
                                                    : draw_.between(25, 400);
    const auto deadline = [&] { return pick({3, 20, 100, 30'000, 30'000}); };
    std::string toml = "[connector]\n";
    toml += fmt::format("lease_steps = {}\n", draw_.between(1, 8));
    toml += fmt::format("max_leases = {}\n", pick({1, 2, 64}));
    if (draw_.chance(1, 3)) toml += fmt::format("attach_steps = {}\n", draw_.between(1, 20));
    switch (draw_.below(3)) {
      case 0:
        toml += fmt::format("held_device_blocks_max = {}\n", draw_.between(1, 8));
        break;
      case 1:
        toml += "held_device_blocks_max = 100000\n";
        break;
      default:
        break;
    }
    toml += fmt::format("load_deadline_ms = {}\nstore_deadline_ms = {}\n", deadline(), deadline());
    toml += fmt::format("store_decode_blocks = {}\n", draw_.chance(2, 3));
    toml += fmt::format("single_flight = {}\n", draw_.chance(2, 3));
    toml += fmt::format("event_ring = {}\n", pick({0, 8, 65'536}));
    if (draw_.chance(1, long_ ? 1 : 4) || crowded_)
      toml += fmt::format("plan_bytes_max = {}\n", one_load_bytes());
    if (draw_.chance(1, 16) || crowded_) {
      toml += "[host]\nunlimited = true\n";
    } else {
      toml += fmt::format("[host]\nblocks = {}\n", pool);
    }
    // Drawn last, so that the same seed without it is the same world.
    world_.lazy = world_.options.device_cache && draw_.chance(1, 4);
    if (world_.lazy) {
      lazy(toml);
    } else {
      keep(toml);
    }
    world_.options.connector_toml = toml;
  }

  // Which states are kept and who goes, of a generator of its own.
  void keep(std::string& toml) const {
    Prng draw(world_.seed ^ 0x6B656570U);
    constexpr const char* states[] = {"dense", "dense", "tail", "auto", "auto"};
    constexpr const char* evictions[] = {"lru", "lru", "auto", "arc", "gdsf"};
    const std::size_t at = std::string("[connector]\n").size();
    toml.insert(at, fmt::format("states = \"{}\"\n", states[draw.below(std::size(states))]));
    const char* const eviction = evictions[draw.below(std::size(evictions))];
    if (!is_flat(world_.seed)) toml.insert(at, fmt::format("eviction = \"{}\"\n", eviction));
    if (!draw.chance(1, 4)) return;
    toml.insert(at, fmt::format("cost_gate = \"{}\"\n", draw.chance(1, 4) ? "report" : "on"));
    if (draw.chance(1, 2)) {
      toml.insert(at, fmt::format("prefill_tokens_per_second = {}\n", 1U << draw.below(20)));
    }
  }

  static void lazy(std::string& toml) {
    const std::string no = "store_decode_blocks = false\n";
    const std::size_t at = toml.find(no);
    if (at != std::string::npos) toml.erase(at, no.size());
    toml.insert(std::string("[connector]\n").size(), "mode = \"lazy\"\n");
  }

  // A plan that has room for one load of the longest request, and for little beside it
  // (docs/formats/plan.md).
  std::uint64_t one_load_bytes() const {
    std::uint64_t copies = 0;
    for (const GroupConfig& g : groups_) {
      const bool one = crowded_ && g.kind == GroupKind::state;
      copies +=
          one ? 2 : world_.options.max_total_tokens / ModelConfig::block_span_tokens(g, cp_) + 2;
    }
    return std::max<std::uint64_t>(4096, 64 + 2 * 32 + copies * 24);
  }

  World& world_;
  Prng draw_;
  Prng more_;  // of what was added later: worlds of known seeds stay as they were
  std::vector<GroupConfig> groups_;
  std::uint64_t h_ = 16;
  std::uint64_t cp_ = 1;
  std::uint64_t span_ = 16;  // S
  std::uint64_t longest_prompt_ = 0;
  std::uint64_t longest_output_ = 0;
  bool long_ = false;
  bool crowded_ = false;
};

}  // namespace

std::string describe(const World& world) {
  const host::EngineOptions& o = world.options;
  std::string out =
      fmt::format("{}: h {}, S {}, context parallel {}, ranks {}, drop {}, retention {}\n",
                  world.layout, o.model.hash_unit_tokens, o.model.scheduler_block_tokens,
                  o.model.context_parallel, o.ranks, o.draft_drop, o.retention_tokens);
  for (const GroupConfig& g : o.model.groups) {
    out +=
        fmt::format("  kind {} block {} window {} chunk {} extra {}{}{}\n",
                    static_cast<int>(g.kind), g.tokens_per_block, g.window_tokens, g.chunk_tokens,
                    g.extra_retained_tokens, g.draft ? " draft" : "", g.sharded ? " sharded" : "");
  }
  out += fmt::format(
      "{} device blocks, cache {}, query {}, running {}, budget {}, in flight {}, verdicts {}, "
      "request bytes {}, layers {}, loads in step {}\n{}",
      o.device_blocks, o.device_cache, o.block_query, o.max_running, o.token_budget,
      o.steps_in_flight, o.rank_verdicts, o.max_request_bytes, o.layers, o.loads_in_step,
      o.connector_toml);
  return out;
}

namespace {

// The options of simple_cpu as those of offloading: nothing is lazy, and slots hold chunks. The
// pool stays as many slots.
void make_offloading(World& world) {
  std::string& toml = world.options.connector_toml;
  const std::string lazy = "mode = \"lazy\"\n";
  if (const std::size_t at = toml.find(lazy); at != std::string::npos) toml.erase(at, lazy.size());
  world.lazy = false;
  world.blocks_per_chunk = Prng(world.seed ^ 0xC7A9U).between(1, 6);
  const std::string pool = "\nblocks = ";
  if (const std::size_t at = toml.find(pool); at != std::string::npos) {
    const std::size_t number = at + pool.size();
    const std::uint64_t blocks = std::stoull(toml.substr(number));
    toml.replace(number, toml.find('\n', number) - number,
                 std::to_string(blocks * world.blocks_per_chunk));
  }
  toml.insert(std::string_view("[connector]\n").size(),
              fmt::format("blocks_per_chunk = {}\n", world.blocks_per_chunk));
}

}  // namespace

void add_disk(World& world, const std::string& folder) {
  world.disk = true;
  Prng draw(world.seed ^ 0xD15CU);
  const auto pick = [&](std::initializer_list<std::uint64_t> of) {
    return of.begin()[draw.below(of.size())];
  };
  std::string toml = "\n[disk]\n";
  const bool two = draw.chance(1, 4);
  toml += two ? fmt::format("paths = [\"{0}/a\", \"{0}/b\"]\n", folder)
              : fmt::format("paths = [\"{}/a\"]\n", folder);
  // Each block takes 4 KiB and more, whatever its size.
  toml += fmt::format("bytes = {}\n", (two ? 2 : 1) * draw.between(1U << 20U, 3U << 20U));
  toml += fmt::format("store = \"{}\"\n", draw.chance(1, 2) ? "write_through" : "on_eviction");
  toml += fmt::format("open_blocks = {}\n", pick({1, 4, 32, 256}));
  toml += fmt::format("read_deadline_ms = {}\n", pick({20, 200, 10'000}));
  toml += fmt::format("write_deadline_ms = {}\n", pick({20, 200, 10'000}));
  toml += fmt::format("direct = {}\n", draw.chance(1, 2));
  world.options.connector_toml += toml;
  // Small host pools: what is on disk must be needed.
  if (!draw.chance(1, 8)) world.trouble.disk_fault = draw.chance(1, 2) ? draw.between(1, 300) : 0;
}

World draw_world(std::uint64_t seed, std::string_view connector) {
  World world;
  world.seed = seed;
  Drawer(world).run();
  // From a source of its own, so that the rest of the world does not depend on it.
  world.flat_index = is_flat(seed);
  draw_layers(world);
  world.options.connector_toml.insert(
      std::string_view("[connector]\n").size(),
      fmt::format("index = \"{}\"\n", world.flat_index ? "flat" : "chained"));
  if (connector == "offloading") make_offloading(world);
  return world;
}

}  // namespace kvc::sim
