// What a connector adds to the flows: who it is, and what it stores beside filled blocks.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/offload/flows/core.h"

namespace kvc {

// Threads: scheduler role only, but name and explain_options: any. Owns: nothing of the core.
class StorePolicy {
 public:
  virtual ~StorePolicy() = default;

  [[nodiscard]] virtual std::string_view name() const = 0;
  // Its own options as members of a JSON object, each followed by a comma; may be empty.
  [[nodiscard]] virtual std::string explain_options() const = 0;
  // Features that it switches off, and why.
  [[nodiscard]] virtual std::vector<Gate> gates() const { return {}; }
  // The engine's eviction candidates of this step (design 2.3 "Step record"); at most `room` copies
  // are planned. The job that copies them, or null.
  [[nodiscard]] virtual Job* offer_candidates(SchedulerCore& /*core*/,
                                              std::span<const Candidate> /*candidates*/,
                                              std::uint64_t /*room*/) {
    return nullptr;
  }
};

}  // namespace kvc
