// kvc.hints/1: priorities, times to live and pins (kvc_hints.h, docs/hints.md).
#pragma once
#include "plugin/core/hint.h"
#include "plugin/offload/flows/lookup_flow.h"
#include "plugin/offload/pin_book.h"

namespace kvc {

// Threads: scheduler role only. Owns: nothing; pins are in the core's book.
class HintFlow {
 public:
  HintFlow(SchedulerCore& core, LookupFlow& lookups) : core_(core), lookups_(lookups) {}

  // Errors as kvc_hints_api.
  [[nodiscard]] Status hint(RequestId request, const Hint& hint);
  [[nodiscard]] Result<PinAnswer> pin(RequestId request, Tokens most);
  [[nodiscard]] Status unpin(PinId pin);

 private:
  // Blocks that pins may hold.
  [[nodiscard]] std::uint64_t room() const;

  SchedulerCore& core_;
  LookupFlow& lookups_;
};

}  // namespace kvc
