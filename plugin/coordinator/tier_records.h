// The records of a tier and the table that finds them by key: the storage under TierIndex.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <new>

#include "plugin/coordinator/key_hash.h"
#include "plugin/coordinator/slabs.h"
#include "plugin/coordinator/tier_index.h"
#include "plugin/core/prefetch.h"

namespace kvc::tier {

inline constexpr std::uint64_t ids_end = (std::uint64_t{1} << 31) - 1;
inline constexpr std::uint32_t none = UINT32_MAX;

// Where an entry stands in the eviction order. kept: in a strand, beside a policy that ranks the
// others.
enum class Place : std::uint32_t { out, strand, front, kept };

// What keeps an entry: leases, jobs, and links (children, blocked dependents, writer pins, an open
// rewrite, holds of offers in the making), packed so that "nothing does" is one comparison.
inline constexpr std::uint64_t lease_unit = 1;
inline constexpr std::uint64_t job_unit = std::uint64_t{1} << 20;
inline constexpr std::uint64_t link_unit = std::uint64_t{1} << 40;
inline constexpr std::uint64_t lease_mask = job_unit - 1;
inline constexpr std::uint64_t pin_mask = link_unit - 1;

// One slot. All zero: free. Slots in links are stored + 1, 0 is
// none.
struct Record {
  std::uint64_t holders;
  std::uint32_t end;
  std::uint32_t run1;  // run + 1
  // In the order: towards the older or smaller, and the newer or larger. Of an unpublished chain
  // entry: its siblings below the same parent.
  std::uint32_t prev;
  std::uint32_t next;
  std::uint32_t support;  // chain entry: its parent
  std::uint32_t second;   // chain entry, tail: first of its dependents; else the tail support
  // Dependent: neighbours in the list of `support`, or in its run's list of unsupported ones.
  // Chain entry: first unpublished child; and the tag of a landed one, or with `offsets_high` the
  // tail offsets of a published one.
  std::uint32_t dep_next;
  std::uint32_t dep_prev;
  std::uint32_t dep2_next;  // dependent: next in the list of `second`. Chain entry: offsets_high
  std::uint32_t meta;

  static constexpr std::uint32_t bad_bit = 1U << 5;
  static constexpr std::uint32_t rewriting_bit = 1U << 6;
  static constexpr std::uint32_t unsupported_bit = 1U << 7;
  static constexpr std::uint32_t tail_bit = 1U << 8;
  static constexpr std::uint32_t chain_bit = 1U << 9;
  static constexpr std::uint32_t listed_bit = 1U << 10;  // in its run's list of unsupported ones
  // Chain entry: the ancestors of its stretch lie in the slots above it, not below.
  static constexpr std::uint32_t upward_bit = 1U << 11;
  static constexpr std::uint32_t stretch_max = 255;

  [[nodiscard]] EntryState state() const { return static_cast<EntryState>(meta & 7U); }
  void set_state(EntryState s) { meta = (meta & ~7U) | static_cast<std::uint32_t>(s); }
  [[nodiscard]] Place place() const { return static_cast<Place>(meta >> 3U & 3U); }
  void set_place(Place p) { meta = (meta & ~(3U << 3U)) | static_cast<std::uint32_t>(p) << 3U; }
  [[nodiscard]] bool has(std::uint32_t bit) const { return (meta & bit) != 0; }
  void set(std::uint32_t bit, bool on) { meta = on ? meta | bit : meta & ~bit; }
  [[nodiscard]] GroupId group() const { return meta >> 16U & 0xffU; }
  // Of a chain entry: so many of its ancestors, nearest first, lie in the slots next to it, one
  // after the other, so that a walk over them reads one record. Slots of a path mostly do: they
  // were given in a row. Right while the entry is keyed, as its ancestors stay where they are.
  [[nodiscard]] std::uint32_t stretch() const { return meta >> 24U; }
  [[nodiscard]] SlotId ancestor(SlotId own, std::uint32_t n) const {
    return has(upward_bit) ? own + n : own - n;
  }
  // A new entry at slot `own` whose parent is `from`. Requires: no stretch yet.
  void extend_stretch(SlotId own, SlotId parent, const Record& from) {
    const bool upward = parent == own + 1;
    if (!upward && parent + 1 != own) return;
    const bool longer = from.stretch() > 0 && from.has(upward_bit) == upward;
    set(upward_bit, upward);
    meta |= (longer ? std::min(from.stretch() + 1, stretch_max) : 1U) << 24U;
  }
  [[nodiscard]] bool published() const { return state() == EntryState::published; }
  [[nodiscard]] bool keyed() const {
    return state() >= EntryState::reserved && state() <= EntryState::published;
  }
  [[nodiscard]] bool unpublished() const {
    return state() == EntryState::reserved || state() == EntryState::landed;
  }
  // Chain entry or tail: something that others hang on.
  [[nodiscard]] bool carries() const { return has(chain_bit) || has(tail_bit); }
  // Lookups find it (f).
  [[nodiscard]] bool visible() const { return published() && !has(bad_bit); }
  // Of a dependent: nothing that it hangs on is linked.
  [[nodiscard]] bool without_support() const { return support == 0 && (carries() || second == 0); }
  [[nodiscard]] bool blocked() const { return !published() || holders != 0; }
  [[nodiscard]] RunId run() const { return run1 - 1; }
  [[nodiscard]] std::uint64_t offsets() const { return std::uint64_t{dep2_next} << 32U | dep_prev; }
  void set_offsets(std::uint64_t v) {
    dep_prev = static_cast<std::uint32_t>(v);
    dep2_next = static_cast<std::uint32_t>(v >> 32U);
  }
};
static_assert(sizeof(Record) == 48 && groups_max <= 256);

// Threads: one user. Owns: records, keys, table. Invariants: every keyed record is reachable from
// its key, and no other.
class Records {
 public:
  Records(std::uint32_t key_bytes, std::uint64_t slots, GroupId groups)
      : key_bytes_(key_bytes),
        bounded_(slots != 0),
        group_bits_(static_cast<std::uint32_t>(std::bit_width(groups - 1U))),
        keys_(key_bytes) {}

  [[nodiscard]] bool make(std::uint64_t slots) {
    return make_table(bounded_ ? slots * 8 / 5 + 8 : 1024) && records_.size_for(slots) &&
           keys_.size_for(slots);
  }
  // Room for the slot and one more key. Throws std::bad_alloc when an unlimited index is out of
  // memory.
  void ensure(SlotId slot) {
    if (bounded_) {
      KVC_CHECK(slot < records_.capacity());
    } else if (slot >= ids_end || !records_.ensure(std::uint64_t{slot} + 1) ||
               !keys_.ensure(std::uint64_t{slot} + 1) ||
               ((words_ + 1) * 3 > places_ * 2 && !make_table(places_ * 2))) {
      throw std::bad_alloc();
    }
    used_ = std::max(used_, slot + 1);
  }

  [[nodiscard]] Record& operator[](SlotId slot) const { return records_[slot]; }
  [[nodiscard]] std::byte* key(SlotId slot) const { return keys_.at(slot); }
  [[nodiscard]] bool known(SlotId slot) const { return slot < used_; }
  // Slots that were ever used lie below it.
  [[nodiscard]] SlotId used() const { return used_; }
  [[nodiscard]] std::uint32_t key_bytes() const { return key_bytes_; }
  [[nodiscard]] std::uint64_t words() const { return words_; }
  [[nodiscard]] std::uint64_t bytes() const {
    return used_ * (sizeof(Record) + keys_.stride()) + places_ * sizeof(std::uint64_t);
  }
  [[nodiscard]] bool has_key(SlotId slot, const std::byte* k) const {
    return key_hash::equal(key(slot), k, key_bytes_);
  }

  // The keyed record, or no_slot.
  [[nodiscard]] SlotId find(GroupId group, const std::byte* k) const {
    return slot_at(table_[place(tag_of(group, k), k)]);
  }
  // find of the key, or show of the slot, comes soon: the one miss that no order of slots spares.
  void expect_find(GroupId group, const std::byte* k) const {
    prefetch(&table_[home(tag_of(group, k))]);
  }
  void expect_show(SlotId slot) const {
    prefetch_write(&table_[home(tag_of((*this)[slot].group(), key(slot)))]);
  }
  // The record that lookups see under the key, or no_slot.
  [[nodiscard]] SlotId find_visible(GroupId group, const std::byte* k) const {
    const std::uint64_t word = table_[place(tag_of(group, k), k)];
    return (word & visible_bit) == 0 ? no_slot : slot_at(word);
  }
  // find of every key, of visible records only; three stages, a few keys apart, so that the misses
  // of table and records overlap.
  void find_batch(GroupId group, const KeyRun& keys, std::span<SlotId> out) const;
  void find_each(GroupId group, std::span<const std::byte* const> keys,
                 std::span<SlotId> out) const;
  // Whether find_visible and find_batch find the slot's key.
  void show(SlotId slot, bool visible) {
    std::uint64_t p = home(tag_of((*this)[slot].group(), key(slot)));
    while (slot_at(table_[p]) != slot) p = after(p);
    table_[p] = visible ? table_[p] | visible_bit : table_[p] & ~visible_bit;
  }
  // Requires: the key is absent. Not visible.
  void insert(SlotId slot, GroupId group) {
    place_word(word_of(tag_of(group, key(slot)), slot));
    ++words_;
  }
  void erase(SlotId slot) {
    const Record& r = (*this)[slot];
    const std::uint64_t p = place(tag_of(r.group(), key(slot)), key(slot));
    KVC_CHECK(table_[p] != 0 && slot_at(table_[p]) == slot);
    remove_word(p);
  }

 private:
  // The hash, and in its low bits the group itself: equal tags and equal keys are equal entries, so
  // that a search reads the key of a slot and nothing else.
  [[nodiscard]] std::uint32_t tag_of(GroupId group, const std::byte* k,
                                     std::uint32_t key_bytes) const {
    return key_hash::tag_of(group, k, key_bytes) << group_bits_ | group;
  }
  [[nodiscard]] std::uint32_t tag_of(GroupId group, const std::byte* k) const {
    return tag_of(group, k, key_bytes_);
  }
  template <std::uint32_t known, class KeyOf>
  void find_staged(GroupId group, std::size_t n, const KeyOf& key_of, std::span<SlotId> out) const;
  template <class KeyOf>
  void find_many(GroupId group, std::size_t n, const KeyOf& key_of, std::span<SlotId> out) const;
  [[nodiscard]] std::uint64_t home(std::uint32_t tag) const { return (tag * places_) >> 32U; }
  [[nodiscard]] std::uint64_t after(std::uint64_t p) const { return p + 1 == places_ ? 0 : p + 1; }
  [[nodiscard]] static std::uint32_t tag_at(std::uint64_t word) {
    return static_cast<std::uint32_t>(word >> 32U);
  }
  // no_slot: of an empty place.
  static_assert(no_slot == UINT32_MAX);
  [[nodiscard]] static SlotId slot_at(std::uint64_t word) {
    return (static_cast<std::uint32_t>(word) & slot_mask) - 1;
  }
  [[nodiscard]] static std::uint64_t word_of(std::uint32_t tag, SlotId slot) {
    return std::uint64_t{tag} << 32U | (slot + 1);
  }
  [[nodiscard]] std::uint64_t place(std::uint32_t tag, const std::byte* k) const {
    std::uint64_t p = home(tag);
    for (; table_[p] != 0; p = after(p))
      if (tag_at(table_[p]) == tag && has_key(slot_at(table_[p]), k)) break;
    return p;
  }
  void place_word(std::uint64_t word) {
    std::uint64_t p = home(tag_at(word));
    while (table_[p] != 0) p = after(p);
    table_[p] = word;
  }
  void remove_word(std::uint64_t gap);
  [[nodiscard]] bool make_table(std::uint64_t places);

  static constexpr std::uint64_t visible_bit = std::uint64_t{1} << 31U;
  static constexpr std::uint32_t slot_mask = (1U << 31U) - 1;

  std::uint32_t key_bytes_;
  bool bounded_;
  std::uint32_t group_bits_;
  mutable SlabArray<Record> records_;
  // Apart, so that a search touches half the memory; keys of 8, 16 and 32 bytes lie in one line.
  Slabs keys_;
  Zeroed table_memory_;
  std::uint64_t* table_ = nullptr;  // tag << 32 | visible_bit? | (slot + 1); 0: empty
  std::uint64_t places_ = 0;
  std::uint64_t words_ = 0;
  SlotId used_ = 0;
};

}  // namespace kvc::tier
