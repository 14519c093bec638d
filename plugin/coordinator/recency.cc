#include "plugin/coordinator/recency.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "plugin/coordinator/slabs.h"

namespace kvc {
namespace {

constexpr std::uint32_t none = UINT32_MAX;
constexpr std::uint64_t ids_end = std::uint64_t{1} << 31;
constexpr std::uint32_t pin_bits = 26;
constexpr std::uint32_t pin_mask = (std::uint32_t{1} << pin_bits) - 1;
static_assert(groups_max <= std::uint32_t{1} << (32 - pin_bits));

// One slot. All zero: no entry.
struct Entry {
  std::uint32_t run1;  // run + 1
  std::uint32_t prev;  // towards smaller ends in its strand
  std::uint32_t next;
  std::uint32_t end;
  std::uint32_t group_pins;  // group above pin_bits, pins below

  [[nodiscard]] bool present() const { return run1 != 0; }
  [[nodiscard]] RunId run() const { return run1 - 1; }
  [[nodiscard]] std::uint32_t pins() const { return group_pins & pin_mask; }
  [[nodiscard]] GroupId group() const { return group_pins >> pin_bits; }
};

// The unpinned entries of one group in one run, ascending ends. Exists only while it has entries.
struct Strand {
  std::uint32_t group;
  std::uint32_t head;
  std::uint32_t tail;
  std::uint32_t next;  // of the same run; or next free strand
};

struct Run {
  RunId prev;  // towards older
  RunId next;  // towards newer; or next free run
  std::uint32_t first_strand;
  std::uint32_t members;  // entries, pinned ones included; a run is in the order iff this is not 0
  std::uint32_t linked;   // of them in strands
  bool open;
  bool used;
  std::uint64_t stamp;  // when it was last scheduled
};

// A slab array that hands out ids and takes them back.
template <class T>
struct Arena {
  SlabArray<T> all;
  std::uint32_t used = 0;  // high-water mark
  std::uint32_t free = none;

  std::uint32_t take() {
    if (free != none) {
      const std::uint32_t id = free;
      free = all[id].next;
      return id;
    }
    if (used >= ids_end || !all.ensure(std::uint64_t{used} + 1)) throw std::bad_alloc();
    return used++;
  }
  void give(std::uint32_t id) {
    all[id].next = free;
    free = id;
  }
  T& operator[](std::uint32_t id) { return all[id]; }
  const T& operator[](std::uint32_t id) const { return all[id]; }
};

}  // namespace

struct Recency::Body {
  RecencyOptions options;
  SlabArray<Entry> entries;
  Arena<Strand> strands;
  Arena<Run> runs;
  RunId oldest = no_run;
  RunId newest = no_run;
  std::uint64_t now = 0;
  std::uint64_t open = 0;
  std::uint64_t run_count = 0;
  std::uint64_t entry_count = 0;
  std::uint64_t linked = 0;
  SlotId slots_used = 0;  // high-water mark

  explicit Body(const RecencyOptions& o) : options(o) {}

  [[nodiscard]] bool has(SlotId slot) const {
    return slot < entries.capacity() && entries[slot].present();
  }
  [[nodiscard]] bool is_open(RunId run) const {
    return run < runs.used && runs[run].used && runs[run].open;
  }

  void order_insert(RunId id) {
    Run& run = runs[id];
    RunId at = newest;
    while (at != no_run && runs[at].stamp > run.stamp) at = runs[at].prev;
    run.prev = at;
    run.next = at == no_run ? oldest : runs[at].next;
    (at == no_run ? oldest : runs[at].next) = id;
    (run.next == no_run ? newest : runs[run.next].prev) = id;
  }
  void order_remove(RunId id) {
    const Run& run = runs[id];
    (run.prev == no_run ? oldest : runs[run.prev].next) = run.next;
    (run.next == no_run ? newest : runs[run.next].prev) = run.prev;
  }
  void join(RunId id, Entry& e) {
    e.run1 = id + 1;
    if (runs[id].members++ == 0) order_insert(id);
  }
  void leave(const Entry& e) {
    const RunId id = e.run();
    if (--runs[id].members != 0) return;
    order_remove(id);
    if (!runs[id].open) drop_run(id);
  }
  void drop_run(RunId id) {
    KVC_CHECK(runs[id].first_strand == none && runs[id].linked == 0);
    runs[id].used = false;
    runs.give(id);
    --run_count;
  }

  [[nodiscard]] std::uint32_t strand_of(RunId run, GroupId group) const {
    std::uint32_t s = runs[run].first_strand;
    while (s != none && strands[s].group != group) s = strands[s].next;
    return s;
  }
  // The entry of the strand behind which one with `end` belongs; none: in front. Ascending and
  // descending use ends after one step; else both ends are walked in turn.
  [[nodiscard]] std::uint32_t place(const Strand& strand, std::uint32_t end) const {
    if (strand.head == none) return none;
    std::uint32_t from_tail = strand.tail;
    std::uint32_t from_head = strand.head;
    for (;;) {
      if (entries[from_tail].end <= end) return from_tail;
      if (entries[from_head].end > end) return entries[from_head].prev;
      from_tail = entries[from_tail].prev;
      from_head = entries[from_head].next;
    }
  }
  void link(SlotId slot) {
    Entry& e = entries[slot];
    Run& run = runs[e.run()];
    std::uint32_t s = strand_of(e.run(), e.group());
    if (s == none) {
      s = strands.take();
      strands[s] = {e.group(), none, none, run.first_strand};
      run.first_strand = s;
    }
    Strand& strand = strands[s];
    const std::uint32_t at = place(strand, e.end);
    e.prev = at;
    e.next = at == none ? strand.head : entries[at].next;
    (at == none ? strand.head : entries[at].next) = slot;
    (e.next == none ? strand.tail : entries[e.next].prev) = slot;
    ++run.linked;
    ++linked;
  }
  void unlink(SlotId slot) {
    Entry& e = entries[slot];
    Run& run = runs[e.run()];
    std::uint32_t* link = &run.first_strand;
    while (strands[*link].group != e.group()) link = &strands[*link].next;
    const std::uint32_t s = *link;
    Strand& strand = strands[s];
    (e.prev == none ? strand.head : entries[e.prev].next) = e.next;
    (e.next == none ? strand.tail : entries[e.next].prev) = e.prev;
    if (strand.head == none) {
      *link = strand.next;
      strands.give(s);
    }
    --run.linked;
    --linked;
  }
  [[nodiscard]] Status verify_run(RunId id) const;
  [[nodiscard]] Status verify_order() const;
};

Recency::Recency(std::unique_ptr<Body> body) : body_(std::move(body)) {}
Recency::Recency(Recency&&) noexcept = default;
Recency& Recency::operator=(Recency&&) noexcept = default;
Recency::~Recency() = default;

Result<Recency> Recency::make(const RecencyOptions& options) {
  if (options.slots >= ids_end || options.open_runs >= ids_end ||
      options.slots + options.open_runs >= ids_end)
    return Status{Code::arg, fmt::format("{} slots and {} open runs, the limit is 2^31 together",
                                         options.slots, options.open_runs)};
  auto body = std::make_unique<Body>(options);
  // Every run that is not open and every strand has an entry of its own.
  const bool bounded = options.slots != 0 && options.open_runs != 0;
  if (!body->entries.size_for(options.slots) ||
      (bounded && (!body->strands.all.size_for(options.slots) ||
                   !body->runs.all.size_for(options.slots + options.open_runs))))
    return Status{Code::full, fmt::format("no memory for the order of {} slots", options.slots)};
  return Recency(std::move(body));
}

RunId Recency::open_run() {
  Body& b = *body_;
  if (b.options.open_runs != 0 && b.open == b.options.open_runs) return no_run;
  const RunId id = b.runs.take();
  b.runs[id] = {no_run, no_run, none, 0, 0, true, true, ++b.now};
  ++b.open;
  ++b.run_count;
  return id;
}

void Recency::close_run(RunId run) {
  Body& b = *body_;
  KVC_CHECK(b.is_open(run));
  b.runs[run].open = false;
  --b.open;
  if (b.runs[run].members == 0) b.drop_run(run);
}

void Recency::schedule(RunId run) {
  Body& b = *body_;
  KVC_CHECK(b.is_open(run));
  b.runs[run].stamp = ++b.now;
  if (b.runs[run].members == 0 || b.newest == run) return;
  b.order_remove(run);
  b.order_insert(run);
}

void Recency::add(RunId run, SlotId slot, GroupId group, Tokens end) {
  Body& b = *body_;
  KVC_CHECK(b.is_open(run) && group < groups_max && end.n <= UINT32_MAX);
  KVC_CHECK(slot < ids_end && (b.options.slots == 0 || slot < b.options.slots));
  if (!b.entries.ensure(std::uint64_t{slot} + 1)) throw std::bad_alloc();
  Entry& e = b.entries[slot];
  KVC_CHECK(!e.present());
  e = {0, none, none, static_cast<std::uint32_t>(end.n), group << pin_bits};
  b.slots_used = std::max(b.slots_used, slot + 1);
  ++b.entry_count;
  b.join(run, e);
  b.link(slot);
}

void Recency::touch(RunId run, SlotId slot) {
  Body& b = *body_;
  KVC_CHECK(b.is_open(run) && b.has(slot));
  Entry& e = b.entries[slot];
  if (e.run() == run) return;
  const bool linked = e.pins() == 0;
  if (linked) b.unlink(slot);
  b.leave(e);
  b.join(run, e);
  if (linked) b.link(slot);
}

void Recency::remove(SlotId slot) {
  Body& b = *body_;
  KVC_CHECK(b.has(slot) && b.entries[slot].pins() == 0);
  b.unlink(slot);
  b.leave(b.entries[slot]);
  b.entries[slot] = Entry{};
  --b.entry_count;
}

void Recency::pin(SlotId slot) {
  Body& b = *body_;
  KVC_CHECK(b.has(slot) && b.entries[slot].pins() < pin_mask);
  if (b.entries[slot].pins() == 0) b.unlink(slot);
  ++b.entries[slot].group_pins;
}

void Recency::unpin(SlotId slot) {
  Body& b = *body_;
  KVC_CHECK(b.has(slot) && b.entries[slot].pins() > 0);
  --b.entries[slot].group_pins;
  if (b.entries[slot].pins() == 0) b.link(slot);
}

SlotId Recency::victim(RunId store_run) const {
  const Body& b = *body_;
  RunId run = b.oldest;
  while (run != no_run && b.runs[run].linked == 0) run = b.runs[run].next;
  if (run == no_run || run == store_run) return no_slot;
  SlotId best = no_slot;
  for (std::uint32_t s = b.runs[run].first_strand; s != none; s = b.strands[s].next) {
    const SlotId tail = b.strands[s].tail;
    const auto rank = [&](SlotId slot) {
      return std::pair(b.entries[slot].end, b.entries[slot].group());
    };
    if (best == no_slot || rank(tail) > rank(best)) best = tail;
  }
  return best;
}

bool Recency::contains(SlotId slot) const { return body_->has(slot); }

std::uint32_t Recency::pins(SlotId slot) const {
  KVC_CHECK(contains(slot));
  return body_->entries[slot].pins();
}

RunId Recency::run_of(SlotId slot) const {
  KVC_CHECK(contains(slot));
  return body_->entries[slot].run();
}

std::uint64_t Recency::entries() const { return body_->entry_count; }
std::uint64_t Recency::evictable() const { return body_->linked; }
std::uint64_t Recency::runs() const { return body_->run_count; }

std::uint64_t Recency::bytes() const {
  const Body& b = *body_;
  return b.slots_used * sizeof(Entry) + b.strands.used * sizeof(Strand) + b.runs.used * sizeof(Run);
}

void Recency::clear() {
  Body& b = *body_;
  for (SlotId slot = 0; slot < b.slots_used; ++slot) {
    Entry& e = b.entries[slot];
    if (!e.present()) continue;
    if (e.pins() == 0) b.unlink(slot);
    b.leave(e);
    e = Entry{};
  }
  b.entry_count = 0;
  b.slots_used = 0;
}

// Strands of one run: entries ascending, links both ways, counts right.
Status Recency::Body::verify_run(RunId id) const {
  const Run& run = runs[id];
  std::uint64_t in_strands = 0;
  for (std::uint32_t s = run.first_strand; s != none; s = strands[s].next) {
    const Strand& strand = strands[s];
    if (strand.head == none) return {Code::internal, fmt::format("run {}: an empty strand", id)};
    if (strand_of(id, strand.group) != s)
      return {Code::internal, fmt::format("run {}: two strands of group {}", id, strand.group)};
    std::uint32_t before = none;
    for (std::uint32_t slot = strand.head; slot != none; slot = entries[slot].next) {
      const Entry& e = entries[slot];
      if (++in_strands > run.linked)
        return {Code::internal, fmt::format("run {}: more entries than counted", id)};
      if (!e.present() || e.run() != id || e.group() != strand.group || e.pins() != 0 ||
          e.prev != before)
        return {Code::internal,
                fmt::format("run {}: slot {} does not belong in its strand", id, slot)};
      if (before != none && entries[before].end > e.end)
        return {Code::internal,
                fmt::format("run {}: end {} behind {}", id, e.end, entries[before].end)};
      before = slot;
    }
    if (strand.tail != before) return {Code::internal, fmt::format("run {}: wrong tail", id)};
  }
  if (in_strands != run.linked)
    return {Code::internal,
            fmt::format("run {}: {} entries in strands, counted {}", id, in_strands, run.linked)};
  return {};
}

Status Recency::Body::verify_order() const {
  std::uint64_t members = 0;
  std::uint64_t in_strands = 0;
  RunId before = no_run;
  for (RunId id = oldest; id != no_run; id = runs[id].next) {
    const Run& run = runs[id];
    if (!run.used || run.members == 0 || run.prev != before)
      return {Code::internal, fmt::format("run {} does not belong in the order", id)};
    if (before != no_run && runs[before].stamp >= run.stamp)
      return {Code::internal, fmt::format("run {} is not newer than run {}", id, before)};
    if (Status s = verify_run(id); !s.ok()) return s;
    members += run.members;
    in_strands += run.linked;
    before = id;
    if (members > entry_count) break;
  }
  if (newest != before || members != entry_count || in_strands != linked)
    return {Code::internal, fmt::format("{} entries in runs, {} of them linked; counted {} and {}",
                                        members, in_strands, entry_count, linked)};
  return {};
}

Status Recency::verify() const {
  const Body& b = *body_;
  std::uint64_t open = 0;
  std::uint64_t used = 0;
  for (RunId id = 0; id < b.runs.used; ++id) {
    if (!b.runs[id].used) continue;
    ++used;
    open += b.runs[id].open ? 1 : 0;
    if (!b.runs[id].open && b.runs[id].members == 0)
      return {Code::internal, fmt::format("run {} is closed and empty but not gone", id)};
  }
  if (open != b.open || used != b.run_count)
    return {Code::internal,
            fmt::format("{} runs, {} open; counted {} and {}", used, open, b.run_count, b.open)};
  std::uint64_t present = 0;
  for (SlotId slot = 0; slot < b.slots_used; ++slot) present += b.entries[slot].present() ? 1 : 0;
  if (present != b.entry_count)
    return {Code::internal, fmt::format("{} entries, counted {}", present, b.entry_count)};
  return b.verify_order();
}

}  // namespace kvc
