#include "plugin/offload/flows/handoff_planner.h"

#include <algorithm>

namespace kvc {

HandoffPlanner::HandoffPlanner(SchedulerCore& core, StorePlanner& planner, std::uint64_t expected)
    : core_(core), planner_(planner) {
  items_.reserve(expected);
  set_.reserve(expected + core_.geometry.groups());
  tails_.reserve(core_.geometry.groups());
  earlier_.reserve(std::size_t{core_.geometry.groups()} * chunk_max);
  offered_.reserve(core.geometry.groups());
}

OfferCounts& HandoffPlanner::counts_of(RequestIndex index) {
  if (index == no_request) return nobody_;
  core_.touch_explain(index);
  return core_.requests[index].explain.offers;
}

void HandoffPlanner::end(Item& item, Outcome outcome) {
  core_.ledger.publish_ended(!item.tail, outcome, counts_of(item.request));
  item.ready = false;
}

bool HandoffPlanner::legal(const Handoff& h) const {
  const Geometry& geometry = core_.geometry;
  if (h.group >= geometry.groups() || !geometry.group(h.group).state ||
      !geometry.group(h.group).cacheable) {
    core_.faults.report("KVC-H-044, handoff-group",
                        "request {} hands off group {}, which keeps no state", h.request, h.group);
    return false;
  }
  if (h.boundary == Tokens{} || h.boundary.n % geometry.hash_unit().n != 0) {
    core_.faults.report("KVC-H-044, handoff-boundary",
                        "request {} group {}: boundary {} is no multiple of {} above 0", h.request,
                        h.group, h.boundary.n, geometry.hash_unit().n);
    return false;
  }
  return true;
}

// R-645 in its order; everything that is final without a slot.
HandoffPlanner::Checked HandoffPlanner::check(Item& item, Outcome& outcome,
                                              StoreSelection& selection) {
  const Handoff& h = item.handoff;
  const RequestTable::Known known = core_.requests.find(h.request, item.request);
  if (known == RequestTable::Known::untracked) return Checked::not_counted;
  if (known == RequestTable::Known::unknown && !core_.requests.used(h.request)) {
    core_.faults.report("KVC-H-044, unknown-request",
                        "a hand-off names request {}, which never began", h.request);
    outcome = Outcome::dropped_bad_offer;
    return Checked::ended;
  }
  if (known == RequestTable::Known::unknown || !core_.requests[item.request].admitted) {
    outcome = Outcome::dropped_request_gone;
    return Checked::ended;
  }
  const Request& r = core_.requests[item.request];
  if (r.no_write || r.stale || h.boundary > r.store_limit) return Checked::not_counted;
  outcome = Outcome::dropped_bad_offer;
  if (!legal(h)) return Checked::ended;
  if (h.boundary > r.confirmed) {
    core_.faults.report("KVC-H-044, handoff-boundary",
                        "request {} group {}: boundary {} is behind the {} confirmed tokens", r.id,
                        h.group, h.boundary.n, r.confirmed.n);
    return Checked::ended;
  }
  if (core_.holds.null(h.block)) {
    outcome = Outcome::dropped_null_block;
    return Checked::ended;
  }
  if (!core_.holds.real(h.block)) {
    core_.faults.report("KVC-H-044, foreign-block", "request {} hands off block {} of group {}",
                        r.id, h.block, h.group);
    return Checked::ended;
  }
  outcome = Outcome::skipped_not_hashed;
  const KeyView keys = core_.requests.keys(r);
  if (h.boundary.n / core_.geometry.hash_unit().n > keys.count) return Checked::ended;
  StoreCandidate& c = item.candidate;
  c.request = item.request;
  c.group = h.group;
  c.position = (h.boundary.n - 1) / core_.geometry.block_tokens(h.group).n;
  c.block = h.block;
  c.key = block_key(keys, h.boundary, core_.geometry.hash_unit());
  c.end = h.boundary;
  c.handoff = true;
  c.budgeted = selection.finishing();
  return selection.hashed(c) ? Checked::ready : Checked::ended;
}

bool HandoffPlanner::often_enough(std::span<const Item> set) {
  OfferCounter& counter = core_.offer_counter;
  if (!counter.on()) return true;
  offered_.clear();
  for (const Item& item : set) {
    if (item.ready) offered_.push_back({item.candidate.group, item.candidate.key});
  }
  counter.offer(offered_);
  const auto stays = [&](const OfferedKey& k) {
    SlotId entry = no_slot;
    return counter.admits(k.group, k.key) ||
           core_.tier.find(k.group, k.key, entry) != Presence::absent || entry != no_slot;
  };
  if (std::all_of(offered_.begin(), offered_.end(), stays)) return true;
  core_.counters.stores_below_threshold += offered_.size();
  return false;
}

bool HandoffPlanner::collect_set(std::span<const Item> states, StoreSelection& selection) {
  set_.clear();
  tails_.clear();
  earlier_.clear();
  const auto first =
      std::find_if(states.begin(), states.end(), [](const Item& i) { return i.ready; });
  if (first == states.end()) return false;
  const Request& r = core_.requests[first->request];
  if (r.states_listed) planner_.list_tails(r, first->handoff.boundary, tails_);
  // Supports first: a state hangs on the tail at its end.
  Outcome missing = Outcome::stored;
  for (const GroupId g : tails_) {
    Item item;
    item.handoff = first->handoff;
    item.request = first->request;
    item.tail = item.ready = true;
    Outcome outcome = Outcome::dropped_null_block;
    if (!planner_.tail_candidate(item.request, g, item.handoff.boundary, selection, item.candidate,
                                 outcome)) {
      missing = outcome;
    }
    // The planner's own list is that of its last candidate.
    StoreCandidate& c = item.candidate;
    earlier_.insert(earlier_.end(), c.earlier, c.earlier + c.earlier_count);
    c.earlier = earlier_.data() + earlier_.size() - c.earlier_count;
    set_.push_back(item);
  }
  set_.insert(set_.end(), states.begin(), states.end());
  if (missing == Outcome::stored) return true;
  for (Item& item : set_) {
    if (item.ready) end(item, missing);
  }
  return false;
}

void HandoffPlanner::offer_set(std::span<Item> set, StoreSelection& selection) {
  if (!often_enough(set)) return;
  std::uint64_t wanted = 0;
  std::uint64_t orphans = 0;
  for (Item& item : set) {
    if (!item.ready) continue;
    SlotId entry = no_slot;
    const Presence presence = core_.tier.find(item.candidate.group, item.candidate.key, entry);
    if (presence == Presence::reserved) {
      end(item, Outcome::skipped_in_flight);
    } else if (presence == Presence::published) {
      core_.tier.use(entry, core_.requests[item.request].run,
                     core_.requests.keys(core_.requests[item.request]));
      core_.disk.note_used(entry, item.request);
      end(item, Outcome::skipped_already_cached);
    } else {
      wanted += 1 + item.candidate.earlier_count;
      orphans += selection.new_orphans(item.candidate);
    }
  }
  const bool affordable = orphans <= selection.orphans_left();
  const bool room = wanted <= selection.room();
  Outcome refusal = room ? Outcome::dropped_hold_budget : Outcome::dropped_plan_full;
  bool all = room && affordable;
  for (Item& item : set) {
    if (!item.ready || !all) continue;
    // The same key twice in one record: the second is in flight.
    SlotId entry = no_slot;
    if (core_.tier.find(item.candidate.group, item.candidate.key, entry) != Presence::absent) {
      end(item, Outcome::skipped_in_flight);
      continue;
    }
    Refusal why = Refusal::none;
    item.entry = selection.reserve(item.candidate, entry, why);
    all = item.entry != no_slot;
    refusal = outcome_of(why);
  }
  for (Item& item : set) {
    if (!item.ready) continue;
    if (!all) {
      if (item.entry != no_slot) core_.tier.abandon(item.entry);
      end(item, refusal);
      continue;
    }
    core_.ledger.publish(!item.tail, counts_of(item.request));
    selection.commit(item.candidate, item.entry);
  }
}

void HandoffPlanner::offer(std::span<const Handoff> handoffs, StoreSelection& selection) {
  if (!core_.options.store_when_filled) return;
  items_.clear();
  for (const Handoff& h : handoffs) {
    Item item;
    item.handoff = h;
    item.order = static_cast<std::uint32_t>(items_.size());
    items_.push_back(item);
  }
  std::sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
    if (a.handoff.boundary != b.handoff.boundary) return a.handoff.boundary < b.handoff.boundary;
    if (a.handoff.request != b.handoff.request) return a.handoff.request < b.handoff.request;
    return a.order < b.order;
  });
  for (std::size_t first = 0; first < items_.size();) {
    std::size_t last = first;
    while (last < items_.size() &&
           items_[last].handoff.boundary == items_[first].handoff.boundary &&
           items_[last].handoff.request == items_[first].handoff.request) {
      Item& item = items_[last++];
      Outcome outcome = Outcome::dropped_bad_offer;
      const Checked checked = check(item, outcome, selection);
      item.ready = checked == Checked::ready;
      if (checked == Checked::ended) end(item, outcome);
    }
    if (collect_set({items_.data() + first, last - first}, selection)) offer_set(set_, selection);
    first = last;
  }
}

void HandoffPlanner::end_all(std::span<const Handoff> handoffs, RequestIndex index,
                             Outcome outcome) {
  const Request& r = core_.requests[index];
  if (r.no_write || r.stale || !core_.options.store_when_filled) return;
  for (std::size_t i = 0; i < handoffs.size(); ++i) {
    core_.ledger.publish_ended(true, outcome, counts_of(index));
  }
}

}  // namespace kvc
