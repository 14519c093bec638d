// Helpers of the coordinator's tests.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "plugin/coordinator/geometry.h"
#include "plugin/coordinator/key_index.h"
#include "plugin/coordinator/lookup.h"

namespace kvc::test {

// Keys of one request: key i is unit number i with a salt for the request; different salts share
// nothing.
class Keys {
 public:
  explicit Keys(std::uint64_t units, std::uint32_t key_bytes = 16, std::uint64_t salt = 0)
      : key_bytes_(key_bytes), bytes_(units * key_bytes) {
    for (std::uint64_t i = 0; i < units; ++i) {
      const std::uint64_t name = i + (salt << 32);
      std::memcpy(&bytes_[i * key_bytes], &name, sizeof name);
    }
  }
  [[nodiscard]] KeyView view() const {
    return {bytes_.data(), key_bytes_, bytes_.size() / key_bytes_};
  }
  [[nodiscard]] KeyView first(std::uint64_t units) const {
    return {bytes_.data(), key_bytes_, units};
  }
  [[nodiscard]] const std::byte* at(std::uint64_t i) const { return &bytes_[i * key_bytes_]; }

 private:
  std::uint32_t key_bytes_;
  std::vector<std::byte> bytes_;
};

// Short names for layouts as the rules write them.
inline GroupSpec fa(std::uint64_t block, bool draft = false) {
  GroupSpec s = group_spec(GroupKind::full, {block});
  s.draft = draft;
  return s;
}
inline GroupSpec sw(std::uint64_t block, std::uint64_t window, bool draft = false) {
  GroupSpec s = group_spec(GroupKind::sliding, {block}, {window});
  s.draft = draft;
  return s;
}
inline GroupSpec cl(std::uint64_t block, std::uint64_t chunk) {
  return group_spec(GroupKind::chunked, {block}, {chunk});
}
inline GroupSpec mb(std::uint64_t block, bool all_mode = false) {
  return group_spec(GroupKind::state, {block}, {}, all_mode);
}
inline GroupSpec scratch(std::uint64_t block) { return group_spec(GroupKind::other, {block}); }

struct Layout {
  std::vector<GroupSpec> groups;
  std::uint64_t h = 16;
  std::uint64_t s = 16;
  std::uint32_t cp = 1;
  bool fine_allowed = true;
  bool drop = true;  // only matters with flagged groups
  std::int64_t retention = -1;
  std::uint64_t lookahead = 0;
};

inline Result<Geometry> try_make(const Layout& layout) {
  GeometryOptions o;
  o.groups = layout.groups;
  o.hash_unit = {layout.h};
  o.scheduler_block = {layout.s};
  o.context_parallel = layout.cp;
  o.fine_hits_allowed = layout.fine_allowed;
  for (const GroupSpec& g : o.groups) o.draft_drop = o.draft_drop || (layout.drop && g.draft);
  o.retention = layout.retention;
  o.lookahead = {layout.lookahead};
  return Geometry::make(std::move(o));
}

inline Geometry make(const Layout& layout) {
  Result<Geometry> made = try_make(layout);
  if (!made.ok()) throw std::runtime_error(made.error().text);
  return std::move(made).value();
}

// An index that holds exactly the given prefix ends of one request, per group.
class Held {
 public:
  Held(const Geometry& geometry, std::vector<std::vector<std::uint64_t>> ends, std::uint64_t tokens)
      : geometry_(geometry),
        keys_(tokens / geometry.hash_unit().n + 1),
        units_(tokens / geometry.hash_unit().n),
        index_(std::move(FlatIndex::make({16, 4096, 0, false})).value()) {
    for (GroupId g = 0; g < ends.size(); ++g)
      for (const std::uint64_t end : ends[g]) {
        const std::uint64_t unit = end / geometry.hash_unit().n;
        if (unit > units_) continue;  // no key of this request names it
        KVC_CHECK(index_.insert(g, keys_.at(unit - 1), next_++, {end}) == Code::ok);
      }
  }
  [[nodiscard]] Hit find(std::uint64_t start, std::uint64_t most) const {
    Hit hit;
    KVC_CHECK(lookup(geometry_, index_, keys_.first(units_), {start}, {most}, hit) == Code::ok);
    return hit;
  }
  [[nodiscard]] Hit find_per_group(std::uint64_t start, std::uint64_t most) const {
    Hit hit;
    KVC_CHECK(lookup_per_group(geometry_, index_, keys_.first(units_), {start}, {most}, hit) ==
              Code::ok);
    return hit;
  }
  [[nodiscard]] const FlatIndex& index() const { return index_; }
  [[nodiscard]] KeyView keys() const { return keys_.first(units_); }

 private:
  const Geometry& geometry_;
  Keys keys_;
  std::uint64_t units_;
  FlatIndex index_;
  SlotId next_ = 0;
};

// An index with the promises that let lookups skip probes, over one without them. The caller names
// the groups that are closed; what tails there are is found by asking for every boundary, and
// `noise` adds bits that promise nothing.
class ClosedIndex final : public KeyIndex {
 public:
  ClosedIndex(const Geometry& geometry, const FlatIndex& index, KeyView keys, std::uint64_t closed,
              std::uint64_t noise = 0)
      : geometry_(geometry), index_(index), keys_(keys), closed_(closed), noise_(noise) {}
  [[nodiscard]] SlotId find(GroupId group, const std::byte* key) const override {
    return index_.find(group, key);
  }
  void find_batch(GroupId group, const KeyRun& keys, std::span<SlotId> out) const override {
    index_.find_batch(group, keys, out);
  }
  [[nodiscard]] bool prefix_closed(GroupId group) const override {
    return (closed_ >> group & 1) != 0;
  }
  [[nodiscard]] std::uint64_t tail_offsets(GroupId group, SlotId base) const override {
    KVC_CHECK(prefix_closed(group));
    const Tokens h = geometry_.hash_unit();
    const Tokens from = base == no_slot ? Tokens{} : index_.primary(base).end;
    const std::uint64_t units = geometry_.block_tokens(group).n / h.n;
    std::uint64_t bits = noise_;
    for (std::uint64_t i = 0; i + 1 < units; ++i) {
      const Tokens end = from + h * (i + 1);
      if (end.n / h.n > keys_.count) break;
      if (index_.find(group, block_key(keys_, end, h)) != no_slot)
        bits |= std::uint64_t{1} << tail_offset_bit(i, units);
    }
    return bits;
  }

 private:
  const Geometry& geometry_;
  const FlatIndex& index_;
  KeyView keys_;
  std::uint64_t closed_;
  std::uint64_t noise_;
};

// Empty, or what differs between two answers to one question; both groups' lists are compared, and
// that a brief group knows its ends.
inline std::string difference(const Hit& a, const Hit& b) {
  if (a.start != b.start || a.tokens != b.tokens)
    return fmt::format("hit {}..{}, {}..{}", a.start.n, a.tokens.n, b.start.n, b.tokens.n);
  if (a.uncached_common_prefix != b.uncached_common_prefix ||
      a.dropped_for_drafts != b.dropped_for_drafts || a.attention_tokens != b.attention_tokens)
    return fmt::format("uncached {} {}, dropped {} {}, attention {} {}", a.uncached_common_prefix.n,
                       b.uncached_common_prefix.n, a.dropped_for_drafts.n, b.dropped_for_drafts.n,
                       a.attention_tokens.n, b.attention_tokens.n);
  if (a.groups.size() != b.groups.size()) return "number of groups";
  for (GroupId g = 0; g < a.groups.size(); ++g) {
    const GroupHit& x = a.groups[g];
    const GroupHit& y = b.groups[g];
    if (x.tokens != y.tokens || x.first_position != y.first_position || x.count() != y.count() ||
        x.slots != y.slots || x.last() != y.last())
      return fmt::format("group {}: {} tokens, {}+{} positions; {} tokens, {}+{} positions", g,
                         x.tokens.n, x.first_position, x.count(), y.tokens.n, y.first_position,
                         y.count());
    for (const GroupHit* one : {&x, &y}) {
      if (!one->brief) continue;
      const SlotId deepest = one->whole == 0 ? no_slot : one->slots[one->whole - 1];
      if (one->deepest != deepest) return fmt::format("group {}: wrong deepest slot", g);
    }
  }
  return {};
}

// Ends step, 2 step, ... up to last.
inline std::vector<std::uint64_t> ends(std::uint64_t step, std::uint64_t last) {
  std::vector<std::uint64_t> out;
  for (std::uint64_t e = step; e <= last; e += step) out.push_back(e);
  return out;
}

// A list as the rules draw it: X a block, - a null.
inline std::string draw(const GroupHit& hit) {
  return std::string(hit.first_position, '-') + std::string(hit.slots.size(), 'X');
}

}  // namespace kvc::test
