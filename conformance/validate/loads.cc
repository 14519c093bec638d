// Acceptance of hits: KVC-H-031, 032, 064, KVC-P-065, 070 to 073.
#include <algorithm>

#include <fmt/format.h>

#include "conformance/validate/checks.h"
#include "host_stub/loader/status_text.h"

namespace kvc::validate {
namespace {

constexpr std::uint64_t leases_promised = 64;

// Where the load writes: the positions of group g that its boundary needs and the device has not.
struct Destinations {
  std::uint64_t first = 0;
  std::uint64_t behind = 0;
};

Destinations destinations(const Layout& layout, std::uint32_t g, std::uint64_t device,
                          std::uint64_t end) {
  const std::uint64_t span = layout.groups[g].span;
  return {std::max(layout.first_needed(g, end), device / span), ceil_of(end, span)};
}

void check_destination(const Check& c, const AllocIn& in, std::uint32_t g, std::uint64_t p,
                       std::int64_t block) {
  const Layout& layout = c.model.layout;
  if (!layout.real(block)) {
    c.find("KVC-H-032", fmt::format("request {}: group {} position {} of a load is block {} of {}",
                                    in.request, g, p, block, layout.device_blocks));
    return;
  }
  const auto held = c.model.holds.find(block);
  if (held == c.model.holds.end() || held->second.empty()) return;
  c.find("KVC-H-032", fmt::format("request {}: group {} position {} of a load is block {}, which "
                                  "job {} holds",
                                  in.request, g, p, block, held->second.front().job));
}

void check_load_tables(const Check& c, const AllocIn& in, const Request& r) {
  const Layout& layout = c.model.layout;
  const std::uint64_t end = r.device + in.accepted;
  for (std::uint32_t g = 0; g < layout.groups.size(); ++g) {
    if (!layout.groups[g].cacheable) continue;
    const Destinations d = destinations(layout, g, r.device, end);
    const std::uint64_t has = g < in.tables.size() ? in.tables[g].blocks.size() : 0;
    if (has < d.behind && d.first < d.behind) {
      c.find("KVC-H-032", fmt::format("request {}: the table of group {} has {} entries, {} tokens "
                                      "need {}",
                                      in.request, g, has, end, d.behind));
      continue;
    }
    for (std::uint64_t p = d.first; p < d.behind; ++p) {
      check_destination(c, in, g, p, in.tables[g].blocks[p]);
    }
  }
}

void check_held(const Check& c, const AllocIn& in, const AllocOut& out) {
  const Block* before = nullptr;
  for (const Block& b : out.held) {
    const bool entry = b.group < in.tables.size() &&
                       b.position < in.tables[b.group].blocks.size() &&
                       in.tables[b.group].blocks[b.position] == b.block;
    if (!entry || !c.model.layout.real(b.block)) {
      c.find("KVC-P-073", fmt::format("load job {} holds block {} of group {} position {}, which "
                                      "is not in the table",
                                      out.job, b.block, b.group, b.position));
      return;
    }
    if (before != nullptr &&
        (b.group < before->group || (b.group == before->group && b.position <= before->position))) {
      c.find("KVC-P-073",
             fmt::format("load job {} holds group {} position {} behind group {} position {}",
                         out.job, b.group, b.position, before->group, before->position));
      return;
    }
    before = &b;
  }
  std::uint64_t sum = 0;
  for (const MediumTokens& m : out.media) sum += m.tokens;
  if (!out.held.empty() && sum != in.accepted) {
    c.find("KVC-P-073",
           fmt::format("load job {} of {} tokens: its media sum to {}", out.job, in.accepted, sum));
  }
}

void take_load(const Check& c, const AllocIn& in, Request& r, const AllocOut& out) {
  Model& m = c.model;
  if (out.job == 0) {
    c.find("KVC-P-073", fmt::format("alloc_update of {} accepted {} tokens without a job",
                                    in.request, in.accepted));
    return;
  }
  check_held(c, in, out);
  Job& job = hand_out(c, out.job, KVC_JOB_LOAD, in.request);
  job.accepted = in.accepted;
  job.held = out.held;
  job.firm_lease = m.leases.contains(in.request) && in.accepted == r.offered &&
                   r.lease_failures == m.failures && m.leases.size() <= leases_promised;
  r.open_load = out.job;
  r.in_step = false;
  for (const Block& b : out.held) hold(m, out.job, in.request, b);
}

void after_refusal(const Check& c, const AllocIn& in, const Request& r, kvc_status status) {
  const std::string text = fmt::format("alloc_update of {} with {} tokens answered {}", in.request,
                                       in.accepted, host::Said{status});
  if (in.accepted == 0) {
    c.find("KVC-P-070", text);
  } else if (r.open_load != 0) {
    if (status != KVC_E_STATE) {
      c.find("KVC-P-072", fmt::format("{}; job {} has no verdict", text, r.open_load));
    }
  } else if (!c.findings.host_is_wrong()) {
    c.find("KVC-P-071", fmt::format("{}; {} were offered", text, r.offered));
  }
}

}  // namespace

void before_alloc(const Check& c, const AllocIn& in) {
  Model& m = c.model;
  const auto it = m.live.find(in.request);
  if (it == m.live.end()) {
    c.find("KVC-H-023", fmt::format("alloc_update of {}, which is not live", in.request));
    return;
  }
  const Request& r = it->second;
  if (!r.tracked) return;
  if (in.accepted > r.offered || in.accepted % m.layout.hash_unit != 0) {
    c.find("KVC-H-031", fmt::format("request {} accepts {} tokens, {} were offered, the hash unit "
                                    "is {}",
                                    in.request, in.accepted, r.offered, m.layout.hash_unit));
  } else if (in.accepted > r.offer_max) {
    c.find("KVC-H-064", fmt::format("request {} accepts {} tokens, which the connector offered "
                                    "beyond the cap of {}",
                                    in.request, in.accepted, r.offer_max));
  }
  if (in.accepted != 0) {
    check_load_tables(c, in, r);
    check_entries(c, in.request, r, in.tables, "KVC-H-032");
  } else {
    check_entries(c, in.request, r, in.tables, "KVC-H-042");
  }
}

void after_alloc(const Check& c, const AllocIn& in, kvc_status status, const AllocOut& out) {
  Model& m = c.model;
  Request* const r = m.find(in.request);
  if (status == KVC_E_INTERNAL) return;
  if (r == nullptr) {
    if (status >= 0) {
      c.find("KVC-P-071", fmt::format("alloc_update of unknown request {} answered {}", in.request,
                                      host::Said{status}));
    }
    return;
  }
  if (!r->tracked) {
    if (status != KVC_OK || out.job != 0) {
      c.find("KVC-P-051", fmt::format("alloc_update of {}, which was refused with KVC_E_FULL, "
                                      "answered {} and job {}",
                                      in.request, host::Said{status}, out.job));
    }
    return;
  }
  if (status < 0) {
    after_refusal(c, in, *r, status);
    return;
  }
  if (r->open_load != 0 && in.accepted != 0) {
    c.find("KVC-P-072", fmt::format("alloc_update of {} answered {} while job {} has no verdict",
                                    in.request, host::Said{status}, r->open_load));
  }
  if (c.findings.has("KVC-H-031") || c.findings.has("KVC-H-032")) {
    c.find("KVC-P-071", fmt::format("alloc_update of {} with {} tokens answered {}", in.request,
                                    in.accepted, host::Said{status}));
  }
  if (in.accepted != 0) {
    take_load(c, in, *r, out);
    r->offered = 0;
  } else if (out.job != 0) {
    c.find("KVC-P-070",
           fmt::format("alloc_update of {} with 0 tokens has job {}", in.request, out.job));
  }
  m.leases.erase(in.request);
  r->load_failed = false;
  if (!in.tables.empty()) {
    keep_tables(m, in.request, *r, in.tables);
    m.fresh_tables.push_back(in.request);
  }
}

}  // namespace kvc::validate
