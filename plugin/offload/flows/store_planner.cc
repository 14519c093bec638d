#include "plugin/offload/flows/store_planner.h"

#include <algorithm>

#include "plugin/core/prefetch.h"

namespace kvc {

StorePlanner::StorePlanner(SchedulerCore& core) : core_(core) {
  if (!core.options.store_when_filled) return;  // nothing is stored by position
  const Geometry& geometry = core.tier_geometry;
  const auto stable = [&](GroupId g) { return geometry.group(g).position_stable; };
  if (geometry.chain() && stable(*geometry.chain())) order_.push_back(*geometry.chain());
  const auto append = [&](auto wanted) {
    for (const GroupId g : geometry.cacheable()) {
      if (stable(g) && wanted(geometry.group(g).kind) && geometry.chain() != g) {
        order_.push_back(g);
      }
    }
  };
  append([](GroupKind k) { return k == GroupKind::full; });
  append([](GroupKind k) { return k == GroupKind::sliding || k == GroupKind::chunked; });
  append([](GroupKind k) { return k == GroupKind::state; });
  if (core.offer_counter.on() && core.limits.max_total_tokens != no_token_limit) {
    std::uint64_t keys = 0;
    for (const GroupId g : order_) keys += geometry.end_position(g, core.limits.max_total_tokens);
    offered_.reserve(keys + geometry.groups());
  }
  if (!geometry.keeps_tails()) return;
  for (const GroupId g : geometry.cacheable()) {
    if (geometry.group(g).kind == GroupKind::full && stable(g) &&
        geometry.block_tokens(g) > geometry.hash_unit()) {
      tails_.push_back(g);
    }
  }
}

std::uint64_t StorePlanner::ready(const Request& r, GroupId group) const {
  Tokens limit = std::min(core_.geometry.cacheable_tokens(group, r.confirmed), r.store_limit);
  if (!core_.options.store_decode_blocks) limit = std::min(limit, r.prompt);
  return limit.n / core_.tier_geometry.block_tokens(group).n;
}

std::uint64_t StorePlanner::keyed(const Request& r, GroupId group) const {
  const std::uint64_t tokens = core_.requests.keys(r).count * core_.geometry.hash_unit().n;
  return tokens / core_.tier_geometry.block_tokens(group).n;
}

void StorePlanner::count(RequestIndex index, bool counted, bool published, const Verdict& verdict) {
  if (!counted) return;
  OfferCounts& own = core_.requests[index].explain.offers;
  if (!published) core_.ledger.publish(false, own);
  if (verdict.decision == Decision::decided) core_.ledger.end(false, verdict.outcome, own);
  core_.touch_explain(index);
}

// The blocks of the candidate, of which its end, group and position are known.
bool StorePlanner::find_blocks(RequestIndex index, StoreCandidate& c, Verdict& verdict) {
  const std::uint64_t per = core_.tier_geometry.blocks_per_chunk(c.group);
  if (per == 1) return find_block(index, c, c.position, c.key, c.block, verdict);
  const std::uint64_t first = c.position / per * per;
  const Tokens block = core_.geometry.block_tokens(c.group);
  for (std::uint64_t p = first; p < c.position; ++p) {
    const std::byte* key = block_key(core_.requests.keys(core_.requests[index]), block * (p + 1),
                                     core_.geometry.hash_unit());
    if (!find_block(index, c, p, key, earlier_[p - first], verdict)) return false;
  }
  c.earlier = earlier_.data();
  c.earlier_count = static_cast<std::uint32_t>(c.position - first);
  return find_block(index, c, c.position, c.key, c.block, verdict);
}

bool StorePlanner::find_block(RequestIndex index, const StoreCandidate& c, std::uint64_t position,
                              const std::byte* key, BlockId& block, Verdict& verdict) {
  const Request& r = core_.requests[index];
  const GroupProgress& g = r.groups[c.group];
  verdict.decision = Decision::decided;
  verdict.outcome = Outcome::dropped_bad_offer;
  if (position >= g.length) {
    // Once per table: the positions behind share the outcome.
    if (position != g.length && c.end.n % core_.tier_geometry.block_tokens(c.group).n == 0)
      return false;
    core_.faults.report("KVC-H-042, table-shorter-than-confirmed",
                        "request {} group {}: {} confirmed tokens need position {}, the table has "
                        "{} entries (design 2.3)",
                        r.id, c.group, r.confirmed.n, position, g.length);
    return false;
  }
  block = RequestTable::block_at(g, position);
  if (block == RequestTable::foreign_cell) {
    core_.faults.report("KVC-H-042, foreign-block",
                        "request {} group {} position {}: no block of the pool", r.id, c.group,
                        position);
    return false;
  }
  if (block == RequestTable::null_cell) {
    // A released window block that the device cache still has.
    const bool recovered =
        core_.geometry.group(c.group).kind != GroupKind::full && core_.host.can_query_blocks() &&
        core_.host.block_of(c.group, reinterpret_cast<const std::uint8_t*>(key), block) &&
        core_.holds.real(block);
    verdict.outcome = Outcome::dropped_null_block;
    return recovered;
  }
  if (core_.holds.last_position(c.group, block) != position) {
    core_.faults.report("KVC-H-043, block-at-two-positions",
                        "request {} group {}: block {} is at position {} and, later, at {}; a "
                        "released entry is the null block (K3-17)",
                        r.id, c.group, block, position, core_.holds.last_position(c.group, block));
    return false;
  }
  return true;
}

StorePlanner::Verdict StorePlanner::try_candidate(StoreCandidate& c, StoreSelection& selection) {
  KVC_OP(entry, 1);
  SlotId entry = no_slot;
  switch (core_.tier.find(c.group, c.key, entry)) {
    case Presence::published:
      core_.tier.use(entry, core_.requests[c.request].run,  // CW-10
                     core_.requests.keys(core_.requests[c.request]));
      core_.disk.note_used(entry, c.request);
      return {Decision::decided, Outcome::skipped_already_cached};
    case Presence::reserved:
      return {Decision::waits, Outcome::skipped_in_flight};
    case Presence::absent:
      break;
  }
  if (!selection.hashed(c)) return {Decision::decided, Outcome::skipped_not_hashed};
  if (!selection.fits(c)) return {Decision::refused, Outcome::dropped_plan_full};
  if (c.budgeted && !selection.within_budget(c))
    return {Decision::refused, Outcome::dropped_hold_budget};
  Refusal refusal = Refusal::none;
  entry = selection.reserve(c, entry, refusal);
  if (entry == no_slot) return {Decision::refused, outcome_of(refusal)};
  selection.commit(c, entry);
  return {Decision::selected, Outcome::stored};
}

StorePlanner::Verdict StorePlanner::try_position(RequestIndex index, GroupId group,
                                                 std::uint64_t position, bool counted,
                                                 StoreSelection& selection) {
  KVC_OP(position, 1);
  const Request& r = core_.requests[index];
  StoreCandidate c;
  c.request = index;
  c.group = group;
  c.position = (position + 1) * core_.tier_geometry.blocks_per_chunk(group) - 1;
  c.counted = counted;
  c.end = core_.tier_geometry.block_tokens(group) * (position + 1);
  c.key = block_key(core_.requests.keys(r), c.end, core_.geometry.hash_unit());
  Verdict verdict;
  if (!find_blocks(index, c, verdict)) return verdict;
  return try_candidate(c, selection);
}

// The position is tried soon: what it looks up is fetched meanwhile. Requires its key.
void StorePlanner::expect_position(RequestIndex index, GroupId group,
                                   std::uint64_t position) const {
  const Request& r = core_.requests[index];
  const GroupProgress& g = r.groups[group];
  const Tokens behind = core_.tier_geometry.block_tokens(group) * (position + 1);
  core_.tier.expect_find(group,
                         block_key(core_.requests.keys(r), behind, core_.geometry.hash_unit()));
  const std::uint64_t first = position * g.blocks_per_chunk;
  const std::uint64_t end = std::min(first + g.blocks_per_chunk, g.length);
  for (std::uint64_t p = first; p < end; ++p) {
    core_.holds.prefetch(group, RequestTable::block_at(g, p));
  }
}

void StorePlanner::count_keys(RequestIndex index) {
  if (!core_.offer_counter.on()) return;
  Request& r = core_.requests[index];
  const KeyView keys = core_.requests.keys(r);
  const Tokens h = core_.geometry.hash_unit();
  offered_.clear();
  for (const GroupId group : order_) {
    GroupProgress& g = r.groups[group];
    const Tokens block = core_.tier_geometry.block_tokens(group);
    const std::uint64_t end = std::min(ready(r, group), keyed(r, group));
    for (; g.keys_offered < end; ++g.keys_offered) {
      if (!core_.store_filter.wanted(group, g.keys_offered, r.prompt)) continue;
      offered_.push_back({group, block_key(keys, block * (g.keys_offered + 1), h)});
    }
  }
  for (const GroupId group : tails_) {
    const Tokens boundary = core_.tier_geometry.partial_tail(group, r.prompt);
    const bool due = !r.groups[group].tail_done && boundary > Tokens{} &&
                     boundary <= std::min(r.confirmed, r.store_limit) &&
                     boundary.n / h.n <= keys.count;
    if (due) offered_.push_back({group, block_key(keys, boundary, h)});
  }
  core_.offer_counter.offer(offered_);
}

bool StorePlanner::below_threshold(GroupId group, const std::byte* key, bool first_time) {
  if (core_.offer_counter.admits(group, key)) return false;
  SlotId entry = no_slot;
  if (core_.tier.find(group, key, entry) != Presence::absent || entry != no_slot) return false;
  core_.counters.stores_below_threshold += first_time;
  return true;
}

bool StorePlanner::passed_over(RequestIndex index, GroupId group, std::uint64_t position) {
  Request& r = core_.requests[index];
  GroupProgress& g = r.groups[group];
  if (!core_.store_filter.wanted(group, position, r.prompt)) return true;
  if (!core_.offer_counter.on() || g.pending_at == position + 1) return false;
  const bool first_time = position >= std::max(g.counted, g.again);
  const std::byte* key =
      block_key(core_.requests.keys(r), core_.tier_geometry.block_tokens(group) * (position + 1),
                core_.geometry.hash_unit());
  if (g.cut) {
    core_.counters.stores_below_threshold += first_time;
    return true;
  }
  if (!below_threshold(group, key, first_time)) return false;
  // Design 3.1 (a): a child is admitted only if its parent is.
  g.cut = core_.tier_geometry.chain() == group;
  return true;
}

void StorePlanner::retry_waiting(RequestIndex index, GroupId group, StoreSelection& selection) {
  GroupProgress& g = core_.requests[index].groups[group];
  if (g.waiting == 0) return;
  g.wait_retry = false;
  std::uint64_t low = g.wait_high;
  for (std::uint64_t p = g.wait_low; p < g.wait_high && g.waiting > 0; ++p) {
    KVC_OP(cell, 1);
    if (!RequestTable::waits(g, p)) continue;
    const bool counted = p >= g.counted;
    Verdict v = try_position(index, group, p, counted, selection);
    const bool open = v.decision == Decision::refused || v.decision == Decision::waits;
    if (open && !selection.finishing()) {
      g.wait_retry = g.wait_retry || v.decision == Decision::refused;
      low = std::min(low, p);
      continue;
    }
    if (open) v.decision = Decision::decided;
    RequestTable::clear_waiting(g, p);
    count(index, counted, true, v);
  }
  g.wait_low = low;
}

void StorePlanner::offer_positions(RequestIndex index, GroupId group, StoreSelection& selection) {
  Request& r = core_.requests[index];
  GroupProgress& g = r.groups[group];
  const std::uint64_t end = std::min(ready(r, group), keyed(r, group));
  std::uint64_t expected = g.cursor;  // positions below it were asked for
  bool refused = false;
  bool went_back = false;
  const bool filtered = core_.offer_counter.on() || !core_.store_filter.keeps_all(group);
  while (g.cursor < end && !refused) {
    const std::uint64_t p = g.cursor;
    if (filtered && passed_over(index, group, p)) {
      ++g.cursor;
      continue;
    }
    const bool again = p < g.again;
    if (again && g.waiting > 0 && RequestTable::waits(g, p)) {
      ++g.cursor;
      continue;
    }
    for (; expected < std::min(p + HoldBook::ahead, end); ++expected) {
      expect_position(index, group, expected);
    }
    const bool counted = !again && p >= g.counted;
    const bool published = g.pending_at == p + 1;
    Verdict v = try_position(index, group, p, counted, selection);
    refused = v.decision == Decision::refused;
    if (refused && v.outcome == Outcome::dropped_no_parent && !went_back) {
      went_back = true;
      refused = false;
      count(index, counted, published, v);
      if (counted) g.pending_at = p + 1;
      g.refusal = v.outcome;
      go_back(index, group);
      continue;
    }
    if (selection.finishing() && (refused || v.decision == Decision::waits)) {
      v.decision = Decision::decided;
    }
    count(index, counted, published, v);
    g.refused = v.decision == Decision::refused;
    if (g.refused) {
      if (counted) {
        g.pending_at = p + 1;
        g.refusal = v.outcome;
      }
      return;
    }
    if (published) g.pending_at = 0;
    if (v.decision == Decision::waits && !again) RequestTable::mark_waiting(g, p);
    ++g.cursor;
  }
  if (selection.finishing()) end_rest(index, group, refused);
}

// A position whose parent is not there waits; the cursor goes back to the first missing one, so
// that what was lost behind it (a failed copy, an entry of another request) is offered again.
void StorePlanner::go_back(RequestIndex index, GroupId group) {
  Request& r = core_.requests[index];
  GroupProgress& g = r.groups[group];
  g.again = std::max(g.again, g.cursor);
  const Tokens block = core_.tier_geometry.block_tokens(group);
  SlotId entry = no_slot;
  for (; g.cursor > 0; --g.cursor) {
    const std::byte* key =
        block_key(core_.requests.keys(r), block * g.cursor, core_.geometry.hash_unit());
    if (core_.tier.find(group, key, entry) != Presence::absent) return;
  }
}

// The position that was refused last gets its outcome.
void StorePlanner::end_pending(RequestIndex index, GroupId group, Outcome outcome) {
  GroupProgress& g = core_.requests[index].groups[group];
  if (g.pending_at == 0) return;
  count(index, true, true, {Decision::decided, outcome});
  g.again = std::max(g.again, g.pending_at);
  g.pending_at = 0;
}

// Publishes, with their outcomes, the positions that this admission never reached.
void StorePlanner::end_rest(RequestIndex index, GroupId group, bool after_refusal) {
  Request& r = core_.requests[index];
  GroupProgress& g = r.groups[group];
  end_pending(index, group, g.refusal);
  const std::uint64_t last = std::max(g.cursor, ready(r, group));
  const std::uint64_t with_key = std::min(last, std::max(g.cursor, keyed(r, group)));
  // By number, not one by one: how many tokens are confirmed is the engine's word alone.
  const auto end_range = [&](std::uint64_t first, std::uint64_t behind, Outcome outcome) {
    first = std::max({first, g.counted, g.again});
    if (first >= behind || g.cut) return;
    const std::uint64_t n = core_.store_filter.count(group, first, behind, r.prompt);
    core_.ledger.publish_ended_many(n, outcome, r.explain.offers);
    core_.touch_explain(index);
  };
  if (after_refusal) end_range(g.cursor, with_key, Outcome::dropped_no_parent);
  if (!r.keys_frozen) end_range(with_key, last, Outcome::skipped_not_hashed);
  g.cursor = last;
}

void StorePlanner::offer_tail(RequestIndex index, GroupId group, StoreSelection& selection) {
  Request& r = core_.requests[index];
  GroupProgress& g = r.groups[group];
  if (g.tail_done) return;
  const Tokens boundary = core_.tier_geometry.partial_tail(group, r.prompt);
  if (boundary == Tokens{} || boundary > r.confirmed || boundary > r.store_limit) return;
  const bool counted = !g.tail_counted;
  const KeyView keys = core_.requests.keys(r);
  const bool with_key = boundary.n / core_.geometry.hash_unit().n <= keys.count;
  g.tail_done = true;
  if (core_.offer_counter.on() && with_key &&
      below_threshold(group, block_key(keys, boundary, core_.geometry.hash_unit()), counted)) {
    return;
  }
  g.tail_counted = true;
  StoreCandidate c;
  c.request = index;
  c.group = group;
  c.position = (boundary.n - 1) / core_.geometry.block_tokens(group).n;
  c.counted = counted;
  c.budgeted = selection.finishing();
  c.end = boundary;
  Verdict v{Decision::decided, Outcome::skipped_not_hashed};
  if (with_key) {
    c.key = block_key(keys, boundary, core_.geometry.hash_unit());
    if (find_blocks(index, c, v)) v = try_candidate(c, selection);
  }
  // Tails are final at once.
  if (v.decision == Decision::refused || v.decision == Decision::waits) {
    v.decision = Decision::decided;
  }
  count(index, counted, false, v);
}

void StorePlanner::list_tails(const Request& r, Tokens boundary, std::vector<GroupId>& out) const {
  for (const GroupId g : tails_) {
    if (boundary.n % core_.tier_geometry.block_tokens(g).n != 0 &&
        core_.tier_geometry.partial_tail(g, r.prompt) != boundary)
      out.push_back(g);
  }
}

bool StorePlanner::tail_candidate(RequestIndex index, GroupId group, Tokens boundary,
                                  const StoreSelection& selection, StoreCandidate& c,
                                  Outcome& outcome) {
  const Request& r = core_.requests[index];
  const KeyView keys = core_.requests.keys(r);
  const Tokens h = core_.geometry.hash_unit();
  c = {};
  c.request = index;
  c.group = group;
  c.position = (boundary.n - 1) / core_.geometry.block_tokens(group).n;
  c.budgeted = selection.finishing();
  c.end = boundary;
  c.key = block_key(keys, boundary, h);
  Verdict v;
  if (!find_blocks(index, c, v)) {
    outcome = v.outcome;
    return false;
  }
  // The engine's block got further keys since, which end behind the boundary.
  const Tokens block = core_.geometry.block_tokens(group);
  for (const Tokens end :
       {boundary, block * (c.position + 1), core_.geometry.partial_tail(group, r.prompt)}) {
    if (end < boundary || end > block * (c.position + 1) || end.n / h.n > keys.count) continue;
    StoreCandidate known = c;
    known.end = end;
    known.key = block_key(keys, end, h);
    if (selection.hashed(known)) return true;
  }
  outcome = Outcome::skipped_not_hashed;
  return false;
}

Tokens StorePlanner::next_due(const Request& r) const {
  const std::uint64_t h = core_.geometry.hash_unit().n;
  const std::uint64_t lag = core_.geometry.reprefill_tokens().n;
  const std::uint64_t due = (r.confirmed.n / h + 1) * h;
  if (lag == 0 || r.confirmed.n < lag) return Tokens{due};
  return Tokens{std::min(due, ((r.confirmed.n - lag) / h + 1) * h + lag)};
}

void StorePlanner::offer_step(RequestIndex index, StoreSelection& selection) {
  Request& r = core_.requests[index];
  if (!writes(r)) return;
  if (r.confirmed < r.next_due && !r.unsettled) return;
  bool refused = false;
  bool waiting = false;
  for (const GroupId g : order_) {
    refused = refused || r.groups[g].refused || r.groups[g].wait_retry;
    waiting = waiting || r.groups[g].waiting > 0;
  }
  r.unsettled = refused || waiting;
  const bool copies_ended = r.waits_checked != core_.copies_ended;
  if (r.confirmed < r.next_due && !refused && !(waiting && copies_ended)) return;
  r.waits_checked = core_.copies_ended;
  count_keys(index);
  for (const GroupId g : order_) {
    if (copies_ended || r.groups[g].wait_retry) retry_waiting(index, g, selection);
    offer_positions(index, g, selection);
  }
  for (const GroupId g : tails_) offer_tail(index, g, selection);
  for (const GroupId g : order_) {
    r.unsettled = r.unsettled || r.groups[g].refused || r.groups[g].waiting > 0;
  }
  r.next_due = next_due(r);
}

void StorePlanner::expect_step(RequestIndex index, Tokens confirmed, std::size_t calls_left) const {
  const Request& r = core_.requests[index];
  if (!writes(r) || confirmed < r.next_due) return;
  if (calls_left == 3) {
    prefetch_write_all(&r, sizeof r);
    return core_.explain.expect_put(r.explain_ticket);
  }
  const KeyView keys = core_.requests.keys(r);
  for (const GroupId g : order_) {
    const GroupProgress& p = r.groups[g];
    if (calls_left == 2) {
      prefetch_write_all(&p, sizeof p);
      const std::size_t at = std::min(p.cursor, keys.count) * core_.limits.key_bytes;
      prefetch(r.keys.data() + (at == 0 ? 0 : at - 1));
      prefetch(r.keys.data() + at);
    } else if (p.cursor < keyed(r, g)) {
      if (p.cursor > 0) expect_position(index, g, p.cursor - 1);
      expect_position(index, g, p.cursor);
    }
  }
}

void StorePlanner::offer_last(RequestIndex index, StoreSelection& selection) {
  Request& r = core_.requests[index];
  if (!writes(r)) return;
  count_keys(index);
  for (const GroupId g : order_) {
    retry_waiting(index, g, selection);
    offer_positions(index, g, selection);
  }
  for (const GroupId g : tails_) offer_tail(index, g, selection);
}

void StorePlanner::end_waiting(RequestIndex index, GroupId group, const Outcome* forced) {
  Request& r = core_.requests[index];
  GroupProgress& g = r.groups[group];
  for (std::uint64_t p = g.wait_low; p < g.wait_high && g.waiting > 0; ++p) {
    KVC_OP(cell, 1);
    if (!RequestTable::waits(g, p)) continue;
    RequestTable::clear_waiting(g, p);
    if (p < g.counted) continue;
    Verdict v{Decision::decided, Outcome::dropped_pool_full};
    if (forced != nullptr) {
      v.outcome = *forced;
    } else {
      const Tokens end = core_.tier_geometry.block_tokens(group) * (p + 1);
      const std::byte* key = block_key(core_.requests.keys(r), end, core_.geometry.hash_unit());
      SlotId entry = no_slot;
      const Presence presence = core_.tier.find(group, key, entry);
      if (presence == Presence::reserved) v.outcome = Outcome::skipped_in_flight;
      if (presence == Presence::published) v.outcome = Outcome::skipped_already_cached;
    }
    count(index, true, true, v);
  }
  g.wait_retry = false;
}

void StorePlanner::settle(RequestIndex index, Settle how) {
  Request& r = core_.requests[index];
  const Outcome bad = Outcome::dropped_bad_offer;
  for (const GroupId group : order_) {
    GroupProgress& g = r.groups[group];
    end_waiting(index, group, how == Settle::bad_confirmed ? &bad : nullptr);
    const bool refused = g.refused;
    end_pending(index, group, how == Settle::bad_confirmed ? bad : g.refusal);
    g.refused = false;
    if (how == Settle::departing && writes(r)) end_rest(index, group, refused);
    g.counted = std::max({g.counted, g.cursor, g.again});
  }
}

}  // namespace kvc
