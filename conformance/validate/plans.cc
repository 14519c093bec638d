// Plans: KVC-P-080 to 085, and of KVC-P-141 what check_promised finds.
#include <algorithm>

#include <fmt/format.h>

#include "conformance/validate/checks.h"
#include "host_stub/loader/status_text.h"

namespace kvc::validate {
namespace {

// The places in tables that name the block now or did until this step.
std::vector<Model::Allowed> places_of(Model& m, std::uint32_t group, std::int64_t block) {
  std::vector<Model::Allowed> places;
  if (const auto it = m.uses.find(block); it != m.uses.end()) {
    for (const Use& use : it->second) {
      const Request* const r = m.find(use.request);
      if (r == nullptr || use.group != group) continue;
      places.push_back(
          {use.request, use.group, use.position, r->confirmed, r->flags, r->store_limit});
    }
  }
  if (const auto it = m.given_up.find(block); it != m.given_up.end()) {
    for (const Model::Allowed& a : it->second) {
      if (a.group == group) places.push_back(a);
    }
  }
  return places;
}

void check_source(const Check& c, const PlannedJob& job, const Block& b) {
  Model& m = c.model;
  const auto named = [&](const std::string& why) {
    return fmt::format("store job {} names block {} of group {} position {}: {}", job.job, b.block,
                       b.group, b.position, why);
  };
  if (b.group >= m.layout.groups.size() || !m.layout.real(b.block)) {
    c.find("KVC-P-083", named("no block of the device"));
    return;
  }
  if (m.step_blocks.contains(b.block)) return;
  const std::vector<Model::Allowed> places = places_of(m, b.group, b.block);
  if (!places.empty() && std::all_of(places.begin(), places.end(), [](const auto& p) {
        return (p.flags & KVC_REQUEST_NO_WRITE) != 0;
      })) {
    c.find("KVC-P-085", named("only requests with KVC_REQUEST_NO_WRITE have it"));
    return;
  }
  if (places.empty()) {
    c.find("KVC-P-083", named("no table, hand-off or candidate has it"));
    return;
  }
  const std::uint64_t begin = b.position * m.layout.groups[b.group].span;
  const auto fits = [&](const Model::Allowed& p) {
    return p.position == b.position && begin < p.confirmed;
  };
  const auto place = std::find_if(places.begin(), places.end(), fits);
  if (place == places.end()) {
    c.find("KVC-P-083",
           named(fmt::format("request {} has it at position {} and {} tokens confirmed",
                             places.front().request, places.front().position,
                             places.front().confirmed)));
  } else if (std::all_of(places.begin(), places.end(),
                         [&](const auto& p) { return p.store_limit <= begin; })) {
    c.find("KVC-P-085", named(fmt::format("it lies behind the store limit of request {}, {}",
                                          place->request, place->store_limit)));
  }
}

void take_new_store(const Check& c, const PlannedJob& job) {
  Model& m = c.model;
  if (m.ended_jobs.contains(job.job) || job.kind != KVC_JOB_STORE || job.job == 0) {
    c.find("KVC-P-080",
           fmt::format("plan {} has job {} of kind {}, which {}", m.step, job.job, job.kind,
                       m.ended_jobs.contains(job.job) ? "has ended" : "no call handed out"));
    return;
  }
  Job& mine = hand_out(c, job.job, job.kind, job.request);
  mine.held = job.held;
  const Request* const r = m.find(job.request);
  if (r != nullptr && (r->flags & KVC_REQUEST_NO_WRITE) != 0) {
    c.find("KVC-P-085", fmt::format("store job {} is of request {}, KVC_REQUEST_NO_WRITE", job.job,
                                    job.request));
  }
  for (const Block& b : job.held) {
    check_source(c, job, b);
    std::uint64_t owner = job.request;
    // A block that the host was asked for may be there for another request, which lost it.
    const auto uses = m.uses.find(b.block);
    if (owner == 0 && uses != m.uses.end() && uses->second.size() == 1 &&
        !m.step_blocks.contains(b.block)) {
      owner = uses->second.front().request;
    }
    hold(m, job.job, owner, b);
  }
  if (job.request != 0) check_order(c, "KVC-P-084", job.job, job.held);
}

void take_planned(const Check& c, const PlannedJob& job) {
  Model& m = c.model;
  const bool fresh = !m.jobs.contains(job.job);
  if (fresh) take_new_store(c, job);
  const auto it = m.jobs.find(job.job);
  if (it == m.jobs.end()) return;
  Job& mine = it->second;
  if (mine.plan != 0) {
    c.find("KVC-P-080",
           fmt::format("job {} is in plan {} and in plan {}", job.job, mine.plan, m.step));
  } else if (mine.kind != job.kind) {
    c.find("KVC-P-080", fmt::format("job {} was handed out as kind {} and planned as kind {}",
                                    job.job, mine.kind, job.kind));
  } else if (!fresh && !job.held.empty()) {
    c.find("KVC-P-080", fmt::format("plan {} lists the holds of job {} again", m.step, job.job));
  }
  mine.plan = m.step;
}

}  // namespace

void after_build(const Check& c, const StepIn& in, kvc_status status, const PlanOut& out) {
  Model& m = c.model;
  if (status == KVC_E_INTERNAL) return;
  const bool wrong_step = c.findings.has("KVC-H-040");
  if (status < 0) {
    if (!wrong_step) {
      c.find("KVC-P-081",
             fmt::format("build_store_jobs of step {} answered {}", in.step, host::Said{status}));
    }
    return;
  }
  if (wrong_step) {
    c.find("KVC-P-081", fmt::format("build_store_jobs of step {} after step {} answered {}",
                                    in.step, m.step, host::Said{status}));
    return;
  }
  m.step = in.step;
  if (out.step != in.step) {
    c.find("KVC-P-080", fmt::format("the plan of step {} says step {}", in.step, out.step));
  }
  m.plans.push_back(hash_of(out.bytes));
  for (const PlannedJob& job : out.jobs) take_planned(c, job);
  for (const std::uint64_t id : m.unplanned_stores) {
    const auto it = m.jobs.find(id);
    if (it != m.jobs.end() && it->second.plan == 0) {
      c.find("KVC-P-080",
             fmt::format("store job {} was handed out before and is not in plan {}", id, m.step));
    }
  }
  m.unplanned_stores.clear();
  check_promised(c);
  m.leases.clear();
  check_lag(c, lag_spare_steps);
}

}  // namespace kvc::validate
