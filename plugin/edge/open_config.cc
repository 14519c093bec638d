#include "plugin/edge/open_config.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "plugin/edge/read_in.h"

namespace kvc::edge {

namespace {

Status in_range(std::string_view field, std::uint64_t value, std::uint64_t least,
                std::uint64_t most) {
  if (value >= least && value <= most) return {};
  return {Code::arg,
          fmt::format("kvc_open.{} is {}, allowed are {} to {}", field, value, least, most)};
}

// A number for which KVC_NO_LIMIT is legal too.
Status in_range_or_none(std::string_view field, std::uint64_t value, std::uint64_t most) {
  if (value == KVC_NO_LIMIT) return {};
  return in_range(field, value, 1, most);
}

Status check_numbers(const kvc_open& o) {
  struct Bound {
    std::string_view field;
    std::uint64_t value, least, most;
  };
  const Bound fixed[] = {
      {"hash_unit_tokens", o.hash_unit_tokens, 1, tokens_max},
      {"scheduler_block_tokens", o.scheduler_block_tokens, 1, tokens_max},
      {"ranks", o.ranks, 1, ranks_max},
      {"context_parallel", o.context_parallel, 1, o.ranks},
      {"cp_interleave_tokens", o.cp_interleave_tokens, 1, tokens_max},
      {"key_bytes", o.key_bytes, KVC_KEY_BYTES_MIN, KVC_KEY_BYTES_MAX},
      {"max_steps_in_flight", o.max_steps_in_flight, 1, steps_in_flight_max},
  };
  for (const Bound& b : fixed) {
    if (Status s = in_range(b.field, b.value, b.least, b.most); !s.ok()) return s;
  }
  const Bound open_ended[] = {
      {"device_blocks", o.device_blocks, 1, tokens_max},
      {"max_prompt_tokens", o.max_prompt_tokens, 1, tokens_max},
      {"max_total_tokens", o.max_total_tokens, 1, tokens_max},
      {"max_batch_tokens", o.max_batch_tokens, 1, tokens_max},
      {"max_live_requests", o.max_live_requests, 1, live_requests_max},
      {"max_running", o.max_running, 1, running_max},
      {"max_request_bytes", o.max_request_bytes, 1, UINT64_MAX},
  };
  for (const Bound& b : open_ended) {
    if (Status s = in_range_or_none(b.field, b.value, b.most); !s.ok()) return s;
  }
  if (o.ranks % o.context_parallel != 0) {
    return {Code::arg, fmt::format("kvc_open.ranks is {}, no multiple of context_parallel {}",
                                   o.ranks, o.context_parallel)};
  }
  if (o.max_prompt_tokens > o.max_total_tokens) {
    return {Code::arg, fmt::format("kvc_open.max_prompt_tokens is {}, above max_total_tokens {}",
                                   o.max_prompt_tokens, o.max_total_tokens)};
  }
  if (o.retention_tokens < -1) {
    return {Code::arg, fmt::format("kvc_open.retention_tokens is {}, allowed are -1 and more",
                                   o.retention_tokens)};
  }
  return {};
}

Status check_rank(const kvc_open& o, Role role) {
  if (role == Role::scheduler && o.rank != 0) {
    return {Code::arg,
            fmt::format("kvc_open.rank is {}, must be 0 for the scheduler role", o.rank)};
  }
  if (o.rank >= o.ranks) {
    return {Code::arg, fmt::format("kvc_open.rank is {}, ranks are {}", o.rank, o.ranks)};
  }
  return {};
}

Result<GroupKind> kind_of(const kvc_group& g, std::uint64_t i) {
  switch (g.kind) {
    case KVC_GROUP_FULL:
      return GroupKind::full;
    case KVC_GROUP_SLIDING:
      return GroupKind::sliding;
    case KVC_GROUP_CHUNKED:
      return GroupKind::chunked;
    case KVC_GROUP_STATE:
      return GroupKind::state;
    case KVC_GROUP_OTHER:
      return GroupKind::other;
    default:
      return Status(Code::unsupported, fmt::format("group {}: kind {} is not known", i, g.kind));
  }
}

constexpr std::string_view cap_names[] = {
    "CACHEABLE", "POSITION_STABLE", "FINE_LOOKUP",        "STATE",
    "SHARDED",   "DRAFT",           "RESUME_INSIDE_BLOCK"};

Status check_caps(const kvc_group& g, std::uint64_t i) {
  const std::uint64_t undecided = KVC_GROUP_CAPS_ALL & ~g.caps_known;
  if (undecided != 0) {
    const int bit = __builtin_ctzll(undecided);
    return {Code::unsupported, fmt::format("group {}: caps_known lacks bit {} ({}), the host must "
                                           "decide every capability",
                                           i, bit, cap_names[bit])};
  }
  const std::uint64_t unknown = g.caps & (~g.caps_known | ~KVC_GROUP_CAPS_ALL);
  if (unknown != 0) {
    const int bit = __builtin_ctzll(unknown);
    return {Code::unsupported,
            fmt::format("group {}: capability bit {} is set, {}", i, bit,
                        (g.caps_known >> bit & 1U) != 0 ? "this connector does not know it"
                                                        : "but not in caps_known")};
  }
  const bool state_bit = (g.caps & KVC_GROUP_CAP_STATE) != 0;
  if (state_bit != (g.kind == KVC_GROUP_STATE)) {
    return {Code::arg, fmt::format("group {}: kind {} {} capability STATE", i, g.kind,
                                   state_bit ? "must not have" : "requires")};
  }
  return {};
}

Result<GroupSpec> read_group(const kvc_list& groups, std::uint64_t i) {
  kvc_group g{};
  if (Status s = read_element("kvc_open.groups", groups, i, g); !s.ok()) return s;
  Result<GroupKind> kind = kind_of(g, i);
  if (!kind.ok()) return kind.error();
  if (Status s = check_caps(g, i); !s.ok()) return s;
  const std::pair<std::string_view, std::uint64_t> sizes[] = {
      {"tokens_per_block", g.tokens_per_block},
      {"window_tokens", g.window_tokens},
      {"extra_retained_tokens", g.extra_retained_tokens}};
  for (const auto& [field, value] : sizes) {
    if (value > tokens_max) {
      return Status(Code::arg, fmt::format("group {}: {} is {}, at most {} is allowed", i, field,
                                           value, tokens_max));
    }
  }
  const auto has = [&](std::uint64_t bit) { return (g.caps & bit) != 0; };
  GroupSpec spec;
  spec.kind = kind.value();
  spec.tokens_per_block = {g.tokens_per_block};
  spec.window = {g.window_tokens};
  spec.extra_retained = {g.extra_retained_tokens};
  spec.cacheable = has(KVC_GROUP_CAP_CACHEABLE);
  spec.position_stable = has(KVC_GROUP_CAP_POSITION_STABLE);
  spec.fine_lookup = has(KVC_GROUP_CAP_FINE_LOOKUP);
  spec.state = has(KVC_GROUP_CAP_STATE);
  spec.sharded = has(KVC_GROUP_CAP_SHARDED);
  spec.draft = has(KVC_GROUP_CAP_DRAFT);
  spec.resume_inside_block = has(KVC_GROUP_CAP_RESUME_INSIDE_BLOCK);
  return spec;
}

Result<Geometry> read_geometry(const kvc_open& o) {
  if (Status s = check_list<kvc_group>("kvc_open.groups", o.groups, KVC_GROUPS_MAX); !s.ok()) {
    return s;
  }
  if (o.groups.count == 0) return Status(Code::arg, "kvc_open.groups is empty");
  GeometryOptions options;
  for (std::uint64_t i = 0; i < o.groups.count; ++i) {
    Result<GroupSpec> spec = read_group(o.groups, i);
    if (!spec.ok()) return spec.error();
    options.groups.push_back(spec.value());
  }
  options.hash_unit = {o.hash_unit_tokens};
  options.scheduler_block = {o.scheduler_block_tokens};
  options.context_parallel = o.context_parallel;
  options.cp_interleave = {o.cp_interleave_tokens};
  options.draft_drop = (o.flags & KVC_OPEN_DRAFT_DROP) != 0;
  options.lookahead = {o.lookahead_tokens};
  options.retention = o.retention_tokens;
  return Geometry::make(std::move(options));
}

OpenLimits limits_of(const kvc_open& o, const HostAdapter& host) {
  OpenLimits l;
  l.ranks = o.ranks;
  l.device_blocks = o.device_blocks;
  l.null_block = o.null_block;
  l.key_bytes = o.key_bytes;
  l.max_prompt_tokens = {o.max_prompt_tokens};
  l.max_total_tokens = {o.max_total_tokens};
  l.max_batch_tokens = {o.max_batch_tokens};
  l.max_live_requests = o.max_live_requests;
  l.max_running = o.max_running;
  l.max_request_bytes = {o.max_request_bytes};
  l.max_steps_in_flight = o.max_steps_in_flight;
  l.random_root = (o.flags & KVC_OPEN_RANDOM_ROOT) != 0;
  l.stepped = host.stepped();
  l.rank_verdicts = (host.caps() & KVC_HOST_RANK_VERDICTS) != 0;
  l.no_device_cache = (host.caps() & KVC_HOST_NO_DEVICE_CACHE) != 0;
  return l;
}

}  // namespace

Result<OpenConfig> read_open(const kvc_open* open, Role role, const HostAdapter& host) {
  kvc_open o{};
  if (Status s = read_struct(open, o); !s.ok()) return s;
  if (Status s = refuse_bits("kvc_open.flags", o.flags, KVC_OPEN_FLAGS_ALL); !s.ok()) return s;
  if (Status s = check_numbers(o); !s.ok()) return s;
  if (Status s = check_rank(o, role); !s.ok()) return s;
  if (Status s = check_array("kvc_open.namespace_id", o.namespace_id.data, o.namespace_id.size, 1,
                             namespace_bytes_max);
      !s.ok()) {
    return s;
  }
  if (Status s = check_array("kvc_open.config_toml", o.config_toml.data, o.config_toml.size, 1,
                             toml_bytes_max);
      !s.ok()) {
    return s;
  }
  Result<Geometry> geometry = read_geometry(o);
  if (!geometry.ok()) return geometry.error();
  OpenConfig config{std::move(geometry).value(), limits_of(o, host), {}, {}, o.rank};
  if (o.namespace_id.size != 0) {
    config.namespace_id.assign(o.namespace_id.data, o.namespace_id.data + o.namespace_id.size);
  }
  if (o.config_toml.size != 0) {
    config.config_toml.assign(reinterpret_cast<const char*>(o.config_toml.data),
                              o.config_toml.size);
  }
  config.limits.namespace_id = config.namespace_id;
  return config;
}

}  // namespace kvc::edge
