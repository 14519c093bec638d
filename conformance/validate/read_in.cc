// In-structs of kvc.h as values.
#include <fmt/format.h>

#include "conformance/validate/form.h"

namespace kvc::validate {
namespace {

constexpr std::uint64_t bytes_max = std::uint64_t{1} << 32U;
constexpr std::uint64_t regions_max = 1U << 20U;
constexpr std::uint64_t jobs_max = 1U << 24U;

ByteString bytes_in(Form& form, const kvc_bytes& bytes, const char* name) {
  if (!form.array(bytes.data, bytes.size, 1, bytes_max, name) || bytes.size == 0) return {};
  return {reinterpret_cast<const char*>(bytes.data), bytes.size};
}

ByteString keys_in(Form& form, const std::uint8_t* keys, std::uint64_t count,
                   const Layout& layout) {
  if (!form.array(keys, count, layout.key_bytes, layout.keys_max, "keys") || count == 0) return {};
  return {reinterpret_cast<const char*>(keys), count * layout.key_bytes};
}

std::vector<Table> tables_in(Form& form, const kvc_list& list, const Layout& layout) {
  std::vector<Table> tables;
  const std::uint64_t groups = layout.groups.size();
  if (!form.list(list, kvc_table_least, groups, "tables")) return tables;
  if (list.count != 0 && list.count != groups) {
    form.add(Fault::list, fmt::format("{} tables for {} groups", list.count, groups));
    return tables;
  }
  tables.resize(list.count);
  for (std::uint64_t g = 0; g < list.count; ++g) {
    kvc_table t{};
    if (!form.read_at(list, g, t, kvc_table_least, "kvc_table")) continue;
    if (t.group != g) {
      form.add(Fault::list, fmt::format("tables[{}] is of group {}", g, t.group));
    }
    if (t.first_changed > t.count) {
      form.add(Fault::list, fmt::format("tables[{}]: first_changed {} of {} entries", g,
                                        t.first_changed, t.count));
    }
    tables[g].group = static_cast<std::uint32_t>(g);
    tables[g].first_changed = t.first_changed;
    if (form.array(t.blocks, t.count, sizeof(std::int64_t), layout.groups[g].table_entries_max,
                   "kvc_table.blocks") &&
        t.count != 0) {
      tables[g].blocks.resize(t.count);
      __builtin_memcpy(tables[g].blocks.data(), t.blocks, t.count * sizeof(std::int64_t));
    }
  }
  return tables;
}

std::vector<Handoff> handoffs_in(Form& form, const kvc_list& list, const Layout& layout) {
  std::vector<Handoff> out;
  if (!form.list(list, kvc_handoff_least, layout.handoffs_max, "handoffs")) return out;
  for (std::uint64_t i = 0; i < list.count; ++i) {
    kvc_handoff h{};
    if (!form.read_at(list, i, h, kvc_handoff_least, "kvc_handoff")) continue;
    out.push_back({h.group, h.request, h.block, h.boundary_tokens});
  }
  return out;
}

std::vector<Candidate> candidates_in(Form& form, const kvc_list& list, const Layout& layout) {
  std::vector<Candidate> out;
  if (!form.list(list, kvc_candidate_least, layout.candidates_max, "candidates")) return out;
  for (std::uint64_t i = 0; i < list.count; ++i) {
    kvc_candidate c{};
    if (!form.read_at(list, i, c, kvc_candidate_least, "kvc_candidate")) continue;
    Candidate mine{c.group, c.block, {}, c.end_tokens};
    if (c.key == nullptr) {
      form.add(Fault::list, fmt::format("candidates[{}].key is NULL", i));
    } else if (form.array(c.key, 1, layout.key_bytes, 1, "kvc_candidate.key")) {
      mine.key.assign(reinterpret_cast<const char*>(c.key), layout.key_bytes);
    }
    out.push_back(std::move(mine));
  }
  return out;
}

}  // namespace

OpenIn read_open(Form& form, const kvc_host_api* host, const kvc_open* open) {
  OpenIn in;
  kvc_host_api h{};
  if (form.read(host, h, kvc_host_api_least, "kvc_host_api")) {
    in.host_caps = h.caps;
    std::uint64_t bit = 1;
#define KVC_HOST_SLOT(slot, role, attributes, minor, need, capability) \
  if (h.slot != nullptr) in.host_slots |= bit;                         \
  bit <<= 1U;
#include <kvc/kvc_calls.def>
  }
  kvc_open o{};
  if (!form.read(open, o, kvc_open_least, "kvc_open")) return in;
  form.bits(o.flags, KVC_OPEN_FLAGS_ALL, "kvc_open.flags");
  in.rank = o.rank;
  if (form.list(o.groups, kvc_group_least, KVC_GROUPS_MAX, "kvc_open.groups")) {
    for (std::uint64_t i = 0; i < o.groups.count; ++i) {
      kvc_group g{};
      if (!form.read_at(o.groups, i, g, kvc_group_least, "kvc_group")) continue;
      in.groups.push_back({g.kind, g.caps, g.caps_known, g.tokens_per_block, g.window_tokens,
                           g.extra_retained_tokens});
    }
  }
  in.flags = o.flags;
  in.hash_unit = o.hash_unit_tokens;
  in.scheduler_block = o.scheduler_block_tokens;
  in.context_parallel = o.context_parallel;
  in.ranks = o.ranks;
  in.cp_interleave = o.cp_interleave_tokens;
  in.device_blocks = o.device_blocks;
  in.null_block = o.null_block;
  in.key_bytes = o.key_bytes;
  in.lookahead = o.lookahead_tokens;
  in.max_prompt = o.max_prompt_tokens;
  in.max_total = o.max_total_tokens;
  in.max_batch = o.max_batch_tokens;
  in.max_live = o.max_live_requests;
  in.max_running = o.max_running;
  in.max_request_bytes = o.max_request_bytes;
  in.max_steps_in_flight = o.max_steps_in_flight;
  in.retention = o.retention_tokens;
  in.name_space = bytes_in(form, o.namespace_id, "kvc_open.namespace_id");
  in.toml = bytes_in(form, o.config_toml, "kvc_open.config_toml");
  return in;
}

SetRanksIn read_ranks(Form& form, const kvc_list* ranks, const Layout& layout) {
  SetRanksIn in;
  if (ranks == nullptr) {
    form.add(Fault::list, "ranks is NULL");
    return in;
  }
  if (!form.list(*ranks, kvc_rank_info_least, layout.ranks, "ranks")) return in;
  for (std::uint64_t i = 0; i < ranks->count; ++i) {
    kvc_rank_info r{};
    if (!form.read_at(*ranks, i, r, kvc_rank_info_least, "kvc_rank_info")) continue;
    in.ranks.push_back(read_rank_info(form, r));
  }
  return in;
}

BeginIn read_begin(Form& form, const kvc_request* in, const Layout& layout) {
  kvc_request r{};
  if (!form.read(in, r, kvc_request_least, "kvc_request")) return {};
  form.bits(r.flags, KVC_REQUEST_FLAGS_ALL, "kvc_request.flags");
  return {r.flags,
          r.request,
          r.prompt_tokens,
          r.n_keys,
          keys_in(form, r.keys, r.n_keys, layout),
          r.load_limit_tokens,
          r.store_limit_tokens};
}

ExtendIn read_extend(Form& form, const kvc_extend* in, const Layout& layout) {
  kvc_extend x{};
  if (!form.read(in, x, kvc_extend_least, "kvc_extend")) return {};
  form.bits(x.reserved0, 0, "kvc_extend.reserved0");
  return {x.request, x.first_key, x.n_keys, keys_in(form, x.keys, x.n_keys, layout)};
}

LookupIn read_lookup(Form& form, const kvc_lookup_in* in) {
  kvc_lookup_in q{};
  if (!form.read(in, q, kvc_lookup_in_least, "kvc_lookup_in")) return {};
  form.bits(q.flags, 0, "kvc_lookup_in.flags");
  return {q.flags, q.request, q.total_tokens, q.device_tokens, q.external_cap_tokens};
}

RetentionIn read_retention(Form& form, const kvc_retention_in* in) {
  kvc_retention_in q{};
  if (!form.read(in, q, sizeof q, "kvc_retention_in")) return {};
  form.bits(q.flags, 0, "kvc_retention_in.flags");
  return {q.flags, q.request, q.begin_tokens};
}

InStepIn read_in_step(Form& form, const kvc_load_in_step* in) {
  kvc_load_in_step q{};
  if (!form.read(in, q, sizeof q, "kvc_load_in_step")) return {};
  form.bits(q.flags, 0, "kvc_load_in_step.flags");
  return {q.flags, q.request, q.job};
}

AllocIn read_alloc(Form& form, const kvc_alloc_in* in, const Layout& layout) {
  kvc_alloc_in a{};
  if (!form.read(in, a, kvc_alloc_in_least, "kvc_alloc_in")) return {};
  form.bits(a.flags, 0, "kvc_alloc_in.flags");
  return {a.flags, a.request, a.accepted_tokens, tables_in(form, a.tables, layout)};
}

StepIn read_step(Form& form, const kvc_step* in, const Layout& layout) {
  kvc_step s{};
  StepIn out;
  if (!form.read(in, s, kvc_step_least, "kvc_step")) return out;
  form.bits(s.reserved0, 0, "kvc_step.reserved0");
  out.step = s.step;
  if (form.list(s.scheduled, kvc_step_request_least, layout.scheduled_max, "kvc_step.scheduled")) {
    for (std::uint64_t i = 0; i < s.scheduled.count; ++i) {
      kvc_step_request r{};
      if (!form.read_at(s.scheduled, i, r, kvc_step_request_least, "kvc_step_request")) continue;
      form.bits(r.flags, KVC_STEP_FLAGS_ALL, "kvc_step_request.flags");
      out.scheduled.push_back(
          {r.flags, r.request, r.confirmed_tokens, tables_in(form, r.tables, layout)});
    }
  }
  if (form.array(s.preempted, s.n_preempted, sizeof(std::uint64_t), layout.scheduled_max,
                 "kvc_step.preempted") &&
      s.n_preempted != 0) {
    out.preempted.assign(s.preempted, s.preempted + s.n_preempted);
  }
  out.handoffs = handoffs_in(form, s.handoffs, layout);
  out.candidates = candidates_in(form, s.candidates, layout);
  return out;
}

CompleteIn read_reports(Form& form, const kvc_bytes* reports, std::uint64_t count,
                        const Layout& layout) {
  CompleteIn in;
  if (!form.array(reports, count, sizeof(kvc_bytes), layout.reports_max, "reports")) return in;
  for (std::uint64_t i = 0; i < count; ++i) {
    in.reports.push_back(bytes_in(form, reports[i], "reports[i]"));
  }
  return in;
}

EndIn read_end(Form& form, const kvc_end_in* in, const Layout& layout) {
  kvc_end_in e{};
  if (!form.read(in, e, kvc_end_in_least, "kvc_end_in")) return {};
  if (e.reason < KVC_END_STOP || e.reason > KVC_END_ERROR) {
    form.add(Fault::bits, fmt::format("kvc_end_in.reason is {}", e.reason));
  }
  return {e.reason, e.request, e.confirmed_tokens, tables_in(form, e.tables, layout),
          handoffs_in(form, e.handoffs, layout)};
}

RegionsIn read_regions(Form& form, const kvc_list* regions) {
  RegionsIn in;
  if (regions == nullptr) {
    form.add(Fault::list, "regions is NULL");
    return in;
  }
  if (!form.list(*regions, kvc_region_least, regions_max, "regions")) return in;
  for (std::uint64_t i = 0; i < regions->count; ++i) {
    kvc_region r{};
    if (!form.read_at(*regions, i, r, kvc_region_least, "kvc_region")) continue;
    in.regions.push_back({r.device_kind, r.device_ordinal, r.layer,
                          reinterpret_cast<std::uintptr_t>(r.base), r.size_bytes,
                          r.block_stride_bytes, r.block_bytes, r.group_mask});
  }
  return in;
}

SubmitIn read_submit(Form& form, kvc_bytes plan, const kvc_fence* fence) {
  SubmitIn in;
  in.plan = bytes_in(form, plan, "plan");
  kvc_fence f{};
  if (!form.read(fence, f, kvc_fence_least, "kvc_fence")) return in;
  in.fence_kind = f.kind;
  in.fence_value = f.value;
  return in;
}

WaitIn read_wait(Form& form, const kvc_job* jobs, std::uint64_t count, std::uint64_t timeout_ns) {
  WaitIn in;
  in.timeout_ns = timeout_ns;
  if (form.array(jobs, count, sizeof(kvc_job), jobs_max, "jobs") && count != 0) {
    in.jobs.assign(jobs, jobs + count);
  }
  return in;
}

}  // namespace kvc::validate
