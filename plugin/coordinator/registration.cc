#include "plugin/coordinator/registration.h"

#include <algorithm>

namespace kvc {
namespace {

const std::byte* parent_key(const KeyView& keys, Tokens end, Tokens span, Tokens hash_unit) {
  return end > span ? block_key(keys, end - span, hash_unit) : nullptr;
}

// R-333 and R-334b. The key of a tail inside a full block stays beside the block's own (R-333,
// measured).
Code register_tail(const Geometry& geometry, BlockPool& pool, const RegisterInput& in, Tokens tail,
                   RegisterOutput& out) {
  const GroupId g = in.group;
  const Tokens h = geometry.hash_unit();
  if (tail.n == 0 || tail > in.computed || tail > h * in.keys.count) return Code::ok;
  // A state that stays at its position is written again by the next chunk: only align mode, whose
  // entry moves to a copy first, keeps a state inside a block.
  if (geometry.group(g).state && (!geometry.is_state_align(g) || in.computed != tail))
    return Code::ok;
  const std::uint64_t position = tail.n / geometry.block_tokens(g).n;
  if (position >= in.table.size() || in.table[position] == null_block) return Code::ok;
  const BlockKey key{g, block_key(in.keys, tail, h), tail, h, parent_key(in.keys, tail, h, h)};
  const Code c = pool.insert_tail(in.table[position], key);
  if (c == Code::ok) out.tail = tail;
  return c == Code::arg ? c : Code::ok;  // no room for an alias: the pool counted it
}

}  // namespace

bool keeps_state(const Geometry& geometry, GroupId group, Tokens end, Tokens prompt,
                 Tokens junction) {
  const std::int64_t r = geometry.options().retention;
  if (!geometry.group(group).state || r < 0) return true;
  if (r > 0 && end.n % static_cast<std::uint64_t>(r) == 0) return true;
  const Tokens align = geometry.hit_alignment();
  const Tokens block = geometry.scheduler_block();
  const auto back = [&](Tokens t) {
    const Tokens whole = round_down(t, block);
    return whole > block ? whole - block : Tokens{};
  };
  const auto reaches = [&](Tokens boundary) { return end == round_down(boundary, align); };
  if (junction.n != 0 && reaches(junction)) return true;
  if (prompt.n == 0) return false;
  const Tokens last = prompt - Tokens{1};
  return geometry.has_drafts() ? reaches(back(last)) || reaches(back(prompt)) : reaches(last);
}

Code register_blocks(const Geometry& geometry, BlockPool& pool, const RegisterInput& in,
                     std::uint64_t& cursor, RegisterOutput& out) {
  out = {};
  const GroupId g = in.group;
  if (g >= geometry.groups()) return Code::arg;
  if (!geometry.group(g).cacheable) return Code::ok;
  const Tokens h = geometry.hash_unit();
  const Tokens block = geometry.block_tokens(g);
  const std::uint64_t ready = geometry.cacheable_tokens(g, in.computed).n / block.n;
  if (cursor < ready && in.table.size() < ready) return Code::arg;
  for (; cursor < ready; ++cursor) {
    const Tokens end = block * (cursor + 1);
    if (end > h * in.keys.count) break;
    const BlockId id = in.table[cursor];
    if (id == null_block || !keeps_state(geometry, g, end, in.prompt, in.junction)) continue;
    const BlockKey key{g, block_key(in.keys, end, h), end, block,
                       parent_key(in.keys, end, block, h)};
    const Code c = pool.insert_full(id, key);
    if (c == Code::arg) return c;
    if (c == Code::ok) ++out.full_blocks;
  }
  const Tokens tail = geometry.partial_tail(g, in.prompt);
  const Code code = register_tail(geometry, pool, in, tail, out);
  const bool kept = in.kept != Tokens{} && in.kept != tail && in.kept.n % block.n != 0 &&
                    geometry.keeps_tails() && geometry.legal_end(g, in.kept);
  return code == Code::ok && kept ? register_tail(geometry, pool, in, in.kept, out) : code;
}

}  // namespace kvc
