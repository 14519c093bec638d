#include "plugin/coordinator/key_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "plugin/coordinator/chain_book.h"
#include "plugin/coordinator/key_hash.h"
#include "plugin/coordinator/slabs.h"
#include "plugin/core/prefetch.h"

namespace kvc {

using key_hash::equal;
using key_hash::tag_of;

namespace {

constexpr std::uint64_t entries_end = std::uint64_t{1} << 31;

// Fixed part of an entry; the key bytes follow. `next_key` chains the keys of a slot, the primary
// first. `next_same` chains the slots of one key in insertion order.
struct Entry {
  std::uint32_t slot;
  std::uint32_t end;
  std::uint32_t next_key;
  std::uint32_t next_same;
  std::uint32_t prev_same;  // of the first one: the last one, so that both ends are one step away
  std::uint32_t group;
};

}  // namespace

struct FlatIndex::Body {
  FlatIndexOptions options;
  Slabs entries;
  SlabArray<std::uint32_t> slot_first;  // entry + 1; 0: no key
  Zeroed table_memory;
  std::uint64_t* table = nullptr;  // tag << 32 | (entry + 1); 0: empty
  std::uint64_t places = 0;
  std::uint32_t entries_used = 0;  // high-water mark of the arena
  std::uint32_t free_entry = no_entry;
  std::uint64_t count = 0;        // entries
  std::uint64_t words = 0;        // table places taken: distinct keys
  std::uint64_t keyed_slots = 0;  // slots with a key
  std::uint64_t refused = 0;
  std::unique_ptr<ChainBook> book;  // null: no chain

  explicit Body(const FlatIndexOptions& o)
      : options(o), entries((sizeof(Entry) + o.key_bytes + 3) / 4 * 4) {}

  [[nodiscard]] bool bounded() const { return options.slots != 0; }
  [[nodiscard]] Entry& entry(std::uint32_t e) const {
    return *reinterpret_cast<Entry*>(entries.at(e));
  }
  [[nodiscard]] std::byte* key(std::uint32_t e) const { return entries.at(e) + sizeof(Entry); }
  [[nodiscard]] bool same_key(std::uint32_t e, GroupId group, const std::byte* k) const {
    return entry(e).group == group && equal(key(e), k, options.key_bytes);
  }
  [[nodiscard]] std::uint64_t home(std::uint32_t tag) const { return (tag * places) >> 32; }
  [[nodiscard]] std::uint64_t after(std::uint64_t place) const {
    return place + 1 == places ? 0 : place + 1;
  }
  [[nodiscard]] static std::uint32_t tag_at(std::uint64_t word) {
    return static_cast<std::uint32_t>(word >> 32);
  }
  [[nodiscard]] static std::uint32_t entry_at(std::uint64_t word) {
    return static_cast<std::uint32_t>(word) - 1;
  }
  [[nodiscard]] static std::uint64_t word_of(std::uint32_t tag, std::uint32_t e) {
    return std::uint64_t{tag} << 32 | (e + 1);
  }
  [[nodiscard]] std::uint32_t first_of(SlotId slot) const {
    return slot < slot_first.capacity() ? slot_first[slot] - 1 : no_entry;
  }
  void set_first(SlotId slot, std::uint32_t e) { slot_first[slot] = e + 1; }

  [[nodiscard]] bool make_table(std::uint64_t new_places) {
    Zeroed fresh = make_zeroed(new_places * sizeof(std::uint64_t));
    if (fresh == nullptr) return false;
    fresh.swap(table_memory);  // the old table dies with `fresh`
    const std::uint64_t* old = table;
    const std::uint64_t old_places = places;
    table = reinterpret_cast<std::uint64_t*>(table_memory.get());
    places = new_places;
    for (std::uint64_t i = 0; i < old_places; ++i)
      if (old[i] != 0) place_word(old[i]);
    return true;
  }
  void place_word(std::uint64_t word) {
    std::uint64_t p = home(tag_at(word));
    while (table[p] != 0) p = after(p);
    table[p] = word;
  }

  // The place of the key's word, or the empty place that ends the search.
  [[nodiscard]] std::uint64_t place(std::uint32_t tag, GroupId group, const std::byte* k) const {
    std::uint64_t p = home(tag);
    for (; table[p] != 0; p = after(p))
      if (tag_at(table[p]) == tag && same_key(entry_at(table[p]), group, k)) break;
    return p;
  }
  // Takes the word out and closes the gap: later words of the same cluster move towards their home,
  // so that no search stops early and no tombstones pile up.
  void remove_word(std::uint64_t gap) {
    for (std::uint64_t p = after(gap); table[p] != 0; p = after(p)) {
      const std::uint64_t want = home(tag_at(table[p]));
      const bool reachable = gap <= p ? (want <= gap || want > p) : (want <= gap && want > p);
      if (!reachable) continue;
      table[gap] = table[p];
      gap = p;
    }
    table[gap] = 0;
    --words;
  }

  [[nodiscard]] Code make_room(SlotId slot, bool alias) {
    if (bounded()) {
      if (alias && count - keyed_slots >= options.aliases) return Code::full;
      KVC_CHECK(free_entry != no_entry || entries_used < entries.capacity());
      return Code::ok;
    }
    if (count >= entries_end || slot >= entries_end) return Code::full;
    if (!slot_first.ensure(std::uint64_t{slot} + 1)) return Code::full;
    if (free_entry == no_entry && !entries.ensure(std::uint64_t{entries_used} + 1))
      return Code::full;
    if ((words + 1) * 3 > places * 2 && !make_table(places * 2)) return Code::full;
    if (book != nullptr && !book->make_room(entries.capacity())) return Code::full;
    return Code::ok;
  }
  [[nodiscard]] std::uint32_t take_entry() {
    ++count;
    if (free_entry == no_entry) return entries_used++;
    const std::uint32_t e = free_entry;
    free_entry = entry(e).next_key;
    return e;
  }
  void give_entry(std::uint32_t e) {
    --count;
    entry(e).next_key = free_entry;
    entry(e).slot = no_slot;
    free_entry = e;
  }

  void link_key(std::uint32_t tag, std::uint32_t e, const std::byte* parent) {
    Entry& made = entry(e);
    const std::uint64_t p = place(tag, made.group, key(e));
    if (table[p] == 0) {
      made.prev_same = e;
      table[p] = word_of(tag, e);
      ++words;
      if (book != nullptr && book->takes(made.group, made.end))
        book->added(e, key(e), made.end, parent, first_entry(made.group, parent));
      return;
    }
    Entry& first = entry(entry_at(table[p]));
    entry(first.prev_same).next_same = e;
    made.prev_same = first.prev_same;
    first.prev_same = e;
  }
  void unlink_key(std::uint32_t e) {
    const Entry& gone = entry(e);
    const std::uint32_t tag = tag_of(gone.group, key(e), options.key_bytes);
    const std::uint64_t p = place(tag, gone.group, key(e));
    KVC_CHECK(table[p] != 0);
    const std::uint32_t first = entry_at(table[p]);
    if (first == e) {
      const bool booked = book != nullptr && book->node_of(e) != ChainBook::none;
      if (gone.next_same == no_entry) {
        if (booked) book->removed(e, key(e), gone.end);
        return remove_word(p);
      }
      if (booked) book->moved(e, gone.next_same);
      entry(gone.next_same).prev_same = gone.prev_same;
      table[p] = word_of(tag, gone.next_same);
      return;
    }
    entry(gone.prev_same).next_same = gone.next_same;
    entry(gone.next_same == no_entry ? first : gone.next_same).prev_same = gone.prev_same;
  }
  // The entry that holds the key first; no_entry if there is none or `k` is null.
  [[nodiscard]] std::uint32_t first_entry(GroupId group, const std::byte* k) const {
    if (k == nullptr) return no_entry;
    const std::uint64_t p = place(tag_of(group, k, options.key_bytes), group, k);
    return table[p] == 0 ? no_entry : entry_at(table[p]);
  }
  void link_slot(SlotId slot, std::uint32_t e) {
    std::uint32_t last = first_of(slot);
    if (last == no_entry) {
      ++keyed_slots;
      return set_first(slot, e);
    }
    while (entry(last).next_key != no_entry) last = entry(last).next_key;
    entry(last).next_key = e;
  }
  [[nodiscard]] std::uint32_t find_on_slot(SlotId slot, GroupId group, const std::byte* k) const {
    std::uint32_t e = first_of(slot);
    while (e != no_entry && !same_key(e, group, k)) e = entry(e).next_key;
    return e;
  }
  [[nodiscard]] Status verify_slots(std::uint64_t& seen) const;
  [[nodiscard]] Status verify_table() const;
  [[nodiscard]] Status verify_chain() const;
};

FlatIndex::FlatIndex(std::unique_ptr<Body> body) : body_(std::move(body)) {}
FlatIndex::FlatIndex(FlatIndex&&) noexcept = default;
FlatIndex& FlatIndex::operator=(FlatIndex&&) noexcept = default;
FlatIndex::~FlatIndex() = default;

Result<FlatIndex> FlatIndex::make(const FlatIndexOptions& options) {
  if (options.key_bytes < key_bytes_min || options.key_bytes > key_bytes_max)
    return Status{Code::arg, fmt::format("keys of {} bytes, they must have {} to {}",
                                         options.key_bytes, key_bytes_min, key_bytes_max)};
  if (options.slots >= entries_end || options.aliases >= entries_end ||
      options.slots + options.aliases >= entries_end)
    return Status{Code::arg,
                  fmt::format("{} slots with {} further keys, the limit is 2^31 together",
                              options.slots, options.aliases)};
  auto body = std::make_unique<Body>(options);
  const std::uint64_t entries = options.slots == 0 ? 0 : options.slots + options.aliases;
  const std::uint64_t places = body->bounded() ? entries * 3 / 2 + 8 : 1024;
  if (!body->make_table(places) || !body->entries.size_for(entries) ||
      !body->slot_first.size_for(options.slots))
    return Status{Code::full, fmt::format("no memory for an index of {} keys", entries)};
  if (options.chain) {
    Result<ChainBook> book = ChainBook::make(options.key_bytes, *options.chain, entries);
    if (!book.ok()) return book.error();
    body->book = std::make_unique<ChainBook>(std::move(book).value());
  }
  return FlatIndex(std::move(body));
}

SlotId FlatIndex::find(GroupId group, const std::byte* key) const {
  const Body& b = *body_;
  const std::uint64_t p = b.place(tag_of(group, key, b.options.key_bytes), group, key);
  return b.table[p] == 0 ? no_slot : b.entry(Body::entry_at(b.table[p])).slot;
}

// Three passes over up to 32 keys, so that the misses of table and arena overlap.
void FlatIndex::find_batch(GroupId group, const KeyRun& keys, std::span<SlotId> out) const {
  KVC_CHECK(out.size() >= keys.count);
  const Body& b = *body_;
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): written before it is read, hot
  std::array<std::uint32_t, find_batch_keys> tags;
  const auto key_of = [&](std::size_t i) {
    return keys.first + static_cast<std::ptrdiff_t>(i) * keys.stride;
  };
  for (std::size_t base = 0; base < keys.count; base += find_batch_keys) {
    const std::size_t n = std::min(find_batch_keys, keys.count - base);
    for (std::size_t i = 0; i < n; ++i) {
      tags[i] = tag_of(group, key_of(base + i), b.options.key_bytes);
      prefetch(&b.table[b.home(tags[i])]);
    }
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): as tags
    std::array<std::uint64_t, find_batch_keys> places;
    for (std::size_t i = 0; i < n; ++i) {
      std::uint64_t p = b.home(tags[i]);
      while (b.table[p] != 0 && Body::tag_at(b.table[p]) != tags[i]) p = b.after(p);
      places[i] = p;
      if (b.table[p] == 0) continue;
      const std::byte* entry = b.entries.at(Body::entry_at(b.table[p]));
      prefetch(entry);
      prefetch(entry + b.entries.stride() - 1);  // it may lie across two lines
    }
    for (std::size_t i = 0; i < n; ++i) {
      const std::byte* key = key_of(base + i);
      std::uint64_t p = places[i];
      for (; b.table[p] != 0; p = b.after(p))
        if (Body::tag_at(b.table[p]) == tags[i] &&
            b.same_key(Body::entry_at(b.table[p]), group, key))
          break;
      out[base + i] = b.table[p] == 0 ? no_slot : b.entry(Body::entry_at(b.table[p])).slot;
    }
  }
}

bool FlatIndex::holds(SlotId slot, GroupId group, const std::byte* key) const {
  return body_->find_on_slot(slot, group, key) != no_entry;
}

std::uint64_t FlatIndex::holders(GroupId group, const std::byte* key) const {
  const Body& b = *body_;
  const std::uint64_t p = b.place(tag_of(group, key, b.options.key_bytes), group, key);
  if (b.table[p] == 0) return 0;
  std::uint64_t n = 0;
  for (std::uint32_t e = Body::entry_at(b.table[p]); e != no_entry; e = b.entry(e).next_same) ++n;
  return n;
}

bool FlatIndex::prefix_closed(GroupId group) const {
  const ChainBook* book = body_->book.get();
  return book != nullptr && group == book->group() && book->closed();
}

Code FlatIndex::insert(GroupId group, const std::byte* key, SlotId slot, Tokens end,
                       const std::byte* parent) {
  Body& b = *body_;
  KVC_CHECK(parent == nullptr || !equal(parent, key, b.options.key_bytes));
  KVC_CHECK(slot != no_slot && (!b.bounded() || slot < b.options.slots));
  KVC_CHECK(group < groups_max && end.n <= UINT32_MAX);
  if (b.find_on_slot(slot, group, key) != no_entry) return Code::more;
  const std::uint32_t tag = tag_of(group, key, b.options.key_bytes);
  if (!b.options.duplicates && b.table[b.place(tag, group, key)] != 0) return Code::state;
  if (const Code room = b.make_room(slot, b.first_of(slot) != no_entry); room != Code::ok) {
    ++b.refused;
    return room;
  }
  const std::uint32_t e = b.take_entry();
  b.entry(e) = Entry{slot, static_cast<std::uint32_t>(end.n), no_entry, no_entry, no_entry, group};
  std::memcpy(b.key(e), key, b.options.key_bytes);
  b.link_key(tag, e, parent);
  b.link_slot(slot, e);
  return Code::ok;
}

bool FlatIndex::erase(GroupId group, const std::byte* key, SlotId slot) {
  Body& b = *body_;
  std::uint32_t before = no_entry;
  std::uint32_t e = b.first_of(slot);
  while (e != no_entry && !b.same_key(e, group, key)) {
    before = e;
    e = b.entry(e).next_key;
  }
  if (e == no_entry) return false;
  const std::uint32_t next = b.entry(e).next_key;
  if (before == no_entry)
    b.set_first(slot, next);
  else
    b.entry(before).next_key = next;
  if (before == no_entry && next == no_entry) --b.keyed_slots;
  b.unlink_key(e);
  b.give_entry(e);
  return true;
}

std::uint32_t FlatIndex::erase_slot(SlotId slot) {
  Body& b = *body_;
  std::uint32_t e = b.first_of(slot);
  if (e == no_entry) return 0;
  std::uint32_t n = 0;
  while (e != no_entry) {
    const std::uint32_t next = b.entry(e).next_key;
    b.unlink_key(e);
    b.give_entry(e);
    e = next;
    ++n;
  }
  b.set_first(slot, no_entry);
  --b.keyed_slots;
  return n;
}

void FlatIndex::move_keys(SlotId from, SlotId to) {
  Body& b = *body_;
  KVC_CHECK(!has_keys(to) && from != to && (!b.bounded() || to < b.options.slots));
  const std::uint32_t first = b.first_of(from);
  if (first == no_entry) return;
  if (!b.slot_first.ensure(std::uint64_t{to} + 1)) throw std::bad_alloc();
  for (std::uint32_t e = first; e != no_entry; e = b.entry(e).next_key) b.entry(e).slot = to;
  b.set_first(to, first);
  b.set_first(from, no_entry);
}

// Writes only what was used, so that an untouched arena stays untouched.
void FlatIndex::clear() {
  Body& b = *body_;
  for (std::uint64_t p = 0; p < b.places && b.words > 0; ++p) {
    if (b.table[p] == 0) continue;
    for (std::uint32_t e = Body::entry_at(b.table[p]); e != no_entry; e = b.entry(e).next_same)
      b.set_first(b.entry(e).slot, no_entry);
    b.table[p] = 0;
    --b.words;
  }
  if (b.book != nullptr) b.book->clear(b.entries_used);
  b.entries_used = 0;
  b.free_entry = no_entry;
  b.count = 0;
  b.keyed_slots = 0;
}

bool FlatIndex::has_keys(SlotId slot) const { return body_->first_of(slot) != no_entry; }

SlotKey FlatIndex::primary(SlotId slot) const {
  KVC_CHECK(has_keys(slot));
  return key_at(body_->first_of(slot));
}

std::uint32_t FlatIndex::keys_of(SlotId slot) const {
  std::uint32_t n = 0;
  for_each_key(slot, [&](const SlotKey&) { ++n; });
  return n;
}

std::uint32_t FlatIndex::first_of(SlotId slot) const { return body_->first_of(slot); }
std::uint32_t FlatIndex::next_key(std::uint32_t entry) const {
  return body_->entry(entry).next_key;
}

SlotKey FlatIndex::key_at(std::uint32_t entry) const {
  const Entry& e = body_->entry(entry);
  return {e.group, body_->key(entry), Tokens{e.end}};
}

std::uint32_t FlatIndex::key_bytes() const { return body_->options.key_bytes; }

IndexCounters FlatIndex::counters() const {
  const Body& b = *body_;
  IndexCounters c;
  c.entries = b.count;
  c.aliases = b.count - b.keyed_slots;
  c.aliases_refused = b.refused;
  c.bytes = b.places * sizeof(std::uint64_t) + b.entries.capacity() * b.entries.stride() +
            b.slot_first.capacity() * sizeof(std::uint32_t);
  if (b.book != nullptr) {
    c.bytes += b.book->bytes();
    c.chain_holes = b.book->holes() + b.book->orphans();
  }
  return c;
}

Status FlatIndex::Body::verify_slots(std::uint64_t& seen) const {
  std::uint64_t keyed = 0;
  for (std::uint64_t s = 0; s < slot_first.capacity(); ++s) {
    const auto slot = static_cast<SlotId>(s);
    if (first_of(slot) == no_entry) continue;
    ++keyed;
    for (std::uint32_t e = first_of(slot); e != no_entry; e = entry(e).next_key) {
      if (++seen > count)
        return {Code::internal, fmt::format("slot {}: its chain of keys does not end", slot)};
      if (entry(e).slot != slot)
        return {Code::internal,
                fmt::format("entry {} of slot {} says slot {}", e, slot, entry(e).slot)};
      for (std::uint32_t o = entry(e).next_key; o != no_entry; o = entry(o).next_key)
        if (same_key(o, entry(e).group, key(e)))
          return {Code::internal, fmt::format("slot {} has one key twice", slot)};
    }
  }
  if (keyed != keyed_slots)
    return {Code::internal, fmt::format("{} slots have keys, counted {}", keyed, keyed_slots)};
  return {};
}

Status FlatIndex::Body::verify_table() const {
  std::uint64_t seen = 0;
  std::uint64_t taken = 0;
  for (std::uint64_t p = 0; p < places; ++p) {
    if (table[p] == 0) continue;
    ++taken;
    const std::uint32_t first = entry_at(table[p]);
    const std::uint32_t tag = tag_of(entry(first).group, key(first), options.key_bytes);
    if (tag != tag_at(table[p]) || place(tag, entry(first).group, key(first)) != p)
      return {Code::internal, fmt::format("place {}: its key is not found from its home", p)};
    std::uint32_t before = entry(first).prev_same;
    if (entry(before).next_same != no_entry)
      return {Code::internal,
              fmt::format("entry {}: its last duplicate {} has a successor", first, before)};
    for (std::uint32_t e = first; e != no_entry; e = entry(e).next_same) {
      if (++seen > count)
        return {Code::internal, fmt::format("place {}: its duplicates do not end", p)};
      if (entry(e).prev_same != before || !same_key(e, entry(first).group, key(first)))
        return {Code::internal,
                fmt::format("entry {}: wrong neighbour or key among duplicates", e)};
      before = e;
    }
    if (!options.duplicates && entry(first).next_same != no_entry)
      return {Code::internal, fmt::format("entry {} has a duplicate", first)};
  }
  if (taken != words || seen != count)
    return {Code::internal, fmt::format("{} places and {} entries in the table, counted {} and {}",
                                        taken, seen, words, count)};
  return {};
}

// The book against a recount from the entries.
Status FlatIndex::Body::verify_chain() const {
  constexpr std::uint64_t absent = UINT64_MAX;
  std::vector<std::uint64_t> end_of(book->nodes_end(), absent);
  std::vector<std::uint32_t> children(book->nodes_end(), 0);
  std::uint64_t present = 0;
  std::uint64_t orphans = 0;
  const auto for_each_head = [&](auto visit) {
    for (std::uint64_t p = 0; p < places; ++p)
      if (table[p] != 0) visit(entry_at(table[p]));
  };
  Status bad;
  for_each_head([&](std::uint32_t head) {
    const std::uint32_t node = book->node_of(head);
    if (node != ChainBook::none && end_of[node] == absent) {
      end_of[node] = entry(head).end;
      ++present;
    } else if (node != ChainBook::none || book->takes(entry(head).group, entry(head).end)) {
      bad = {Code::internal, fmt::format("entry {}: node {} of the chain", head, node)};
    }
    for (std::uint32_t e = entry(head).next_same; e != no_entry; e = entry(e).next_same)
      if (book->node_of(e) != ChainBook::none)
        bad = {Code::internal, fmt::format("entry {} is not the first and has a node", e)};
  });
  if (!bad.ok()) return bad;
  std::uint64_t holes = 0;
  for (std::uint32_t n = 0; n < book->nodes_end(); ++n) {
    if (!book->is_hole(n)) continue;
    ++holes;
    const SlotKey hole = book->hole_key(n);
    if (end_of[n] != absent || first_entry(hole.group, hole.key) != no_entry)
      return {Code::internal, fmt::format("node {} is a hole and present", n)};
    end_of[n] = hole.end.n;
  }
  for_each_head([&](std::uint32_t head) {
    if (book->node_of(head) == ChainBook::none) return;
    const std::uint32_t above = book->parent_of(book->node_of(head));
    const std::uint64_t block = options.chain->block.n;
    if (above == ChainBook::orphan) ++orphans;
    if (above == ChainBook::orphan || (above == ChainBook::root && entry(head).end == block))
      return;
    if (above < children.size() && end_of[above] + block == entry(head).end)
      ++children[above];
    else
      bad = {Code::internal, fmt::format("entry {}: node {} is not its parent", head, above)};
  });
  if (!bad.ok()) return bad;
  for (std::uint32_t n = 0; n < book->nodes_end(); ++n)
    if (children[n] != (end_of[n] == absent ? 0 : book->children_of(n)) ||
        (children[n] == 0 && book->is_hole(n)))
      return {Code::internal, fmt::format("node {} has {} children", n, children[n])};
  if (orphans != book->orphans() || holes != book->holes() ||
      present + holes != book->nodes_in_use())
    return {Code::internal, fmt::format("{} nodes, {} holes, {} orphans of the chain; counted {}, "
                                        "{}, {}",
                                        present + holes, holes, orphans, book->nodes_in_use(),
                                        book->holes(), book->orphans())};
  return book->verify_holes();
}

Status FlatIndex::verify() const {
  std::uint64_t seen = 0;
  if (Status s = body_->verify_slots(seen); !s.ok()) return s;
  if (seen != body_->count)
    return {Code::internal, fmt::format("{} entries on slots, counted {}", seen, body_->count)};
  if (Status s = body_->verify_table(); !s.ok() || body_->book == nullptr) return s;
  return body_->verify_chain();
}

}  // namespace kvc
