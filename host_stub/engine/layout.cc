#include "host_stub/engine/layout.h"

#include <utility>

namespace kvc::host {

namespace {

GroupSpec spec_of(const config::GroupConfig& group) {
  GroupSpec spec;
  spec.kind = static_cast<GroupKind>(group.kind);
  spec.tokens_per_block = {group.tokens_per_block};
  spec.window = {group.kind == config::GroupKind::chunked ? group.chunk_tokens
                                                          : group.window_tokens};
  spec.extra_retained = {group.extra_retained_tokens};
  spec.cacheable = group.cacheable;
  spec.position_stable = group.position_stable;
  spec.fine_lookup = group.fine_lookup;
  spec.state = group.kind == config::GroupKind::state;
  spec.sharded = group.sharded;
  spec.draft = group.draft;
  spec.resume_inside_block = group.resume_inside_block;
  return spec;
}

}  // namespace

Result<Geometry> geometry_of(const config::ModelConfig& model, bool draft_drop,
                             std::int64_t retention_tokens) {
  GeometryOptions g;
  for (const config::GroupConfig& group : model.groups) g.groups.push_back(spec_of(group));
  g.hash_unit = {model.hash_unit_tokens};
  g.scheduler_block = {model.scheduler_block_tokens};
  g.context_parallel = static_cast<std::uint32_t>(model.context_parallel);
  g.cp_interleave = {model.cp_interleave_tokens};
  g.draft_drop = draft_drop;
  g.retention = retention_tokens;
  return Geometry::make(std::move(g));
}

}  // namespace kvc::host
