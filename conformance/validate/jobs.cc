// The end of jobs: KVC-P-065, 080, 090 to 093, 095, 102.
#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "conformance/validate/checks.h"
#include "host_stub/loader/status_text.h"

namespace kvc::validate {
namespace {

bool less(const Block& a, const Block& b) {
  return std::tie(a.group, a.block, a.position) < std::tie(b.group, b.block, b.position);
}

std::vector<Block> sorted(std::vector<Block> blocks) {
  std::sort(blocks.begin(), blocks.end(), less);
  return blocks;
}

void release_holds(Model& m, std::uint64_t job, const std::vector<Block>& blocks) {
  for (const Block& b : blocks) {
    const auto it = m.holds.find(b.block);
    if (it == m.holds.end()) continue;
    std::erase_if(it->second, [&](const Hold& h) { return h.job == job; });
    if (it->second.empty()) m.holds.erase(it);
  }
}

void check_released(const Check& c, const EndedJob& ended, const Job& job) {
  const std::vector<Block> held = sorted(job.held);
  const std::vector<Block> released = sorted(ended.released);
  const bool right =
      job.at_end ? std::includes(held.begin(), held.end(), released.begin(), released.end(), less)
                 : released == held;
  if (!right) {
    const auto [h, r] = std::mismatch(held.begin(), held.end(), released.begin(), released.end());
    const bool lost = r == released.end() || (h != held.end() && less(*h, *r));
    const Block& b = lost ? *h : *r;
    c.find("KVC-P-092",
           fmt::format("job {} held {} blocks and released {}: block {} of group {} position {} "
                       "was {}",
                       ended.job, held.size(), released.size(), b.block, b.group, b.position,
                       lost ? "held and not released" : "released and not held"));
    return;
  }
  if (job.request != 0) check_order(c, "KVC-P-092", ended.job, ended.released);
}

// Every rank of this process has a report carried that it made after it got the job's plan.
bool every_rank_could_report(const Model& m, const Job& job) {
  if (!m.all_ranks_here()) return true;
  return std::all_of(m.ranks.begin(), m.ranks.end(), [&](const RankView& r) {
    return (job.kind == KVC_JOB_LOAD ? r.carried_loads : r.carried_stores) >= job.plan;
  });
}

void end_job(const Check& c, const EndedJob& ended) {
  Model& m = c.model;
  const auto it = m.jobs.find(ended.job);
  if (it == m.jobs.end()) {
    c.find("KVC-P-090", fmt::format("job {} ended, which {}", ended.job,
                                    m.ended_jobs.contains(ended.job) ? "had ended before"
                                                                     : "no call handed out"));
    return;
  }
  const Job job = it->second;
  if (job.plan == 0) {
    c.find("KVC-P-090", fmt::format("job {} ended and is in no plan yet", ended.job));
  } else if (!every_rank_could_report(m, job)) {
    c.find("KVC-P-090",
           fmt::format("job {} of plan {} ended before every rank reported", ended.job, job.plan));
  } else if (ended.kind != job.kind) {
    c.find("KVC-P-090",
           fmt::format("job {} of kind {} ended as kind {}", ended.job, job.kind, ended.kind));
  }
  check_released(c, ended, job);
  const bool failed = ended.status < 0;
  if (job.must_fail && !failed) {
    c.find("KVC-P-102", fmt::format("load job {} was open at a reset with INVALIDATE and ended {}",
                                    ended.job, host::Said{ended.status}));
  }
  if (job.kind == KVC_JOB_LOAD && ended.status == KVC_E_IO && job.held.empty() && job.firm_lease &&
      job.resets == m.resets && job.failures == m.failures) {
    c.find("KVC-P-065", fmt::format("load job {} of request {} took the {} tokens that were just "
                                    "offered and ended without copies",
                                    ended.job, job.request, job.accepted));
  }
  if (!ended.failed.empty() && !failed) {
    c.find("KVC-P-095", fmt::format("job {} ended {} with {} failed blocks", ended.job,
                                    host::Said{ended.status}, ended.failed.size()));
  }
  if (job.kind == KVC_JOB_STORE && !failed && job.resets == m.resets) m.stored_since_reset = true;
  if (failed) ++m.failures;
  (job.kind == KVC_JOB_LOAD ? m.open_loads : m.open_stores) -= 1;
  if (job.at_end) --m.open_ends;
  release_holds(m, ended.job, job.held);
  for (RankView& r : m.ranks) r.loads_reported.erase(ended.job);
  m.ended_jobs.insert(ended.job);
  if (job.kind == KVC_JOB_LOAD && !job.judged) return;  // its verdict must be in this answer
  m.jobs.erase(it);
}

void take_verdict(const Check& c, const Verdict& v, const CompleteOut& out) {
  Model& m = c.model;
  const auto it = m.jobs.find(v.job);
  if (it == m.jobs.end() || it->second.kind != KVC_JOB_LOAD || it->second.judged) {
    c.find("KVC-P-091", fmt::format("a verdict on job {}, which is no load or has one", v.job));
    return;
  }
  Job& job = it->second;
  if (job.request != v.request) {
    c.find("KVC-P-091", fmt::format("the verdict on job {} of request {} names request {}", v.job,
                                    job.request, v.request));
  }
  const auto ended = std::find_if(out.jobs.begin(), out.jobs.end(),
                                  [&](const EndedJob& j) { return j.job == v.job; });
  if (ended != out.jobs.end() && ended->status < 0 && v.status >= 0) {
    c.find("KVC-P-095", fmt::format("load job {} ended {}, its verdict is {}", v.job,
                                    host::Said{ended->status}, host::Said{v.status}));
  }
  job.judged = true;
  Request* const r = m.find(job.request);
  if (r != nullptr && r->open_load == v.job) {
    r->open_load = 0;
    r->lost_step = r->in_step && r->running && v.status < 0 && !m.layout.rank_verdicts();
    r->in_step = false;
    // Under KVC_HOST_RANK_VERDICTS it may run already, on what the ranks said.
    if (v.status < 0 && !r->running) {
      forget_tables(m, job.request, *r);
      r->load_failed = (v.status == KVC_E_IO || v.status == KVC_E_DEADLINE) && !job.held.empty() &&
                       job.resets == m.resets;
    }
  }
  if (m.ended_jobs.contains(v.job)) m.jobs.erase(it);
}

void check_verdicts(const Check& c, const CompleteOut& out) {
  Model& m = c.model;
  for (const EndedJob& ended : out.jobs) {
    const auto it = m.jobs.find(ended.job);
    if (it == m.jobs.end() || !m.ended_jobs.contains(ended.job)) continue;
    c.find("KVC-P-091", fmt::format("load job {} of request {} ended without a verdict", ended.job,
                                    it->second.request));
    if (Request* const r = m.find(it->second.request); r != nullptr) r->open_load = 0;
    m.jobs.erase(it);
  }
}

}  // namespace

Job& hand_out(const Check& c, std::uint64_t id, std::int32_t kind, std::uint64_t request) {
  Model& m = c.model;
  if (m.jobs.contains(id) || m.ended_jobs.contains(id)) {
    const rules::RuleId rule =
        kind == KVC_JOB_LOAD ? rules::RuleId("KVC-P-073") : rules::RuleId("KVC-P-080");
    c.find(rule, fmt::format("job {} was handed out before", id));
  } else {
    (kind == KVC_JOB_LOAD ? m.open_loads : m.open_stores) += 1;
  }
  Job& job = m.jobs[id];
  job = Job{};
  job.kind = kind;
  job.request = request;
  job.resets = m.resets;
  job.failures = m.failures;
  return job;
}

void hold(Model& model, std::uint64_t job, std::uint64_t request, const Block& block) {
  if (block.group >= model.layout.groups.size()) return;
  KeyId key = no_key;
  if (const Request* const r = model.find(request); r != nullptr) {
    key = key_at(model, *r, block.position * model.layout.groups[block.group].span);
  }
  model.holds[block.block].push_back({job, request, block.group, block.position, key});
}

void check_order(const Check& c, rules::RuleId rule, std::uint64_t job,
                 const std::vector<Block>& blocks) {
  FlatMap<std::uint32_t, std::uint64_t> last;
  for (const Block& b : blocks) {
    const auto [it, first] = last.try_emplace(b.group, b.position);
    if (!first && b.position > it->second) {
      c.find(rule, fmt::format("job {}: group {} position {} stands behind position {}", job,
                               b.group, b.position, it->second));
      return;
    }
    it->second = b.position;
  }
}

void after_complete(const Check& c, const CompleteIn& in, kvc_status status,
                    const CompleteOut& out) {
  if (status == KVC_E_INTERNAL) return;
  Model& m = c.model;
  if (status < 0) {
    c.find("KVC-P-094", fmt::format("complete of {} reports answered {}", in.reports.size(),
                                    host::Said{status}));
    return;
  }
  for (const EndedJob& ended : out.jobs) end_job(c, ended);
  for (const Verdict& v : out.verdicts) take_verdict(c, v, out);
  check_verdicts(c, out);
  std::vector<bool> rejected(in.reports.size(), false);
  for (const Rejected& r : out.rejected) {
    if (r.report >= in.reports.size() || r.status >= 0) {
      c.find("KVC-P-093", fmt::format("report {} of {} is rejected with status {}", r.report,
                                      in.reports.size(), host::Said{r.status}));
      continue;
    }
    rejected[r.report] = true;
  }
  for (std::size_t i = 0; i < in.reports.size(); ++i) {
    if (m.reports_seen_as.size() != in.reports.size() || in.reports[i].empty()) continue;
    if (m.reports_seen_as[i] == Model::ReportIs::unknown && m.all_ranks_here() && !rejected[i]) {
      c.find("KVC-P-093",
             fmt::format("report {} is none that a rank put out and is not rejected", i));
    } else if (m.reports_seen_as[i] == Model::ReportIs::right && rejected[i]) {
      c.find("KVC-P-093", fmt::format("report {} is what a rank put out, comes for the first time "
                                      "and is rejected",
                                      i));
    }
  }
}

}  // namespace kvc::validate
