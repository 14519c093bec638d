#include "plugin/coordinator/tier_order.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvc::tier {

bool Order::make(std::uint64_t slots, std::uint64_t open_runs, std::unique_ptr<Policy> policy) {
  open_limit_ = open_runs;
  policy_ = std::move(policy);
  if (policy_ != nullptr && !policy_->make()) return false;
  if (slots == 0 || open_runs == 0) return true;
  // Every run that is not open and every strand has an entry of its own.
  const std::uint64_t runs = slots + open_runs;
  return strands_.size_for(slots) && runs_.size_for(runs) && deadlines_.size_for(runs) &&
         std::all_of(heaps_.begin(), heaps_.end(),
                     [&](RunHeap& heap) { return heap.size_for(runs); });
}

RunId Order::open_run() {
  if (open_limit_ != 0 && open_ == open_limit_) return no_run;
  const RunId id = runs_.take();
  Run& run = runs_[id];
  const std::uint8_t in_heaps = run.in_heaps;  // of an earlier run of this id: the heaps find out
  run = Run{};
  run.stamp = ++now_;
  run.first_strand = none;
  run.writer = no_slot;
  run.open = run.used = true;
  run.in_heaps = in_heaps;
  run.priority = class_normal;
  ++open_;
  ++run_count_;
  if (policy_ != nullptr) policy_->opened(id);
  return id;
}

void Order::close_run(RunId id) {
  KVC_CHECK(is_open(id));
  runs_[id].open = false;
  --open_;
  if (runs_[id].members == 0) drop_run(id);
}

void Order::drop_run(RunId id) {
  KVC_CHECK(runs_[id].first_strand == none && runs_[id].linked == 0 && !runs_[id].writing);
  forget_hint(runs_[id], id);
  runs_[id].used = false;
  runs_.give(id);
  --run_count_;
}

void Order::forget_hint(Run& run, RunId id) {
  if (!run.hinted) return;
  --hinted_runs_;
  if (!run.timed) return;
  --timed_runs_;
  deadlines_.erase(id);
}

void Order::hint(RunId id, const Hint& hint) {
  Run& run = runs_[id];
  KVC_CHECK(is_open(id) && run.members == 0);
  KVC_CHECK(hint.priority >= priority_least && hint.priority <= priority_most);
  forget_hint(run, id);
  run.expired = false;
  run.timed = hint.ttl_ns != 0;
  run.priority = static_cast<std::uint8_t>(static_cast<std::int32_t>(class_normal) + hint.priority);
  run.hinted = run.timed || hint.priority != 0;
  hinted_runs_ += run.hinted ? 1 : 0;
  if (!run.timed) return;
  ++timed_runs_;
  deadlines_.set_length(id, hint.ttl_ns);
  deadlines_.renew(id, clock_);
}

void Order::renew_time(RunId id) {
  deadlines_.renew(id, clock_);
  if (!runs_[id].expired) return;
  runs_[id].expired = false;
  if (runs_[id].linked != 0) heap_push(id);
}

void Order::expire(RunId id) {
  Run& run = runs_[id];
  deadlines_.erase(id);
  run.expired = true;
  expired_ += run.members;
  if (run.linked != 0) heap_push(id);
}

void Order::tick(std::uint64_t now_ns) {
  clock_ = std::max(clock_, now_ns);
  while (!deadlines_.empty() && deadlines_.first_time() <= clock_) expire(deadlines_.first());
}

void Order::set_run(SlotId slot, RunId id) {
  Record& r = records_[slot];
  if (r.run1 == id + 1) return;
  // What a policy ranks stays where it is as long as it does.
  const bool moves = in_strand(r) || (r.place() == Place::strand && by_itself(id));
  if (moves) unlink(slot);
  if (r.run1 != 0) leave_run(slot);
  r.run1 = id + 1;
  ++runs_[id].members;
  if (moves) link(slot);
}

void Order::leave_run(SlotId slot) {
  Record& r = records_[slot];
  const RunId id = r.run();
  r.run1 = 0;
  if (--runs_[id].members == 0 && !runs_[id].open) drop_run(id);
}

std::uint32_t Order::strand_of(RunId id, GroupId group) const {
  std::uint32_t s = runs_[id].first_strand;
  while (s != none && strands_[s].group != group) s = strands_[s].next;
  return s;
}

// The entry behind which one with `end` belongs; no_slot: in front. Ascending and descending use
// ends after one step; else both ends are walked in turn.
SlotId Order::place(const Strand& strand, std::uint32_t end) const {
  if (strand.head == no_slot) return no_slot;
  SlotId from_tail = strand.tail;
  SlotId from_head = strand.head;
  for (;;) {
    if (records_[from_tail].end <= end) return from_tail;
    if (records_[from_head].end > end) return records_[from_head].prev - 1;
    from_tail = records_[from_tail].prev - 1;
    from_head = records_[from_head].next - 1;
  }
}

void Order::link_strand(SlotId slot) {
  if (policy_ != nullptr) policy_->taken(slot);
  Record& r = records_[slot];
  Run& run = runs_[r.run()];
  std::uint32_t s = strand_of(r.run(), r.group());
  if (s == none) {
    s = strands_.take();
    strands_[s] = {r.group(), no_slot, no_slot, run.first_strand};
    run.first_strand = s;
  }
  Strand& strand = strands_[s];
  const SlotId at = place(strand, r.end);
  r.prev = at + 1;
  r.next = at == no_slot ? strand.head + 1 : records_[at].next;
  (at == no_slot ? strand.head : records_[at].next) = at == no_slot ? slot : slot + 1;
  if (r.next == 0) {
    strand.tail = slot;
  } else {
    records_[r.next - 1].prev = slot + 1;
  }
  r.set_place(policy_ == nullptr ? Place::strand : Place::kept);
  ++run.linked;
  ++linked_;
  ++in_strands_;
  heap_push(r.run());
}

void Order::link_front(SlotId slot, bool first) {
  if (policy_ != nullptr) policy_->taken(slot);
  Record& r = records_[slot];
  r.prev = first ? 0 : front_tail_ + 1;
  r.next = first ? front_head_ + 1 : 0;
  if (r.prev != 0) records_[r.prev - 1].next = slot + 1;
  if (r.next != 0) records_[r.next - 1].prev = slot + 1;
  if (r.prev == 0) front_head_ = slot;
  if (r.next == 0) front_tail_ = slot;
  r.set_place(Place::front);
  ++in_front_;
  ++linked_;
}

void Order::unlink_front(Record& r) {
  if (r.prev != 0) records_[r.prev - 1].next = r.next;
  if (r.next != 0) records_[r.next - 1].prev = r.prev;
  if (r.prev == 0) front_head_ = r.next - 1;
  if (r.next == 0) front_tail_ = r.prev - 1;
  r.prev = r.next = 0;
  --in_front_;
}

void Order::unlink_strand(Record& r) {
  if (r.prev != 0) records_[r.prev - 1].next = r.next;
  if (r.next != 0) records_[r.next - 1].prev = r.prev;
  Run& run = runs_[r.run()];
  std::uint32_t* link = &run.first_strand;
  while (strands_[*link].group != r.group()) link = &strands_[*link].next;
  const std::uint32_t s = *link;
  Strand& strand = strands_[s];
  if (r.prev == 0) strand.head = r.next - 1;
  if (r.next == 0) strand.tail = r.prev - 1;
  if (strand.head == no_slot) {
    *link = strand.next;
    strands_.give(s);
  }
  r.prev = r.next = 0;
  --run.linked;
  --in_strands_;
}

void Order::unlink(SlotId slot) {
  Record& r = records_[slot];
  if (r.place() == Place::out) return;
  if (r.place() == Place::front) {
    unlink_front(r);
  } else if (in_strand(r)) {
    unlink_strand(r);
  }
  r.set_place(Place::out);
  --linked_;
}

void Order::heap_push(RunId id) {
  Run& run = runs_[id];
  const std::uint32_t cls = class_of(id);
  const auto bit = static_cast<std::uint8_t>(1U << cls);
  if ((run.in_heaps & bit) != 0) return;
  run.in_heaps |= bit;
  heaps_[cls].push(run.stamp, id);
}

// The oldest run of the class with an entry in a strand.
RunId Order::oldest_in(std::uint32_t cls) {
  RunHeap& heap = heaps_[cls];
  while (!heap.empty()) {
    const RunHeap::Item& top = heap.top();
    Run& run = runs_[top.run];
    if (!run.used || run.linked == 0 || class_of(top.run) != cls) {
      run.in_heaps &= static_cast<std::uint8_t>(~(1U << cls));
      heap.pop();
    } else if (top.stamp != run.stamp) {
      heap.raise_top(run.stamp);
    } else {
      return top.run;
    }
  }
  return no_run;
}

// Of the lowest class that has one.
RunId Order::oldest() {
  for (std::uint32_t cls = 0; cls < eviction_classes; ++cls)
    if (const RunId id = oldest_in(cls); id != no_run) return id;
  return no_run;
}

SlotId Order::deepest_of(RunId id) const {
  SlotId best = no_slot;
  for (std::uint32_t s = runs_[id].first_strand; s != none; s = strands_[s].next) {
    const SlotId tail = strands_[s].tail;
    const auto rank = [&](SlotId slot) {
      return std::pair(records_[slot].end, records_[slot].group());
    };
    if (best == no_slot || rank(tail) > rank(best)) best = tail;
  }
  return best;
}

bool Order::outranks(std::uint32_t cls, RunId store_run, bool& declined) {
  if (store_run == no_run || cls <= class_of(store_run)) return false;
  declined = true;
  ++outranked_;
  return true;
}

SlotId Order::victim_of(RunId id, RunId store_run, bool& declined) {
  if (id == no_run || id == store_run || outranks(class_of(id), store_run, declined))
    return no_slot;
  return deepest_of(id);
}

// `id`: the first of the runs that the policy does not rank. What it does rank is of normal class;
// beside runs of that class, which have a time to live, the one that was used longer ago goes.
SlotId Order::victim_by_policy(RunId id, RunId store_run, const Newcomer& newcomer,
                               bool& declined) {
  const bool none_ranked = linked_ == in_front_ + in_strands_;
  if (id != no_run && (none_ranked || class_of(id) < class_normal))
    return victim_of(id, store_run, declined);
  // Where nobody may go the policy still parks whom it meets, as it does without hints.
  if (!none_ranked && outranks(class_normal, store_run, declined)) return no_slot;
  // What is worth more than all that it ranks is no matter of the policy's.
  const bool above = store_run != no_run && class_of(store_run) > class_normal;
  const SlotId slot = policy_->victim(store_run, above ? Newcomer{} : newcomer, declined);
  if (declined || id == no_run || id == store_run) return slot;
  if (slot == no_slot) return victim_of(id, store_run, declined);
  return newer(records_[slot].run(), id) ? deepest_of(id) : slot;
}

SlotId Order::victim(RunId store_run, const Newcomer& newcomer, bool& declined) {
  declined = false;
  if (front_head_ != no_slot) return front_head_;
  if (policy_ == nullptr) return victim_of(oldest(), store_run, declined);
  const RunId id = in_strands_ == 0 ? no_run : oldest();
  return victim_by_policy(id, store_run, newcomer, declined);
}

// Strands of one run: entries ascending, links both ways, counts right.
Status Order::verify_run(RunId id) const {
  const Run& run = runs_[id];
  std::uint64_t seen = 0;
  for (std::uint32_t s = run.first_strand; s != none; s = strands_[s].next) {
    const Strand& strand = strands_[s];
    if (strand.head == no_slot) return {Code::internal, fmt::format("run {}: empty strand", id)};
    if (strand_of(id, strand.group) != s)
      return {Code::internal, fmt::format("run {}: two strands of group {}", id, strand.group)};
    SlotId before = no_slot;
    for (SlotId slot = strand.head; slot != no_slot; slot = records_[slot].next - 1) {
      const Record& r = records_[slot];
      if (++seen > run.linked)
        return {Code::internal, fmt::format("run {}: more entries than counted", id)};
      if (r.run1 != id + 1 || r.group() != strand.group || !in_strand(r) || r.prev != before + 1 ||
          (before != no_slot && records_[before].end > r.end))
        return {Code::internal, fmt::format("run {}: slot {} is out of place", id, slot)};
      before = slot;
    }
    if (strand.tail != before) return {Code::internal, fmt::format("run {}: wrong tail", id)};
  }
  if (seen != run.linked)
    return {Code::internal,
            fmt::format("run {}: {} entries in strands, counted {}", id, seen, run.linked)};
  if (run.linked != 0 && (run.in_heaps >> class_of(id) & 1U) == 0)
    return {Code::internal, fmt::format("run {} is not in the heap of its class", id)};
  return verify_hint(id);
}

Status Order::verify_hint(RunId id) const {
  const Run& run = runs_[id];
  if (run.priority <= class_expired || run.priority >= eviction_classes ||
      run.hinted != (run.timed || run.priority != class_normal))
    return {Code::internal, fmt::format("run {} has a wrong priority", id)};
  if (deadlines_.has(id) != (run.timed && !run.expired) || (run.expired && !run.timed))
    return {Code::internal, fmt::format("run {} has a wrong time to live", id)};
  if (policy_ != nullptr && !run.hinted && run.linked != 0)
    return {Code::internal, fmt::format("run {} has no hint and strands beside the policy", id)};
  return {};
}

Status Order::verify_heaps() const {
  for (std::uint32_t cls = 0; cls < eviction_classes; ++cls) {
    const RunHeap& heap = heaps_[cls];
    for (std::uint64_t i = 0; i < heap.size(); ++i) {
      const RunHeap::Item& item = heap[i];
      if ((runs_[item.run].in_heaps >> cls & 1U) == 0 ||
          (i != 0 && heap[(i - 1) / 2].stamp > item.stamp) ||
          (runs_[item.run].used && runs_[item.run].stamp < item.stamp))
        return {Code::internal, fmt::format("heap {} is broken at run {}", cls, item.run)};
    }
  }
  if (!deadlines_.verify()) return {Code::internal, "the times to live are out of order"};
  if (!deadlines_.empty() && deadlines_.first_time() <= clock_)
    return {Code::internal, fmt::format("run {} lives on after its time", deadlines_.first())};
  return {};
}

Status Order::verify() const {
  std::uint64_t in_strands = 0;
  std::uint64_t used = 0;
  std::uint64_t open = 0;
  std::uint64_t hinted = 0;
  std::uint64_t timed = 0;
  for (RunId id = 0; id < runs_.used(); ++id) {
    if (!runs_[id].used) continue;
    hinted += runs_[id].hinted ? 1 : 0;
    timed += runs_[id].timed ? 1 : 0;
    if (Status s = verify_run(id); !s.ok()) return s;
    if (!runs_[id].open && runs_[id].members == 0)
      return {Code::internal, fmt::format("run {} is closed and empty but not gone", id)};
    in_strands += runs_[id].linked;
    ++used;
    open += runs_[id].open ? 1 : 0;
  }
  std::uint64_t front = 0;
  SlotId before = no_slot;
  for (SlotId slot = front_head_; slot != no_slot; slot = records_[slot].next - 1) {
    const Record& r = records_[slot];
    if (++front > in_front_ || r.place() != Place::front || r.prev != before + 1)
      return {Code::internal, fmt::format("slot {} is out of place in front", slot)};
    before = slot;
  }
  if (in_strands != in_strands_ || hinted != hinted_runs_ || timed != timed_runs_)
    return {Code::internal,
            fmt::format("{} entries in strands, {} hinted and {} timed runs; counted {}, {}, {}",
                        in_strands, hinted, timed, in_strands_, hinted_runs_, timed_runs_)};
  if (policy_ != nullptr) in_strands = linked_ - front;  // verify_entry looks at each of them
  if (front_tail_ != before || front != in_front_ || in_strands + front != linked_ ||
      used != run_count_ || open != open_)
    return {
        Code::internal,
        fmt::format("{} entries in strands and {} in front, {} and {} counted; {} runs, {} open",
                    in_strands, front, linked_, in_front_, used, open)};
  if (Status s = verify_heaps(); !s.ok()) return s;
  return policy_ != nullptr ? policy_->verify() : Status{};
}

}  // namespace kvc::tier
