#include "plugin/coordinator/tests/tier_twin.h"

#include <algorithm>
#include <cstring>

namespace kvc::test {

PrefixId Prefixes::extend(PrefixId from, std::uint32_t symbol) {
  if (const auto it = all_[from].next.find(symbol); it != all_[from].next.end()) return it->second;
  const PrefixId id = count();
  all_[from].next[symbol] = id;
  One one;
  one.line = all_[from].line;
  one.line.push_back(id);
  one.keys = all_[from].keys;
  std::vector<std::byte> key(key_bytes_);
  // Neighbours differ at either end of the key.
  std::memcpy(id % 2 == 0 ? key.data() : key.data() + key_bytes_ - sizeof id, &id, sizeof id);
  one.keys.insert(one.keys.end(), key.begin(), key.end());
  all_.push_back(std::move(one));
  return id;
}

TierTwin::TierTwin(const Geometry& geometry, bool chained, const Prefixes& prefixes)
    : geometry_(geometry), prefixes_(prefixes), h_(geometry.hash_unit().n) {
  if (!chained || !geometry.chain()) return;
  chain_ = *geometry.chain();
  block_ = geometry.block_tokens(chain_).n;
}

// --- what things are

const TwinEntry* TierTwin::entry(SlotId slot) const {
  const auto it = all_.find(slot);
  return it == all_.end() ? nullptr : &it->second;
}
EntryState TierTwin::state(SlotId slot) const {
  const TwinEntry* e = entry(slot);
  return e == nullptr ? EntryState::free : e->state;
}
bool TierTwin::keyed(const TwinEntry& e) {
  return e.state == EntryState::reserved || e.state == EntryState::landed ||
         e.state == EntryState::published;
}
bool TierTwin::keyed_at(SlotId slot) const {
  const TwinEntry* e = entry(slot);
  return e != nullptr && keyed(*e);
}
bool TierTwin::is_chain(const TwinEntry& e) const {
  return chained() && e.group == chain_ && end(e) % block_ == 0;
}
bool TierTwin::is_tail(const TwinEntry& e) const {
  return chained() && e.group == chain_ && end(e) % block_ != 0;
}
bool TierTwin::rooted(const TwinEntry& e) const { return is_tail(e) && end(e) < block_; }

SlotId TierTwin::at(GroupId group, PrefixId prefix) const {
  for (const auto& [slot, e] : all_)
    if (keyed(e) && e.group == group && e.prefix == prefix) return slot;
  return no_slot;
}

SlotId TierTwin::parent(SlotId chain_entry) const {
  const TwinEntry& e = all_.at(chain_entry);
  const std::uint64_t before = end(e) - block_;
  return before == 0 ? no_slot : at(chain_, prefixes_.cut(e.prefix, before / h_));
}

// Not evictable: not published, pinned, being rewritten, held by a writer pin, with a child, or
// with a dependent that is kept itself.
bool TierTwin::kept(SlotId slot) const {
  const TwinEntry& e = all_.at(slot);
  if (e.state != EntryState::published || e.leases + e.jobs != 0 || e.rewriting ||
      e.held_by != no_run || held_.count(slot) != 0)
    return true;
  for (const auto& [id, run] : runs_)
    if (run.writer == slot) return true;
  for (const auto& [other, o] : all_) {
    if (!keyed(o)) continue;
    if (is_chain(e) && is_chain(o) && end(o) == end(e) + block_ &&
        prefixes_.begins(o.prefix, e.prefix))
      return true;
    if ((o.first == slot || o.second == slot) && kept(other)) return true;
  }
  return false;
}

bool TierTwin::unsupported(const TwinEntry& e) const {
  return keyed(e) && is_dependent(e) && !rooted(e) && e.first == no_slot && e.second == no_slot;
}

// Whether the group has its last entry for the boundary `end`: one that ends there hangs on the
// entry, or on the tail behind it; one that only covers it, on the entry or on any of its tails.
bool TierTwin::serves(GroupId group, std::uint64_t end_tokens, SlotId on, SlotId tail) const {
  const bool covers = geometry_.group(group).kind == GroupKind::full;
  const std::uint64_t block = geometry_.block_tokens(group).n;
  for (const auto& [slot, e] : all_) {
    if (e.group != group || e.state != EntryState::published || e.bad) continue;
    const std::uint64_t at_end = end(e);
    const bool fits = at_end == end_tokens || (covers && at_end > end_tokens &&
                                               (at_end - 1) / block == (end_tokens - 1) / block);
    if (!fits) continue;
    if (tail != no_slot ? e.second == tail : e.first == on) return true;
    if (covers && e.second != no_slot && all_.at(e.second).first == on) return true;
  }
  return false;
}

bool TierTwin::servable(std::uint64_t end_tokens, SlotId on, SlotId tail) const {
  const Tokens t{end_tokens};
  if (t.n % geometry_.hit_alignment().n != 0) return false;
  for (const GroupId g : geometry_.cacheable()) {
    if (g == chain_) continue;
    if (geometry_.first_needed_position(g, t) == geometry_.end_position(g, t)) continue;
    if (!geometry_.legal_end(g, t) || !serves(g, t.n, on, tail)) return false;
  }
  return true;
}

bool TierTwin::dead(SlotId chain_entry) const {
  if (!geometry_.hybrid() || geometry_.has_drafts()) return false;
  const std::uint64_t last = end(all_.at(chain_entry));
  // A wider attention block that would go with it covers boundaries in front of it.
  for (const auto& [slot, e] : all_) {
    if (!geometry_.fine_hits() || e.group == chain_ || e.state != EntryState::published || e.bad ||
        geometry_.group(e.group).kind != GroupKind::full)
      continue;
    const std::uint64_t wide = geometry_.block_tokens(e.group).n;
    const bool hangs =
        e.first == chain_entry || (e.second != no_slot && all_.at(e.second).first == chain_entry);
    if (hangs && (end(e) - 1) / wide * wide < last - block_) return false;
  }
  for (std::uint64_t t = last - block_ + h_; t <= last; t += h_)
    if (servable(t, chain_entry, no_slot)) return false;
  for (const auto& [slot, e] : all_)
    if (is_tail(e) && e.first == chain_entry && e.state == EntryState::published && !e.bad &&
        servable(end(e), chain_entry, slot))
      return false;
  return true;
}

bool TierTwin::in_front(SlotId slot) const {
  const TwinEntry& e = all_.at(slot);
  return !kept(slot) && (e.bad || unsupported(e) || (is_chain(e) && dead(slot)));
}

Supports TierTwin::supports_of(SlotId slot) const {
  const TwinEntry& e = all_.at(slot);
  Supports s;
  if (!keyed(e)) return s;
  s.first = is_chain(e) ? parent(slot) : e.first;
  s.second = e.second;
  s.root = rooted(e) || (is_chain(e) && end(e) == block_);
  return s;
}

bool TierTwin::could_hang_elsewhere(SlotId slot) const {
  const TwinEntry& e = all_.at(slot);
  if (!keyed(e) || !is_dependent(e) || rooted(e)) return false;
  for (const auto& [other, o] : all_) {
    if (!keyed(o) || o.group != chain_ || other == slot) continue;
    const bool is_first = is_tail(e)
                              ? is_chain(o) && end(o) == end(e) - end(e) % block_ &&
                                    prefixes_.begins(e.prefix, o.prefix)
                              : is_chain(o) && end(o) == (end(e) + block_ - 1) / block_ * block_ &&
                                    prefixes_.begins(o.prefix, e.prefix);
    if (is_first && e.first != other) return true;
    if (!is_tail(e) && is_tail(o) && o.prefix == e.prefix && e.second != other) return true;
  }
  return false;
}

std::set<SlotId> TierTwin::victims(RunId run) const {
  std::set<SlotId> bad;
  std::set<SlotId> front;
  std::set<SlotId> rest;
  for (const auto& [slot, e] : all_) {
    if (kept(slot)) continue;
    (e.bad ? bad : in_front(slot) ? front : rest).insert(slot);
  }
  if (!bad.empty()) return bad;
  if (!front.empty()) return front;
  RunId oldest = no_run;
  for (const SlotId slot : rest) {
    const RunId r = all_.at(slot).run;
    if (oldest == no_run || runs_.at(r).stamp < runs_.at(oldest).stamp) oldest = r;
  }
  if (oldest == no_run || oldest == run) return {};
  const auto rank = [&](SlotId slot) { return std::pair(end(all_.at(slot)), all_.at(slot).group); };
  std::set<SlotId> best;
  for (const SlotId slot : rest) {
    if (all_.at(slot).run != oldest) continue;
    if (!best.empty() && rank(*best.begin()) < rank(slot)) best.clear();
    if (best.empty() || rank(*best.begin()) == rank(slot)) best.insert(slot);
  }
  return best;
}

TierIndexCounters TierTwin::counters() const {
  TierIndexCounters c;
  for (const auto& [slot, e] : all_) {
    c.published += e.state == EntryState::published ? 1 : 0;
    c.reserved += keyed(e) && e.state != EntryState::published ? 1 : 0;
    c.landed += e.state == EntryState::landed ? 1 : 0;
    c.doomed_reserved += e.state == EntryState::doomed_reserved ? 1 : 0;
    c.doomed_pinned += e.state == EntryState::doomed_pinned ? 1 : 0;
    c.pinned += e.leases + e.jobs != 0 ? 1 : 0;
    c.lease_only += e.leases != 0 && e.jobs == 0 ? 1 : 0;
    c.evictable += kept(slot) ? 0 : 1;
    c.in_front += in_front(slot) ? 1 : 0;
    c.bad += e.bad ? 1 : 0;
    c.bad_chain += e.bad && is_chain(e) ? 1 : 0;
    c.rewriting += e.rewriting ? 1 : 0;
    c.unsupported += unsupported(e) ? 1 : 0;
  }
  for (const auto& [id, run] : runs_) c.writer_pins += run.writer != no_slot ? 1 : 0;
  c.runs = runs_.size();
  return c;
}

std::string TierTwin::fingerprint() const {
  std::string out;
  const auto put = [&](std::uint64_t v) { out += std::to_string(v) + ','; };
  for (const auto& [slot, e] : all_) {
    for (const std::uint64_t v : std::initializer_list<std::uint64_t>{
             slot, static_cast<std::uint64_t>(e.state), e.group, e.prefix, e.leases, e.jobs, e.bad,
             e.rewriting, e.run, e.first, e.second, e.held_by})
      put(v);
    out += ';';
  }
  for (const auto& [id, run] : runs_) {
    std::uint64_t older = 0;
    for (const auto& [other, r] : runs_) older += r.stamp < run.stamp ? 1 : 0;
    for (const std::uint64_t v :
         std::initializer_list<std::uint64_t>{id, older, run.open, run.writing, run.writer})
      put(v);
    out += ';';
  }
  return out;
}

// --- runs

void TierTwin::open_run(RunId run) {
  runs_[run] = TwinRun{};
  runs_[run].stamp = ++now_;
}

void TierTwin::close_run(RunId run) {
  release_path(run);
  runs_.at(run).open = false;
  for (const auto& [slot, e] : all_)
    if (e.run == run) return;
  runs_.erase(run);
}

void TierTwin::hold_path(RunId id, SlotId slot) {
  TwinRun& run = runs_.at(id);
  run.writing = true;
  if (run.writer == no_slot || end(all_.at(run.writer)) < end(all_.at(slot))) run.writer = slot;
}

void TierTwin::release_path(RunId id) {
  TwinRun& run = runs_.at(id);
  run.writing = false;
  run.writer = no_slot;
  for (auto& [slot, e] : all_)
    if (e.held_by == id) e.held_by = no_run;
}

// --- stores

void TierTwin::hold(const Supports& s) {
  if (s.first != no_slot) held_.insert(s.first);
  if (s.second != no_slot) held_.insert(s.second);
}

void TierTwin::drop(const Supports& s) {
  if (s.first != no_slot) held_.erase(held_.find(s.first));
  if (s.second != no_slot) held_.erase(held_.find(s.second));
}

Supports TierTwin::find_supports(GroupId group, const TwinPath& path,
                                 std::uint64_t end_tokens) const {
  Supports s;
  if (!chained()) return s;
  const auto chain_at = [&](std::uint64_t t) {
    return t / h_ <= path.known ? at(chain_, prefixes_.cut(path.path, t / h_)) : no_slot;
  };
  const std::uint64_t inside = end_tokens % block_;
  if (group == chain_) {
    const std::uint64_t before = inside == 0 ? end_tokens - block_ : end_tokens - inside;
    s.root = before == 0;
    if (!s.root) s.first = chain_at(before);
    s.no_parent = inside == 0 && !s.root && s.first == no_slot;
    return s;
  }
  // i * B < t <= (i + 1) * B
  s.first = chain_at((end_tokens + block_ - 1) / block_ * block_);
  if (inside != 0) s.second = chain_at(end_tokens);
  return s;
}

void TierTwin::link(SlotId slot, SlotId first, SlotId second) {
  TwinEntry& e = all_.at(slot);
  if (e.first == no_slot) e.first = first;
  if (!is_tail(e) && e.second == no_slot) e.second = second;
  if (e.first != no_slot || e.second != no_slot) e.held_by = no_run;
}

void TierTwin::reserve(SlotId slot, GroupId group, const TwinPath& path, std::uint64_t end_tokens,
                       RunId run) {
  const Supports s = find_supports(group, path, end_tokens);
  TwinEntry e;
  e.group = group;
  e.prefix = prefixes_.cut(path.path, end_tokens / h_);
  e.run = run;
  all_[slot] = e;
  if (!chained()) return;
  runs_.at(run).writing = true;
  if (is_chain(e)) {
    hold_path(run, slot);
  } else {
    link(slot, s.first, s.second);
    if (unsupported(all_.at(slot))) all_.at(slot).held_by = run;
  }
  if (group != chain_) return;
  // It becomes a support of what waits for one: of the same request, or through a common tail.
  for (auto& [other, o] : all_) {
    if (!keyed(o) || is_chain(o) || other == slot) continue;
    const bool waits = o.held_by == run;
    const TwinPath whole{path.path, waits ? prefixes_.units(path.path) : path.known};
    if (!waits && (end(o) / h_ > path.known || !prefixes_.begins(path.path, o.prefix))) continue;
    const Supports fits = find_supports(o.group, whole, end(o));
    if (fits.first != slot && fits.second != slot) continue;
    const bool shares =
        is_chain(e) ? o.second != no_slot : o.first != no_slot && o.first == fits.first;
    if (waits || shares)
      link(other, fits.first == slot ? slot : no_slot, fits.second == slot ? slot : no_slot);
  }
}

bool TierTwin::publish(SlotId slot, std::uint32_t tag, TwinEvents& events) {
  TwinEntry& e = all_.at(slot);
  if (e.state == EntryState::published) {
    e.bad = e.rewriting = false;
    events.insert({TwinEvent::Kind::published, slot, tag});
    return true;
  }
  const auto ready = [&](SlotId one) {
    if (!is_chain(all_.at(one))) return true;
    const SlotId up = parent(one);
    return up == no_slot || all_.at(up).state == EntryState::published;
  };
  e.tag = tag;
  if (!ready(slot)) {
    e.state = EntryState::landed;
    return false;
  }
  e.state = EntryState::published;
  events.insert({TwinEvent::Kind::published, slot, tag});
  for (bool again = true; again;) {
    again = false;
    for (auto& [other, o] : all_) {
      if (o.state != EntryState::landed || !ready(other)) continue;
      o.state = EntryState::published;
      events.insert({TwinEvent::Kind::published, other, o.tag});
      again = true;
    }
  }
  return true;
}

// The last entry of a closed run takes the run with it.
void TierTwin::forget(SlotId slot) {
  const RunId run = all_.at(slot).run;
  all_.erase(slot);
  if (runs_.at(run).open) return;
  for (const auto& [other, o] : all_)
    if (o.run == run) return;
  runs_.erase(run);
}

void TierTwin::inherit(SlotId up, RunId run) {
  if (up == no_slot) return;
  TwinEntry& e = all_.at(up);
  if (e.state != EntryState::published || runs_.at(run).stamp <= runs_.at(e.run).stamp) return;
  const RunId old = e.run;
  e.run = run;
  if (runs_.at(old).open) return;
  for (const auto& [other, o] : all_)
    if (o.run == old) return;
  runs_.erase(old);
}

// `slot` is gone: what hung on it loses it. By an eviction what has nothing left goes too; by a
// failure it waits, held if its run writes.
void TierTwin::lose(SlotId slot, bool to_failure, TwinEvents& events) {
  std::vector<SlotId> left;
  for (auto& [other, o] : all_) {
    if (o.first != slot && o.second != slot) continue;
    (o.first == slot ? o.first : o.second) = no_slot;
    if (unsupported(o)) left.push_back(other);
  }
  for (const SlotId other : left) {
    if (!to_failure) {
      evict(other, events);
    } else if (runs_.at(all_.at(other).run).writing) {
      all_.at(other).held_by = all_.at(other).run;
    }
  }
}

void TierTwin::fail(SlotId slot, bool copy_open, TwinEvents& events) {
  TwinEntry& e = all_.at(slot);
  if (e.state == EntryState::published) {
    e.rewriting = copy_open;
    return;
  }
  if (is_chain(e)) {
    fail_chain(slot, events);
  } else {
    forget(slot);
    lose(slot, true, events);
  }
  if (copy_open) all_[slot].state = EntryState::doomed_reserved;
}

void TierTwin::fail_chain(SlotId slot, TwinEvents& events) {
  const TwinEntry root = all_.at(slot);
  const SlotId up = parent(slot);
  std::vector<SlotId> doomed;
  for (const auto& [other, o] : all_)
    if (keyed(o) && is_chain(o) && prefixes_.begins(o.prefix, root.prefix)) doomed.push_back(other);
  for (auto& [id, run] : runs_) {
    if (std::find(doomed.begin(), doomed.end(), run.writer) == doomed.end()) continue;
    run.writer = up;
    while (run.writer != no_slot && all_.at(run.writer).state != EntryState::published &&
           all_.at(run.writer).run != id)
      run.writer = parent(run.writer);
  }
  inherit(up, root.run);
  for (const SlotId other : doomed) {
    const TwinEntry gone = all_.at(other);
    forget(other);
    lose(other, true, events);
    if (other == slot) continue;
    const bool open = gone.state == EntryState::reserved;
    events.insert({open ? TwinEvent::Kind::failed_open : TwinEvent::Kind::failed_landed, other,
                   open ? 0 : gone.tag});
    if (open) all_[other].state = EntryState::doomed_reserved;
  }
}

bool TierTwin::release(SlotId slot) {
  TwinEntry& e = all_.at(slot);
  if (e.state == EntryState::doomed_pinned) {
    e.rewriting = false;
    return unpin(slot, PinKind::job);
  }
  all_.erase(slot);
  return true;
}

// --- uses

void TierTwin::touch(SlotId slot, RunId run) {
  TwinEntry& e = all_.at(slot);
  if (e.held_by != no_run) return;
  const RunId old = e.run;
  e.run = run;
  if (unsupported(e) && runs_.at(run).writing) e.held_by = run;
  if (old == run || runs_.at(old).open) return;
  for (const auto& [other, o] : all_)
    if (o.run == old) return;
  runs_.erase(old);
}

void TierTwin::meet(SlotId slot, const TwinPath& path) {
  const TwinEntry& e = all_.at(slot);
  if (!is_dependent(e)) return;
  const Supports s = find_supports(e.group, path, end(e));
  link(slot, s.first, s.second);
}

void TierTwin::pin(SlotId slot, PinKind kind) {
  TwinEntry& e = all_.at(slot);
  ++(kind == PinKind::lease ? e.leases : e.jobs);
}

bool TierTwin::unpin(SlotId slot, PinKind kind) {
  TwinEntry& e = all_.at(slot);
  --(kind == PinKind::lease ? e.leases : e.jobs);
  if (e.state != EntryState::doomed_pinned || e.leases + e.jobs != 0) return false;
  all_.erase(slot);
  return true;
}

void TierTwin::mark_bad(SlotId slot) {
  TwinEntry& e = all_.at(slot);
  if (e.state == EntryState::published) e.bad = true;
}

void TierTwin::evict(SlotId slot, TwinEvents& events) {
  const TwinEntry e = all_.at(slot);
  if (is_chain(e)) inherit(parent(slot), e.run);
  forget(slot);
  events.insert({TwinEvent::Kind::evicted, slot, 0});
  lose(slot, false, events);
}

void TierTwin::reset(TwinEvents& events) {
  std::map<SlotId, TwinEntry> left;
  for (const auto& [slot, e] : all_) {
    TwinEntry now;
    const bool rewriting = e.rewriting && e.state == EntryState::published;
    now.leases = e.leases;
    now.jobs = e.jobs + (rewriting ? 1 : 0);  // the rewrite goes on as a job's pin
    now.rewriting = e.rewriting;
    now.state = EntryState::doomed_reserved;
    if (e.state == EntryState::landed) {
      events.insert({TwinEvent::Kind::failed_landed, slot, e.tag});
      continue;
    }
    if (now.leases + now.jobs != 0) {
      now.state = EntryState::doomed_pinned;
    } else if (e.state == EntryState::published) {
      events.insert({TwinEvent::Kind::evicted, slot, 0});
      continue;
    }
    left[slot] = now;
  }
  all_ = std::move(left);
  for (auto it = runs_.begin(); it != runs_.end();) {
    it->second.writing = false;
    it->second.writer = no_slot;
    it = it->second.open ? std::next(it) : runs_.erase(it);
  }
}

}  // namespace kvc::test
