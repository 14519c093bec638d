// Lookups: KVC-H-021, 023, 030, KVC-P-042, 060 to 064, 095, 100.
#include <algorithm>

#include <fmt/format.h>

#include "conformance/validate/checks.h"
#include "host_stub/loader/status_text.h"

namespace kvc::validate {
namespace {

std::string about(const LookupIn& in, kvc_status status, const LookupOut& out) {
  return fmt::format(
      "lookup of {} (total {}, device {}, cap {}) answered {}: {} external tokens, why {}",
      in.request, in.total, in.device, in.cap, host::Said{status}, out.external, out.why);
}

// What alone forbids a hit.
struct Forbidden {
  bool unaligned, no_ranks, no_read, failed;
};

void check_forbidden(const Check& c, const Forbidden& f, const std::string& text,
                     const LookupOut& out) {
  const bool said = (f.unaligned && out.why == KVC_WHY_LOCAL_UNALIGNED) ||
                    (f.no_ranks && out.why == KVC_WHY_NO_RANKS) ||
                    (f.no_read && out.why == KVC_WHY_NO_READ) ||
                    (f.failed && out.why == KVC_WHY_LOAD_FAILED);
  if (out.external == 0 && said) return;
  // Any reason for 0 tokens will do where more than one holds, and a reset may be named first.
  if (out.external == 0 && out.why == KVC_WHY_RESET) return;
  if (f.no_ranks) {
    c.find("KVC-P-042", text + "; set_ranks was not called");
  } else if (f.unaligned) {
    c.find("KVC-P-061",
           fmt::format("{}; the scheduler block is {}", text, c.model.layout.scheduler_block));
  } else if (f.no_read) {
    c.find("KVC-P-062", text + "; the request is KVC_REQUEST_NO_READ");
  } else {
    c.find("KVC-P-095", text + "; its load failed and it was not admitted since");
  }
}

void check_offer(const Check& c, const Request& r, const LookupIn& in, const std::string& text,
                 const LookupOut& out) {
  if (out.external == 0) {
    if (out.why <= KVC_WHY_NONE || out.why > KVC_WHY_NOT_TRACKED) {
      c.find("KVC-P-060", text + "; 0 tokens need a reason of kvc.h");
    }
    return;
  }
  const std::uint64_t end = in.device + out.external;
  if (out.why != KVC_WHY_NONE) {
    c.find("KVC-P-060", text + "; a hit has no reason");
  } else if (out.external % c.model.layout.hash_unit != 0 || end < in.device || end >= in.total ||
             out.external > in.cap || end > r.load_limit) {
    c.find("KVC-P-060", fmt::format("{}; the hash unit is {}, the load limit {}", text,
                                    c.model.layout.hash_unit, r.load_limit));
  } else if (c.model.ever_reset && !c.model.stored_since_reset) {
    c.find("KVC-P-100", text + "; nothing was stored since the reset");
  }
}

void check_repeat(const Check& c, const LookupIn& in, kvc_status status, const LookupOut& out,
                  const std::string& text) {
  const Model& m = c.model;
  if (!m.last_was_lookup || !(m.last_lookup == in)) return;
  if (status != KVC_OK || m.last_status != KVC_OK) return;
  if (out.external == m.last_answer.external && out.why == m.last_answer.why) return;
  c.find("KVC-P-064", fmt::format("{}; the lookup before it answered {}, why {}", text,
                                  m.last_answer.external, m.last_answer.why));
}

}  // namespace

void before_lookup(const Check& c, const LookupIn& in) {
  Model& m = c.model;
  Request* const r = m.find(in.request);
  if (r == nullptr) {
    c.find("KVC-H-023", fmt::format("lookup of {}, which is not live", in.request));
    return;
  }
  if (in.device % m.layout.scheduler_block != 0 || in.device >= in.total) {
    c.find("KVC-H-030", fmt::format("lookup of {}: {} device tokens of {}, the scheduler block is "
                                    "{}",
                                    in.request, in.device, in.total, m.layout.scheduler_block));
  }
  if (in.total > m.layout.max_total) {
    c.find("KVC-H-021", fmt::format("lookup of {} with {} tokens, max_total_tokens is {}",
                                    in.request, in.total, m.layout.max_total));
  }
  ++m.lookups;
  r->last_named = m.step;
  if (r->running) {  // the notice of its preemption
    forget_tables(m, in.request, *r);
    r->running = false;
    r->noticed = true;
    r->lost_step = false;
    r->must_resume = true;
    r->states_listed = false;
    r->confirmed = 0;
  }
}

void after_lookup(const Check& c, const LookupIn& in, kvc_status status, const LookupOut& out) {
  Model& m = c.model;
  Request* const r = m.find(in.request);
  const std::string text = about(in, status, out);
  if (status == KVC_E_INTERNAL) return;
  if (r == nullptr) {
    if (status >= 0) c.find("KVC-P-063", text + "; there is no such request");
    return;
  }
  r->asked = true;
  m.leases.erase(in.request);
  r->offered = 0;
  r->device = in.device;
  const std::uint64_t most = in.total == 0 ? 0 : in.total - 1;
  r->offer_max = std::min(most - std::min(most, in.device), in.cap);
  if (!r->tracked) {
    if (status != KVC_OK || out.external != 0) {
      c.find("KVC-P-051", text + "; request_begin answered KVC_E_FULL");
    }
    return;
  }
  if (r->open_load != 0 && !m.layout.rank_verdicts()) {
    if (status != KVC_E_STATE) {
      c.find("KVC-P-063", fmt::format("{}; its load, job {}, has no verdict", text, r->open_load));
    }
    return;
  }
  if (status < 0) {
    const bool wrong = c.findings.host_is_wrong();
    if (!wrong && r->open_load == 0) c.find("KVC-P-063", text);
    return;
  }
  if (status == KVC_LATER) {
    if (out.why != KVC_WHY_ATTACHED) c.find("KVC-P-060", text + "; KVC_LATER needs why attached");
    return;
  }
  const Forbidden f{in.device % m.layout.scheduler_block != 0, !m.ranks_set,
                    (r->flags & KVC_REQUEST_NO_READ) != 0, r->load_failed};
  if (f.unaligned || f.no_ranks || f.no_read || f.failed) {
    check_forbidden(c, f, text, out);
  } else {
    check_offer(c, *r, in, text, out);
    check_repeat(c, in, status, out, text);
  }
  r->offered = out.external;
  r->lease_failures = m.failures;
  if (out.external != 0) m.leases.insert(in.request);
}

}  // namespace kvc::validate
