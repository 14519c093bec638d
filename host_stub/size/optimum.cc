#include "host_stub/size/optimum.h"

#include <boost/unordered/unordered_flat_map.hpp>

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

namespace kvc::host {

namespace {

// The blocks of all prompts: numbers by content, per request in order.
struct Blocks {
  std::vector<std::uint32_t> ids;
  std::vector<std::uint64_t> first;    // of each request; one more at the end
  std::vector<std::uint64_t> longest;  // blocks that a hit of the request may have
  std::uint32_t distinct = 0;
};

Blocks blocks_of(Tokens block, Tokens hash_unit, const SizeTrace& trace) {
  const std::uint64_t per = block.n / hash_unit.n;
  boost::unordered_flat_map<std::uint64_t, std::uint32_t> known;
  Blocks out;
  for (const SizeRequest& r : trace.requests()) {
    out.first.push_back(out.ids.size());
    out.longest.push_back((r.prompt.n - 1) / block.n);
    for (std::uint64_t k = per; k <= r.prompt_keys; k += per) {
      const auto [at, fresh] = known.try_emplace(trace.key(r.first + k - 1), out.distinct);
      out.distinct += fresh ? 1 : 0;
      out.ids.push_back(at->second);
    }
  }
  out.first.push_back(out.ids.size());
  return out;
}

}  // namespace

Whole whole_blocks(Tokens block, Tokens hash_unit, const SizeTrace& trace) {
  const Blocks blocks = blocks_of(block, hash_unit, trace);
  std::vector<bool> seen(blocks.distinct);
  Whole out;
  out.blocks = blocks.distinct;
  for (std::size_t r = 0; r + 1 < blocks.first.size(); ++r) {
    std::uint64_t hit = 0;
    for (std::uint64_t i = blocks.first[r]; i < blocks.first[r + 1]; ++i, ++hit)
      if (!seen[blocks.ids[i]]) break;
    out.hit_tokens += std::min(hit, blocks.longest[r]) * block.n;
    for (std::uint64_t i = blocks.first[r]; i < blocks.first[r + 1]; ++i)
      seen[blocks.ids[i]] = true;
  }
  return out;
}

std::uint64_t optimal_hit_tokens(Tokens block, Tokens hash_unit, const SizeTrace& trace,
                                 std::uint64_t slots) {
  constexpr std::uint32_t never = UINT32_MAX;
  const Blocks blocks = blocks_of(block, hash_unit, trace);
  const std::size_t requests = blocks.first.size() - 1;
  std::vector<std::uint32_t> next(blocks.ids.size(), never);
  std::vector<std::uint32_t> last(blocks.distinct, never);
  for (std::size_t r = requests; r-- > 0;) {
    for (std::uint64_t i = blocks.first[r]; i < blocks.first[r + 1]; ++i) {
      next[i] = last[blocks.ids[i]];
      last[blocks.ids[i]] = static_cast<std::uint32_t>(r);
    }
  }
  using Kept = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;  // next use, depth, block
  std::set<Kept> kept;
  std::vector<std::uint32_t> due(blocks.distinct, never);  // next use of a kept block
  std::uint64_t hits = 0;
  for (std::size_t r = 0; r < requests; ++r) {
    const std::uint64_t first = blocks.first[r];
    const std::uint64_t count = blocks.first[r + 1] - first;
    std::uint64_t hit = 0;
    while (hit < count && due[blocks.ids[first + hit]] != never) ++hit;
    hits += std::min(hit, blocks.longest[r]) * block.n;
    for (std::uint32_t depth = 0; depth < count; ++depth) {
      const std::uint32_t id = blocks.ids[first + depth];
      if (due[id] != never) kept.erase({due[id], depth, id});
      due[id] = next[first + depth];
      if (due[id] != never) kept.insert({due[id], depth, id});
    }
    while (kept.size() > slots) {
      const auto worst = std::prev(kept.end());
      due[std::get<2>(*worst)] = never;
      kept.erase(worst);
    }
  }
  return hits;
}

}  // namespace kvc::host
