#include "host_stub/size/size_simulator.h"

#include <algorithm>
#include <memory>
#include <new>

namespace kvc::host {

namespace {

constexpr std::uint64_t prefix_tags = std::uint64_t{1} << 22U;

}  // namespace

Result<std::unique_ptr<SizeSimulator>> SizeSimulator::make(const Geometry& geometry,
                                                           const SizeTrace& trace,
                                                           const SizeSetup& setup) {
  TierIndexOptions o;
  o.key_bytes = SizeTrace::key_bytes;
  o.slots = setup.slots;
  o.open_runs = setup.slots == 0 ? 0 : 2;
  o.eviction = geometry.chain() ? setup.eviction : Eviction::lru;
  o.path_max = trace.longest();
  Result<TierIndex> index = TierIndex::make(geometry, o);
  if (!index.ok()) return index.error();
  return std::unique_ptr<SizeSimulator>(
      new SizeSimulator(geometry, trace, setup, std::move(index).value()));
}

SizeSimulator::SizeSimulator(const Geometry& geometry, const SizeTrace& trace,
                             const SizeSetup& setup, TierIndex index)
    : geometry_(geometry),
      trace_(trace),
      setup_(setup),
      index_(std::move(index)),
      plan_(geometry, setup.states, setup.eviction != Eviction::lru) {
  const auto append = [&](auto wanted) {
    for (const GroupId g : geometry.cacheable())
      if (wanted(geometry.group(g).kind) && geometry.chain() != g && !geometry.is_state_align(g))
        positions_.push_back(g);
  };
  if (geometry.chain()) positions_.push_back(*geometry.chain());
  append([](GroupKind k) { return k == GroupKind::full; });
  append([](GroupKind k) { return k == GroupKind::sliding || k == GroupKind::chunked; });
  append([](GroupKind k) { return k == GroupKind::state; });
  for (const GroupId g : geometry.cacheable()) {
    if (geometry.group(g).kind == GroupKind::full &&
        geometry.block_tokens(g) > geometry.hash_unit())
      tails_.push_back(g);
    if (geometry.is_state_align(g)) states_.push_back(g);
  }
  hit_.reserve(geometry, trace.longest());
  if (plan_.wants_shared() && !tags_.make(prefix_tags)) throw std::bad_alloc();
}

SizeCounts SizeSimulator::run() {
  for (const SizeRequest& r : trace_.requests()) step(r);
  counts_.entries = index_.counters().published;
  counts_.index_bytes = index_.counters().bytes;
  counts_.declined = index_.policy().declined;
  counts_.policy_bytes = index_.policy().bytes;
  return counts_;
}

void SizeSimulator::step(const SizeRequest& request) {
  const KeyView prompt = trace_.prompt_keys(request);
  const KeyView keys = trace_.keys(request);
  static_cast<void>(index_.maintain());
  const RunId run = index_.open_run();
  KVC_CHECK(run != no_run);
  KVC_CHECK(lookup(geometry_, index_, prompt, Tokens{}, request.prompt - Tokens{1}, hit_) ==
            Code::ok);
  ++counts_.requests;
  counts_.prompt_tokens += request.prompt.n;
  counts_.hit_tokens += hit_.tokens.n;
  index_.begin_request(run, prompt, request.prompt);
  index_.schedule(run);
  use_hit(prompt, run);
  store_all(request, keys, run);
  index_.end_request(run, keys, request.output);
  index_.close_run(run);
}

void SizeSimulator::use_hit(const KeyView& keys, RunId run) {
  if (hit_.tokens == Tokens{}) return;
  hit_.for_each_pinned([&](SlotId slot) { use(slot, keys, run); });
}

void SizeSimulator::use(SlotId slot, const KeyView& keys, RunId run) {
  index_.meet(slot, keys);
  index_.touch(slot, run);
  index_.hold_path(run, slot);
  ++counts_.events;
}

std::uint64_t SizeSimulator::use_path(GroupId chain, RunId run) {
  const GroupHit& met = hit_.groups[chain];
  held_.resize(hit_.tokens.n / geometry_.block_tokens(chain).n);
  if (held_.empty()) return 0;
  KVC_CHECK(met.brief ? met.whole == held_.size() : met.count() >= held_.size());
  SlotId slot = met.brief ? met.deepest : met.slots[held_.size() - 1];
  for (std::size_t p = held_.size(); p > 0; --p) {
    held_[p - 1] = slot;
    slot = index_.supports_of(slot).first;
  }
  for (const SlotId held : held_) index_.touch(held, run);
  counts_.events += held_.size();
  return held_.size();
}

void SizeSimulator::store_all(const SizeRequest& request, const KeyView& keys, RunId run) {
  for (const GroupId g : positions_) store_positions(g, keys, run);
  if (states_.empty() && tails_.empty()) return;
  list_boundaries(request);
  for (const Tokens end : boundaries_) store_boundary(end, keys, run);
}

void SizeSimulator::store_positions(GroupId group, const KeyView& keys, RunId run) {
  constexpr std::uint64_t ahead = 12;
  const Tokens block = geometry_.block_tokens(group);
  const Tokens h = geometry_.hash_unit();
  const std::uint64_t count = keys.count * h.n / block.n;
  const std::uint64_t held = geometry_.chain() == group ? use_path(group, run) : 0;
  for (std::uint64_t p = held; p < std::min(held + ahead, count); ++p)
    index_.expect_find(group, block_key(keys, block * (p + 1), h));
  for (std::uint64_t p = held; p < count; ++p) {
    if (p + ahead < count) index_.expect_find(group, block_key(keys, block * (p + ahead + 1), h));
    SlotId slot = no_slot;
    const Offer answer = offer(group, block * (p + 1), keys, run, slot);
    if (answer == Offer::refused) return;
    if (answer == Offer::stored) static_cast<void>(index_.publish(slot, 0, *this));
  }
}

void SizeSimulator::list_boundaries(const SizeRequest& request) {
  if (!plan_.any()) {
    boundaries_.clear();
    const Tokens tail = geometry_.prompt_tail_boundary(tails_.front(), request.prompt);
    if (tail != Tokens{}) boundaries_.push_back(tail);
    return;
  }
  PromptFacts facts;
  facts.prompt = request.prompt;
  facts.begin = hit_.tokens;
  if (plan_.wants_shared()) {
    const PrefixTags::Shared shared = tags_.note(trace_.prompt_keys(request));
    facts.shared = geometry_.hash_unit() * shared.keys;
    facts.shared_at_end = shared.at_end;
  }
  plan_.list(facts, boundaries_);
}

void SizeSimulator::store_boundary(Tokens boundary, const KeyView& keys, RunId run) {
  reserved_.clear();
  bool all = true;
  const auto take = [&](GroupId g) {
    SlotId slot = no_slot;
    const Offer answer = all ? offer(g, boundary, keys, run, slot) : Offer::held;
    all = all && answer != Offer::refused;
    if (answer == Offer::stored) reserved_.push_back(slot);
  };
  for (const GroupId g : tails_)
    if (boundary.n % geometry_.block_tokens(g).n != 0 && geometry_.legal_end(g, boundary)) take(g);
  for (const GroupId g : states_)
    if (geometry_.legal_end(g, boundary)) take(g);
  for (const SlotId slot : reserved_) {
    if (all) {
      static_cast<void>(index_.publish(slot, 0, *this));
    } else {
      index_.fail(slot, *this);
      free_.push_back(slot);
    }
  }
}

SizeSimulator::Offer SizeSimulator::offer(GroupId group, Tokens end, const KeyView& keys, RunId run,
                                          SlotId& slot) {
  const std::byte* key = block_key(keys, end, geometry_.hash_unit());
  if (index_.find_any(group, key, slot) == Presence::published) {
    use(slot, keys, run);
    return Offer::held;
  }
  ++counts_.events;
  const Supports supports = index_.hold_supports(group, keys, end, run);
  if (supports.no_parent) return Offer::refused;
  slot = room(run, group, key, end);
  if (slot == no_slot) {
    index_.drop_supports(supports);
    return Offer::refused;
  }
  index_.reserve(slot, group, key, keys, end, run, supports);
  ++counts_.stored;
  return Offer::stored;
}

SlotId SizeSimulator::room(RunId run, GroupId group, const std::byte* key, Tokens end) {
  if (free_.empty() && setup_.slots != 0 && used_ == setup_.slots) {
    bool declined = false;
    const SlotId victim = index_.victim(run, group, key, end, declined);
    if (victim == no_slot) return no_slot;
    index_.evict(victim, *this);
  }
  if (free_.empty()) return used_++;
  const SlotId slot = free_.back();
  free_.pop_back();
  return slot;
}

void SizeSimulator::evicted(SlotId slot, const SlotKey& /*key*/, bool /*bad*/) {
  free_.push_back(slot);
  ++counts_.evicted;
}

void SizeSimulator::published(SlotId /*slot*/, std::uint32_t /*tag*/) {}

void SizeSimulator::failed(SlotId slot, std::uint32_t /*tag*/, bool copy_open) {
  if (!copy_open) free_.push_back(slot);
}

}  // namespace kvc::host
