// The whole structure of TierIndex counted again, for tests.
#include <fmt/format.h>

#include <array>

#include "plugin/coordinator/tier_body.h"

namespace kvc {

using tier::link_unit;
using tier::pin_mask;
using tier::Place;
using tier::Record;

namespace {

Status wrong(SlotId slot, const char* what) {
  return {Code::internal, fmt::format("slot {}: {}", slot, what)};
}

}  // namespace

// A dependent's own side: its supports, its flags, and that it is in the lists it names.
Status TierIndex::Body::verify_dependent(SlotId slot) const {
  const Record& r = records[slot];
  const bool hangs = r.support != 0 || (!r.carries() && r.second != 0) || rooted(r);
  if (hangs == r.has(Record::unsupported_bit)) return wrong(slot, "wrong unsupported flag");
  if (r.has(Record::listed_bit) && (!r.has(Record::unsupported_bit) || !order.run(r.run()).writing))
    return wrong(slot, "held as unsupported without reason");
  if (r.support != 0) {
    const Record& s = at(r.support - 1);
    const std::uint64_t inside = r.end % block.n;
    const std::uint64_t end = r.has(Record::tail_bit) ? r.end - inside
                              : inside == 0           ? r.end
                                                      : r.end - inside + block.n;
    if (!s.keyed() || !s.has(Record::chain_bit) || s.end != end)
      return wrong(slot, "its support is no chain entry of its block");
    if (r.has(Record::tail_bit) && s.published() && (s.offsets() & offset_bit(r.end - s.end)) == 0)
      return wrong(slot, "a tail that its base does not know");
  }
  if (rooted(r) && (root_offsets & offset_bit(r.end)) == 0)
    return wrong(slot, "a tail that the root does not know");
  if (!r.carries() && r.second != 0) {
    const Record& t = at(r.second - 1);
    if (!t.keyed() || !t.has(Record::tail_bit) || t.end != r.end)
      return wrong(slot, "its second support is no tail at its end");
  }
  return {};
}

Status TierIndex::Body::verify_lists(SlotId slot) const {
  const Record& r = records[slot];
  if (!r.carries()) return {};
  const bool whole = r.has(Record::chain_bit);
  std::uint64_t seen = 0;
  for (std::uint32_t d = r.second; d != 0; d = whole ? at(d - 1).dep_next : at(d - 1).dep2_next) {
    const Record& dependent = at(d - 1);
    if (++seen > records.used() || dependent.has(Record::chain_bit) || !dependent.keyed() ||
        (whole ? dependent.support : dependent.second) != slot + 1)
      return wrong(slot, "its list of dependents is broken");
  }
  if (!whole) return {};
  bool landed = true;
  for (std::uint32_t c = r.dep_next; c != 0; c = at(c - 1).next) {
    const Record& child = at(c - 1);
    if (++seen > 2ULL * records.used() || !child.unpublished() || child.support != slot + 1)
      return wrong(slot, "its list of unpublished children is broken");
    if (child.state() == EntryState::landed && (!landed || r.published()))
      return wrong(slot, "a landed child is out of place");
    landed = child.state() == EntryState::landed;
  }
  return {};
}

Status TierIndex::Body::verify_entry(SlotId slot, const std::vector<std::uint64_t>& links) const {
  const Record& r = records[slot];
  if (r.state() == EntryState::free)
    return r.holders == 0 && r.meta == 0 && r.run1 == 0 ? Status{} : wrong(slot, "free and used");
  if (!r.keyed()) {
    const bool pinned = r.state() == EntryState::doomed_pinned;
    return (pinned ? r.holders != 0 && r.holders <= pin_mask : r.holders == 0) &&
                   r.place() == Place::out
               ? Status{}
               : wrong(slot, "doomed with wrong holders");
  }
  if (records.find(r.group(), records.key(slot)) != slot) return wrong(slot, "not under its key");
  if ((records.find_visible(r.group(), records.key(slot)) == slot) != r.visible())
    return wrong(slot, "wrongly found or hidden");
  if (r.run1 == 0 || !order.run(r.run()).used) return wrong(slot, "without run");
  if (r.holders / link_unit != links[slot])
    return {Code::internal, fmt::format("slot {}: {} links counted, {} are there", slot,
                                        r.holders / link_unit, links[slot])};
  if (r.unpublished() && (r.holders & pin_mask) != 0) return wrong(slot, "unpublished and pinned");
  if ((r.place() == Place::out) != r.blocked())
    return wrong(slot, "wrongly in or out of the order");
  if (!r.blocked() && (r.place() == Place::front) != belongs_in_front(slot))
    return wrong(slot, "dead or alive in the wrong part of the order");
  if (!chained()) return {};
  if (r.has(Record::chain_bit)) {
    if (Status s = verify_stretch(slot); !s.ok()) return s;
    if (r.support == 0) return r.end == block.n ? Status{} : wrong(slot, "chain without parent");
    const Record& parent = at(r.support - 1);
    if (!parent.keyed() || !parent.has(Record::chain_bit) || parent.end + block.n != r.end)
      return wrong(slot, "its parent is not the block before it");
    if (r.published() && !parent.published()) return wrong(slot, "published before its parent");
    return {};
  }
  return verify_dependent(slot);
}

// The slots that the stretch names are those of the parents.
Status TierIndex::Body::verify_stretch(SlotId slot) const {
  const Record& r = records[slot];
  const Record* child = &r;
  for (std::uint32_t i = 1; i <= r.stretch(); ++i) {
    const SlotId named = r.ancestor(slot, i);
    if (child->support != named + 1) return wrong(slot, "its stretch leaves its path");
    child = &at(named);
  }
  return {};
}

Status TierIndex::Body::verify_counts() const {
  TierIndexCounters c;
  for (SlotId slot = 0; slot < records.used(); ++slot) {
    const Record& r = records[slot];
    c.published += r.published() ? 1 : 0;
    c.reserved += r.unpublished() ? 1 : 0;
    c.landed += r.state() == EntryState::landed ? 1 : 0;
    c.doomed_reserved += r.state() == EntryState::doomed_reserved ? 1 : 0;
    c.doomed_pinned += r.state() == EntryState::doomed_pinned ? 1 : 0;
    const std::uint64_t pins = r.holders & pin_mask;
    c.pinned += pins != 0 ? 1 : 0;
    c.lease_only += pins != 0 && pins <= tier::lease_mask ? 1 : 0;
    c.bad += r.has(Record::bad_bit) ? 1 : 0;
    c.bad_chain += r.has(Record::bad_bit) && r.has(Record::chain_bit) ? 1 : 0;
    c.rewriting += r.has(Record::rewriting_bit) ? 1 : 0;
    c.unsupported += r.has(Record::unsupported_bit) ? 1 : 0;
  }
  const auto same = [](const char* what, std::uint64_t counted, std::uint64_t seen) -> Status {
    if (counted == seen) return {};
    return {Code::internal, fmt::format("{} entries {} counted, {} are", counted, what, seen)};
  };
  const std::array checks{
      same("published", counts.published, c.published),
      same("reserved", counts.reserved, c.reserved),
      same("landed", counts.landed, c.landed),
      same("doomed with a copy", counts.doomed_reserved, c.doomed_reserved),
      same("doomed with pins", counts.doomed_pinned, c.doomed_pinned),
      same("pinned", counts.pinned, c.pinned),
      same("pinned by leases alone", counts.lease_only, c.lease_only),
      same("bad", counts.bad, c.bad),
      same("bad in the chain", counts.bad_chain, c.bad_chain),
      same("being rewritten", counts.rewriting, c.rewriting),
      same("unsupported", counts.unsupported, c.unsupported),
      same("with a key", records.words(), c.published + c.reserved),
  };
  for (const Status& s : checks)
    if (!s.ok()) return s;
  return {};
}

Status TierIndex::verify() const {
  const Body& b = *body_;
  if (Status s = b.order.verify(); !s.ok()) return s;
  std::vector<std::uint64_t> links(b.records.used(), 0);
  std::vector<std::uint64_t> members(b.order.runs_used(), 0);
  std::uint64_t writers = 0;
  for (SlotId slot = 0; slot < b.records.used(); ++slot) {
    const Record& r = b.records[slot];
    if (!r.keyed()) continue;
    ++members[r.run()];
    const bool counts = r.has(Record::chain_bit) || r.blocked();
    if (r.support != 0 && counts) ++links[r.support - 1];
    if (!r.carries() && r.second != 0 && counts) ++links[r.second - 1];
    if (r.has(Record::listed_bit)) ++links[slot];
    if (r.has(Record::rewriting_bit)) ++links[slot];
  }
  for (RunId id = 0; id < b.order.runs_used(); ++id) {
    const tier::Run& run = b.order.run(id);
    if (run.used && run.members != members[id])
      return {Code::internal, fmt::format("run {}: {} entries counted, {} are its own", id,
                                          run.members, members[id])};
    if (!run.used || run.writer == no_slot) continue;
    ++writers;
    if (!run.writing || !b.at(run.writer).has(Record::chain_bit))
      return {Code::internal, fmt::format("run {}: a wrong writer pin", id)};
    ++links[run.writer];
  }
  for (SlotId slot = 0; slot < b.records.used(); ++slot) {
    if (Status s = b.verify_entry(slot, links); !s.ok()) return s;
    if (b.records[slot].keyed()) {
      if (Status s = b.verify_lists(slot); !s.ok()) return s;
    }
  }
  if (writers != b.counts.writer_pins)
    return {Code::internal,
            fmt::format("{} writer pins counted, {} are there", b.counts.writer_pins, writers)};
  return b.verify_counts();
}

}  // namespace kvc
