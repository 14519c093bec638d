#include "plugin/edge/tests/abi_host.h"

#include <dlfcn.h>
#include <kvc/kvc_util.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <ostream>
#include <sstream>

namespace kvc::abi_test {

Library::Library(const std::string& path) {
  void* lib = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  BOOST_REQUIRE_MESSAGE(lib != nullptr, path << ": " << dlerror());
  const auto entry = reinterpret_cast<kvc_plugin_entry_fn>(dlsym(lib, KVC_PLUGIN_ENTRY_NAME));
  BOOST_REQUIRE_MESSAGE(entry != nullptr, path << " has no " << KVC_PLUGIN_ENTRY_NAME);
  KVC_CLEAR(&api_);
  BOOST_REQUIRE_EQUAL(entry(KVC_MINOR, &api_), KVC_OK);
  test_ = static_cast<const kvc_test_api*>(api_.extension(kvc_text_of(KVC_TEST_EXTENSION)));
}

const Library& Library::simple_cpu() {
  static const Library library(KVC_LIB_DIR "/libkvc_simple_cpu.so");
  return library;
}

Group full(std::uint64_t tokens, std::uint64_t caps) {
  return {KVC_GROUP_FULL, tokens, 0,
          KVC_GROUP_CAP_POSITION_STABLE | KVC_GROUP_CAP_FINE_LOOKUP | caps, 0};
}
Group sliding(std::uint64_t tokens, std::uint64_t window) {
  return {KVC_GROUP_SLIDING, tokens, window, KVC_GROUP_CAP_POSITION_STABLE, 0};
}
Group chunked(std::uint64_t tokens, std::uint64_t chunk) {
  return {KVC_GROUP_CHUNKED, tokens, chunk, KVC_GROUP_CAP_POSITION_STABLE, 0};
}
Group state_align(std::uint64_t tokens) {
  return {KVC_GROUP_STATE, tokens, 0, KVC_GROUP_CAP_STATE | KVC_GROUP_CAP_FINE_LOOKUP, 0};
}
Group state_all(std::uint64_t tokens) {
  return {KVC_GROUP_STATE, tokens, 0,
          KVC_GROUP_CAP_STATE | KVC_GROUP_CAP_FINE_LOOKUP | KVC_GROUP_CAP_POSITION_STABLE, 0};
}
Group scratch(std::uint64_t tokens) {
  return {KVC_GROUP_OTHER, tokens, 0, 0, KVC_GROUP_CAP_CACHEABLE};
}

Tokens tokens_of(std::uint64_t seed, std::uint64_t n) {
  Tokens t(n);
  for (std::uint64_t i = 0; i < n; ++i) t[i] = seed * 1'000'003 + i;
  return t;
}

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9E3779B97F4A7C15U ^ (b + 0x632BE59BD9B4E019U + (a << 6U) + (a >> 2U));
  x ^= x >> 30U;
  x *= 0xBF58476D1CE4E5B9U;
  x ^= x >> 27U;
  x *= 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

bool has(const Group& g, std::uint64_t cap) { return (g.caps & cap) != 0; }

constexpr std::uint64_t token_bytes = 8;
constexpr std::uint64_t state_bytes = 64;
constexpr std::uint64_t gap_bytes = 24;  // behind every block: must never change

bool is_state(const Group& g) { return g.kind == KVC_GROUP_STATE; }

std::uint64_t bytes_of(const Group& g) {
  return is_state(g) ? state_bytes : g.tokens * token_bytes;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Found& f) {
  return out << "status " << f.status << ", " << f.tokens << " tokens, why " << f.why;
}

RankMemory::RankMemory(const Setup& setup, std::uint32_t rank) : setup_(setup) {
  for (std::uint32_t g = 0; g < setup.groups.size(); ++g) {
    for (std::uint32_t layer = 0; layer < setup.layers; ++layer) {
      const std::uint64_t stride = bytes_of(setup.groups[g]) + gap_bytes;
      memory_.emplace_back(stride * setup.device_blocks, static_cast<std::uint8_t>(0xE0U + rank));
      kvc_region region{};
      region.struct_size = sizeof region;
      region.device_kind = KVC_DEVICE_HOST;
      region.layer = layer;
      region.base = memory_.back().data();
      region.size_bytes = memory_.back().size();
      region.block_stride_bytes = stride;
      region.block_bytes = bytes_of(setup.groups[g]);
      region.group_mask = std::uint64_t{1} << g;
      regions_.push_back(region);
    }
  }
}

std::uint8_t* RankMemory::block(std::uint32_t group, std::uint32_t layer, std::int64_t block) {
  const kvc_region& r = regions_.at(group * setup_.layers + layer);
  return r.base + static_cast<std::uint64_t>(block) * r.block_stride_bytes;
}

std::uint64_t RankMemory::block_bytes(std::uint32_t group) const {
  return bytes_of(setup_.groups.at(group));
}

// The host's functions; self is the World.
struct HostTable {
  static World& world(kvc_host* h) { return *reinterpret_cast<World*>(h); }
  static void log(kvc_host* h, std::int32_t level, kvc_bytes text) noexcept {
    world(h).log_.emplace_back(level,
                               std::string(reinterpret_cast<const char*>(text.data), text.size));
  }
  static std::uint64_t now_ns(kvc_host* h) noexcept { return world(h).now_ns_; }
  static void wake(kvc_host* h) noexcept { ++world(h).wakes; }
  static kvc_status has_key(kvc_host* h, std::uint32_t group, std::int64_t block,
                            const std::uint8_t* key, std::uint64_t* end) noexcept {
    World& w = world(h);
    const auto it = w.device_keys.find({group, block});
    if (it == w.device_keys.end()) return 0;
    if (std::memcmp(it->second.first.data(), key, w.setup_.key_bytes) != 0) return 0;
    *end = it->second.second;
    return 1;
  }
  static kvc_status block_of(kvc_host* h, std::uint32_t group, const std::uint8_t* key,
                             std::int64_t* block) noexcept {
    World& w = world(h);
    for (const auto& [at, known] : w.device_keys) {
      if (at.first == group && std::memcmp(known.first.data(), key, w.setup_.key_bytes) == 0) {
        *block = at.second;
        return 1;
      }
    }
    return 0;
  }
};

World::World(Setup setup, const Library& library) : library_(library), setup_(std::move(setup)) {
  std::uint64_t least = UINT64_MAX;
  std::uint64_t most = 0;
  for (std::uint32_t g = 0; g < setup_.groups.size(); ++g) {
    const Group& d = setup_.groups[g];
    const std::uint64_t cacheable = d.kind == KVC_GROUP_OTHER ? 0 : KVC_GROUP_CAP_CACHEABLE;
    kvc_group raw{};
    raw.struct_size = sizeof raw;
    raw.kind = d.kind;
    raw.caps = (d.caps | cacheable) & ~d.not_caps;
    raw.caps_known = KVC_GROUP_CAPS_ALL;
    raw.tokens_per_block = d.tokens;
    raw.window_tokens = d.window;
    groups_.push_back(raw);
    if (cacheable == 0) continue;
    least = std::min(least, block_tokens(g));
    most = std::max(most, block_tokens(g));
  }
  if (setup_.h == 0) setup_.h = least;
  if (setup_.s == 0) setup_.s = most;
  if (setup_.ranks == 0) setup_.ranks = setup_.cp;
  std::ostringstream toml;
  toml << "[connector]\n" << setup_.connector_toml << "\n[host]\n";
  if (setup_.host_blocks != 0) toml << "blocks = " << setup_.host_blocks << "\n";
  toml << setup_.host_toml << "\n";
  toml_ = setup_.toml.value_or(toml.str());
  for (std::int64_t b = 0; b < static_cast<std::int64_t>(setup_.device_blocks); ++b) {
    if (b != setup_.null_block) free_.push_back(b);
  }
  host_.struct_size = sizeof host_;
  host_.caps = setup_.host_caps;
  host_.self = reinterpret_cast<kvc_host*>(this);
  host_.log = HostTable::log;
  host_.now_ns = HostTable::now_ns;
  host_.wake = HostTable::wake;
  host_.has_key = HostTable::has_key;
  host_.block_of = HostTable::block_of;
  open();
}

World::~World() {
  for (kvc_rank* r : ranks_) api().close_rank(r);
  api().close_scheduler(sched_);
}

kvc_open World::open_struct(std::uint32_t rank) const {
  kvc_open o{};
  o.struct_size = sizeof o;
  o.rank = rank;
  o.groups = kvc_list_of(groups_.data(), groups_.size(), sizeof(kvc_group));
  o.flags = setup_.flags;
  o.hash_unit_tokens = setup_.h;
  o.scheduler_block_tokens = setup_.s;
  o.context_parallel = setup_.cp;
  o.ranks = setup_.ranks;
  o.cp_interleave_tokens = 1;
  o.device_blocks = setup_.device_blocks;
  o.null_block = setup_.null_block;
  o.key_bytes = setup_.key_bytes;
  o.lookahead_tokens = setup_.lookahead;
  o.max_prompt_tokens = setup_.max_prompt;
  o.max_total_tokens = setup_.max_total;
  o.max_batch_tokens = setup_.max_batch;
  o.max_live_requests = setup_.max_live;
  o.max_running = setup_.max_running;
  o.max_request_bytes = setup_.max_request_bytes;
  o.max_steps_in_flight = setup_.steps_in_flight;
  o.retention_tokens = setup_.retention;
  o.namespace_id = kvc_bytes_of(setup_.name_space.data(), setup_.name_space.size());
  o.config_toml = kvc_bytes_of(toml_.data(), toml_.size());
  return o;
}

void World::open() {
  const auto why = [this] { return log_.empty() ? std::string("no text") : log_.back().second; };
  kvc_open o = open_struct();
  const kvc_status opened = api().open_scheduler(&host_, &o, &sched_);
  BOOST_REQUIRE_MESSAGE(opened == KVC_OK, "open_scheduler: " << opened << ": " << why());
  std::vector<kvc_rank_info> infos(setup_.ranks);
  for (std::uint32_t r = 0; r < setup_.ranks; ++r) {
    memory_.push_back(std::make_unique<RankMemory>(setup_, r));
    kvc_rank* rank = nullptr;
    o = open_struct(r);
    BOOST_REQUIRE_MESSAGE(api().open_rank(&host_, &o, &rank) == KVC_OK, "open_rank: " << why());
    ranks_.push_back(rank);
    const auto& regions = memory_.back()->regions();
    const kvc_list list = kvc_list_of(regions.data(), regions.size(), sizeof(kvc_region));
    KVC_CLEAR(&infos[r]);
    BOOST_REQUIRE_EQUAL(api().register_regions(rank, &list, &infos[r]), KVC_OK);
  }
  const kvc_list list = kvc_list_of(infos.data(), infos.size(), sizeof(kvc_rank_info));
  kvc_list usable{};
  const kvc_status s = api().set_ranks(sched_, &list, &usable);
  BOOST_REQUIRE_MESSAGE(s == KVC_OK, "set_ranks: " << s << ": " << last_error());
}

std::uint64_t World::block_tokens(std::uint32_t group) const {
  const Group& g = setup_.groups.at(group);
  return g.tokens * (has(g, KVC_GROUP_CAP_SHARDED) ? setup_.cp : 1);
}

std::uint64_t World::first_needed(std::uint32_t group, std::uint64_t end) const {
  const Group& g = setup_.groups.at(group);
  const std::uint64_t b = block_tokens(group);
  if (end == 0) return 0;
  switch (g.kind) {
    case KVC_GROUP_SLIDING:
      return end < g.window ? 0 : (end - g.window + 1) / b;
    case KVC_GROUP_CHUNKED:
      return end / g.window * g.window / b;
    case KVC_GROUP_STATE:
      return (end - 1) / b;
    default:
      return 0;
  }
}

// ------------------------------------------------------------------------------------ checks

void World::check_after(std::string_view call) {
  if (!check_counts) return;
  const kvc_boundary_stats c = counts();
  const auto balanced = [&](const kvc_offer_counts& o, std::string_view row) {
    const std::uint64_t sum = o.stored + o.pending + o.skipped_already_cached +
                              o.skipped_in_flight + o.skipped_not_hashed + o.dropped_pool_full +
                              o.dropped_request_gone + o.dropped_null_block + o.dropped_bad_offer +
                              o.dropped_no_parent + o.dropped_parent_failed +
                              o.dropped_copy_failed + o.dropped_leased + o.dropped_hold_budget +
                              o.dropped_reset + o.dropped_plan_full;
    BOOST_REQUIRE_MESSAGE(o.published == sum, "after " << call << ": " << row << " published "
                                                       << o.published << ", outcomes sum to "
                                                       << sum);
  };
  balanced(c.handoffs, "handoffs");
  balanced(c.all_offers, "all_offers");
  if (!check_structure) return;
  const std::string broken = verify();
  BOOST_REQUIRE_MESSAGE(broken.empty(), "after " << call << ": " << broken);
}

kvc_boundary_stats World::counts() {
  kvc_boundary_stats c{};
  c.struct_size = sizeof c;
  BOOST_REQUIRE_EQUAL(api().boundary_stats(sched_, &c), KVC_OK);
  return c;
}

kvc_pending World::pending() {
  kvc_pending p{};
  p.struct_size = sizeof p;
  BOOST_REQUIRE_EQUAL(api().has_pending(sched_, &p), KVC_OK);
  return p;
}

namespace {

std::vector<kvc_stat> all_stats(const kvc_plugin_api& api, const kvc_sched* s) {
  std::uint64_t needed = 0;
  api.stats(s, nullptr, sizeof(kvc_stat), 0, &needed);
  std::vector<kvc_stat> rows(needed);
  BOOST_REQUIRE_EQUAL(api.stats(s, rows.data(), sizeof(kvc_stat), rows.size(), &needed), KVC_OK);
  return rows;
}

std::string text_of(kvc_bytes b) {
  return b.size == 0 ? std::string() : std::string(reinterpret_cast<const char*>(b.data), b.size);
}

}  // namespace

bool World::has_stat(std::string_view name) {
  for (const kvc_stat& s : all_stats(api(), sched_)) {
    if (text_of(s.name) == name) return true;
  }
  return false;
}

std::uint64_t World::stat(std::string_view name) {
  std::uint64_t sum = 0;
  bool found = false;
  for (const kvc_stat& s : all_stats(api(), sched_)) {
    if (text_of(s.name) != name) continue;
    sum += s.value;
    found = true;
  }
  BOOST_REQUIRE_MESSAGE(found, "no stat is called " << name);
  return sum;
}

std::string World::explain(std::uint64_t id) {
  std::uint64_t needed = 0;
  const kvc_status s = api().explain(sched_, id, nullptr, 0, &needed);
  if (s != KVC_E_ROOM) return {};
  std::string text(needed, ' ');
  BOOST_REQUIRE_EQUAL(api().explain(sched_, id, text.data(), text.size(), &needed), KVC_OK);
  return text;
}

std::string World::last_error() {
  std::uint64_t needed = 0;
  api().last_error_scheduler(sched_, nullptr, 0, &needed);
  std::string text(needed, ' ');
  BOOST_REQUIRE_EQUAL(api().last_error_scheduler(sched_, text.data(), text.size(), &needed),
                      KVC_OK);
  return text;
}

std::string World::verify() {
  if (library_.test() == nullptr) return {};
  std::uint64_t needed = 0;
  library_.test()->verify(sched_, nullptr, 0, &needed);
  std::string text(needed, ' ');
  BOOST_REQUIRE_EQUAL(library_.test()->verify(sched_, text.data(), text.size(), &needed), KVC_OK);
  return text;
}

std::vector<kvc_event> World::events() {
  std::vector<kvc_event> all;
  for (;;) {
    std::vector<kvc_event> some(16);
    std::uint64_t n = 0;
    const kvc_status s = api().take_events(sched_, some.data(), sizeof(kvc_event), some.size(), &n);
    BOOST_REQUIRE(s == KVC_OK || s == KVC_MORE);
    all.insert(all.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(n));
    if (s == KVC_OK) return all;
    BOOST_REQUIRE_GT(n, 0U);
  }
}

bool World::logged(std::int32_t level, std::string_view part) const {
  return std::any_of(log_.begin(), log_.end(), [&](const auto& line) {
    return line.first == level && line.second.find(part) != std::string::npos;
  });
}

std::uint64_t World::logged_times(std::string_view part) const {
  return static_cast<std::uint64_t>(std::count_if(log_.begin(), log_.end(), [&](const auto& line) {
    return line.second.find(part) != std::string::npos;
  }));
}

void World::check_quiet() {
  const kvc_pending p = pending();
  BOOST_CHECK_EQUAL(p.load_jobs, 0U);
  BOOST_CHECK_EQUAL(p.store_jobs, 0U);
  BOOST_CHECK_EQUAL(p.held_blocks, 0U);
  BOOST_CHECK_EQUAL(counts().all_offers.pending, 0U);
  BOOST_CHECK_EQUAL(counts().handoffs.pending, 0U);
  BOOST_CHECK(open_jobs_.empty());
  BOOST_CHECK(holds_.empty());
  BOOST_CHECK(end_holds_.empty());
  BOOST_CHECK(loads_without_verdict_.empty());
  BOOST_CHECK_EQUAL(free_.size() + owners_.size() + 1, setup_.device_blocks);
}

// ------------------------------------------------------------------------------------ bytes

namespace {

struct Place {
  std::uint64_t slot = 0;
  bool here = true;
};

// Where token t of a block that starts at `first` lives on the rank.
Place place_of(const Group& g, std::uint32_t cp, std::uint32_t rank, std::uint64_t first,
               std::uint64_t t) {
  if (!has(g, KVC_GROUP_CAP_SHARDED)) return {t - first, true};
  return {(t - first) / cp, t % cp == rank % cp};
}

std::uint64_t word_of(std::uint64_t chain, std::uint32_t group, std::uint32_t layer,
                      std::uint32_t rank, std::uint64_t i) {
  return mix(chain, mix((std::uint64_t{group} << 32U) | layer, (std::uint64_t{rank} << 32U) | i));
}

}  // namespace

void World::write_state(const Request& r, std::uint32_t group, std::int64_t block,
                        std::uint64_t boundary) {
  for (std::uint32_t rank = 0; rank < setup_.ranks; ++rank) {
    for (std::uint32_t layer = 0; layer < setup_.layers; ++layer) {
      std::uint8_t* at = memory(rank).block(group, layer, block);
      for (std::uint64_t i = 0; i < state_bytes / 8; ++i) {
        const std::uint64_t word = word_of(r.chain.at(boundary - 1), group, layer, rank, i);
        std::memcpy(at + i * 8, &word, 8);
      }
    }
  }
}

void World::write(Request& r, std::uint64_t from, std::uint64_t to) {
  for (std::uint32_t g = 0; g < setup_.groups.size(); ++g) {
    const Group& d = setup_.groups[g];
    if (d.kind == KVC_GROUP_OTHER) continue;
    const std::uint64_t b = block_tokens(g);
    const auto& table = r.tables.at(g);
    if (is_state(d)) {
      for (std::uint64_t p = from / b; p * b < to; ++p) {
        const std::uint64_t end = std::min((p + 1) * b, to);
        if (table.at(p) != setup_.null_block && end > from) write_state(r, g, table[p], end);
      }
      continue;
    }
    for (std::uint64_t t = from; t < to; ++t) {
      const std::int64_t block = table.at(t / b);
      if (block == setup_.null_block) continue;
      for (std::uint32_t rank = 0; rank < setup_.ranks; ++rank) {
        const Place place = place_of(d, setup_.cp, rank, t / b * b, t);
        if (!place.here) continue;
        for (std::uint32_t layer = 0; layer < setup_.layers; ++layer) {
          const std::uint64_t word = word_of(r.chain.at(t), g, layer, rank, 0);
          std::memcpy(memory(rank).block(g, layer, block) + place.slot * token_bytes, &word, 8);
        }
      }
    }
  }
}

std::string World::wrong_bytes(const Request& r, std::uint64_t from, std::uint64_t to) {
  std::ostringstream why;
  const auto differs = [&](std::uint32_t rank, std::uint32_t g, std::uint32_t layer,
                           std::int64_t block, std::uint64_t offset, std::uint64_t word) {
    return std::memcmp(memory(rank).block(g, layer, block) + offset, &word, 8) != 0;
  };
  for (std::uint32_t g = 0; g < setup_.groups.size() && to != 0; ++g) {
    const Group& d = setup_.groups[g];
    if (d.kind == KVC_GROUP_OTHER) continue;
    const std::uint64_t b = block_tokens(g);
    const auto& table = r.tables.at(g);
    for (std::uint32_t rank = 0; rank < setup_.ranks; ++rank) {
      for (std::uint32_t layer = 0; layer < setup_.layers; ++layer) {
        if (is_state(d)) {
          const std::int64_t block = table.at((to - 1) / b);
          for (std::uint64_t i = 0; i < state_bytes / 8; ++i) {
            if (!differs(rank, g, layer, block, i * 8,
                         word_of(r.chain.at(to - 1), g, layer, rank, i)))
              continue;
            why << "state of group " << g << " at " << to << ", rank " << rank << ", layer "
                << layer << ", block " << block << ", word " << i;
            return why.str();
          }
          continue;
        }
        for (std::uint64_t t = std::max(from, first_needed(g, to) * b); t < to; ++t) {
          const Place place = place_of(d, setup_.cp, rank, t / b * b, t);
          if (!place.here) continue;
          const std::int64_t block = table.at(t / b);
          if (differs(rank, g, layer, block, place.slot * token_bytes,
                      word_of(r.chain.at(t), g, layer, rank, 0))) {
            why << "group " << g << ", token " << t << ", rank " << rank << ", layer " << layer
                << ", block " << block << " slot " << place.slot;
            return why.str();
          }
        }
      }
    }
  }
  return {};
}

std::vector<std::vector<std::vector<std::uint8_t>>> World::snapshot() const {
  std::vector<std::vector<std::vector<std::uint8_t>>> all;
  for (const auto& m : memory_) all.push_back(m->snapshot());
  return all;
}

std::string World::touched(const std::vector<std::vector<std::vector<std::uint8_t>>>& before,
                           const std::set<std::int64_t>& but) {
  std::ostringstream why;
  for (std::uint32_t rank = 0; rank < setup_.ranks; ++rank) {
    const auto& regions = memory(rank).regions();
    for (std::size_t i = 0; i < regions.size(); ++i) {
      const kvc_region& region = regions[i];
      for (std::uint64_t block = 0; block < setup_.device_blocks; ++block) {
        const std::uint64_t at = block * region.block_stride_bytes;
        const bool named = but.count(static_cast<std::int64_t>(block)) != 0;
        const std::uint64_t skip = named ? region.block_bytes : 0;
        if (std::memcmp(region.base + at + skip, before[rank][i].data() + at + skip,
                        region.block_stride_bytes - skip) == 0) {
          continue;
        }
        why << "rank " << rank << ", region " << i << ", block " << block
            << (named ? ": the gap behind it" : "");
        return why.str();
      }
    }
  }
  return {};
}

}  // namespace kvc::abi_test
