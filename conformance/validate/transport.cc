// Ranks, plans and reports: KVC-H-010 to 012, 050 to 052, KVC-P-040, 041, 043, 120, 122, 124.
#include <algorithm>

#include <fmt/format.h>

#include "conformance/validate/checks.h"
#include "host_stub/loader/status_text.h"

namespace kvc::validate {
namespace {

constexpr std::uint64_t slots_least = 2;

std::uint64_t cacheable_mask(const Layout& layout) {
  std::uint64_t mask = 0;
  for (std::size_t g = 0; g < layout.groups.size(); ++g) {
    if (layout.groups[g].cacheable) mask |= std::uint64_t{1} << g;
  }
  return mask;
}

void check_region(const Check& c, std::uint32_t rank, std::size_t i, const Region& r) {
  const auto wrong = [&](const std::string& why) {
    c.find("KVC-H-012", fmt::format("rank {}, region {}: {}", rank, i, why));
  };
  if (r.stride < r.block_bytes || r.block_bytes == 0) {
    return wrong(fmt::format("blocks of {} bytes at a stride of {}", r.block_bytes, r.stride));
  }
  if (r.base == 0 || r.size > UINT64_MAX - r.base) {
    return wrong(fmt::format("{} bytes at {:#x}", r.size, r.base));
  }
  const std::uint64_t blocks = c.model.layout.device_blocks;
  if (blocks == KVC_NO_LIMIT || blocks == 0) return;
  std::uint64_t needed = 0;
  if (!kvc_mul(blocks - 1, r.stride, &needed) || !kvc_add(needed, r.block_bytes, &needed) ||
      needed > r.size) {
    wrong(fmt::format("{} bytes are too few for {} blocks at a stride of {}", r.size, blocks,
                      r.stride));
  }
}

void check_usable(const Check& c, const SetRanksIn& in, const SetRanksOut& out) {
  for (const ClassInfo& u : out.usable) {
    std::uint64_t most = KVC_NO_LIMIT;
    bool named = false;
    for (const RankInfo& r : in.ranks) {
      for (const ClassInfo& k : r.classes) {
        if (k.class_id != u.class_id) continue;
        named = true;
        std::uint64_t slots = 0;
        if (r.pages == KVC_NO_LIMIT || !kvc_mul(r.pages, k.slots_per_page, &slots)) continue;
        most = std::min(most, slots);
      }
    }
    if (!named || u.usable_slots > most || u.usable_slots < slots_least) {
      c.find("KVC-P-040", fmt::format("class {} has {} usable slots; the least rank has {}",
                                      u.class_id, u.usable_slots, most));
    }
  }
}

// 1, 2, ..: which plan of the scheduler it is; 0: none.
std::uint64_t number_of(const Model& m, const KeyId& plan) {
  const auto it = std::find(m.plans.begin(), m.plans.end(), plan);
  return it == m.plans.end() ? 0 : static_cast<std::uint64_t>(it - m.plans.begin()) + 1;
}

std::string short_hash(const KeyId& id) { return fmt::format("{:016x}", id.first); }

}  // namespace

bool Model::all_ranks_here() const {
  return std::all_of(ranks.begin(), ranks.end(), [](const RankView& r) { return r.here; });
}

void before_set_ranks(const Check& c, const SetRanksIn& in) {
  Model& m = c.model;
  m.ranks_tried = true;
  if (m.ranks_set) {
    c.find("KVC-H-011", "set_ranks is called a second time");
    return;
  }
  std::vector<bool> seen(m.layout.ranks, false);
  for (const RankInfo& r : in.ranks) {
    if (r.rank >= seen.size() || seen[r.rank]) {
      c.find("KVC-H-011", fmt::format("set_ranks names rank {} of {}{}", r.rank, seen.size(),
                                      r.rank < seen.size() ? " twice" : ""));
      continue;
    }
    seen[r.rank] = true;
    const RankView& view = m.ranks[r.rank];
    if (view.here && !view.registered) {
      c.find("KVC-H-011", fmt::format("set_ranks names rank {}, whose register_regions has not "
                                      "returned anything",
                                      r.rank));
    } else if (view.here && !(view.info == r)) {
      c.find("KVC-H-011", fmt::format("what set_ranks says of rank {} is not what its "
                                      "register_regions returned",
                                      r.rank));
    }
  }
  if (in.ranks.size() < seen.size()) {
    c.find("KVC-H-011",
           fmt::format("set_ranks names {} of {} ranks", in.ranks.size(), seen.size()));
  }
}

void after_set_ranks(const Check& c, const SetRanksIn& in, kvc_status status,
                     const SetRanksOut& out) {
  Model& m = c.model;
  if (status == KVC_E_INTERNAL) return;
  if (m.ranks_set) {
    if (status != KVC_E_STATE) {
      c.find("KVC-P-041", fmt::format("a second set_ranks answered {}", host::Said{status}));
    }
    return;
  }
  if (status < 0) return;
  const bool incomplete = in.ranks.size() != m.layout.ranks;
  if (incomplete) {
    c.find("KVC-P-041", fmt::format("set_ranks with {} of {} ranks answered {}", in.ranks.size(),
                                    m.layout.ranks, host::Said{status}));
  }
  m.ranks_set = true;
  m.pool_grows = std::any_of(in.ranks.begin(), in.ranks.end(),
                             [](const RankInfo& r) { return r.pages == KVC_NO_LIMIT; });
  check_usable(c, in, out);
}

void before_register(const Check& c, std::uint32_t rank, const RegionsIn& in) {
  Model& m = c.model;
  if (m.ranks[rank].registered) {
    c.find("KVC-H-012", fmt::format("rank {} registers its regions a second time", rank));
    return;
  }
  std::uint64_t mask = 0;
  for (std::size_t i = 0; i < in.regions.size(); ++i) {
    check_region(c, rank, i, in.regions[i]);
    mask |= in.regions[i].group_mask;
  }
  const std::uint64_t missing = cacheable_mask(m.layout) & ~mask;
  if (missing != 0) {
    c.find("KVC-H-012",
           fmt::format("rank {}: no region has the cacheable groups {:#x}", rank, missing));
  }
}

void after_register(const Check& c, std::uint32_t rank, const RegionsIn&, kvc_status status,
                    const RankInfo& out) {
  RankView& view = c.model.ranks[rank];
  if (status == KVC_E_INTERNAL) return;
  if (view.registered) {
    if (status != KVC_E_STATE) {
      c.find("KVC-P-043", fmt::format("a second register_regions of rank {} answered {}", rank,
                                      host::Said{status}));
    }
    return;
  }
  if (status < 0) return;
  if (c.findings.has("KVC-H-012")) {
    c.find("KVC-P-043",
           fmt::format("register_regions of rank {} answered {}", rank, host::Said{status}));
  }
  view.registered = true;
  view.info = out;
}

void before_submit(const Check& c, std::uint32_t rank, bool loads, const SubmitIn& in,
                   const kvc_fence* fence) {
  Model& m = c.model;
  RankView& view = m.ranks[rank];
  const char* const slot = loads ? "submit_loads" : "submit_stores";
  if (!view.registered) {
    c.find("KVC-H-012", fmt::format("{} of rank {} before register_regions", slot, rank));
  }
  if (in.fence_kind < KVC_FENCE_NONE || in.fence_kind > KVC_FENCE_COUNTER) {
    c.find("KVC-H-052", fmt::format("{} of rank {}: fence of kind {}", slot, rank, in.fence_kind));
  } else if (in.fence_kind == KVC_FENCE_COUNTER) {
    const auto at = reinterpret_cast<std::uintptr_t>(fence->counter);
    if (at == 0 || at % alignof(std::uint64_t) != 0) {
      c.find("KVC-H-052", fmt::format("{} of rank {}: the counter is at {:#x}", slot, rank, at));
    }
  } else if (in.fence_kind == KVC_FENCE_CUDA_EVENT && fence->object == nullptr) {
    c.find("KVC-H-052", fmt::format("{} of rank {}: a fence without its event", slot, rank));
  }
  const KeyId plan = hash_of(in.plan);
  const std::uint64_t done = loads ? view.loads : view.stores;
  ++(loads ? view.tried_loads : view.tried_stores);
  (loads ? view.late_loads : view.late_stores) = false;
  if (!m.have_sched) {
    if (done != 0 && plan == (loads ? view.last_loads : view.last_stores)) {
      c.find("KVC-H-050", fmt::format("{} of rank {}: the same plan a second time", slot, rank));
    }
    return;
  }
  if (done < m.plans.size() && m.plans[done] == plan) return;
  const std::uint64_t number = number_of(m, plan);
  c.find("KVC-H-050",
         number == 0
             ? fmt::format("{} of rank {}: {} bytes (hash {}) that no build_store_jobs put out",
                           slot, rank, in.plan.size(), short_hash(plan))
             : fmt::format("{} of rank {}: plan {} where plan {} is next", slot, rank, number,
                           done + 1));
}

void after_submit(const Check& c, std::uint32_t rank, bool loads, const SubmitIn& in,
                  kvc_status status) {
  RankView& view = c.model.ranks[rank];
  const char* const slot = loads ? "submit_loads" : "submit_stores";
  if (status == KVC_E_INTERNAL) view.poisoned = true;
  if (status == KVC_E_INTERNAL) return;
  const bool wrong = c.findings.has("KVC-H-050");
  const KeyId plan = hash_of(in.plan);
  std::uint64_t& done = loads ? view.loads : view.stores;
  // A rank may go on behind a plan that it never got: the jobs of that one do not end.
  const std::uint64_t number = wrong ? number_of(c.model, plan) : done + 1;
  if (status >= 0 && number <= done) {
    c.find("KVC-P-120", fmt::format("{} of rank {} answered {}", slot, rank, host::Said{status}));
    return;
  }
  if (status < 0) {
    if (!wrong && !c.findings.host_is_wrong() && status != KVC_E_UNSUPPORTED) {
      c.find("KVC-P-120", fmt::format("{} of rank {} with the next plan answered {}", slot, rank,
                                      host::Said{status}));
    }
    return;
  }
  done = number;
  (loads ? view.last_loads : view.last_stores) = plan;
}

void after_progress(const Check& c, std::uint32_t rank, kvc_status status, const ProgressOut& out) {
  Model& m = c.model;
  RankView& view = m.ranks[rank];
  if (status == KVC_E_INTERNAL) view.poisoned = true;
  if (status < 0) return;
  for (const LoadDone& done : out.loads) {
    const auto text = fmt::format("progress of rank {} reports load job {} with {}", rank, done.job,
                                  host::Said{done.status});
    if (++view.loads_reported[done.job] > 1) {
      c.find("KVC-P-122", text + " again");
      continue;
    }
    if (!m.have_sched) continue;
    const auto job = m.jobs.find(done.job);
    if (job == m.jobs.end()) {
      view.loads_reported.erase(done.job);
      c.find("KVC-P-122", text + (m.ended_jobs.contains(done.job) ? ", which has ended"
                                                                  : ", which nobody handed out"));
    } else if (job->second.kind != KVC_JOB_LOAD || job->second.plan == 0 ||
               job->second.plan > view.loads) {
      c.find("KVC-P-122", text + ", which this rank was not given");
    } else if (job->second.request != done.request) {
      c.find("KVC-P-122", fmt::format("{} for request {}, it is of request {}", text, done.request,
                                      job->second.request));
    }
  }
  for (const std::uint64_t job : view.awaited) {
    if (view.loads_reported.contains(job) || m.ended_jobs.contains(job)) continue;
    c.find("KVC-P-124", fmt::format("wait of rank {} said that load job {} has ended, and progress "
                                    "does not report it",
                                    rank, job));
  }
  view.awaited.clear();
  if (out.report.empty()) return;
  view.reports_out[hash_of(out.report)] = {++view.reports, view.loads, view.stores, m.plans.size()};
}

void after_wait(const Check& c, std::uint32_t rank, const WaitIn& in, kvc_status status) {
  Model& m = c.model;
  RankView& view = m.ranks[rank];
  if (status != KVC_OK || !m.have_sched) return;
  for (const auto& [id, job] : m.jobs) {
    const bool asked =
        in.jobs.empty() || std::find(in.jobs.begin(), in.jobs.end(), id) != in.jobs.end();
    const bool given = job.kind == KVC_JOB_LOAD && job.plan != 0 && job.plan <= view.loads;
    if (asked && given && !view.loads_reported.contains(id)) view.awaited.push_back(id);
  }
}

// KVC-H-050, 051: what does not come at all. A host may be max_steps_in_flight plans ahead of its
// ranks; while it works it gets `spare_steps` more.
void check_lag(const Check& c, std::uint64_t spare_steps) {
  Model& m = c.model;
  std::uint64_t most = 0;
  if (!m.ranks_set || !kvc_add(m.layout.steps_in_flight, spare_steps, &most)) return;
  const auto late = [&](std::uint64_t plans) {
    return plans < m.plans.size() && m.plans.size() - plans > most;
  };
  for (std::size_t rank = 0; rank < m.ranks.size(); ++rank) {
    RankView& view = m.ranks[rank];
    if (!view.here || !view.registered || view.poisoned) continue;
    for (const bool loads : {true, false}) {
      const std::uint64_t got = loads ? view.tried_loads : view.tried_stores;
      bool& found = loads ? view.late_loads : view.late_stores;
      if (found || !late(got)) continue;
      found = true;
      c.find("KVC-H-050",
             fmt::format("rank {} got {} of {} plans by {}, max_steps_in_flight is {}", rank, got,
                         m.plans.size(), loads ? "submit_loads" : "submit_stores",
                         m.layout.steps_in_flight));
    }
    if (view.late_reports) continue;
    for (const auto& [hash, report] : view.reports_out) {
      if (!late(report.built)) continue;
      view.late_reports = true;
      c.find("KVC-H-051",
             fmt::format("report {} of rank {}, made when there were {} plans, has not "
                         "come to complete at plan {}",
                         report.sequence, rank, report.built, m.plans.size()));
      break;
    }
  }
}

// KVC-H-051.
void before_reports(const Check& c, const CompleteIn& in) {
  Model& m = c.model;
  m.reports_seen_as.assign(in.reports.size(), Model::ReportIs::unknown);
  if (!m.all_ranks_here()) return;
  for (std::size_t i = 0; i < in.reports.size(); ++i) {
    if (in.reports[i].empty()) continue;  // the rank had nothing to say
    const KeyId report = hash_of(in.reports[i]);
    for (RankView& view : m.ranks) {
      if (const auto out = view.reports_out.find(report); out != view.reports_out.end()) {
        view.carried_loads = std::max(view.carried_loads, out->second.loads);
        view.carried_stores = std::max(view.carried_stores, out->second.stores);
        view.late_reports = false;
        view.reports_in[report] = out->second.sequence;
        view.reports_out.erase(out);
        m.reports_seen_as[i] = Model::ReportIs::right;
        break;
      }
      if (view.reports_in.contains(report)) m.reports_seen_as[i] = Model::ReportIs::repeated;
    }
    if (m.reports_seen_as[i] == Model::ReportIs::right) continue;
    c.find("KVC-H-051", m.reports_seen_as[i] == Model::ReportIs::repeated
                            ? fmt::format("report {} of {} bytes came to complete before", i,
                                          in.reports[i].size())
                            : fmt::format("report {} of {} bytes is none that a rank put out", i,
                                          in.reports[i].size()));
  }
}

}  // namespace kvc::validate
