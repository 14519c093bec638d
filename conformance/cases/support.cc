#include "conformance/cases/support.h"

#include <kvc/kvc_util.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace kvc::conform {

using rig::chunked;
using rig::full;
using rig::scratch;
using rig::sliding;
using rig::state_align;
using rig::state_all;

void Context::warn(const std::string& text) {
  if (!warning_.empty()) warning_ += "; ";
  warning_ += text;
}

Setup Context::plain() const {
  Setup s;
  s.toml = config_toml;
  // Connectors take memory for their limits at open, and cases open them often.
  s.max_prompt = 1 << 12;
  s.max_total = 1 << 13;
  s.max_live = 64;
  return s;
}

Setup Context::layout(std::vector<Group> groups) const {
  Setup s = plain();
  s.groups = std::move(groups);
  s.may_decline = true;
  return s;
}

Tokens prompt(std::uint64_t seed, std::uint64_t blocks) { return tokens_of(seed, 16 * blocks + 1); }

void compute_step(World& w, std::uint64_t id, std::uint64_t to) {
  w.compute(id, to);
  if (to % w.setup().h == 0) {
    for (std::uint32_t g = 0; g < w.setup().groups.size(); ++g) {
      const Group& d = w.setup().groups[g];
      if (d.kind != KVC_GROUP_STATE || (d.caps & KVC_GROUP_CAP_POSITION_STABLE) != 0) continue;
      w.hand_off(id, g, w.request(id).tables[g].back(), to);
    }
  }
  w.step();
}

void one_life(World& w, std::uint64_t seed) {
  w.store(10 * seed, prompt(seed, 2), 32);
  w.begin(10 * seed + 1, prompt(seed, 2));
  const std::uint64_t loaded = w.load(10 * seed + 1);
  w.request(10 * seed + 1).computed = loaded;
  w.compute(10 * seed + 1, 33);
  w.step();
  w.end(10 * seed + 1);
  w.drain();
  w.check_quiet();
}

std::uint64_t stored_hit(Context& c, World& w, const Tokens& tokens, std::uint64_t stored) {
  const std::uint64_t hit = w.hit(tokens);
  c.need(hit <= stored, "KVC-P-130", "{} tokens are offered, {} were ever stored", hit, stored);
  if (hit != 0) return hit;
  const kvc_offer_counts n = w.counts().all_offers;
  if (n.stored != 0) {
    Context::skip(fmt::format("hits: {} blocks were stored, nothing of them is offered", n.stored));
  }
  Context::skip("stores: the connector stored nothing, there is nothing to load");
}

namespace {

std::vector<std::uint8_t> some_keys(std::uint64_t n) {
  return std::vector<std::uint8_t>(std::min<std::uint64_t>(n, 4096) * 16 + 16, 3);
}

}  // namespace

kvc_status Raw::begin(std::uint64_t id, std::uint64_t prompt_tokens, std::uint64_t n_keys) {
  const std::vector<std::uint8_t> keys = some_keys(n_keys);
  const kvc_request r{sizeof r,    0,      id,           prompt_tokens,
                      keys.data(), n_keys, KVC_NO_LIMIT, KVC_NO_LIMIT};
  return w.api().request_begin(w.sched(), &r);
}

kvc_status Raw::extend(std::uint64_t id, std::uint64_t first, std::uint64_t n) {
  const std::vector<std::uint8_t> keys = some_keys(n);
  const kvc_extend x{sizeof x, 0, id, first, keys.data(), n};
  return w.api().request_extend(w.sched(), &x);
}

kvc_status Raw::lookup(std::uint64_t id, std::uint64_t total, std::uint64_t device,
                       std::uint64_t cap) {
  const kvc_lookup_in in{sizeof in, 0, id, total, device, cap};
  found = sized<kvc_lookup_out>();
  return w.api().lookup(w.sched(), &in, &found);
}

kvc_status Raw::alloc(std::uint64_t id, std::uint64_t accepted) {
  const kvc_alloc_in in{sizeof in, 0, id, accepted, {}};
  auto out = sized<kvc_alloc_out>();
  return w.api().alloc_update(w.sched(), &in, &out);
}

kvc_status Raw::end(std::uint64_t id, std::uint64_t confirmed, std::int32_t reason) {
  const kvc_end_in in{sizeof in, reason, id, confirmed, {}, {}};
  auto out = sized<kvc_end_out>();
  return w.api().request_end(w.sched(), &in, &out);
}

Setup two_ranks(const Context& c) {
  Setup s = c.plain();
  s.ranks = 2;
  s.may_decline = true;
  return s;
}

Fault::Fault(const Context& c, const char* name, std::uint64_t countdown)
    : test_(c.library->test()) {
  if (test_ != nullptr) test_->set_fault(kvc_text_of(name), countdown);
}

Fault::~Fault() {
  if (test_ != nullptr) test_->clear_faults();
}

std::uint64_t thread_count() {
  std::uint64_t n = 0;
  for ([[maybe_unused]] const auto& one : std::filesystem::directory_iterator("/proc/self/task")) {
    ++n;
  }
  return n;
}

GuardedBytes::GuardedBytes(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t usable = (bytes + page - 1) / page * page;
  mapped_ = usable + page;
  mapping_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) throw std::bad_alloc();
  auto* const at = static_cast<unsigned char*>(mapping_);
  ::mprotect(at + usable, page, PROT_NONE);
  data_ = at + usable - bytes;
}

GuardedBytes::~GuardedBytes() { ::munmap(mapping_, mapped_); }

std::string name_of(const Setup& setup) {
  static constexpr const char* kinds[] = {"full", "sliding", "chunked", "state", "other"};
  std::string text;
  for (const Group& g : setup.groups) {
    if (!text.empty()) text += ",";
    text += fmt::format("{}{}", kinds[g.kind], g.tokens);
    if (g.window != 0) text += fmt::format("/{}", g.window);
    if ((g.caps & KVC_GROUP_CAP_SHARDED) != 0) text += "s";
    if ((g.caps & KVC_GROUP_CAP_DRAFT) != 0) text += "d";
    if (g.kind == KVC_GROUP_STATE && (g.caps & KVC_GROUP_CAP_POSITION_STABLE) != 0) text += "p";
  }
  return text + fmt::format(" h={} cp={}", setup.h, setup.cp);
}

std::vector<Layout> layouts(const Context& c) {
  std::vector<Layout> all;
  const auto add = [&](std::string_view name, std::vector<Group> groups, auto change) {
    Setup s = c.layout(std::move(groups));
    s.device_blocks = 256;
    change(s);
    all.push_back({name, std::move(s)});
  };
  const auto nothing = [](Setup&) {};
  const std::uint64_t sharded = KVC_GROUP_CAP_SHARDED;
  add("full", {full(16)}, nothing);
  add("full_two_sizes", {full(16), full(64)}, nothing);
  add("sliding", {full(16), sliding(16, 40)}, nothing);
  add("sliding_only", {sliding(16, 48)}, nothing);
  add("chunked", {full(16), chunked(16, 64)}, nothing);
  add("state_align", {full(16), state_align(16)}, nothing);
  add("state_align_wide", {full(16), state_align(64)}, [](Setup& s) { s.h = 16; });
  add("state_by_position", {full(16), state_all(32)}, nothing);
  add("state_tails", {full(64), state_align(64)}, [](Setup& s) { s.h = 16; });
  add("scratch", {full(16), scratch(16)}, nothing);
  add("all_kinds",
      {full(16), sliding(16, 33), chunked(32, 64), state_align(32), state_all(32), scratch(8)},
      [](Setup& s) { s.h = 16; });
  add("draft", {full(16), full(16, KVC_GROUP_CAP_DRAFT)},
      [](Setup& s) { s.flags = KVC_OPEN_DRAFT_DROP; });
  add("draft_state", {full(16, KVC_GROUP_CAP_DRAFT), state_align(16)},
      [](Setup& s) { s.flags = KVC_OPEN_DRAFT_DROP; });
  add("odd_sizes", {full(24), state_align(40)}, [](Setup& s) {
    s.h = 8;
    s.s = 120;
  });
  for (const std::uint32_t cp : {2U, 3U, 4U, 5U, 6U, 7U, 8U}) {
    static constexpr std::string_view names[] = {"",
                                                 "",
                                                 "context_parallel_2",
                                                 "context_parallel_3",
                                                 "context_parallel_4",
                                                 "context_parallel_5",
                                                 "context_parallel_6",
                                                 "context_parallel_7",
                                                 "context_parallel_8"};
    add(names[cp], {full(16, sharded), state_align(16 * cp)}, [&](Setup& s) {
      s.cp = cp;
      s.h = 16 * cp;
    });
  }
  add("context_parallel_tails", {full(64, sharded), state_align(16)}, [](Setup& s) {
    s.cp = 2;
    s.h = 16;
    s.s = 128;
  });
  add("two_ranks", {full(16), sliding(16, 32)}, [](Setup& s) { s.ranks = 2; });
  add("wide_keys", {full(16), state_align(16)}, [](Setup& s) { s.key_bytes = 32; });
  // The bytes of a block are the engine's own business, and where they lie as well.
  add("interleaved_layers", {full(16), sliding(16, 32), state_align(16)}, [](Setup& s) {
    s.memory = rig::MemoryOrder::interleaved;
    s.layers = 3;
  });
  add("shared_regions", {full(16), sliding(16, 32), state_align(32)}, [](Setup& s) {
    s.memory = rig::MemoryOrder::shared;
    s.h = 16;
    s.token_bytes = 16;
  });
  add("narrow_keys", {full(16)}, [](Setup& s) { s.key_bytes = 8; });
  return all;
}

}  // namespace kvc::conform
