// Out-structs of kvc.h as values. The lists are the connector's: what cannot be stepped through is
// named, not read.
#include "conformance/validate/form.h"

namespace kvc::validate {
namespace {

constexpr std::uint64_t elements_max = std::uint64_t{1} << 24U;
constexpr std::uint64_t bytes_max = std::uint64_t{1} << 32U;

ByteString bytes_of(Form& form, const kvc_bytes& bytes, const char* name) {
  if (!form.array(bytes.data, bytes.size, 1, bytes_max, name) || bytes.size == 0) return {};
  return {reinterpret_cast<const char*>(bytes.data), bytes.size};
}

// Every element of the list as T, given to `each`.
template <class T, class Each>
void for_each(Form& form, const kvc_list& list, std::size_t least, const char* name,
              const Each& each) {
  if (!form.list(list, least, elements_max, name)) return;
  for (std::uint64_t i = 0; i < list.count; ++i) {
    T element{};
    if (form.read_at(list, i, element, least, name)) each(element);
  }
}

std::vector<FailedBlock> read_failed(Form& form, const kvc_list& list) {
  std::vector<FailedBlock> out;
  for_each<kvc_failed_block>(
      form, list, kvc_failed_block_least, "failed", [&](const kvc_failed_block& f) {
        out.push_back({f.group, f.block, f.position, f.rank, f.status, f.side});
      });
  return out;
}

}  // namespace

std::vector<ClassInfo> read_classes(Form& form, const kvc_list& list) {
  std::vector<ClassInfo> out;
  for_each<kvc_class>(form, list, kvc_class_least, "classes", [&](const kvc_class& c) {
    out.push_back({c.class_id, c.group_mask, c.slots_per_page, c.bytes_per_block, c.usable_slots});
  });
  return out;
}

std::vector<Block> read_blocks(Form& form, const kvc_list& list, const char* name) {
  std::vector<Block> out;
  for_each<kvc_block>(form, list, kvc_block_least, name, [&](const kvc_block& b) {
    out.push_back({b.group, b.block, b.position});
  });
  return out;
}

AllocOut read_alloc_out(Form& form, const kvc_alloc_out& out) {
  AllocOut mine{out.job, read_blocks(form, out.held, "kvc_alloc_out.held"), {}};
  for_each<kvc_medium_tokens>(form, out.media, kvc_medium_tokens_least, "kvc_alloc_out.media",
                              [&](const kvc_medium_tokens& m) {
                                mine.media.push_back({m.medium, m.tokens});
                              });
  return mine;
}

PlanOut read_plan_out(Form& form, const kvc_plan& out) {
  PlanOut mine;
  mine.step = out.step;
  for_each<kvc_plan_job>(
      form, out.jobs, kvc_plan_job_least, "kvc_plan.jobs", [&](const kvc_plan_job& j) {
        mine.jobs.push_back(
            {j.kind, j.job, j.request, read_blocks(form, j.held, "kvc_plan_job.held")});
      });
  mine.bytes = bytes_of(form, out.bytes, "kvc_plan.bytes");
  return mine;
}

CompleteOut read_complete_out(Form& form, const kvc_complete_out& out) {
  CompleteOut mine;
  for_each<kvc_ended_job>(
      form, out.jobs, kvc_ended_job_least, "kvc_complete_out.jobs", [&](const kvc_ended_job& j) {
        mine.jobs.push_back({j.kind, j.job, j.request, j.status, read_failed(form, j.failed),
                             read_blocks(form, j.released, "kvc_ended_job.released")});
      });
  for_each<kvc_verdict>(form, out.verdicts, kvc_verdict_least, "kvc_complete_out.verdicts",
                        [&](const kvc_verdict& v) {
                          mine.verdicts.push_back({v.status, v.request, v.job});
                        });
  for_each<kvc_rejected>(form, out.rejected, kvc_rejected_least, "kvc_complete_out.rejected",
                         [&](const kvc_rejected& r) {
                           mine.rejected.push_back({r.rank, r.report, r.job, r.status});
                         });
  return mine;
}

RetentionOut read_retention_out(Form& form, const kvc_retention_out& out) {
  RetentionOut mine{out.mode, {}};
  constexpr std::uint64_t most = std::uint64_t{1} << 24U;
  if (out.n_boundaries != 0 && form.array(out.boundaries, out.n_boundaries, sizeof *out.boundaries,
                                          most, "kvc_retention_out.boundaries")) {
    mine.boundaries.assign(out.boundaries, out.boundaries + out.n_boundaries);
  }
  return mine;
}

EndOut read_end_out(Form& form, const kvc_end_out& out) {
  return {out.job, read_blocks(form, out.held, "kvc_end_out.held")};
}

RankInfo read_rank_info(Form& form, const kvc_rank_info& out) {
  return {out.rank, out.pages, read_classes(form, out.classes),
          bytes_of(form, out.inventory, "kvc_rank_info.inventory")};
}

ProgressOut read_progress_out(Form& form, const kvc_progress& out) {
  ProgressOut mine;
  for_each<kvc_load_done>(
      form, out.loads, kvc_load_done_least, "kvc_progress.loads", [&](const kvc_load_done& d) {
        mine.loads.push_back({d.status, d.request, d.job, read_failed(form, d.failed)});
      });
  mine.report = bytes_of(form, out.report, "kvc_progress.report");
  return mine;
}

}  // namespace kvc::validate
