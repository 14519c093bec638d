// What a probe does wrong, and when: the [probe] table of its TOML text.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <kvc/kvc.h>

#include "plugin/core/result.h"

namespace kvc::probe {

// One answer instead of the right one: [[probe.answer]] slot, at, every, status.
struct Answer {
  std::string slot;
  std::uint64_t at = 1;     // first call of the slot, of one handle, that is answered so
  std::uint64_t every = 0;  // and every so many after it; 0: once
  kvc_status status = KVC_E_INTERNAL;
};

// KVC_E_INTERNAL, or a negative status that kvc.h does not know: the handle is poisoned.
[[nodiscard]] bool is_fatal(kvc_status status);
// A positive status that kvc.h does not know.
[[nodiscard]] bool is_unknown_positive(kvc_status status);

struct Script {
  std::string next;              // the library in front of which the probe stands
  std::set<std::string> faults;  // names of docs/testing.md, "The probe"
  std::uint64_t every = 3;       // a fault meets every so many requests, jobs or calls ..
  std::uint64_t first = 1;       // .. from that one on
  std::vector<Answer> answers;
  std::string findings;  // path of the text with findings; empty: the log only
  std::string rest;      // TOML for `next`

  [[nodiscard]] bool has(std::string_view fault) const;
  // Does a fault meet number n (1, 2, ...) of its kind?
  [[nodiscard]] bool meets(std::uint64_t n) const;
  // Does it meet this job? The same answer in every role.
  [[nodiscard]] bool meets_job(std::string_view fault, kvc_job job) const;

  // Calls of ranks are answered with errors.
  [[nodiscard]] bool ranks_refuse() const;

  // Code::arg with a text that names key or line: no TOML, an unknown key, fault or slot, a status
  // that the slot cannot have. `beside`: the folder where `next` is when it is not told.
  static Result<Script> parse(std::string_view toml, const std::string& beside);
};

}  // namespace kvc::probe
