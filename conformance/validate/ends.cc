// Ends of requests, resets, the end of all: KVC-H-008, 011, 023, 024, 041, 044, 051, KVC-P-096,
// 097, 101, 102.
#include <algorithm>

#include <fmt/format.h>

#include "conformance/validate/checks.h"
#include "host_stub/loader/status_text.h"

namespace kvc::validate {
namespace {

constexpr std::uint64_t idle_steps = 1000;

void check_end_handoff(const Check& c, const EndIn& in, const Request& r, const Handoff& h) {
  const Layout& layout = c.model.layout;
  const auto wrong = [&](const std::string& why) {
    c.find("KVC-H-044", fmt::format("last hand-off of request {}, group {}, block {}, boundary {}: "
                                    "{}",
                                    h.request, h.group, h.block, h.boundary, why));
  };
  if (h.request != in.request) return wrong("it is of another request");
  if (h.group >= layout.groups.size() || !layout.groups[h.group].state) {
    return wrong("the group keeps no state");
  }
  if (!layout.real(h.block)) return wrong("no block of the device");
  if (h.boundary == 0 || h.boundary % layout.hash_unit != 0) {
    return wrong("the boundary is no multiple of the hash unit");
  }
  if (h.boundary > in.confirmed) return wrong(fmt::format("{} are confirmed", in.confirmed));
  check_wanted(c, r, h);
}

// The block stands at that place in the request's last tables, or was handed off.
bool is_of_request(const EndIn& in, const Request& r, const Block& b) {
  const auto at = [&](const std::vector<std::int64_t>& table) {
    return b.position < table.size() && table[b.position] == b.block;
  };
  const bool passed = std::any_of(in.tables.begin(), in.tables.end(), [&](const Table& t) {
    return t.group == b.group && at(t.blocks);
  });
  return passed || (b.group < r.tables.size() && at(r.tables[b.group])) ||
         std::any_of(in.handoffs.begin(), in.handoffs.end(),
                     [&](const Handoff& h) { return h.group == b.group && h.block == b.block; });
}

// KVC-P-097, and the holds of the finish-time job.
void check_end_holds(const Check& c, const EndIn& in, const Request& r, const EndOut& out) {
  Model& m = c.model;
  FlatSet<std::int64_t> listed;
  std::vector<Block> fresh;
  for (const Block& b : out.held) {
    listed.insert(b.block);
    const auto it = m.holds.find(b.block);
    if (it != m.holds.end() && !it->second.empty()) continue;
    fresh.push_back(b);
    if (out.job == 0) {
      c.find("KVC-P-097", fmt::format("request {} ended without a job, and block {} is held by "
                                      "nobody and listed",
                                      in.request, b.block));
    } else if (!m.layout.real(b.block) ||
               (!is_of_request(in, r, b) && !m.step_blocks.contains(b.block))) {
      c.find("KVC-P-083", fmt::format("finish-time job {} names block {} of group {} position {}, "
                                      "which request {} does not have",
                                      out.job, b.block, b.group, b.position, in.request));
    }
  }
  for (const auto& [block, holds] : m.holds) {
    for (const Hold& h : holds) {
      // A block that the table lost before is the engine's already, as far as the request goes.
      const bool ours =
          h.request == in.request && is_of_request(in, r, Block{h.group, block, h.position});
      if (!ours || listed.contains(block)) continue;
      c.find("KVC-P-097", fmt::format("request {} ended: job {} holds its block {}, which is not "
                                      "listed",
                                      in.request, h.job, block));
    }
  }
  if (out.job == 0) return;
  Job& job = hand_out(c, out.job, KVC_JOB_STORE, in.request);
  job.at_end = true;
  ++m.open_ends;
  job.held = out.held;
  m.unplanned_stores.push_back(out.job);
  for (const Block& b : fresh) hold(m, out.job, in.request, b);
  if ((r.flags & KVC_REQUEST_NO_WRITE) != 0) {
    c.find("KVC-P-085", fmt::format("finish-time job {} is of request {}, KVC_REQUEST_NO_WRITE",
                                    out.job, in.request));
  }
}

}  // namespace

void before_end(const Check& c, const EndIn& in) {
  Model& m = c.model;
  m.step_blocks.clear();
  const Request* const r = m.find(in.request);
  if (r == nullptr) {
    if (m.used_ids.contains(in.request)) {
      c.find("KVC-H-024", fmt::format("request {} ends a second time", in.request));
    } else {
      c.find("KVC-H-023", fmt::format("request_end of {}, which never began", in.request));
    }
    return;
  }
  if (!r->tracked) return;
  if (r->running && in.confirmed < r->confirmed) {
    c.find("KVC-H-041", fmt::format("request {} ends with {} confirmed tokens after {}", in.request,
                                    in.confirmed, r->confirmed));
  }
  if (in.confirmed > m.layout.max_total) {
    c.find("KVC-H-041", fmt::format("request {} ends with {} confirmed tokens, max_total_tokens is "
                                    "{}",
                                    in.request, in.confirmed, m.layout.max_total));
  }
  check_entries(c, in.request, *r, in.tables, "KVC-H-042");
  for (const Handoff& h : in.handoffs) check_end_handoff(c, in, *r, h);
}

void after_end(const Check& c, const EndIn& in, kvc_status status, const EndOut& out) {
  Model& m = c.model;
  Request* const r = m.find(in.request);
  if (status == KVC_E_INTERNAL) return;
  if (r == nullptr) {
    if (status != KVC_E_ARG) {
      c.find("KVC-P-096", fmt::format("request_end of unknown request {} answered {}", in.request,
                                      host::Said{status}));
    }
    return;
  }
  if (!r->tracked) {
    if (status != KVC_OK || out.job != 0) {
      c.find("KVC-P-051", fmt::format("request_end of {}, which was refused with KVC_E_FULL, "
                                      "answered {} and job {}",
                                      in.request, host::Said{status}, out.job));
    }
  } else {
    // With confirmed tokens that fell it is over all the same, and nothing was put out.
    const bool fell = c.findings.has("KVC-H-041");
    if (status < 0 && !fell) {
      c.find("KVC-P-096",
             fmt::format("request_end of {} answered {}", in.request, host::Said{status}));
      return;
    }
    if (status >= 0) check_end_holds(c, in, *r, out);
    drop_uses(m, in.request, *r);
    --m.tracked;
  }
  m.leases.erase(in.request);
  m.live.erase(in.request);
}

void after_reset(const Check& c, std::uint64_t flags, kvc_status status) {
  Model& m = c.model;
  if (status == KVC_E_INTERNAL) return;
  const bool invalidate = (flags & KVC_RESET_INVALIDATE) != 0;
  const bool unknown = (flags & ~KVC_RESET_INVALIDATE) != 0;
  const bool no_verdict = std::any_of(m.jobs.begin(), m.jobs.end(), [](const auto& j) {
    return j.second.kind == KVC_JOB_LOAD && !j.second.judged;
  });
  const std::string text =
      fmt::format("reset with flags {:#x} answered {}", flags, host::Said{status});
  if (unknown) {
    c.find("KVC-H-003", fmt::format("reset has unknown flags {:#x}", flags));
    if (status != KVC_E_UNSUPPORTED) c.find("KVC-P-101", text);
  } else if (invalidate && m.layout.rank_verdicts() && no_verdict) {
    if (status != KVC_E_STATE) c.find("KVC-P-101", text + " with a load without verdict");
  } else if (status < 0) {
    c.find("KVC-P-101", text);
  }
  if (status < 0) return;
  ++m.resets;
  m.ever_reset = true;
  m.stored_since_reset = false;
  m.leases.clear();
  if (!invalidate) return;
  for (auto& [id, job] : m.jobs) job.must_fail = job.kind == KVC_JOB_LOAD && !job.judged;
}

void before_close_sched(const Check& c) {
  Model& m = c.model;
  // An engine may close in the middle of its work; what it forgot long ago was lost.
  for (const auto& [id, r] : m.live) {
    if (!r.tracked || m.step - r.last_named < idle_steps) continue;
    c.find("KVC-H-024", fmt::format("the scheduler is closed at step {}; request {} was named last "
                                    "in step {} and has not ended",
                                    m.step, id, r.last_named));
  }
  if (!m.ranks_tried && m.lookups != 0) {
    c.find("KVC-H-011", fmt::format("the scheduler is closed after {} lookups, and set_ranks was "
                                    "never called",
                                    m.lookups));
  }
  check_lag(c, 0);
  for (std::size_t rank = 0; rank < m.ranks.size(); ++rank) {
    if (m.ranks[rank].late_reports) continue;
    std::uint64_t carried = 0;
    for (const auto& [hash, sequence] : m.ranks[rank].reports_in) {
      carried = std::max(carried, sequence);
    }
    for (const auto& [hash, report] : m.ranks[rank].reports_out) {
      if (report.sequence > carried) continue;
      c.find("KVC-H-051", fmt::format("report {} of rank {} never came to complete, report {} did",
                                      report.sequence, rank, carried));
    }
  }
}

}  // namespace kvc::validate
