// Publishing, failing and evicting: what a change of one entry does to those behind it.
#include "plugin/coordinator/tier_body.h"

namespace kvc {

using tier::link_unit;
using tier::Place;

// Landed entries stand first, so that publishing a parent finds them without a search. A published
// parent has none.
void TierIndex::Body::join_siblings(SlotId slot) {
  Record& r = at(slot);
  if (r.support == 0) return;
  std::uint32_t before = 0;
  std::uint32_t* link = &at(r.support - 1).dep_next;
  while (r.state() == EntryState::reserved && *link != 0 &&
         at(*link - 1).state() == EntryState::landed) {
    before = *link;
    link = &at(before - 1).next;
  }
  r.prev = before;
  r.next = *link;
  *link = slot + 1;
  if (r.next != 0) at(r.next - 1).prev = slot + 1;
}

void TierIndex::Body::leave_siblings(SlotId slot) {
  Record& r = at(slot);
  if (r.support == 0) return;
  if (r.prev != 0) {
    at(r.prev - 1).next = r.next;
  } else {
    at(r.support - 1).dep_next = r.next;
  }
  if (r.next != 0) at(r.next - 1).prev = r.prev;
  r.prev = r.next = 0;
}

void TierIndex::Body::publish_chain(SlotId slot, std::uint32_t tag, TierSink& sink) {
  const auto publish_one = [&](SlotId entry, std::uint32_t its_tag) {
    Record& r = at(entry);
    if (r.state() == EntryState::landed) --counts.landed;
    leave_siblings(entry);
    r.set_state(EntryState::published);
    records.show(entry, true);
    r.set_offsets(offsets_of_tails(entry));
    --counts.reserved;
    ++counts.published;
    if (order.policy() != nullptr) order.policy()->published(entry);
    if (!r.blocked()) enter_order(entry);
    sink.published(entry, its_tag);
  };
  publish_one(slot, tag);
  for (SlotId entry = slot;;) {
    const std::uint32_t child = at(entry).dep_next;
    if (child != 0 && at(child - 1).state() == EntryState::landed) {
      entry = child - 1;
      publish_one(entry, at(entry).dep_prev);
    } else if (entry == slot) {
      return;
    } else {
      entry = at(entry).support - 1;
    }
  }
}

void TierIndex::Body::publish_dependent(SlotId slot) {
  Record& r = at(slot);
  r.set_state(EntryState::published);
  records.show(slot, true);
  --counts.reserved;
  ++counts.published;
  if (order.policy() != nullptr) order.policy()->published(slot);
  if (!r.blocked()) {
    enter_order(slot);
    if (r.support != 0) drop_holder(r.support - 1, link_unit);
    if (!r.carries() && r.second != 0) drop_holder(r.second - 1, link_unit);
  }
}

// The first dependent of a carrier, which it no longer supports. Requires one.
SlotId TierIndex::Body::take_dependent(SlotId carrier) {
  const Record& r = at(carrier);
  const SlotId d = r.second - 1;
  if (r.has(Record::chain_bit)) {
    unlink_first(d);
  } else {
    unlink_second(d);
  }
  return d;
}

// Every dependent of a carrier that is going without having been evictable loses it.
void TierIndex::Body::drop_all_dependents(SlotId slot) {
  Record& r = at(slot);
  while (r.second != 0) {
    const SlotId d = take_dependent(slot);
    const Record& dependent = at(d);
    if (dependent.blocked()) drop_holder(slot, link_unit);
    if (dependent.without_support()) make_unsupported(d);
  }
}

void TierIndex::Body::fail_dependent(SlotId slot) {
  Record& r = at(slot);
  if (r.carries()) drop_all_dependents(slot);
  if (r.has(Record::listed_bit)) {
    unlist(slot);
    r.holders -= link_unit;
  }
  KVC_CHECK(r.holders == 0);
  if (r.support != 0) {
    const SlotId support = r.support - 1;
    unlink_first(slot);
    drop_holder(support, link_unit);
  }
  if (!r.carries() && r.second != 0) {
    const SlotId tail = r.second - 1;
    unlink_second(slot);
    drop_holder(tail, link_unit);
  }
  --counts.reserved;
  erase(slot);
}

// Of an unpublished entry only the run that reserved it holds a writer pin: so a failure finds all
// of them.
SlotId TierIndex::Body::writer_fallback(RunId run, SlotId first_failed) const {
  std::uint32_t up = at(first_failed).support;
  while (up != 0 && !at(up - 1).published() && at(up - 1).run() != run) up = at(up - 1).support;
  return up - 1;
}

void TierIndex::Body::inherit_run(SlotId parent, RunId run) {
  if (at(parent).published() && order.newer(run, at(parent).run())) order.set_run(parent, run);
}

void TierIndex::Body::fail_one(SlotId slot, SlotId first_failed, TierSink& sink) {
  Record& r = at(slot);
  const std::uint32_t parent = r.support;
  leave_siblings(slot);
  if (order.run(r.run()).writer == slot) {
    const SlotId back = writer_fallback(r.run(), first_failed);
    order.run(r.run()).writer = back;
    if (back == no_slot) --counts.writer_pins;
    if (back != no_slot) add_holder(back, link_unit);
    r.holders -= link_unit;
  }
  const bool landed = r.state() == EntryState::landed;
  const std::uint32_t tag = r.dep_prev;
  drop_all_dependents(slot);
  KVC_CHECK(r.holders == 0);
  r.support = 0;
  --counts.reserved;
  if (landed) --counts.landed;
  if (parent != 0) inherit_run(parent - 1, r.run());
  erase(slot);
  if (parent != 0) drop_holder(parent - 1, link_unit);
  if (slot == first_failed) return;
  if (!landed) {
    r.set_state(EntryState::doomed_reserved);
    ++counts.doomed_reserved;
  }
  sink.failed(slot, tag, !landed);
}

void TierIndex::Body::fail_chain(SlotId slot, TierSink& sink) {
  for (SlotId entry = slot;;) {
    if (at(entry).dep_next != 0) {
      entry = at(entry).dep_next - 1;
      continue;
    }
    const std::uint32_t parent = at(entry).support;
    const bool last = entry == slot;
    fail_one(entry, slot, sink);
    if (last) return;
    entry = parent - 1;
  }
}

void TierIndex::Body::hold_path(RunId id, SlotId entry) {
  tier::Run& run = order.run(id);
  run.writing = true;
  const SlotId old = run.writer;
  if (old == entry || (old != no_slot && at(old).end >= at(entry).end)) return;
  add_holder(entry, link_unit);
  run.writer = entry;
  if (old == no_slot) ++counts.writer_pins;
  if (old != no_slot) drop_holder(old, link_unit);
}

void TierIndex::Body::release_path(RunId id) {
  tier::Run& run = order.run(id);
  run.writing = false;
  while (run.unsupported != 0) {
    const SlotId d = run.unsupported - 1;
    unlist(d);
    drop_holder(d, link_unit);
  }
  if (run.writer == no_slot) return;
  const SlotId held = run.writer;
  run.writer = no_slot;
  --counts.writer_pins;
  drop_holder(held, link_unit);
}

void TierIndex::Body::end_bad(Record& r) {
  if (!r.has(Record::bad_bit)) return;
  r.set(Record::bad_bit, false);
  --counts.bad;
  if (r.has(Record::chain_bit)) --counts.bad_chain;
}

void TierIndex::Body::erase(SlotId slot) {
  Record& r = at(slot);
  KVC_CHECK(r.place() == Place::out);
  end_bad(r);
  end_unsupported(slot);
  if (order.policy() != nullptr) order.policy()->gone(slot);
  records.erase(slot);
  if (r.run1 != 0) order.leave_run(slot);
  r = Record{};
}

// All of them are published and evictable: whatever is blocked would hold the entry.
void TierIndex::Body::evict_dependents(SlotId slot, TierSink& sink) {
  Record& r = at(slot);
  while (r.second != 0) {
    const SlotId d = take_dependent(slot);
    const Record& dependent = at(d);
    KVC_CHECK(!dependent.blocked());
    if (dependent.without_support()) evict(d, sink);
  }
}

void TierIndex::Body::evict(SlotId slot, TierSink& sink) {
  Record& r = at(slot);
  KVC_CHECK(!r.blocked());
  order.unlink(slot);
  if (r.carries()) evict_dependents(slot, sink);
  const Record was = r;
  const bool chain_entry = r.has(Record::chain_bit);
  if (!chain_entry) {
    if (r.support != 0) unlink_first(slot);
    if (!r.carries() && r.second != 0) unlink_second(slot);
  } else if (r.support != 0) {
    inherit_run(r.support - 1, r.run());
  }
  --counts.published;
  erase(slot);
  if (chain_entry && was.support != 0) drop_holder(was.support - 1, link_unit);
  boundary_changed(was);
  sink.evicted(slot, {was.group(), records.key(slot), Tokens{was.end}}, was.has(Record::bad_bit));
}

}  // namespace kvc
