// kvc.retention/1: at which boundaries of a prompt states are wanted (kvc_retention.h).
#pragma once
#include <span>
#include <vector>

#include "plugin/coordinator/prefix_tags.h"
#include "plugin/coordinator/state_rule.h"
#include "plugin/offload/flows/core.h"

namespace kvc {

// Threads:    scheduler role only.
// Owns:       the prefixes of recent prompts, where the rule needs them: 80 bytes for each
//             kibitoken at 16 tokens a hash unit, at most 80 MiB, touched as it fills.
// Invariants: a prompt is noted once, with its first question; the same question has the same
//             answer. No heap after construction.
class Retention {
 public:
  // Throws std::bad_alloc.
  explicit Retention(SchedulerCore& core);

  // The engine is asked for some states only: the rule is not dense, the layout has states, and
  // what is handed off is stored.
  [[nodiscard]] bool lists() const {
    return core_.options.states != StateRule::dense && core_.options.store_when_filled &&
           plan_.any();
  }
  // Errors as kvc_retention_api.boundaries.
  Result<RetentionAnswer> ask(RequestId request, Tokens begin);

 private:
  [[nodiscard]] bool holds(const Request& r, Tokens boundary) const;

  SchedulerCore& core_;
  StatePlan plan_;
  PrefixTags tags_;
  std::vector<Tokens> boundaries_;
};

}  // namespace kvc
