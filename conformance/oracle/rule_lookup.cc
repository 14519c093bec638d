// Rules R-301..R-312 step by step, for one request whose first `start` tokens the device has.
// Positions in this file count from `start`, as the rules' result index 0 does, except
// where a rule depends on the absolute one.
#include <algorithm>
#include <map>
#include <optional>

#include "conformance/oracle/oracle.h"

namespace kvc::oracle {
namespace {

// Groups that are looked up together: equal in everything but what they hold.
struct Bundle {
  std::vector<std::size_t> members;
  bool drop = false;
};

class RuleLookup {
 public:
  RuleLookup(const World& world, std::uint64_t cap)
      : world_(world), unit_(alignment(world)), keys_(world.tokens / world.hash_unit) {
    const std::uint64_t longest = std::min(cap, world.tokens == 0 ? 0 : world.tokens - 1);
    max_len_ = longest > world.start ? longest - world.start : 0;
    for (std::size_t i = 0; i < world.groups.size(); ++i) add_to_bundle(i);
    // Full attention first, otherwise configuration order.
    std::stable_partition(bundles_.begin(), bundles_.end(),
                          [&](const Bundle& b) { return first_of(b).kind == Kind::full; });
  }

  // R-307 for a single group, else the fixed point of R-312.
  std::uint64_t run() {
    if (max_len_ == 0) return world_.start;
    if (world_.groups.size() == 1) {
      return world_.start + look_up(bundles_[0], max_len_, bundles_[0].drop);
    }
    std::vector<bool> verified(bundles_.size(), false);
    std::vector<std::optional<std::uint64_t>> found(bundles_.size());
    std::uint64_t candidate = max_len_;
    for (;;) {
      std::uint64_t current = candidate;
      for (std::size_t i = 0; i < bundles_.size(); ++i) {
        current = one_bundle(i, current, verified, found);
      }
      if (current >= candidate) return world_.start + current;
      candidate = current;
      if (bundles_.size() == 2 && first_of(bundles_[0]).kind == Kind::full) {
        return world_.start + candidate;
      }
    }
  }

 private:
  [[nodiscard]] const Group& first_of(const Bundle& b) const { return world_.groups[b.members[0]]; }

  void add_to_bundle(std::size_t group) {
    const Group& g = world_.groups[group];
    if (!g.cacheable) return;
    for (auto& b : bundles_) {
      const Group& o = first_of(b);
      if (o.kind == g.kind && o.rank_block == g.rank_block && o.sharded == g.sharded &&
          o.window == g.window && o.extra_retained == g.extra_retained && o.align == g.align) {
        b.members.push_back(group);
        b.drop = b.drop || g.draft;
        return;
      }
    }
    bundles_.push_back({{group}, g.draft});
  }

  std::uint64_t one_bundle(std::size_t i, std::uint64_t current, std::vector<bool>& verified,
                           std::vector<std::optional<std::uint64_t>>& found) {
    const Bundle& b = bundles_[i];
    const Kind kind = first_of(b).kind;
    if (kind == Kind::full && found[i]) return std::min(current, *found[i]);
    const bool drop = b.drop && !verified[i];
    std::uint64_t limit = current;
    if (drop && kind != Kind::state) {
      limit = std::min(current + margin(b), keys_ * world_.hash_unit - world_.start);
    }
    const std::uint64_t length = look_up(b, limit, drop);
    if (drop) {
      verified[i] = true;
    } else if (length < current) {
      std::fill(verified.begin(), verified.end(), false);
    }
    found[i] = length;
    return length;
  }

  //
  [[nodiscard]] std::uint64_t margin(const Bundle& b) const {
    const Kind kind = first_of(b).kind;
    const std::uint64_t block = world_.span(b.members[0]);
    const bool fine_capable = kind == Kind::full || kind == Kind::state;
    return fine_hits(world_) && fine_capable && block > world_.hash_unit ? world_.hash_unit : block;
  }

  // All members hold the prefix that ends `end` tokens behind start.
  [[nodiscard]] bool present(const Bundle& b, std::uint64_t end) const {
    const std::uint64_t absolute = world_.start + end;
    return absolute <= keys_ * world_.hash_unit &&
           std::all_of(b.members.begin(), b.members.end(), [&](std::size_t member) {
             return world_.groups[member].held.count(absolute) != 0;
           });
  }

  [[nodiscard]] std::uint64_t look_up(const Bundle& b, std::uint64_t max_len, bool drop) const {
    switch (first_of(b).kind) {
      case Kind::full:
        return full(b, max_len, drop);
      case Kind::sliding:
        return sliding(b, max_len, drop);
      case Kind::chunked:
        return chunked(b, max_len);
      default:
        return state(b, max_len);
    }
  }

  //
  [[nodiscard]] std::uint64_t full(const Bundle& b, std::uint64_t max_len, bool drop) const {
    const std::uint64_t block = world_.span(b.members[0]);
    std::uint64_t blocks = 0;
    while (blocks < max_len / block && present(b, (blocks + 1) * block)) ++blocks;
    std::uint64_t length = blocks * block;
    if (unit_ < block && block % unit_ == 0) {
      const std::uint64_t per_block = block / unit_;
      const std::uint64_t last = std::min(blocks * per_block + per_block - 1, max_len / unit_);
      for (std::uint64_t j = last; j > blocks * per_block; --j) {
        if (present(b, j * unit_)) {
          length = j * unit_;
          break;
        }
      }
    }
    if (drop && length > 0) length -= std::min(unit_, block);
    return length / unit_ * unit_;
  }

  // Blocks are coarse always; `i` counts them from 1.
  [[nodiscard]] std::uint64_t sliding(const Bundle& b, std::uint64_t max_len, bool drop) const {
    const std::uint64_t block = world_.span(b.members[0]);
    // R-303 knows no extra tokens; R-106 says that they must be there too.
    const std::uint64_t reach = first_of(b).window - 1 + first_of(b).extra_retained;
    const std::uint64_t need = (reach + block - 1) / block + (drop ? 1 : 0);
    const auto aligned_down = [&](std::uint64_t blocks) {
      while (blocks * block % unit_ != 0) --blocks;
      return blocks;
    };
    const auto dropped = [&](std::uint64_t blocks) {
      return drop && blocks > 0 ? aligned_down(blocks - 1) : blocks;
    };
    std::uint64_t run = 0;
    for (std::uint64_t i = max_len / block; i > 0; --i) {
      if (!present(b, i * block)) {
        run = 0;
        continue;
      }
      const std::uint64_t would_end = (drop ? i - 1 : i) * block;
      if (run == 0 && block != unit_ && would_end % unit_ != 0) continue;
      ++run;
      if (run >= need) return dropped(i - 1 + run) * block;
    }
    // No whole window: a run that touches the first block is enough however short.
    return dropped(aligned_down(run)) * block;
  }

  // R-304, with the chunk's absolute begin (CW-1).
  [[nodiscard]] std::uint64_t chunked(const Bundle& b, std::uint64_t max_len) const {
    const std::uint64_t block = world_.span(b.members[0]);
    const std::uint64_t chunk = first_of(b).window;
    const std::uint64_t begin = (world_.start + max_len) / chunk * chunk;
    std::uint64_t blocks = begin > world_.start ? (begin - world_.start) / block : 0;
    while (blocks < max_len / block && present(b, (blocks + 1) * block)) ++blocks;
    return blocks * block;
  }

  //
  [[nodiscard]] std::uint64_t state(const Bundle& b, std::uint64_t max_len) const {
    const std::uint64_t block = world_.span(b.members[0]);
    const bool fine = unit_ < block && block % unit_ == 0;
    const std::uint64_t step = fine ? unit_ : block;
    for (std::uint64_t end = max_len / step * step; end > 0; end -= step) {
      if (end % unit_ == 0 && present(b, end)) return end;
    }
    return 0;
  }

  const World& world_;
  std::uint64_t unit_;
  std::uint64_t keys_;
  std::uint64_t max_len_ = 0;
  std::vector<Bundle> bundles_;
};

}  // namespace

std::uint64_t rule_hit(const World& world, std::uint64_t cap) {
  return RuleLookup(world, cap).run();
}

}  // namespace kvc::oracle
