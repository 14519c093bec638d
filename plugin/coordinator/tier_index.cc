#include "plugin/coordinator/tier_index.h"

#include <fmt/format.h>

#include <algorithm>

#include "plugin/coordinator/tier_body.h"
#include "plugin/coordinator/tier_boundary.h"
#include "plugin/core/prefetch.h"

namespace kvc {

using tier::job_unit;
using tier::lease_mask;
using tier::lease_unit;
using tier::link_unit;
using tier::pin_mask;
using tier::Place;
using tier::Record;

namespace {

// Pinned, and by leases alone.
bool lease_only(const Record& r) {
  const std::uint64_t pins = r.holders & pin_mask;
  return pins != 0 && pins <= lease_mask;
}

}  // namespace

TierIndex::TierIndex(std::unique_ptr<Body> body) : body_(std::move(body)) {}
TierIndex::TierIndex(TierIndex&&) noexcept = default;
TierIndex& TierIndex::operator=(TierIndex&&) noexcept = default;
TierIndex::~TierIndex() = default;

Result<TierIndex> TierIndex::make(const Geometry& geometry, const TierIndexOptions& options) {
  if (options.key_bytes < key_bytes_min || options.key_bytes > key_bytes_max)
    return Status{Code::arg, fmt::format("keys of {} bytes, they must have {} to {}",
                                         options.key_bytes, key_bytes_min, key_bytes_max)};
  if (options.slots >= tier::ids_end || options.open_runs >= tier::ids_end ||
      options.slots + options.open_runs >= tier::ids_end)
    return Status{Code::arg, fmt::format("{} slots and {} open runs, the limit is 2^31 together",
                                         options.slots, options.open_runs)};
  auto body = std::make_unique<Body>(geometry, options);
  if (options.eviction != Eviction::lru && !body->chained())
    return Status{Code::arg, "this eviction policy needs a chained index, the index is flat"};
  const std::uint64_t path_max =
      body->chained() ? ceil_div(options.path_max.n, body->block.n) : std::uint64_t{0};
  const bool whole = body->chained() && tier::BoundaryPolicy::fits(geometry);
  const tier::PolicyContext context{body->records,  body->chain,
                                    body->block,    body->unit,
                                    options.slots,  options.open_runs,
                                    path_max,       options.ghosts_more,
                                    body->geometry, whole ? body->exact : std::vector<GroupId>{}};
  if (!body->records.make(options.slots) ||
      !body->order.make(options.slots, options.open_runs,
                        tier::make_policy(options.eviction, context)))
    return Status{Code::full, fmt::format("no memory for an index of {} slots", options.slots)};
  return TierIndex(std::move(body));
}

SlotId TierIndex::find(GroupId group, const std::byte* key) const {
  return body_->records.find_visible(group, key);
}

void TierIndex::find_batch(GroupId group, const KeyRun& keys, std::span<SlotId> out) const {
  const Body& b = *body_;
  b.records.find_batch(group, keys, out);
}

void TierIndex::find_each(GroupId group, std::span<const std::byte* const> keys,
                          std::span<SlotId> out) const {
  body_->records.find_each(group, keys, out);
}

bool TierIndex::prefix_closed(GroupId group) const {
  return body_->chained() && group == body_->chain && body_->counts.bad_chain == 0;
}

std::uint64_t TierIndex::tail_offsets(GroupId group, SlotId base) const {
  const Body& b = *body_;
  if (!b.chained() || group != b.chain) return UINT64_MAX;
  if (base == no_slot) return b.root_offsets;
  const Record& r = b.at(base);
  return r.has(Record::chain_bit) && r.published() ? r.offsets() | b.loose_offsets : UINT64_MAX;
}

namespace {

// One of the walks of find_path: from `at` towards the root, into first[left - 1], first[left - 2]
// ...
struct PathWalk {
  SlotId at = no_slot;
  SlotId* first = nullptr;
  std::size_t left = 0;

  // Writes `at` and so many of its ancestors but one as lie next to it, and returns how many those
  // were. The places below them may be written, too, as long as they are of this walk: the rest of
  // it comes there. Whole groups of writes cost less than a loop whose end nobody foresees.
  std::size_t emit(const Record& r) {
    constexpr std::uint32_t group = 8;
    const std::size_t n = std::max<std::size_t>(1, std::min<std::size_t>(r.stretch(), left - 1));
    SlotId* const end = first + left;
    const SlotId step = r.has(Record::upward_bit) ? 1 : static_cast<SlotId>(-1);
    if (left >= n + group) {
      SlotId slot = at;
      for (std::size_t i = 0; i < n; i += group, slot += step * group) {
        SlotId* const to = end - i - group;
        for (std::uint32_t k = 0; k < group; ++k) to[group - 1 - k] = slot + step * k;
      }
    } else {
      for (std::uint32_t i = 0; i < n; ++i) end[-1 - std::ptrdiff_t{i}] = at + step * i;
    }
    left -= n;
    return n;
  }
};

}  // namespace

bool TierIndex::Body::linked(std::span<const SlotId> path) const {
  if (std::find(path.begin(), path.end(), no_slot) != path.end()) return false;
  for (std::size_t i = path.size(); i > 1;) {
    const SlotId own = path[i - 1];
    const Record& r = at(own);
    const std::size_t n = std::min<std::size_t>(r.stretch(), i - 1);
    for (std::uint32_t k = 1; k <= n; ++k)
      if (path[i - 1 - k] != r.ancestor(own, k)) return false;
    if (n == 0 && path[i - 2] + 1 != r.support) return false;
    i -= std::max<std::size_t>(n, 1);
  }
  return true;
}

bool TierIndex::find_path(GroupId group, const KeyRun& keys, std::span<SlotId> out,
                          PathListener* listener) const {
  constexpr std::size_t walks = find_batch_keys;
  const Body& b = *body_;
  KVC_CHECK(out.size() >= keys.count);
  const std::size_t share = prefix_closed(group) ? keys.count / walks : 0;
  const std::size_t done = share < 2 ? 0 : share * walks;
  if (done != 0 && !b.walk_path(group, keys, share, out, listener)) return false;
  const KeyRun rest{keys.first + static_cast<std::ptrdiff_t>(done) * keys.stride, keys.stride,
                    keys.count - done};
  if (rest.count == 0) return true;
  if (listener != nullptr) listener->passed(done, rest.count);
  b.records.find_batch(group, rest, out.subspan(done));
  if (!b.chained() || group != b.chain) return true;
  const std::size_t from = done == 0 ? 0 : done - 1;
  return b.linked(out.subspan(from, keys.count - from));
}

// Walk w fills positions [w * share, (w + 1) * share) from their end, which is looked up. False:
// they are not one path.
bool TierIndex::Body::walk_path(GroupId group, const KeyRun& keys, std::size_t share,
                                std::span<SlotId> out, PathListener* listener) const {
  constexpr std::size_t walks = find_batch_keys;
  const auto last = static_cast<std::ptrdiff_t>(share - 1);
  const KeyRun ends{keys.first + last * keys.stride,
                    static_cast<std::ptrdiff_t>(share) * keys.stride, walks};
  std::array<SlotId, walks> found{};
  records.find_batch(group, ends, found);
  std::array<PathWalk, walks> open{};
  for (std::size_t w = 0; w < walks; ++w) {
    if (found[w] == no_slot) return false;
    open[w] = {found[w], &out[w * share], share};
  }
  for (std::size_t count = walks; count > 0;) {
    for (std::size_t w = 0; w < count;) {
      PathWalk& walk = open[w];
      const Record& r = at(walk.at);
      const std::size_t n = walk.emit(r);
      if (listener != nullptr) {
        listener->passed(static_cast<std::size_t>(walk.first - out.data()) + walk.left, n);
      }
      if (walk.left == 0) {
        walk = open[--count];
        continue;
      }
      // The furthest ancestor of the stretch is read for what is behind it.
      walk.at =
          r.stretch() > 0 ? r.ancestor(walk.at, static_cast<std::uint32_t>(n)) : r.support - 1;
      if (walk.at == no_slot) return false;
      prefetch(&records[walk.at].meta);
      ++w;
    }
  }
  for (std::size_t w = 1; w < walks; ++w)
    if (at(out[w * share]).support != found[w - 1] + 1) return false;
#if defined(KVC_SANITIZED)
  for (std::size_t i = 0; i < share * walks; ++i) {
    const std::byte* key = keys.first + static_cast<std::ptrdiff_t>(i) * keys.stride;
    KVC_CHECK(records.find_visible(group, key) == out[i]);
  }
#endif
  return true;
}

bool TierIndex::keys_follow(GroupId group, const KeyRun& keys) const {
  const Body& b = *body_;
  if (!b.chained() || group != b.chain) return true;
  const auto key = [&](std::size_t i) {
    return keys.first + static_cast<std::ptrdiff_t>(i) * keys.stride;
  };
  SlotId slot = find(group, key(keys.count - 1));
  for (std::size_t i = keys.count; i > 0; --i) {
    if (slot == no_slot || !b.records.has_key(slot, key(i - 1))) return false;
    slot = b.at(slot).support - 1;
  }
  return true;
}

bool TierIndex::chained() const { return body_->chained(); }

Presence TierIndex::find_any(GroupId group, const std::byte* key, SlotId& entry) const {
  entry = body_->records.find(group, key);
  if (entry == no_slot) return Presence::absent;
  const Record& r = body_->records[entry];
  if (!r.published()) return Presence::reserved;
  if (!r.has(Record::bad_bit)) return Presence::published;
  return r.has(Record::rewriting_bit) ? Presence::reserved : Presence::absent;
}

void TierIndex::expect_find(GroupId group, const std::byte* key) const {
  body_->records.expect_find(group, key);
}

RunId TierIndex::open_run() { return body_->order.open_run(); }

void TierIndex::close_run(RunId run) {
  KVC_CHECK(body_->order.is_open(run));
  body_->release_path(run);
  body_->order.close_run(run);
}

void TierIndex::schedule(RunId run) {
  KVC_CHECK(body_->order.is_open(run));
  body_->order.schedule(run);
}

void TierIndex::expect_schedule(RunId run) const { body_->order.expect_schedule(run); }

void TierIndex::hold_path(RunId run, SlotId entry) {
  Body& b = *body_;
  const Record& r = b.at(entry);
  KVC_CHECK(b.order.is_open(run) && r.keyed());
  if (!r.has(Record::chain_bit)) return;
  KVC_CHECK(r.published() || r.run() == run);
  b.hold_path(run, entry);
}

void TierIndex::release_path(RunId run) {
  KVC_CHECK(body_->order.is_open(run));
  body_->release_path(run);
}

void TierIndex::hint(RunId run, const Hint& hint) { body_->order.hint(run, hint); }

void TierIndex::tick(std::uint64_t now_ns) { body_->order.tick(now_ns); }

bool TierIndex::timed() const { return body_->order.timed(); }

Supports TierIndex::hold_supports(GroupId group, const KeyView& path, Tokens end, RunId run) {
  Body& b = *body_;
  const Supports s = b.find_supports(group, path, end, run);
  if (s.first != no_slot) b.add_holder(s.first, link_unit);
  if (s.second != no_slot) b.add_holder(s.second, link_unit);
  return s;
}

void TierIndex::drop_supports(const Supports& s) {
  if (s.first != no_slot) body_->drop_holder(s.first, link_unit);
  if (s.second != no_slot) body_->drop_holder(s.second, link_unit);
}

void TierIndex::reserve(SlotId entry, GroupId group, const std::byte* key, const KeyView& path,
                        Tokens end, RunId run, const Supports& supports) {
  Body& b = *body_;
  KVC_CHECK(b.order.is_open(run) && group < groups_max && end.n != 0 && end <= indexed_end_max);
  KVC_CHECK(!supports.no_parent);
  b.records.ensure(entry);
  Record& r = b.records[entry];
  KVC_CHECK(r.state() == EntryState::free);
  r.meta = group << 16U;
  r.set_state(EntryState::reserved);
  r.end = static_cast<std::uint32_t>(end.n);
  std::memcpy(b.records.key(entry), key, b.options.key_bytes);
  b.records.insert(entry, group);
  b.order.set_run(entry, run);
  ++b.counts.reserved;
  if (!b.chained()) return;
  r.set(Record::chain_bit, group == b.chain && end.n % b.block.n == 0);
  if (tier::Policy* p = b.order.policy(); p != nullptr) {
    p->ensure(entry);
    p->reserved(entry, run);
  }
  b.order.run(run).writing = true;
  if (r.has(Record::chain_bit)) {
    if (!supports.root) {
      r.support = supports.first + 1;  // the hold becomes the child's
      r.extend_stretch(entry, supports.first, b.records[supports.first]);
      b.join_siblings(entry);
    }
    b.hold_path(run, entry);
    b.adopt(entry, path, run);
    return;
  }
  r.set(Record::tail_bit, group == b.chain);
  b.link_supports(entry, supports.first, supports.second);
  drop_supports(supports);
  if (supports.first == no_slot && supports.second == no_slot && !supports.root) {
    b.make_unsupported(entry);
  }
  if (!r.has(Record::tail_bit)) return;
  b.note_tail(r);
  b.adopt(entry, path, run);
}

void TierIndex::rewrite(SlotId entry) {
  Record& r = body_->at(entry);
  KVC_CHECK(r.published() && r.has(Record::bad_bit) && !r.has(Record::rewriting_bit));
  r.set(Record::rewriting_bit, true);
  ++body_->counts.rewriting;
  body_->add_holder(entry, link_unit);
}

void TierIndex::expect_publish(SlotId entry) const { body_->records.expect_show(entry); }

bool TierIndex::publish(SlotId entry, std::uint32_t tag, TierSink& sink) {
  Body& b = *body_;
  Record& r = b.at(entry);
  if (r.published()) {
    KVC_CHECK(r.has(Record::rewriting_bit));
    b.end_bad(r);
    b.records.show(entry, true);
    r.set(Record::rewriting_bit, false);
    --b.counts.rewriting;
    b.drop_holder(entry, link_unit);
    sink.published(entry, tag);
    return true;
  }
  KVC_CHECK(r.state() == EntryState::reserved);
  if (!r.has(Record::chain_bit)) {
    b.publish_dependent(entry);
    sink.published(entry, tag);
    return true;
  }
  if (r.support != 0 && !b.at(r.support - 1).published()) {
    b.leave_siblings(entry);
    r.set_state(EntryState::landed);
    b.join_siblings(entry);
    r.dep_prev = tag;
    ++b.counts.landed;
    return false;
  }
  b.publish_chain(entry, tag, sink);
  return true;
}

void TierIndex::fail(SlotId entry, TierSink& sink, bool copy_open) {
  Body& b = *body_;
  Record& r = b.at(entry);
  if (r.published()) {
    KVC_CHECK(r.has(Record::rewriting_bit));
    if (copy_open) return;
    r.set(Record::rewriting_bit, false);
    --b.counts.rewriting;
    b.drop_holder(entry, link_unit);
    return;
  }
  KVC_CHECK(r.state() == EntryState::reserved);
  if (r.has(Record::chain_bit)) {
    b.fail_chain(entry, sink);
  } else {
    b.fail_dependent(entry);
  }
  if (!copy_open) return;
  r.set_state(EntryState::doomed_reserved);
  ++b.counts.doomed_reserved;
}

bool TierIndex::release(SlotId entry) {
  Record& r = body_->at(entry);
  if (r.state() == EntryState::doomed_pinned) {
    KVC_CHECK(r.has(Record::rewriting_bit));
    r.set(Record::rewriting_bit, false);
    --body_->counts.rewriting;
    return unpin(entry, PinKind::job);
  }
  KVC_CHECK(r.state() == EntryState::doomed_reserved);
  r = Record{};
  --body_->counts.doomed_reserved;
  return true;
}

void TierIndex::touch(SlotId entry, RunId run) {
  Body& b = *body_;
  const Record& r = b.at(entry);
  KVC_CHECK(b.order.is_open(run) && r.published());
  if (r.has(Record::listed_bit)) return;
  tier::Policy* const policy = r.run() == run ? nullptr : b.order.policy();
  if (b.order.stays(r.run(), run) && !r.has(Record::unsupported_bit)) {
    b.order.schedule(r.run());
  } else {
    b.order.set_run(entry, run);
  }
  if (policy != nullptr) policy->touched(entry, run);
  if (r.has(Record::unsupported_bit) && b.order.run(run).writing) b.list_unsupported(entry);
}

void TierIndex::meet(SlotId entry, const KeyView& path) {
  Body& b = *body_;
  Record& r = b.at(entry);
  if (!b.lacks_support(r)) return;
  // Found under the key of another end: the path at hand is not its own.
  if (r.end / b.unit.n > path.count ||
      !b.records.has_key(entry, block_key(path, Tokens{r.end}, b.unit)))
    return;
  const Supports s = b.find_supports(r.group(), path, Tokens{r.end}, no_run);
  if (s.first == no_slot && s.second == no_slot) return;
  const bool listed = r.has(Record::listed_bit);
  if (listed) b.unlist(entry);
  b.end_unsupported(entry);
  b.link_supports(entry, s.first, s.second);
  b.note_tail(r);
  if (listed) b.drop_holder(entry, link_unit);
  b.retest(entry);
  b.boundary_changed(r);
}

void TierIndex::pin(SlotId entry, PinKind kind) {
  Body& b = *body_;
  Record& r = b.at(entry);
  KVC_CHECK(r.published());
  b.counts.lease_only -= lease_only(r) ? 1 : 0;
  if ((r.holders & pin_mask) == 0) ++b.counts.pinned;
  const std::uint64_t unit = kind == PinKind::lease ? lease_unit : job_unit;
  if (r.holders != 0) {
    r.holders += unit;  // it is out of the order already
  } else {
    b.add_holder(entry, unit);
  }
  b.counts.lease_only += lease_only(r) ? 1 : 0;
}

void TierIndex::pin_all(std::span<const SlotId> entries, PinKind kind) {
  constexpr std::size_t ahead = 16;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i + ahead < entries.size()) prefetch_write(&body_->records[entries[i + ahead]]);
    pin(entries[i], kind);
  }
}

bool TierIndex::unpin(SlotId entry, PinKind kind) {
  Body& b = *body_;
  Record& r = b.at(entry);
  const std::uint64_t unit = kind == PinKind::lease ? lease_unit : job_unit;
  KVC_CHECK(kind == PinKind::lease ? (r.holders & lease_mask) != 0
                                   : (r.holders & pin_mask) >= unit);
  b.counts.lease_only -= lease_only(r) ? 1 : 0;
  const bool last = (r.holders & pin_mask) == unit;
  if (last) --b.counts.pinned;
  if (r.state() != EntryState::doomed_pinned) {
    KVC_CHECK(r.published());
    b.drop_holder(entry, unit);
    b.counts.lease_only += lease_only(r) ? 1 : 0;
    return false;
  }
  r.holders -= unit;
  b.counts.lease_only += lease_only(r) ? 1 : 0;
  if (!last) return false;
  r = Record{};
  --b.counts.doomed_pinned;
  return true;
}

void TierIndex::mark_bad(SlotId entry) {
  Body& b = *body_;
  Record& r = b.at(entry);
  if (!r.published() || r.has(Record::bad_bit)) return;
  r.set(Record::bad_bit, true);
  b.records.show(entry, false);
  ++b.counts.bad;
  if (r.has(Record::chain_bit)) ++b.counts.bad_chain;
  if (r.place() != Place::out) {
    b.order.unlink(entry);
    b.enter_order(entry);
  }
  b.boundary_changed(r);
}

SlotId TierIndex::victim(RunId store_run) {
  bool declined = false;
  return body_->order.victim(store_run, {}, declined);
}

SlotId TierIndex::victim(RunId store_run, GroupId group, const std::byte* key, Tokens end,
                         bool& declined) {
  return body_->order.victim(store_run, {group, key, end}, declined);
}

bool TierIndex::evictable(SlotId entry) const { return !body_->at(entry).blocked(); }

void TierIndex::evict(SlotId entry, TierSink& sink) { body_->evict(entry, sink); }

void TierIndex::reset(TierSink& sink) {
  Body& b = *body_;
  for (RunId id = 0; id < b.order.runs_used(); ++id) {
    tier::Run& run = b.order.run(id);
    run.writer = no_slot;
    run.unsupported = 0;
    run.writing = false;
  }
  b.root_offsets = 0;
  b.counts.writer_pins = 0;
  if (b.order.policy() != nullptr) b.order.policy()->reset();
  for (SlotId slot = 0; slot < b.records.used(); ++slot) {
    Record& r = b.records[slot];
    if (!r.keyed()) continue;
    const EntryState state = r.state();
    const std::uint32_t tag = r.dep_prev;
    const bool bad = r.has(Record::bad_bit);
    // An open rewrite goes on as a job's pin.
    const bool rewriting = r.has(Record::rewriting_bit);
    if (rewriting && (r.holders & pin_mask) == 0) ++b.counts.pinned;
    if (rewriting && lease_only(r)) --b.counts.lease_only;
    const std::uint64_t pins = (r.holders & pin_mask) + (rewriting ? job_unit : 0);
    const SlotKey key{r.group(), b.records.key(slot), Tokens{r.end}};
    b.order.unlink(slot);
    b.erase(slot);
    switch (state) {
      case EntryState::published:
        --b.counts.published;
        if (pins == 0) {
          sink.evicted(slot, key, bad);
          break;
        }
        r.holders = pins;
        r.set(Record::rewriting_bit, rewriting);
        r.set_state(EntryState::doomed_pinned);
        ++b.counts.doomed_pinned;
        break;
      case EntryState::landed:
        --b.counts.landed;
        --b.counts.reserved;
        sink.failed(slot, tag, false);
        break;
      default:
        --b.counts.reserved;
        ++b.counts.doomed_reserved;
        r.set_state(EntryState::doomed_reserved);
        break;
    }
  }
}

EntryState TierIndex::state(SlotId entry) const {
  return body_->records.known(entry) ? body_->records[entry].state() : EntryState::free;
}
bool TierIndex::bad(SlotId entry) const { return body_->at(entry).has(Record::bad_bit); }
bool TierIndex::rewriting(SlotId entry) const {
  return body_->at(entry).has(Record::rewriting_bit);
}
SlotKey TierIndex::key_of(SlotId entry) const {
  const Record& r = body_->at(entry);
  KVC_CHECK(r.keyed());
  return {r.group(), body_->records.key(entry), Tokens{r.end}};
}
const std::byte* TierIndex::last_key(SlotId entry) const {
  KVC_CHECK(body_->records.known(entry));
  return body_->records.key(entry);
}
RunId TierIndex::run_of(SlotId entry) const { return body_->at(entry).run(); }
std::uint32_t TierIndex::pins(SlotId entry) const {
  const std::uint64_t h = body_->at(entry).holders & pin_mask;
  return static_cast<std::uint32_t>((h & lease_mask) + h / job_unit);
}
bool TierIndex::in_front(SlotId entry) const { return body_->at(entry).place() == Place::front; }
std::uint32_t TierIndex::eviction_class(SlotId entry) const {
  return body_->order.class_of(run_of(entry));
}
bool TierIndex::unsupported(SlotId entry) const {
  return body_->at(entry).has(Record::unsupported_bit);
}
bool TierIndex::dead(SlotId entry) const {
  KVC_CHECK(body_->chained() && body_->at(entry).has(Record::chain_bit));
  return body_->dead(entry);
}
Supports TierIndex::supports_of(SlotId entry) const {
  const Record& r = body_->at(entry);
  Supports s;
  if (r.support != 0) s.first = r.support - 1;
  if (!r.carries() && r.second != 0) s.second = r.second - 1;
  s.root = body_->chained() && (body_->rooted(r) || (r.has(Record::chain_bit) && r.support == 0));
  return s;
}

const TierIndexCounters& TierIndex::counters() const {
  Body& b = *body_;
  b.counts.evictable = b.order.linked();
  b.counts.in_front = b.order.in_front();
  b.counts.runs = b.order.run_count();
  b.counts.bytes = b.records.bytes() + b.order.bytes();
  b.counts.expired = b.order.expired();
  b.counts.outranked = b.order.outranked();
  return b.counts;
}

}  // namespace kvc
