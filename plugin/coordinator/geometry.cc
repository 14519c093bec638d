#include "plugin/coordinator/geometry.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace kvc {
namespace {

constexpr std::uint64_t sizes_end = std::uint64_t{1} << 32;

std::string describe(GroupId g, const GroupSpec& s) {
  return fmt::format("group {} ({}, {} tokens per block)", g, name_of(s.kind),
                     s.tokens_per_block.n);
}

Status refuse(std::string text) { return {Code::arg, std::move(text)}; }

bool is_window(GroupKind kind) { return kind == GroupKind::sliding || kind == GroupKind::chunked; }

Status check_kind(GroupId g, const GroupSpec& s) {
  if (s.kind > GroupKind::other)
    return refuse(
        fmt::format("group {} has the unknown kind {}", g, static_cast<unsigned>(s.kind)));
  if (s.state != (s.kind == GroupKind::state))
    return refuse(
        fmt::format("{}: the state bit is {}, it belongs to exactly the groups of kind state",
                    describe(g, s), s.state ? "set" : "clear"));
  if (s.kind == GroupKind::other && s.cacheable)
    return refuse(fmt::format("{}: a group of kind other cannot be cacheable", describe(g, s)));
  if (is_window(s.kind) && s.window.n == 0)
    return refuse(fmt::format("{}: window is 0, it must be at least 1", describe(g, s)));
  if (!is_window(s.kind) && s.window.n != 0)
    return refuse(fmt::format("{}: window is {}, only sliding and chunked groups have one",
                              describe(g, s), s.window.n));
  if (s.kind != GroupKind::sliding && s.extra_retained.n != 0)
    return refuse(fmt::format("{}: extra_retained is {}, only sliding groups have it",
                              describe(g, s), s.extra_retained.n));
  if (s.cacheable && is_window(s.kind) && s.fine_lookup)
    return refuse(
        fmt::format("{}: fine lookup needs full attention or states (R-106)", describe(g, s)));
  return {};
}

Status check_parallel(GroupId g, const GroupSpec& s, const GeometryOptions& o) {
  const bool parallel = o.context_parallel > 1;
  if (s.cacheable && s.sharded && s.kind != GroupKind::full)
    return refuse(fmt::format(
        "{}: only full attention can be sharded over context parallel ranks, this group must "
        "be replicated (R-110)",
        describe(g, s)));
  if (parallel && s.kind == GroupKind::chunked)
    return {Code::unsupported,
            fmt::format("{}: chunked attention has no rule for context parallel size {} (R-106)",
                        describe(g, s), o.context_parallel)};
  if (parallel && s.sharded && s.tokens_per_block.n % o.cp_interleave.n != 0)
    return refuse(
        fmt::format("{}: its block is not a multiple of the context parallel interleave {}",
                    describe(g, s), o.cp_interleave.n));
  return {};
}

}  // namespace

std::string_view name_of(GroupKind kind) {
  switch (kind) {
    case GroupKind::full:
      return "full";
    case GroupKind::sliding:
      return "sliding";
    case GroupKind::chunked:
      return "chunked";
    case GroupKind::state:
      return "state";
    case GroupKind::other:
      return "other";
  }
  return "unknown";
}

GroupSpec group_spec(GroupKind kind, Tokens tokens_per_block, Tokens window, bool all_mode) {
  GroupSpec s;
  s.kind = kind;
  s.tokens_per_block = tokens_per_block;
  s.window = window;
  s.cacheable = kind != GroupKind::other;
  s.state = kind == GroupKind::state;
  s.position_stable = kind != GroupKind::state || all_mode;
  s.fine_lookup = kind == GroupKind::full || kind == GroupKind::state;
  s.sharded = kind == GroupKind::full;
  return s;
}

Result<Geometry> Geometry::make(GeometryOptions options) {
  Geometry made(std::move(options));
  if (Status s = made.check_sizes(); !s.ok()) return s;
  for (GroupId g = 0; g < made.groups(); ++g) {
    if (Status s = made.check_group(g); !s.ok()) return s;
    const GroupSpec& spec = made.options_.groups[g];
    const std::uint64_t scale = spec.sharded ? made.options_.context_parallel : 1;
    const Tokens block = spec.tokens_per_block * scale;
    if (block.n >= sizes_end)
      return refuse(
          fmt::format("{}: {} context parallel ranks make blocks of {} tokens, the limit is 2^32",
                      describe(g, spec), scale, block.n));
    made.block_tokens_.push_back(block);
    if (spec.cacheable) made.cacheable_.push_back(g);
  }
  made.decide_drafts();
  if (Status s = made.check_layout(); !s.ok()) return s;
  made.decide_fine();
  made.decide_chunks();
  made.decide_draft_cost();
  made.decide_chain();
  made.decide_bundles();
  return made;
}

Status Geometry::check_sizes() {
  const GeometryOptions& o = options_;
  if (o.groups.empty() || o.groups.size() > groups_max)
    return refuse(fmt::format("{} groups, there must be 1 to {}", o.groups.size(), groups_max));
  if (o.hash_unit.n == 0 || o.hash_unit.n >= sizes_end)
    return refuse(fmt::format("hash unit is {} tokens, it must be 1 to 2^32 - 1", o.hash_unit.n));
  if (o.scheduler_block.n == 0 || o.scheduler_block.n >= sizes_end)
    return refuse(
        fmt::format("scheduler block is {} tokens, it must be 1 to 2^32 - 1", o.scheduler_block.n));
  if (o.blocks_per_chunk == 0 || o.blocks_per_chunk > chunk_max)
    return refuse(
        fmt::format("{} blocks per chunk, it must be 1 to {}", o.blocks_per_chunk, chunk_max));
  if (o.context_parallel == 0) return refuse("context parallel size is 0, it must be at least 1");
  if (o.cp_interleave.n == 0)
    return refuse("context parallel interleave is 0, it must be at least 1");
  if (o.lookahead.n >= sizes_end)
    return refuse(fmt::format("lookahead is {} tokens, it must be below 2^32", o.lookahead.n));
  if (o.scheduler_block.n % o.hash_unit.n != 0)
    return refuse(fmt::format("scheduler block {} is not a multiple of the hash unit {} (R-110)",
                              o.scheduler_block.n, o.hash_unit.n));
  return {};
}

Status Geometry::check_group(GroupId g) const {
  const GroupSpec& s = options_.groups[g];
  if (s.tokens_per_block.n == 0 || s.tokens_per_block.n >= sizes_end)
    return refuse(fmt::format("group {} ({}): {} tokens per block, it must be 1 to 2^32 - 1", g,
                              name_of(s.kind), s.tokens_per_block.n));
  if (s.window.n >= sizes_end || s.extra_retained.n >= sizes_end)
    return refuse(fmt::format("{}: window {} and extra_retained {} must be below 2^32",
                              describe(g, s), s.window.n, s.extra_retained.n));
  if (Status k = check_kind(g, s); !k.ok()) return k;
  return check_parallel(g, s, options_);
}

// What would fit every cacheable group: field report 118 was an error that named no way out. Spans
// and blocks are below 2^32; a multiple beyond that fits nobody and is not named.
std::string Geometry::fitting_hash_unit() const {
  std::uint64_t unit = 0;
  std::string blocks;
  for (const GroupId g : cacheable_) {
    unit = std::gcd(unit, block_tokens_[g].n);
    blocks += fmt::format("{}group {}: {}", blocks.empty() ? "" : ", ", g, block_tokens_[g].n);
  }
  return fmt::format("blocks are {}; a hash unit of {} or a divisor of it fits all", blocks, unit);
}

std::string Geometry::fitting_scheduler_block() const {
  std::uint64_t block = options_.hash_unit.n;
  for (GroupId g = 0; g < groups(); ++g) {
    const std::uint64_t span = block_tokens_[g].n;
    block *= span / std::gcd(block, span);
    if (block >= sizes_end) return "no scheduler block below 2^32 fits all groups";
  }
  return fmt::format("a scheduler block of {} or a multiple of it fits all", block);
}

// Invariants over groups.
Status Geometry::check_layout() const {
  const std::uint64_t h = options_.hash_unit.n;
  const std::uint64_t scheduler = options_.scheduler_block.n;
  if (cacheable_.empty())
    return refuse("no group is cacheable, there is nothing to look up (R-310)");
  bool windows_or_states = false;
  for (GroupId g = 0; g < groups(); ++g) {
    const GroupSpec& s = options_.groups[g];
    const std::uint64_t block = block_tokens_[g].n;
    if (scheduler % s.tokens_per_block.n != 0)
      return refuse(
          fmt::format("{}: the scheduler block {} is not a multiple of its block; {} (R-110)",
                      describe(g, s), scheduler, fitting_scheduler_block()));
    if (!s.cacheable) continue;
    if (block % h != 0)
      return refuse(fmt::format(
          "{}: its block of {} tokens is not a multiple of the hash unit {}; {} (R-109)",
          describe(g, s), block, h, fitting_hash_unit()));
    if (scheduler % block != 0)
      return refuse(fmt::format(
          "{}: the scheduler block {} is not a multiple of its {} tokens over {} context "
          "parallel ranks; {} (R-109)",
          describe(g, s), scheduler, block, options_.context_parallel, fitting_scheduler_block()));
    windows_or_states = windows_or_states || s.kind == GroupKind::sliding || s.state;
    if (s.kind == GroupKind::chunked && drops(g))
      return {Code::unsupported,
              fmt::format("{}: a chunked group cannot drop its trailing block for drafts (R-304)",
                          describe(g, s))};
  }
  if (groups() == 1 && (block_tokens_[0].n != h || scheduler != h))
    return refuse(fmt::format(
        "{} is the only group: its block of {} tokens, the hash unit {} and the scheduler block "
        "{} must be equal (R-109)",
        describe(0, options_.groups[0]), block_tokens_[0].n, h, scheduler));
  const std::int64_t r = options_.retention;
  if (r < -1 || (r > 0 && static_cast<std::uint64_t>(r) % scheduler != 0))
    return refuse(fmt::format(
        "retention interval {} must be -1 (dense), 0 or a multiple of the scheduler block {} "
        "(R-113)",
        r, scheduler));
  if (r > 0 && !windows_or_states)
    return refuse(fmt::format("retention interval {} without a sliding or state group (R-113)", r));
  if (drafts_ && options_.lookahead.n > scheduler)
    return refuse(fmt::format("lookahead {} is longer than the scheduler block {} (R-112)",
                              options_.lookahead.n, scheduler));
  return {};
}

void Geometry::decide_drafts() {
  const auto flagged = [&](GroupId g) { return options_.groups[g].draft; };
  const bool any = std::any_of(cacheable_.begin(), cacheable_.end(), flagged);
  drafts_ = options_.draft_drop && any;
  if (options_.draft_drop && !any)
    gates_.push_back({"draft_drop",
                      "the drop of the trailing block for drafts is on but no cacheable group is "
                      "flagged as a draft "
                      "group: no group drops (O-017)"});
}

//
void Geometry::decide_fine() {
  if (!hybrid()) return;
  const std::uint64_t h = options_.hash_unit.n;
  bool useful = false;
  std::string against;
  for (const GroupId g : cacheable_) {
    const GroupSpec& s = options_.groups[g];
    if (is_state_align(g))
      useful = useful || (options_.context_parallel > 1 ? s.tokens_per_block.n >= h
                                                        : s.tokens_per_block.n > h);
    if (s.fine_lookup || block_tokens_[g].n == h) continue;
    if (!against.empty()) against += ", ";
    against += describe(g, s);
  }
  fine_ = options_.fine_hits_allowed && useful && against.empty();
  // Where units and blocks are one there is nothing inside a block that could be hit.
  if (fine_ || options_.hash_unit == options_.scheduler_block) return;
  std::string why;
  if (!options_.fine_hits_allowed)
    why = fmt::format("the owner forbids hits inside scheduler blocks of {} tokens",
                      options_.scheduler_block.n);
  else if (!useful)
    why = fmt::format(
        "no align-mode state group has blocks beyond the hash unit of {} tokens: hits are "
        "multiples of "
        "the scheduler block of {} tokens (R-315)",
        h, options_.scheduler_block.n);
  else
    why = fmt::format(
        "{} can only be hit at block ends and has blocks beyond the hash unit of {} tokens: hits "
        "are "
        "multiples of the scheduler block of {} tokens (R-315)",
        against, h, options_.scheduler_block.n);
  gates_.push_back({"fine_hits", std::move(why)});
}

// Of how many blocks a chunk of group g is, so that the engine still has all of them when the last
// one is full: a step may release what the tokens before it no longer need.
std::uint32_t Geometry::chunk_of(GroupId g) const {
  const GroupSpec& s = options_.groups[g];
  const std::uint64_t wanted = options_.blocks_per_chunk;
  const std::uint64_t block = block_tokens_[g].n;
  std::uint64_t n = s.cacheable && !s.state ? wanted : 1;
  if (fine_ && is_window(s.kind)) {
    n = 1;
  } else if (s.kind == GroupKind::sliding) {
    n = std::min(wanted, std::max<std::uint64_t>((s.window + s.extra_retained).n / block, 1));
  } else if (s.kind == GroupKind::chunked) {
    while (n > 1 && s.window.n % (block * n) != 0) --n;
  }
  while (n > 1 && block * n >= sizes_end) --n;
  return static_cast<std::uint32_t>(n);
}

// From here on blocks are those of the tier.
void Geometry::decide_chunks() {
  tails_ = fine_;
  chunk_blocks_.assign(groups(), 1);
  if (options_.blocks_per_chunk == 1) return;
  std::string smaller;
  std::string windows;
  for (const GroupId g : cacheable_) {
    const std::uint32_t n = chunk_of(g);
    const std::string name = describe(g, options_.groups[g]);
    if (n < options_.blocks_per_chunk && !options_.groups[g].state) {
      smaller += fmt::format("{}{}: {}", smaller.empty() ? "" : ", ", name, n);
    }
    if (is_window(options_.groups[g].kind)) {
      windows += fmt::format("{}{}", windows.empty() ? "" : ", ", name);
    }
    chunk_blocks_[g] = n;
    block_tokens_[g] = block_tokens_[g] * n;
  }
  if (!smaller.empty()) {
    gates_.push_back({"whole_chunks",
                      fmt::format("chunks of windows have fewer blocks than {}, {}: {}",
                                  options_.blocks_per_chunk,
                                  fine_ ? "since hits end between any two of them"
                                        : "since the engine must still have the first of them when "
                                          "the last one is full",
                                  smaller)});
  }
  if (!fine_ && !windows.empty()) {
    gates_.push_back({"tails_in_chunks",
                      fmt::format("a prompt that ends inside a chunk leaves no tail: the window "
                                  "there would be one of several slots: {}",
                                  windows)});
    return;
  }
  tails_ = true;
}

// K8-77: correct, but where the unit is large it looks like lost hits.
void Geometry::decide_draft_cost() {
  constexpr std::uint64_t usual_block_tokens = 16;  // what engines configure unless told otherwise
  const Tokens unit = hit_alignment();
  const std::uint64_t small = 4 * std::min(options_.hash_unit.n, usual_block_tokens);
  if (!drafts_ || unit.n <= small) return;
  std::string droppers;
  for (const GroupId g : cacheable_) {
    if (!drops(g)) continue;
    if (!droppers.empty()) droppers += ", ";
    droppers += describe(g, options_.groups[g]);
  }
  gates_.push_back(
      {"last_unit_of_hits",
       fmt::format("draft groups compute it again, so a hit may end {} tokens early, the unit of "
                   "hits in this layout; counted in draft_dropped_tokens (K8-77): {}",
                   unit.n, droppers)});
}

void Geometry::decide_chain() {
  for (const GroupId g : cacheable_) {
    if (options_.groups[g].kind != GroupKind::full) continue;
    if (!chain_ || block_tokens_[g] < block_tokens_[*chain_]) chain_ = g;
  }
  if (!chain_)
    gates_.push_back({"full_attention",
                      "no cacheable full-attention group: no partial tails of attention (R-117)"});
  // K8-77: the drop is right but can cost thousands of tokens per hit; say so once.
  if (drafts_ && hit_alignment().n > 4 * options_.hash_unit.n)
    gates_.push_back(
        {"draft_cost",
         fmt::format("every hit of a draft group is cut back by up to {} tokens, more than "
                     "4 hash units of {}",
                     hit_alignment().n, options_.hash_unit.n)});
}

void Geometry::decide_bundles() {
  const auto alike = [&](GroupId a, GroupId b) {
    const GroupSpec& x = options_.groups[a];
    const GroupSpec& y = options_.groups[b];
    return x.kind == y.kind && x.tokens_per_block == y.tokens_per_block && x.window == y.window &&
           x.extra_retained == y.extra_retained && x.position_stable == y.position_stable &&
           x.fine_lookup == y.fine_lookup && x.sharded == y.sharded;
  };
  const auto add = [&](GroupId g) {
    for (Bundle& b : bundles_) {
      if (!alike(b.members.front(), g)) continue;
      b.members.push_back(g);
      b.drop = b.drop || drops(g);
      return;
    }
    const GroupSpec& s = options_.groups[g];
    // What a drop takes: of attention at most the unit of hits, of windows a block or chunk.
    const Tokens margin =
        s.kind == GroupKind::full ? std::min(hit_alignment(), block_tokens_[g]) : block_tokens_[g];
    bundles_.push_back({s.kind, drops(g), margin, {g}});
  };
  for (const GroupId g : cacheable_)
    if (options_.groups[g].kind == GroupKind::full) add(g);
  for (const GroupId g : cacheable_)
    if (options_.groups[g].kind != GroupKind::full) add(g);
}

std::optional<Gate> Geometry::inert(Tokens max_total_tokens) const {
  if (max_total_tokens > hit_alignment()) return std::nullopt;
  return Gate{
      "hits",
      fmt::format(
          "hits are multiples of {} tokens but a request has at most {}: nothing can ever be "
          "hit",
          hit_alignment().n, max_total_tokens.n)};
}

const GroupSpec& Geometry::group(GroupId g) const {
  KVC_CHECK(g < groups());
  return options_.groups[g];
}

bool Geometry::is_state_all(GroupId g) const { return group(g).state && group(g).position_stable; }

bool Geometry::is_state_align(GroupId g) const {
  return group(g).state && !group(g).position_stable;
}

Tokens Geometry::reprefill_tokens() const {
  return {options_.lookahead.n == 0 ? 0 : options_.lookahead.n - 1};
}

Tokens Geometry::cacheable_tokens(GroupId g, Tokens confirmed) const {
  if (!group(g).cacheable) return {};
  const Tokens again = reprefill_tokens();
  const Tokens settled = confirmed > again ? confirmed - again : Tokens{};
  if (!hybrid()) return settled;
  const auto align = [&](Tokens t) { return fine_ ? t : round_down(t, options_.scheduler_block); };
  const Tokens aligned = align(confirmed);
  if (!drops(g) || aligned.n == 0) return aligned;
  return std::min(settled, align(settled) + block_tokens(g));
}

Tokens Geometry::prompt_tail_boundary(GroupId g, Tokens prompt) const {
  const GroupSpec& s = group(g);
  if (!s.cacheable || prompt.n == 0) return {};
  const Tokens h = options_.hash_unit;
  const Tokens below = round_down(prompt - Tokens{1}, h);
  if (s.kind == GroupKind::full) return drops(g) ? round_down(prompt, h) : below;
  if (!s.state) return {};
  if (!drafts_) return below;
  const Tokens whole = round_down(prompt, h);
  return whole > h ? whole - h : Tokens{};
}

Tokens Geometry::partial_tail(GroupId g, Tokens prompt) const {
  const Tokens boundary = round_down(prompt_tail_boundary(g, prompt), hit_alignment());
  return tails_ && boundary.n % block_tokens(g).n != 0 ? boundary : Tokens{};
}

Tokens Geometry::skipped_tokens(GroupId g, Tokens computed) const {
  const GroupSpec& s = group(g);
  switch (s.kind) {
    case GroupKind::sliding: {
      const Tokens kept = s.window - Tokens{1} + s.extra_retained;
      return computed > kept ? computed - kept : Tokens{};
    }
    case GroupKind::chunked:
      return round_down(computed, s.window);
    case GroupKind::state:
      return computed.n == 0 ? Tokens{} : computed - Tokens{1};
    case GroupKind::full:
    case GroupKind::other:
      break;
  }
  return {};
}

std::uint64_t Geometry::first_needed_position(GroupId g, Tokens end) const {
  if (!group(g).cacheable) return 0;
  return blocks_full(skipped_tokens(g, end), block_tokens(g)).n;
}

std::uint64_t Geometry::end_position(GroupId g, Tokens end) const {
  if (!group(g).cacheable) return 0;
  return blocks_touched(end, block_tokens(g)).n;
}

Tokens Geometry::position_end(GroupId g, std::uint64_t position, Tokens end) const {
  return std::min(block_tokens(g) * (position + 1), end);
}

bool Geometry::legal_end(GroupId g, Tokens end) const {
  if (end.n % hit_alignment().n != 0) return false;
  return !is_window(group(g).kind) || end.n % (block_tokens(g).n / blocks_per_chunk(g)) == 0;
}

Result<Blocks> tier_blocks(Bytes capacity, Blocks device_blocks, Bytes device_bytes) {
  if (device_blocks.n == 0 || device_bytes.n == 0)
    return refuse(fmt::format("{} device blocks in {} bytes, both must be above 0", device_blocks.n,
                              device_bytes.n));
  // capacity x blocks may need more than 64 bits; the quotient of a sane answer does not.
  __extension__ using Wide = unsigned __int128;
  const Wide wide = static_cast<Wide>(capacity.n) * device_blocks.n / device_bytes.n;
  const std::uint64_t per_block = ceil_div(device_bytes.n, device_blocks.n);
  if (wide >= sizes_end)
    return refuse(
        fmt::format("{} bytes hold more than 2^32 blocks of {} bytes", capacity.n, per_block));
  if (wide < 2)
    return refuse(fmt::format(
        "{} bytes hold fewer than 2 blocks of {} bytes, the null block and one to store in",
        capacity.n, per_block));
  return Blocks{static_cast<std::uint64_t>(wide)};
}

}  // namespace kvc
