// Who names which device block: KVC-H-032, 042, 043, 047.
#include <algorithm>

#include <fmt/format.h>

#include "conformance/validate/checks.h"

namespace kvc::validate {
namespace {

void drop_use(Model& m, std::uint64_t id, std::uint32_t g, std::uint64_t p, std::int64_t block) {
  const auto it = m.uses.find(block);
  if (it == m.uses.end()) return;
  std::erase_if(it->second,
                [&](const Use& u) { return u.request == id && u.group == g && u.position == p; });
  if (it->second.empty()) m.uses.erase(it);
}

// Both keys are known and differ.
bool other_key(const KeyId& a, const KeyId& b) { return a != no_key && b != no_key && a != b; }

// One block at one place: the same group, position and path.
bool same_place(const Model& m, const Request& a, const Doubt& entry, const Request& b,
                const Use& use) {
  if (entry.group != use.group || entry.position != use.position) return false;
  const std::uint64_t span = m.layout.groups[entry.group].span;
  const std::uint64_t begin = entry.position * span;
  return !other_key(key_at(m, a, begin), key_at(m, b, begin)) &&
         !other_key(key_at(m, a, begin + span), key_at(m, b, begin + span));
}

// KVC-H-047.
void check_hold(const Check& c, std::uint64_t id, const Request& r, const Doubt& entry) {
  const Model& m = c.model;
  const auto it = m.holds.find(entry.block);
  if (it == m.holds.end()) return;
  const std::uint64_t begin = entry.position * m.layout.groups[entry.group].span;
  for (const Hold& h : it->second) {
    const bool same = h.group == entry.group && h.position == entry.position &&
                      !other_key(h.key, key_at(m, r, begin));
    if (same) continue;
    c.find("KVC-H-047",
           fmt::format("request {}: group {} position {} is block {}, which job {} holds as group "
                       "{} position {}",
                       id, entry.group, entry.position, entry.block, h.job, h.group, h.position));
    return;
  }
}

}  // namespace

void check_entries(const Check& c, std::uint64_t id, const Request& r,
                   const std::vector<Table>& tables, rules::RuleId rule) {
  const Layout& layout = c.model.layout;
  FlatMap<std::int64_t, std::pair<std::uint32_t, std::uint64_t>> seen;
  for (const Table& t : tables) {
    const auto& known = r.tables[t.group];
    if (layout.groups[t.group].stable && !t.blocks.empty()) {
      const std::uint64_t same = std::min<std::uint64_t>(t.first_changed, t.blocks.size());
      const auto differs =
          std::mismatch(t.blocks.begin(), t.blocks.begin() + static_cast<std::ptrdiff_t>(same),
                        known.begin(), known.end())
              .first -
          t.blocks.begin();
      if (static_cast<std::uint64_t>(differs) < same) {
        c.find("KVC-H-042", fmt::format("request {}: group {} position {} lies below first_changed "
                                        "{} and is not what it was",
                                        id, t.group, differs, t.first_changed));
      }
    }
    for (std::uint64_t p = 0; p < t.blocks.size(); ++p) {
      const std::int64_t block = t.blocks[p];
      if (block == layout.null_block) continue;
      if (!layout.real(block)) {
        c.find(rule, fmt::format("request {}: group {} position {} is block {} of {}", id, t.group,
                                 p, block, layout.device_blocks));
        continue;
      }
      const auto [it, fresh] = seen.try_emplace(block, t.group, p);
      if (fresh) continue;
      c.find(rule, fmt::format("request {}: block {} is at group {} position {} and at group {} "
                               "position {}",
                               id, block, it->second.first, it->second.second, t.group, p));
    }
  }
}

void keep_tables(Model& model, std::uint64_t id, Request& r, const std::vector<Table>& tables) {
  const Layout& layout = model.layout;
  for (const Table& t : tables) {
    if (!layout.groups[t.group].stable || t.blocks.empty()) continue;
    std::vector<std::int64_t>& known = r.tables[t.group];
    const std::uint64_t longest = std::max(known.size(), t.blocks.size());
    for (std::uint64_t p = 0; p < longest; ++p) {
      const std::int64_t before = p < known.size() ? known[p] : layout.null_block;
      const std::int64_t now = p < t.blocks.size() ? t.blocks[p] : layout.null_block;
      if (before == now) continue;
      if (layout.real(before)) drop_use(model, id, t.group, p, before);
      if (layout.real(now)) r.fresh.push_back({t.group, p, now, 0});
    }
    known = t.blocks;
  }
}

void drop_uses(Model& model, std::uint64_t id, const Request& r) {
  for (std::uint32_t g = 0; g < r.tables.size(); ++g) {
    for (std::uint64_t p = 0; p < r.tables[g].size(); ++p) {
      if (model.layout.real(r.tables[g][p])) drop_use(model, id, g, p, r.tables[g][p]);
    }
  }
}

void forget_tables(Model& model, std::uint64_t id, Request& r) {
  drop_uses(model, id, r);
  for (auto& table : r.tables) table.clear();
  r.fresh.clear();
  r.doubts.clear();
}

void own_tables(const Check& c, std::uint64_t id, Request& r, const FlatSet<std::uint64_t>& told) {
  Model& m = c.model;
  for (const Doubt& entry : r.fresh) {
    const auto& table = r.tables[entry.group];
    // Told twice before the step: the later one counts.
    if (entry.position >= table.size() || table[entry.position] != entry.block) continue;
    check_hold(c, id, r, entry);
    std::vector<Use>& uses = m.uses[entry.block];
    bool listed = false;
    for (std::size_t i = 0; i < uses.size();) {
      const Use use = uses[i];
      listed = listed ||
               (use.request == id && use.group == entry.group && use.position == entry.position);
      Request* const other = use.request == id ? &r : m.find(use.request);
      if (other == nullptr || use.request == id || same_place(m, r, entry, *other, use)) {
        ++i;
        continue;
      }
      if (told.contains(use.request)) {
        c.find("KVC-H-043",
               fmt::format("block {} is at group {} position {} of request {} and at group {} "
                           "position {} of request {}, on another path or place",
                           entry.block, entry.group, entry.position, id, use.group, use.position,
                           use.request));
        ++i;
        continue;
      }
      other->doubts.push_back({use.group, use.position, entry.block, id});
      uses.erase(uses.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (!listed) uses.push_back({id, entry.group, entry.position});
  }
  r.fresh.clear();
}

void settle_doubts(const Check& c, std::uint64_t id, Request& r) {
  for (const Doubt& d : r.doubts) {
    const auto& table = r.tables[d.group];
    if (d.position >= table.size() || table[d.position] != d.block) continue;
    if (d.other == 0) {
      c.find("KVC-H-048", fmt::format("block {} was a candidate while it was at group {} position "
                                      "{} of request {}",
                                      d.block, d.group, d.position, id));
    } else {
      c.find("KVC-H-043",
             fmt::format("block {} is at group {} position {} of request {}, and was given to "
                         "request {}",
                         d.block, d.group, d.position, id, d.other));
    }
  }
  r.doubts.clear();
}

}  // namespace kvc::validate
