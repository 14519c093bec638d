#include "conformance/rig/world.h"

#include <kvc/kvc_util.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <stdexcept>

#include "conformance/rig/watch.h"
#include "host_stub/loader/status_text.h"

namespace kvc::rig {

Library::Library(const kvc_plugin_api& api)
    : api_(api),
      test_(static_cast<const kvc_test_api*>(api.extension(kvc_text_of(KVC_TEST_EXTENSION)))) {}

// The host's functions; self is the World. What they do is not the connector's doing.
struct HostTable {
  static World& world(kvc_host* h) {
    World& w = *reinterpret_cast<World*>(h);
    ++w.host_calls_;
    return w;
  }
  static void log(kvc_host* h, std::int32_t level, kvc_bytes text) noexcept {
    const watch::Pause pause;
    World& w = world(h);
    const std::lock_guard lock(w.log_mutex_);
    const auto* const data = reinterpret_cast<const char*>(text.data);
    w.log_.emplace_back(level, text.size == 0 ? std::string() : std::string(data, text.size));
  }
  static std::uint64_t now_ns(kvc_host* h) noexcept {
    const watch::Pause pause;
    const World& w = world(h);
    if (w.stepped()) return w.now_ns_;
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(now.tv_nsec) + w.now_ns_;
  }
  static void* alloc(kvc_host* h, std::uint64_t bytes, std::uint64_t align) noexcept {
    watch::saw_heap("alloc");
    const watch::Pause pause;
    return world(h).host_memory_.give(bytes, align);
  }
  static void release(kvc_host* h, void* p, std::uint64_t bytes, std::uint64_t align) noexcept {
    watch::saw_heap("release");
    const watch::Pause pause;
    world(h).host_memory_.take(p, bytes, align);
  }
  static void wake(kvc_host* h) noexcept { ++world(h).wakes; }
  static kvc_status has_key(kvc_host* h, std::uint32_t group, std::int64_t block,
                            const std::uint8_t* key, std::uint64_t* end) noexcept {
    const bool allowed = watch::may_call_host();
    const char* const slot = watch::current_slot();
    const watch::Pause pause;
    World& w = world(h);
    judge_query(w, allowed, slot, "has_key");
    const auto it = w.device_keys.find({group, block});
    if (it == w.device_keys.end()) return 0;
    if (std::memcmp(it->second.first.data(), key, w.setup_.key_bytes) != 0) return 0;
    *end = it->second.second;
    return 1;
  }
  static kvc_status block_of(kvc_host* h, std::uint32_t group, const std::uint8_t* key,
                             std::int64_t* block) noexcept {
    const bool allowed = watch::may_call_host();
    const char* const slot = watch::current_slot();
    const watch::Pause pause;
    World& w = world(h);
    judge_query(w, allowed, slot, "block_of");
    for (const auto& [at, known] : w.device_keys) {
      if (at.first == group && std::memcmp(known.first.data(), key, w.setup_.key_bytes) == 0) {
        *block = at.second;
        return 1;
      }
    }
    return 0;
  }
  static void judge_query(World& w, bool allowed, const char* slot, const char* query) {
    w.expect((w.setup_.host_caps & KVC_HOST_BLOCK_QUERY) != 0, "KVC-P-018",
             "{} was called, the host did not set KVC_HOST_BLOCK_QUERY", query);
    if (!watch::active()) return;
    w.expect(allowed, "KVC-P-018", "{} was called from inside {}", query,
             slot == nullptr ? "no slot (a thread of its own)" : slot);
  }
};

World::World(Setup setup, const Library& library, Judge& judge)
    : library_(library), judge_(judge), setup_(std::move(setup)) {
  if (!library.can(KVC_CAP_STEPPED)) setup_.host_caps &= ~KVC_HOST_STEPPED;
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
  own_folder();
  for (std::int64_t b = 0; b < static_cast<std::int64_t>(setup_.device_blocks); ++b) {
    if (b != setup_.null_block) free_.push_back(b);
  }
  host_.struct_size = sizeof host_;
  host_.caps = setup_.host_caps;
  host_.self = reinterpret_cast<kvc_host*>(this);
  if (setup_.host_log) host_.log = HostTable::log;
  if (setup_.host_clock) host_.now_ns = HostTable::now_ns;
  if (setup_.host_alloc) host_.alloc = HostTable::alloc;
  if (setup_.host_alloc) host_.release = HostTable::release;
  if (setup_.host_wake) host_.wake = HostTable::wake;
  host_.has_key = HostTable::has_key;
  host_.block_of = HostTable::block_of;
  try {
    open_all();
  } catch (...) {
    close();
    throw;
  }
}

World::~World() {
  close();
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

void World::own_folder() {
  constexpr std::string_view word = "{folder}";
  for (std::size_t at = toml_.find(word); at != std::string::npos; at = toml_.find(word)) {
    if (folder_.empty()) {
      folder_ = (std::filesystem::temp_directory_path() / "kvc-world-XXXXXX").string();
      if (::mkdtemp(folder_.data()) == nullptr) throw std::runtime_error("no temporary folder");
    }
    toml_.replace(at, word.size(), folder_);
  }
}

void World::close() {
  if (closed_) return;
  closed_ = true;
  for (kvc_rank* r : ranks_) api().close_rank(r);
  api().close_scheduler(sched_);
  expect(host_memory_.live() == 0, "KVC-P-022",
         "after close {} pieces of {} bytes are not released", host_memory_.live(),
         host_memory_.live_bytes());
  expect(
      host_memory_.bad_releases() == 0, "KVC-P-022",
      "{} pieces were released twice, or with another size or alignment than they were asked for",
      host_memory_.bad_releases());
}

kvc_open World::open_struct(std::uint32_t rank) const {
  kvc_open o{};
  o.struct_size = sizeof o;
  o.rank = rank;
  o.groups = kvc_list_of(groups_.data(), groups_.size(), sizeof(kvc_group));
  if (setup_.stride_extra != 0) {
    const std::uint64_t stride = sizeof(kvc_group) + setup_.stride_extra;
    wide_groups_.assign(stride * groups_.size(), 0xEE);
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      std::memcpy(wide_groups_.data() + i * stride, &groups_[i], sizeof(kvc_group));
    }
    o.groups = kvc_list_of(wide_groups_.data(), groups_.size(), stride);
  }
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

void World::judge_opened(kvc_status status, const void* handle, std::string_view slot) {
  const auto lines = log();
  const std::string why = lines.empty() ? std::string("no text") : lines.back().second;
  if (status == KVC_OK) {
    need(handle != nullptr, "KVC-P-030", "{} answered KVC_OK and no handle", slot);
    return;
  }
  expect(handle == nullptr, "KVC-P-030", "{} answered {} and left a handle in *out", slot,
         host::Said{status});
  expect(!setup_.host_log || !lines.empty(), "KVC-P-030", "{} answered {} and logged nothing", slot,
         host::Said{status});
  if (setup_.may_decline && (status == KVC_E_ARG || status == KVC_E_UNSUPPORTED)) {
    throw Declined(fmt::format("{} declined this layout: {}", slot, why));
  }
  need(false, "KVC-P-030", "{} answered {}: {}", slot, host::Said{status}, why);
}

void World::open_all() {
  kvc_open o = open_struct();
  kvc_status s = api().open_scheduler(&host_, &o, &sched_);
  judge_opened(s, sched_, "open_scheduler");
  infos_.resize(setup_.ranks);
  class_copies_.resize(setup_.ranks);
  inventories_.resize(setup_.ranks);
  for (std::uint32_t r = 0; r < setup_.ranks; ++r) {
    memory_.push_back(std::make_unique<RankMemory>(setup_, r));
    kvc_rank* rank = nullptr;
    o = open_struct(r);
    s = api().open_rank(&host_, &o, &rank);
    judge_opened(s, rank, "open_rank");
    ranks_.push_back(rank);
    const auto& regions = memory_.back()->regions();
    const kvc_list list = in_list(regions, regions.size());
    KVC_CLEAR(&infos_[r]);
    s = api().register_regions(rank, &list, &infos_[r]);
    if (setup_.may_decline && s == KVC_E_UNSUPPORTED) {
      throw Declined(
          fmt::format("register_regions declined these regions (status {})", host::Said{s}));
    }
    need(s == KVC_OK, "KVC-P-043", "register_regions of rank {} answered {}: {}", r, host::Said{s},
         last_error_of(r));
    keep_info(r);
  }
  if (setup_.join) join_ranks();
}

void World::join_ranks() {
  const kvc_list list = in_list(infos_, infos_.size());
  kvc_list usable{};
  const kvc_status s = api().set_ranks(sched_, &list, &usable);
  need(s == KVC_OK, "KVC-P-041", "set_ranks of {} ranks answered {}: {}", setup_.ranks,
       host::Said{s}, last_error());
  for (std::uint64_t i = 0; i < usable.count; ++i) {
    kvc_class c{};
    need(KVC_READ_AT(kvc_class, &c, &usable, i) == KVC_OK, "KVC-P-040",
         "element {} of the usable classes cannot be read (stride {})", i, usable.stride);
    classes_.push_back(c);
  }
}

// What a rank put out is its own; an engine carries a copy.
void World::keep_info(std::uint32_t rank) {
  kvc_rank_info& info = infos_[rank];
  auto& copies = class_copies_[rank];
  for (std::uint64_t i = 0; i < info.classes.count; ++i) {
    kvc_class c{};
    need(KVC_READ_AT(kvc_class, &c, &info.classes, i) == KVC_OK, "KVC-P-043",
         "class {} of rank {} cannot be read (stride {})", i, rank, info.classes.stride);
    copies.push_back(c);
  }
  info.classes = in_list(copies, copies.size());
  if (info.inventory.size == 0) return;
  inventories_[rank].assign(info.inventory.data, info.inventory.data + info.inventory.size);
  info.inventory = kvc_bytes_of(inventories_[rank].data(), inventories_[rank].size());
}

std::uint64_t World::block_tokens(std::uint32_t group) const {
  const Group& g = setup_.groups.at(group);
  return g.tokens * ((g.caps & KVC_GROUP_CAP_SHARDED) != 0 ? setup_.cp : 1);
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

}  // namespace kvc::rig
