// kvc.retention/1: KVC-H-023, 070, KVC-P-140.
#include <algorithm>

#include <fmt/format.h>

#include "conformance/validate/checks.h"
#include "host_stub/loader/status_text.h"

namespace kvc::validate {
namespace {

// Empty: the answer has its form.
std::string wrong_list(const Model& m, const Request& r, const RetentionIn& in,
                       const RetentionOut& out) {
  if (out.mode == KVC_RETENTION_ENGINE && !out.boundaries.empty()) {
    return "the engine is to do as it likes, and there is a list";
  }
  std::uint64_t before = 0;
  for (const std::uint64_t at : out.boundaries) {
    if (at == 0 || at < in.begin || at > r.prompt) {
      return fmt::format("{} is not behind the begin and in the prompt of {} tokens", at, r.prompt);
    }
    if (at % m.layout.hash_unit != 0) {
      return fmt::format("{} is no multiple of the hash unit {}", at, m.layout.hash_unit);
    }
    if (at <= before) return fmt::format("{} stands behind {}", at, before);
    before = at;
  }
  return {};
}

}  // namespace

void before_retention(const Check& c, const RetentionIn& in) {
  if (c.model.find(in.request) == nullptr) {
    c.find("KVC-H-023", fmt::format("boundaries of {}, which is not live", in.request));
  }
}

void after_retention(const Check& c, const RetentionIn& in, kvc_status status,
                     const RetentionOut& out) {
  Model& m = c.model;
  Request* const r = m.find(in.request);
  const std::string text =
      fmt::format("boundaries of {} (begin {}) answered {}: mode {}, {} of them", in.request,
                  in.begin, host::Said{status}, out.mode, out.boundaries.size());
  const bool repeated = m.last_was_retention && m.last_retention == in && status == KVC_OK;
  const RetentionOut before = m.last_retained;
  m.last_was_lookup = false;
  m.last_was_retention = status == KVC_OK;
  m.last_retention = in;
  m.last_retained = out;
  if (status == KVC_E_INTERNAL) return;
  if (r == nullptr || (r->tracked && in.begin > r->prompt)) {
    if (status != KVC_E_ARG) {
      c.find("KVC-P-140",
             text + (r == nullptr ? "; there is no such request"
                                  : fmt::format("; its prompt has {} tokens", r->prompt)));
    }
    return;
  }
  if (status < 0) {
    if (!c.findings.host_is_wrong()) c.find("KVC-P-140", text);
    return;
  }
  if (!r->tracked) {
    if (out.mode != KVC_RETENTION_ENGINE) {
      c.find("KVC-P-140", text + "; request_begin answered KVC_E_FULL");
    }
    return;
  }
  if (const std::string why = wrong_list(m, *r, in, out); !why.empty()) {
    c.find("KVC-P-140", text + "; " + why);
  } else if (repeated && !(before == out)) {
    c.find("KVC-P-140", fmt::format("{}; asked just before it answered mode {}, {} of them", text,
                                    before.mode, before.boundaries.size()));
  }
  r->states_listed = out.mode == KVC_RETENTION_LISTED;
  r->states = r->states_listed ? out.boundaries : std::vector<std::uint64_t>{};
}

void check_wanted(const Check& c, const Request& r, const Handoff& h) {
  if (!r.states_listed || std::binary_search(r.states.begin(), r.states.end(), h.boundary)) return;
  c.find("KVC-H-070", fmt::format("hand-off of request {}, group {}, block {}, boundary {}: the "
                                  "connector listed {} others",
                                  h.request, h.group, h.block, h.boundary, r.states.size()));
}

}  // namespace kvc::validate
