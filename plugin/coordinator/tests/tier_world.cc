#include "plugin/coordinator/tests/tier_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstring>

namespace kvc::test {

namespace {

constexpr std::array<const char*, static_cast<std::size_t>(Seen::count)> seen_names{
    "landed_cascade",
    "failed_open",
    "failed_landed",
    "adopted",
    "met",
    "second_by_meeting",
    "unsupported_by_fail",
    "dead_in_front",
    "unsupported_in_front",
    "tail_cascade",
    "kept_by_tail",
    "bad_rewritten",
    "bad_rewrite_failed",
    "bad_evicted",
    "writer_fell_back",
    "other_writer_fell_back",
    "offsets_used",
    "loose_offsets_used",
    "no_parent",
    "refused_full",
    "own_run_spared",
    "skipped",
    "reset_rewriting",
    "reset_pinned",
    "unpinned_doomed",
    "given_up",
    "hit",
    "dead_of_no_use",
    "stored",
    "evicted_for_a_store"};
constexpr std::array<const char*, 15> do_names{"open",  "close", "schedule", "preempt", "hit",
                                               "offer", "aside", "finish",   "pin",     "unpin",
                                               "spoil", "evict", "touch",    "meet",    "reset"};

bool same(const Supports& a, const Supports& b) {
  return a.first == b.first && a.second == b.second && a.root == b.root &&
         a.no_parent == b.no_parent;
}

}  // namespace

std::string name_of(Seen what) { return seen_names[static_cast<std::size_t>(what)]; }

std::string describe(const Op& op) {
  return fmt::format("{} {} {} {} {} {}", do_names[static_cast<std::size_t>(op.what)], op.a, op.b,
                     op.c, op.d, op.e ? 1 : 0);
}

// Takes what the index tells, and checks the keys of what it evicts.
class TierWorld::Sink final : public TierSink {
 public:
  explicit Sink(const TierWorld& world) : world_(world) {}
  void evicted(SlotId slot, const SlotKey& key, bool bad) override {
    const TwinEntry* e = world_.twin_.entry(slot);
    world_.require(e != nullptr && key.group == e->group && key.end.n == world_.twin_.end(*e) &&
                       std::memcmp(key.key, world_.prefixes_.key(e->prefix),
                                   world_.prefixes_.key_bytes()) == 0,
                   "key of an evicted entry", slot);
    world_.require(bad == e->bad, "whether an evicted entry is bad", slot);
    events.insert({TwinEvent::Kind::evicted, slot, 0});
    last = slot;
  }
  void published(SlotId slot, std::uint32_t tag) override {
    events.insert({TwinEvent::Kind::published, slot, tag});
  }
  void failed(SlotId slot, std::uint32_t tag, bool copy_open) override {
    events.insert({copy_open ? TwinEvent::Kind::failed_open : TwinEvent::Kind::failed_landed, slot,
                   copy_open ? 0 : tag});
  }
  TwinEvents events;
  SlotId last = no_slot;

 private:
  const TierWorld& world_;
};

TierWorld::TierWorld(const Geometry& geometry, const Prefixes& prefixes,
                     const WorldOptions& options, Coverage& seen)
    : geometry_(geometry),
      prefixes_(prefixes),
      options_(options),
      seen_(seen),
      index_(std::move(TierIndex::make(geometry, {.key_bytes = prefixes.key_bytes(),
                                                  .slots = options.slots,
                                                  .open_runs = options.open_runs,
                                                  .chained = options.chained,
                                                  .eviction = options.eviction,
                                                  .ghosts_more = 4}))
                 .value()),
      twin_(geometry, options.chained, prefixes) {}

void TierWorld::require(bool fine, const char* what, std::uint64_t where) const {
  if (fine) return;
  std::string text = fmt::format("index and twin differ: {} ({})", what, where);
  for (std::size_t i = log_.size() < 40 ? 0 : log_.size() - 40; i < log_.size(); ++i)
    text += "\n  " + describe(log_[i]);
  BOOST_FAIL(text);
}

bool TierWorld::legal(GroupId group, std::uint32_t units) const {
  const std::uint64_t end = tokens(units).n;
  if (!geometry_.group(group).cacheable) return false;
  if (end % geometry_.block_tokens(group).n == 0) return true;
  return geometry_.fine_hits() && geometry_.legal_end(group, tokens(units));
}

std::uint32_t TierWorld::next_chain(const Request& r) const {
  if (!geometry_.chain()) return 0;
  const GroupId chain = *geometry_.chain();
  const auto per =
      static_cast<std::uint32_t>(geometry_.block_tokens(chain).n / geometry_.hash_unit().n);
  for (std::uint32_t units = per; units <= prefixes_.units(r.path); units += per)
    if (twin_.at(chain, prefixes_.cut(r.path, units)) == no_slot) return units;
  return 0;
}

void TierWorld::apply(const Op& op) {
  log_.push_back(op);
  const bool on_slot = op.what >= Do::finish && op.what < Do::reset;
  if (on_slot && twin_.state(op.a) == EntryState::free) return;
  if (!on_slot && op.what > Do::open && op.what < Do::reset && op.a >= open_.size()) return;
  ++done_;
  const bool published = on_slot && twin_.state(op.a) == EntryState::published;
  switch (op.what) {
    case Do::open: {
      static_cast<void>(index_.maintain());
      const RunId run = index_.open_run();
      require((run == no_run) == (open_.size() == options_.open_runs), "open runs");
      if (run == no_run) return;
      twin_.open_run(run);
      open_.push_back({run, paths[op.a]});
      index_.begin_request(run, prefixes_.view(paths[op.a], prefixes_.units(paths[op.a])),
                           tokens(prefixes_.units(paths[op.a])));
      return;
    }
    case Do::close:
      end(open_[op.a]);
      index_.close_run(open_[op.a].run);
      twin_.close_run(open_[op.a].run);
      open_.erase(open_.begin() + op.a);
      return;
    case Do::schedule:
      index_.schedule(open_[op.a].run);
      return twin_.schedule(open_[op.a].run);
    case Do::preempt:
      index_.release_path(open_[op.a].run);
      return twin_.release_path(open_[op.a].run);
    case Do::hit:
      return hit(open_[op.a]);
    case Do::offer:
    case Do::aside:
      return offer(op);
    case Do::finish:
      return finish(op.a, op.b);
    case Do::pin:
    case Do::unpin:
      return pins(op.a, op.b != 0 ? PinKind::job : PinKind::lease, op.what == Do::pin);
    case Do::spoil:
      index_.mark_bad(op.a);
      return twin_.mark_bad(op.a);
    case Do::evict:
      if (!twin_.kept(op.a)) return evict(op.a);
      break;
    case Do::touch:
      if (published && op.b < open_.size() &&
          prefixes_.begins(open_[op.b].path, twin_.entry(op.a)->prefix))
        return touch(op.a, open_[op.b].run);
      break;
    case Do::meet:
      if (published && op.b < open_.size() &&
          prefixes_.begins(open_[op.b].path, twin_.entry(op.a)->prefix))
        return meet(op.a, {open_[op.b].path, op.d});
      break;
    case Do::reset:
      return reset();
  }
  --done_;
}

void TierWorld::hit(const Request& r) {
  if (!twin_.chained()) return void(--done_);
  const GroupId chain = twin_.chain();
  const std::uint64_t per = geometry_.block_tokens(chain).n / geometry_.hash_unit().n;
  SlotId deepest = no_slot;
  for (std::uint64_t units = per; units <= prefixes_.units(r.path); units += per) {
    const SlotId slot = index_.find(chain, prefixes_.key(prefixes_.cut(r.path, units)));
    if (slot == no_slot) break;
    deepest = slot;
  }
  if (deepest == no_slot) return void(--done_);
  touch(deepest, r.run);
  index_.hold_path(r.run, deepest);
  twin_.hold_path(r.run, deepest);
}

void TierWorld::offer(const Op& op) {
  const Request& r = open_[op.a];
  if (op.c > prefixes_.units(r.path) || op.c == 0 || !legal(op.b, op.c)) return void(--done_);
  const PrefixId prefix = prefixes_.cut(r.path, op.c);
  const SlotId there = twin_.at(op.b, prefix);
  const TwinEntry* e = there == no_slot ? nullptr : twin_.entry(there);
  SlotId found = no_slot;
  const Presence presence = index_.find_any(op.b, prefixes_.key(prefix), found);
  require(found == there, "find_any", op.b);
  const bool bad = e != nullptr && e->bad;
  const Presence want = e == nullptr                                        ? Presence::absent
                        : e->state != EntryState::published || e->rewriting ? Presence::reserved
                        : bad                                               ? Presence::absent
                                                                            : Presence::published;
  require(presence == want, "presence", there);
  if (op.what == Do::aside) {
    const Supports s =
        index_.hold_supports(op.b, prefixes_.view(r.path, op.d), tokens(op.c), r.run);
    require(same(s, twin_.find_supports(op.b, {r.path, op.d}, tokens(op.c).n)), "supports", op.c);
    return index_.drop_supports(s);
  }
  if (presence == Presence::published) return skip(there, op);
  if (presence == Presence::reserved) return void(--done_);
  if (bad) {
    index_.rewrite(there);
    return twin_.rewrite(there);
  }
  store(op, prefix);
}

void TierWorld::skip(SlotId slot, const Op& op) {
  note(Seen::skipped);
  const Request& r = open_[op.a];
  if (op.e) meet(slot, {r.path, op.d});
  touch(slot, r.run);
  if (!op.e) meet(slot, {r.path, op.d});
}

void TierWorld::store(const Op& op, PrefixId prefix) {
  const Request& r = open_[op.a];
  const TwinPath path{r.path, op.d};
  const Supports s = index_.hold_supports(op.b, prefixes_.view(r.path, op.d), tokens(op.c), r.run);
  require(same(s, twin_.find_supports(op.b, path, tokens(op.c).n)), "supports", op.c);
  twin_.hold(s);
  const SlotId slot = s.no_parent ? no_slot : room(r.run, s);
  twin_.drop(s);
  if (slot == no_slot) {
    if (s.no_parent) note(Seen::no_parent);
    return index_.drop_supports(s);
  }
  const std::uint64_t before = twin_.counters().unsupported;
  note(Seen::stored);
  index_.reserve(slot, op.b, prefixes_.key(prefix), prefixes_.view(r.path, op.d), tokens(op.c),
                 r.run, s);
  twin_.reserve(slot, op.b, path, tokens(op.c).n, r.run);
  if (twin_.counters().unsupported < before) note(Seen::adopted);
}

// A slot for a store: a free one, or the victim's.
SlotId TierWorld::room(RunId run, const Supports&) {
  for (SlotId slot = 0; slot < options_.slots; ++slot)
    if (twin_.state(slot) == EntryState::free) return slot;
  const SlotId slot = index_.victim(run);
  require(may_go(slot, run), "victim of a store", slot);
  if (slot == no_slot) {
    note(twin_.victims(no_run).empty() ? Seen::refused_full : Seen::own_run_spared);
  } else {
    note(Seen::evicted_for_a_store);
    evict(slot);
  }
  return slot;
}

void TierWorld::finish(SlotId slot, std::uint32_t how) {
  const TwinEntry e = *twin_.entry(slot);
  if (e.state == EntryState::doomed_reserved ||
      (e.state == EntryState::doomed_pinned && e.rewriting)) {
    require(index_.release(slot) == twin_.release(slot), "release", slot);
    return;
  }
  if (e.state != EntryState::reserved && !(e.state == EntryState::published && e.rewriting)) return;
  Sink sink(*this);
  TwinEvents want;
  const std::map<RunId, TwinRun> before = twin_.runs();
  const std::uint64_t unsupported = twin_.counters().unsupported;
  if (how == 1) {
    const std::uint32_t tag = ++tag_;
    require(index_.publish(slot, tag, sink) == twin_.publish(slot, tag, want), "publish", slot);
    if (want.size() > 1) note(Seen::landed_cascade);
    if (e.rewriting) note(Seen::bad_rewritten);
  } else {
    index_.fail(slot, sink, how == 2);
    twin_.fail(slot, how == 2, want);
    if (how == 2) note(Seen::given_up);
    if (e.rewriting && how != 2) note(Seen::bad_rewrite_failed);
    if (twin_.counters().unsupported > unsupported) note(Seen::unsupported_by_fail);
    for (const TwinEvent& v : want)
      note(v.kind == TwinEvent::Kind::failed_open ? Seen::failed_open : Seen::failed_landed);
    for (const auto& [id, run] : twin_.runs()) {
      if (run.writer == no_slot || run.writer == before.at(id).writer) continue;
      note(id == e.run ? Seen::writer_fell_back : Seen::other_writer_fell_back);
    }
  }
  require(sink.events == want, "what the end of a copy did", slot);
}

void TierWorld::pins(SlotId slot, PinKind kind, bool on) {
  const TwinEntry e = *twin_.entry(slot);
  if (on) {
    if (e.state != EntryState::published) return void(--done_);
    index_.pin(slot, kind);
    return twin_.pin(slot, kind);
  }
  // The pin that stands for an open rewrite after a reset ends by release.
  const bool rewrite = e.state == EntryState::doomed_pinned && e.rewriting;
  if ((kind == PinKind::lease ? e.leases : e.jobs - (rewrite ? 1 : 0)) == 0) return void(--done_);
  if (e.state == EntryState::doomed_pinned) note(Seen::unpinned_doomed);
  require(index_.unpin(slot, kind) == twin_.unpin(slot, kind), "unpin", slot);
}

void TierWorld::evict(SlotId slot) {
  Sink sink(*this);
  TwinEvents want;
  const bool bad = twin_.entry(slot)->bad;
  std::set<SlotId> tails;
  std::set<SlotId> on_tail;
  for (const auto& [s, e] : twin_.all()) {
    if (twin_.is_tail(e)) tails.insert(s);
    if (e.second != no_slot && e.first == slot) on_tail.insert(s);
  }
  index_.evict(slot, sink);
  twin_.evict(slot, want);
  require(sink.events == want, "what an eviction took along", slot);
  require(sink.last == slot, "the evicted entry is told last", slot);
  if (bad) note(Seen::bad_evicted);
  bool tail = false;
  for (const TwinEvent& v : want) tail = tail || tails.count(v.slot) != 0;
  if (tail && want.size() > 1) note(Seen::tail_cascade);
  for (const SlotId s : on_tail)
    if (twin_.state(s) == EntryState::published) note(Seen::kept_by_tail);
}

void TierWorld::meet(SlotId slot, const TwinPath& path) {
  if (twin_.state(slot) != EntryState::published) return;
  const TwinEntry before = *twin_.entry(slot);
  const bool alone = twin_.unsupported(before);
  index_.meet(slot, prefixes_.view(path.path, path.known));
  twin_.meet(slot, path);
  const TwinEntry& after = *twin_.entry(slot);
  if (alone && !twin_.unsupported(after)) note(Seen::met);
  if (!alone && (before.first != after.first || before.second != after.second))
    note(Seen::second_by_meeting);
}

void TierWorld::touch(SlotId slot, RunId run) {
  index_.touch(slot, run);
  twin_.touch(slot, run);
}

void TierWorld::reset() {
  Sink sink(*this);
  TwinEvents want;
  for (const auto& [slot, e] : twin_.all()) {
    if (e.state == EntryState::published && e.rewriting) note(Seen::reset_rewriting);
    if (e.leases + e.jobs != 0) note(Seen::reset_pinned);
  }
  index_.reset(sink);
  twin_.reset(want);
  require(sink.events == want, "what a reset did");
}

// --- comparing

void TierWorld::compare() {
  const Status s = index_.verify();
  require(s.ok(), s.text.c_str());
  compare_counters();
  for (SlotId slot = 0; slot < options_.slots; ++slot) compare_slot(slot);
  compare_keys();
  compare_tails();
  compare_victims();
  if (++compared_ % 8 == 0) compare_lookups();
  if (compared_ % 8 == 4) compare_dead();
}

void TierWorld::compare_counters() {
  const TierIndexCounters a = index_.counters();
  const TierIndexCounters b = twin_.counters();
  require(a.published == b.published, "published", a.published);
  require(a.reserved == b.reserved, "reserved", a.reserved);
  require(a.landed == b.landed, "landed", a.landed);
  require(a.doomed_reserved == b.doomed_reserved, "doomed_reserved", a.doomed_reserved);
  require(a.doomed_pinned == b.doomed_pinned, "doomed_pinned", a.doomed_pinned);
  require(a.pinned == b.pinned, "pinned", a.pinned);
  require(a.lease_only == b.lease_only, "lease_only", a.lease_only);
  require(a.evictable == b.evictable, "number of evictable", a.evictable);
  require(a.in_front == b.in_front, "number in front", a.in_front);
  require(a.bad == b.bad, "number of bad", a.bad);
  require(a.bad_chain == b.bad_chain, "number of bad chain entries", a.bad_chain);
  require(a.rewriting == b.rewriting, "number of rewrites", a.rewriting);
  require(a.writer_pins == b.writer_pins, "number of writer pins", a.writer_pins);
  require(a.unsupported == b.unsupported, "number of unsupported", a.unsupported);
  require(a.runs == b.runs, "number of runs", a.runs);
}

void TierWorld::compare_slot(SlotId slot) {
  const TwinEntry* e = twin_.entry(slot);
  require(index_.state(slot) == twin_.state(slot), "state", slot);
  if (e == nullptr) return;
  require(index_.pins(slot) == e->leases + e->jobs, "pins", slot);
  require(index_.rewriting(slot) == e->rewriting, "rewriting", slot);
  if (e->state != EntryState::reserved && e->state != EntryState::landed &&
      e->state != EntryState::published)
    return;
  const SlotKey key = index_.key_of(slot);
  require(key.group == e->group && key.end.n == twin_.end(*e) &&
              std::memcmp(key.key, prefixes_.key(e->prefix), prefixes_.key_bytes()) == 0,
          "key", slot);
  require(index_.bad(slot) == e->bad, "bad", slot);
  require(index_.run_of(slot) == e->run, "run", slot);
  require(index_.evictable(slot) == !twin_.kept(slot), "evictable", slot);
  require(index_.in_front(slot) == twin_.in_front(slot), "in front", slot);
  require(index_.unsupported(slot) == twin_.unsupported(*e), "unsupported", slot);
  require(same(index_.supports_of(slot), twin_.supports_of(slot)), "supports_of", slot);
  if (twin_.is_chain(*e) && e->state == EntryState::published)
    require(index_.dead(slot) == twin_.dead(slot), "dead", slot);
  if (!twin_.in_front(slot) || e->bad) return;
  note(twin_.is_chain(*e) ? Seen::dead_in_front : Seen::unsupported_in_front);
}

// find, find_batch and prefix_closed over every path that a request has.
void TierWorld::compare_keys() {
  const bool chained = twin_.chained();
  for (GroupId g = 0; g < geometry_.groups(); ++g)
    require(index_.prefix_closed(g) ==
                (chained && g == twin_.chain() && twin_.counters().bad_chain == 0),
            "prefix_closed", g);
  std::array<SlotId, 256> out{};
  for (const Request& r : open_) {
    const std::uint64_t n = prefixes_.units(r.path);
    const auto stride = static_cast<std::ptrdiff_t>(prefixes_.key_bytes());
    for (GroupId g = 0; g < geometry_.groups(); ++g) {
      index_.find_batch(g, {prefixes_.view(r.path, n).data, stride, n}, out);
      for (std::uint64_t i = 0; i < n; ++i) {
        const SlotId there = twin_.at(g, prefixes_.cut(r.path, i + 1));
        const TwinEntry* e = there == no_slot ? nullptr : twin_.entry(there);
        const bool visible = e != nullptr && e->state == EntryState::published && !e->bad;
        require(out[i] == (visible ? there : no_slot), "find_batch", there);
        require(index_.find(g, prefixes_.view(r.path, n).at(i)) == out[i], "find", there);
      }
    }
  }
}

// A tail that find answers has its bit, whoever stored it and whenever.
void TierWorld::compare_tails() {
  if (!twin_.chained()) return;
  const GroupId chain = twin_.chain();
  const std::uint64_t block = geometry_.block_tokens(chain).n;
  const std::uint64_t h = geometry_.hash_unit().n;
  for (const auto& [slot, e] : twin_.all()) {
    if (!twin_.is_tail(e) || e.state != EntryState::published || e.bad) continue;
    const std::uint64_t inside = twin_.end(e) % block;
    const std::uint64_t before = twin_.end(e) - inside;
    const SlotId base =
        before == 0 ? no_slot : twin_.at(chain, prefixes_.cut(e.prefix, before / h));
    if (before != 0 && (base == no_slot || twin_.state(base) != EntryState::published)) continue;
    const std::uint64_t bits = index_.tail_offsets(chain, base);
    require((bits >> ((inside / h - 1) * 64 / (block / h)) & 1) != 0, "tail_offsets", slot);
    if (bits != UINT64_MAX)
      note(twin_.unsupported(e) ? Seen::loose_offsets_used : Seen::offsets_used);
  }
}

namespace {

// What lookups may see of the twin, entry by entry and without any promise.
class TwinView final : public KeyIndex {
 public:
  TwinView(const TierTwin& twin, const Prefixes& prefixes) : twin_(twin), prefixes_(prefixes) {}
  [[nodiscard]] SlotId find(GroupId group, const std::byte* key) const override {
    for (const auto& [slot, e] : twin_.all())
      if (e.state == EntryState::published && !e.bad && e.group == group &&
          std::memcmp(key, prefixes_.key(e.prefix), prefixes_.key_bytes()) == 0)
        return slot;
    return no_slot;
  }
  void find_batch(GroupId group, const KeyRun& keys, std::span<SlotId> out) const override {
    for (std::size_t i = 0; i < keys.count; ++i)
      out[i] = find(group, keys.first + static_cast<std::ptrdiff_t>(i) * keys.stride);
  }

 private:
  const TierTwin& twin_;
  const Prefixes& prefixes_;
};

}  // namespace

void TierWorld::compare_lookups() {
  const TwinView view(twin_, prefixes_);
  Hit got;
  Hit want;
  for (const Request& r : open_) {
    const std::uint64_t units = prefixes_.units(r.path);
    const KeyView keys = prefixes_.view(r.path, units);
    const std::uint64_t step = geometry_.scheduler_block().n;
    for (std::uint64_t start = 0; start < tokens(units).n; start += step) {
      const Code a = lookup(geometry_, index_, keys, {start}, tokens(units), got);
      const Code b = lookup(geometry_, view, keys, {start}, tokens(units), want);
      require(a == b && got.tokens == want.tokens, "lookup", start);
      require(got.attention_tokens == want.attention_tokens, "attention of a lookup", start);
      if (got.tokens.n > start) note(Seen::hit);
    }
  }
}

// A dead entry is one that no lookup uses: without it every request finds what it found. Only
// claimed while every dependent is linked to all that it could hang on.
void TierWorld::compare_dead() {
  if (!twin_.chained()) return;
  for (const auto& [slot, e] : twin_.all())
    if (twin_.unsupported(e) || twin_.could_hang_elsewhere(slot)) return;
  const TwinView view(twin_, prefixes_);
  for (const auto& [slot, e] : twin_.all()) {
    if (!twin_.is_chain(e) || e.bad || twin_.kept(slot) || !twin_.in_front(slot)) continue;
    TierTwin without = twin_;
    TwinEvents gone;
    without.evict(slot, gone);
    const TwinView rest(without, prefixes_);
    for (const Request& r : open_) {
      const std::uint64_t units = prefixes_.units(r.path);
      const KeyView keys = prefixes_.view(r.path, units);
      Hit a;
      Hit b;
      require(lookup(geometry_, view, keys, {0}, tokens(units), a) == Code::ok &&
                  lookup(geometry_, rest, keys, {0}, tokens(units), b) == Code::ok &&
                  a.tokens == b.tokens,
              "a dead entry was of use", slot);
      note(Seen::dead_of_no_use);
    }
  }
}

bool TierWorld::may_go(SlotId slot, RunId run) const {
  if (options_.eviction == Eviction::lru) {
    const std::set<SlotId> may = twin_.victims(run);
    return slot == no_slot ? may.empty() : may.count(slot) != 0;
  }
  bool front = false;
  bool others = false;
  bool own = false;
  for (const auto& [other, e] : twin_.all()) {
    if (twin_.kept(other)) continue;
    front = front || twin_.in_front(other);
    own = own || e.run == run;
    others = others || e.run != run;
  }
  if (slot == no_slot) return !front && (own || !others);
  return !twin_.kept(slot) &&
         (front ? twin_.in_front(slot) : twin_.entry(slot)->run != run || run == no_run);
}

// As after an answer of some blocks, which the request's path does not have.
void TierWorld::end(const Request& r) {
  const std::uint64_t units = prefixes_.units(r.path);
  index_.end_request(r.run, prefixes_.view(r.path, units), tokens(units % 3));
}

void TierWorld::compare_victims() {
  const auto check = [&](RunId run) {
    const SlotId slot = index_.victim(run);
    require(may_go(slot, run), "victim", slot);
  };
  check(no_run);
  for (const Request& r : open_) check(r.run);
}

std::vector<Op> TierWorld::options(const std::vector<std::uint32_t>& units) const {
  std::vector<Op> out;
  for (std::uint32_t i = 0; i < open_.size(); ++i) {
    const auto all = static_cast<std::uint32_t>(prefixes_.units(open_[i].path));
    for (GroupId g = 0; g < geometry_.groups(); ++g)
      for (const std::uint32_t u : units)
        if (u <= all && legal(g, u)) out.push_back({Do::offer, i, g, u, i == 0 ? all : u, i == 0});
    out.push_back({Do::preempt, i});
    out.push_back({Do::schedule, i});
    out.push_back({Do::hit, i});
  }
  for (const auto& [slot, e] : twin_.all()) {
    const bool published = e.state == EntryState::published;
    if ((!published && e.state != EntryState::landed) || e.rewriting)
      out.push_back({Do::finish, slot, 1});
    if (e.state == EntryState::reserved || (published && e.rewriting)) {
      out.push_back({Do::finish, slot, 0});
      out.push_back({Do::finish, slot, 2});
    }
    if (e.leases + e.jobs != 0) out.push_back({Do::unpin, slot, e.jobs != 0 ? 1U : 0U});
    if (!published) continue;
    if (e.leases + e.jobs == 0) out.push_back({Do::pin, slot, slot % 2});
    if (!e.bad) out.push_back({Do::spoil, slot});
    if (!twin_.kept(slot)) out.push_back({Do::evict, slot});
  }
  if (!open_.empty()) out.push_back({Do::close, 0});
  out.push_back({Do::reset});
  return out;
}

}  // namespace kvc::test
