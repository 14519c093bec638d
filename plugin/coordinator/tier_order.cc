#include "plugin/coordinator/tier_order.h"

#include <fmt/format.h>

namespace kvc::tier {

bool Order::make(std::uint64_t slots, std::uint64_t open_runs, std::unique_ptr<Policy> policy) {
  open_limit_ = open_runs;
  policy_ = std::move(policy);
  if (policy_ != nullptr && !policy_->make()) return false;
  if (slots == 0 || open_runs == 0) return true;
  // Every run that is not open and every strand has an entry of its own.
  return strands_.size_for(slots) && runs_.size_for(slots + open_runs) &&
         heap_.size_for(slots + open_runs);
}

RunId Order::open_run() {
  if (open_limit_ != 0 && open_ == open_limit_) return no_run;
  const RunId id = runs_.take();
  if (!heap_.ensure(runs_.used())) throw std::bad_alloc();
  Run& run = runs_[id];
  const bool in_heap = run.in_heap;  // of an earlier run of this id: the heap finds out
  run = Run{};
  run.stamp = ++now_;
  run.first_strand = none;
  run.writer = no_slot;
  run.open = run.used = true;
  run.in_heap = in_heap;
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
  runs_[id].used = false;
  runs_.give(id);
  --run_count_;
}

void Order::set_run(SlotId slot, RunId id) {
  Record& r = records_[slot];
  if (r.run1 == id + 1) return;
  const bool linked = r.place() == Place::strand && policy_ == nullptr;
  if (linked) unlink(slot);
  if (r.run1 != 0) leave_run(slot);
  r.run1 = id + 1;
  ++runs_[id].members;
  if (linked) link_strand(slot);
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
  r.set_place(Place::strand);
  ++run.linked;
  ++linked_;
  if (!run.in_heap) heap_push(r.run());
}

void Order::link_front(SlotId slot, bool first) {
  if (policy_ != nullptr) policy_->in_front(slot);
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
}

void Order::unlink(SlotId slot) {
  Record& r = records_[slot];
  if (r.place() == Place::out) return;
  if (r.place() == Place::front) {
    unlink_front(r);
  } else if (policy_ == nullptr) {
    unlink_strand(r);
  }
  r.set_place(Place::out);
  --linked_;
}

void Order::heap_push(RunId id) {
  runs_[id].in_heap = true;
  std::uint64_t at = heap_size_++;
  const HeapItem item{runs_[id].stamp, id, 0};
  while (at != 0 && heap_[(at - 1) / 2].stamp > item.stamp) {
    heap_[at] = heap_[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  heap_[at] = item;
}

void Order::heap_down(std::uint64_t at) {
  const HeapItem item = heap_[at];
  for (;;) {
    std::uint64_t child = 2 * at + 1;
    if (child >= heap_size_) break;
    if (child + 1 < heap_size_ && heap_[child + 1].stamp < heap_[child].stamp) ++child;
    if (heap_[child].stamp >= item.stamp) break;
    heap_[at] = heap_[child];
    at = child;
  }
  heap_[at] = item;
}

// The oldest run with an entry in a strand.
RunId Order::oldest() {
  while (heap_size_ != 0) {
    HeapItem& top = heap_[0];
    Run& run = runs_[top.run];
    if (!run.used || run.linked == 0) {
      run.in_heap = false;
      heap_[0] = heap_[--heap_size_];
      if (heap_size_ != 0) heap_down(0);
    } else if (top.stamp != run.stamp) {
      top.stamp = run.stamp;
      heap_down(0);
    } else {
      return top.run;
    }
  }
  return no_run;
}

SlotId Order::victim(RunId store_run, const Newcomer& newcomer, bool& declined) {
  declined = false;
  if (front_head_ != no_slot) return front_head_;
  if (policy_ != nullptr) return policy_->victim(store_run, newcomer, declined);
  const RunId id = oldest();
  if (id == no_run || id == store_run) return no_slot;
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
      if (r.run1 != id + 1 || r.group() != strand.group || r.place() != Place::strand ||
          r.prev != before + 1 || (before != no_slot && records_[before].end > r.end))
        return {Code::internal, fmt::format("run {}: slot {} is out of place", id, slot)};
      before = slot;
    }
    if (strand.tail != before) return {Code::internal, fmt::format("run {}: wrong tail", id)};
  }
  if (seen != run.linked)
    return {Code::internal,
            fmt::format("run {}: {} entries in strands, counted {}", id, seen, run.linked)};
  if (run.linked != 0 && !run.in_heap)
    return {Code::internal, fmt::format("run {} is not in the heap", id)};
  return {};
}

Status Order::verify_heap() const {
  for (std::uint64_t i = 0; i < heap_size_; ++i) {
    const HeapItem& item = heap_[i];
    if (!runs_[item.run].in_heap || (i != 0 && heap_[(i - 1) / 2].stamp > item.stamp) ||
        (runs_[item.run].used && runs_[item.run].stamp < item.stamp))
      return {Code::internal, fmt::format("the heap is broken at run {}", item.run)};
  }
  return {};
}

Status Order::verify() const {
  std::uint64_t in_strands = 0;
  std::uint64_t used = 0;
  std::uint64_t open = 0;
  for (RunId id = 0; id < runs_.used(); ++id) {
    if (!runs_[id].used) continue;
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
  if (policy_ != nullptr) in_strands = linked_ - front;  // verify_entry looks at each of them
  if (front_tail_ != before || front != in_front_ || in_strands + front != linked_ ||
      used != run_count_ || open != open_)
    return {
        Code::internal,
        fmt::format("{} entries in strands and {} in front, {} and {} counted; {} runs, {} open",
                    in_strands, front, linked_, in_front_, used, open)};
  if (policy_ != nullptr) return policy_->verify();
  return verify_heap();
}

}  // namespace kvc::tier
