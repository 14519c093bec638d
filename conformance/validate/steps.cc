// Step records: KVC-H-023, 040 to 049.
#include <algorithm>

#include <fmt/format.h>

#include "conformance/validate/checks.h"

namespace kvc::validate {
namespace {

using Told = FlatSet<std::uint64_t>;

void preempt(const Check& c, std::uint64_t id) {
  Model& m = c.model;
  Request* const r = m.find(id);
  if (r == nullptr) {
    c.find("KVC-H-049", fmt::format("request {} is preempted and not live", id));
    return;
  }
  if (!r->tracked) return;
  r->lost_step = false;
  if (r->noticed) {  // a lookup told it before; its tables may be new ones
    r->noticed = false;
    return;
  }
  for (std::uint32_t g = 0; g < r->tables.size(); ++g) {
    for (std::uint64_t p = 0; p < r->tables[g].size(); ++p) {
      if (!m.layout.real(r->tables[g][p])) continue;
      m.given_up[r->tables[g][p]].push_back({id, g, p, r->confirmed, r->flags, r->store_limit});
    }
  }
  forget_tables(m, id, *r);
  r->must_resume = true;
  r->running = false;
  r->states_listed = false;
  r->confirmed = 0;
}

void check_confirmed(const Check& c, const Scheduled& s, const Request& r) {
  if (r.running && s.confirmed < r.confirmed) {
    c.find("KVC-H-041", fmt::format("request {} has {} confirmed tokens after {}", s.request,
                                    s.confirmed, r.confirmed));
  }
  if (s.confirmed > c.model.layout.max_total) {
    c.find("KVC-H-041", fmt::format("request {} has {} confirmed tokens, max_total_tokens is {}",
                                    s.request, s.confirmed, c.model.layout.max_total));
  }
}

void check_resumed(const Check& c, const Scheduled& s, const Request& r) {
  const bool resumed = (s.flags & KVC_STEP_RESUMED) != 0;
  if (resumed != r.must_resume) {
    c.find("KVC-H-045", resumed
                            ? fmt::format("request {} is resumed and was not preempted", s.request)
                            : fmt::format("request {} comes back from its preemption without "
                                          "KVC_STEP_RESUMED",
                                          s.request));
  }
  if (!resumed) return;
  for (const Table& t : s.tables) {
    if (t.blocks.empty() || t.first_changed == 0) continue;
    c.find("KVC-H-045", fmt::format("request {} is resumed, and the table of group {} begins at {}",
                                    s.request, t.group, t.first_changed));
  }
}

// After keep_tables.
void check_cover(const Check& c, const Scheduled& s, const Request& r) {
  const Layout& layout = c.model.layout;
  for (std::uint32_t g = 0; g < layout.groups.size(); ++g) {
    const Layout::Group& group = layout.groups[g];
    if (!group.stable || !group.cacheable) {
      if (g < s.tables.size() && !s.tables[g].blocks.empty() && group.cacheable) {
        c.find("KVC-H-042", fmt::format("request {} passes a table of group {}, whose positions "
                                        "are not stable",
                                        s.request, g));
      }
      continue;
    }
    if (r.tables[g].size() >= ceil_of(s.confirmed, group.span)) continue;
    c.find("KVC-H-042", fmt::format("request {} has {} confirmed tokens, and a table of {} entries "
                                    "of {} tokens in group {}",
                                    s.request, s.confirmed, r.tables[g].size(), group.span, g));
  }
}

// Has every rank of this process said that its part of the load is ok (KVC_HOST_RANK_VERDICTS)?
bool ranks_say_loaded(const Model& m, std::uint64_t job) {
  return m.layout.rank_verdicts() &&
         (!m.all_ranks_here() ||
          std::all_of(m.ranks.begin(), m.ranks.end(),
                      [&](const RankView& r) { return r.loads_reported.contains(job); }));
}

void schedule(const Check& c, const Scheduled& s) {
  Model& m = c.model;
  Request* const r = m.find(s.request);
  if (r == nullptr) {
    c.find("KVC-H-023", fmt::format("request {} is scheduled and not live", s.request));
    return;
  }
  if (!r->tracked) return;
  if (r->lost_step) {
    c.find("KVC-H-071", fmt::format("the load in step of request {} failed, and it goes on without "
                                    "a preemption",
                                    s.request));
  }
  if (r->in_step && !ranks_say_loaded(m, r->open_load)) {
    if (s.confirmed > r->device) {
      c.find("KVC-H-071", fmt::format("request {} has {} confirmed tokens, the device had {}, and "
                                      "its load in step, job {}, has no verdict",
                                      s.request, s.confirmed, r->device, r->open_load));
    }
  } else if (r->open_load != 0 && !ranks_say_loaded(m, r->open_load)) {
    c.find("KVC-H-046", fmt::format("request {} is scheduled while its load, job {}, has no "
                                    "verdict",
                                    s.request, r->open_load));
  } else if (r->load_failed && !r->running && s.confirmed > r->device + m.layout.max_batch) {
    c.find("KVC-H-046", fmt::format("the load of request {} failed, and {} tokens are confirmed; "
                                    "the device had {}, a step has at most {}",
                                    s.request, s.confirmed, r->device, m.layout.max_batch));
  }
  check_resumed(c, s, *r);
  check_confirmed(c, s, *r);
  check_entries(c, s.request, *r, s.tables, "KVC-H-042");
  keep_tables(m, s.request, *r, s.tables);
  check_cover(c, s, *r);
  r->running = true;
  r->last_named = m.step + 1;
  r->noticed = false;
  r->must_resume = false;
  r->load_failed = false;
  r->confirmed = s.confirmed;
}

void check_handoff(const Check& c, const Handoff& h, const Told& told) {
  Model& m = c.model;
  const Request* const r = m.find(h.request);
  const auto wrong = [&](const std::string& why) {
    c.find("KVC-H-044", fmt::format("hand-off of request {}, group {}, block {}, boundary {}: {}",
                                    h.request, h.group, h.block, h.boundary, why));
  };
  m.step_blocks.insert(h.block);
  if (r == nullptr) return wrong("the request is not live");
  if (!r->tracked) return;
  if (!told.contains(h.request)) return wrong("the request is not scheduled");
  if (h.group >= m.layout.groups.size() || !m.layout.groups[h.group].state) {
    return wrong("the group keeps no state");
  }
  if (!m.layout.real(h.block)) return wrong("no block of the device");
  if (h.boundary == 0 || h.boundary % m.layout.hash_unit != 0) {
    return wrong("the boundary is no multiple of the hash unit");
  }
  if (h.boundary > r->confirmed) return wrong(fmt::format("{} are confirmed", r->confirmed));
  check_wanted(c, *r, h);
}

void check_candidate(const Check& c, const Candidate& n, const Told& told) {
  Model& m = c.model;
  m.step_blocks.insert(n.block);
  const auto wrong = [&](const std::string& why) {
    c.find("KVC-H-048",
           fmt::format("candidate block {} of group {}, end {}: {}", n.block, n.group, n.end, why));
  };
  if (n.group >= m.layout.groups.size()) return wrong("there is no such group");
  if (!m.layout.real(n.block)) return wrong("no block of the device");
  if (n.key.empty()) return wrong("it has no key");
  if (n.end == 0 || n.end % m.layout.hash_unit != 0) {
    return wrong("the end is no multiple of the hash unit");
  }
  if (const auto held = m.holds.find(n.block); held != m.holds.end() && !held->second.empty()) {
    c.find("KVC-H-047", fmt::format("block {} is a candidate and held by job {}", n.block,
                                    held->second.front().job));
  }
  const auto uses = m.uses.find(n.block);
  if (uses == m.uses.end()) return;
  for (const Use& use : uses->second) {
    if (told.contains(use.request)) {
      return wrong(fmt::format("it is at group {} position {} of request {}", use.group,
                               use.position, use.request));
    }
    if (Request* const r = m.find(use.request); r != nullptr) {
      r->doubts.push_back({use.group, use.position, n.block, 0});
    }
  }
  m.uses.erase(uses);
}

}  // namespace

void before_build(const Check& c, const StepIn& in) {
  Model& m = c.model;
  m.given_up.clear();
  m.step_blocks.clear();
  if (in.step != m.step + 1) {
    c.find("KVC-H-040", fmt::format("step {} follows step {}", in.step, m.step));
    return;
  }
  for (const std::uint64_t id : in.preempted) preempt(c, id);
  Told told;
  for (const Scheduled& s : in.scheduled) told.insert(s.request);
  for (const std::uint64_t id : m.fresh_tables) told.insert(id);
  for (const Scheduled& s : in.scheduled) schedule(c, s);
  for (const std::uint64_t id : m.fresh_tables) {
    if (Request* const r = m.find(id); r != nullptr) own_tables(c, id, *r, told);
  }
  m.fresh_tables.clear();
  for (const Scheduled& s : in.scheduled) {
    Request* const r = m.find(s.request);
    if (r == nullptr || !r->tracked) continue;
    settle_doubts(c, s.request, *r);
    own_tables(c, s.request, *r, told);
  }
  for (const Handoff& h : in.handoffs) check_handoff(c, h, told);
  for (const Candidate& n : in.candidates) check_candidate(c, n, told);
}

}  // namespace kvc::validate
