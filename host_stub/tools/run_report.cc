#include "host_stub/tools/run_report.h"

#include <fmt/format.h>
#include <numeric>

namespace kvc::host {

bool OfferRow::balanced() const {
  return counts[0] == std::accumulate(counts.begin() + 1, counts.end(), std::uint64_t{0});
}

std::vector<std::string> RunReport::faults() const {
  std::vector<std::string> out;
  for (const PassReport& pass : passes) {
    if (pass.mismatched_blocks != 0) {
      out.push_back(fmt::format("pass {}: {} loaded blocks do not have the bytes of their tokens",
                                pass.name, pass.mismatched_blocks));
      if (!first_mismatch.empty()) out.back() += "; the first: " + first_mismatch;
    }
    const std::uint64_t sum =
        pass.local_hit_tokens + pass.external_hit_tokens + pass.computed_tokens;
    if (sum != pass.prompt_tokens) {
      out.push_back(
          fmt::format("pass {}: local, external and computed tokens sum to {}, not to "
                      "the {} prompt tokens",
                      pass.name, sum, pass.prompt_tokens));
    }
    if (pass.output_digest != passes.front().output_digest) {
      out.push_back(fmt::format("pass {}: output digest {:016x} differs from pass {}: {:016x}",
                                pass.name, pass.output_digest, passes.front().name,
                                passes.front().output_digest));
    }
  }
  if (!connector_failure.empty()) {
    out.push_back("the connector was given up, the engine ran on without it: " + connector_failure);
  }
  if (leaks.total() != 0) {
    out.push_back(fmt::format("leaked: {} slots, {} holds, {} leases, {} device blocks",
                              leaks.slots, leaks.holds, leaks.leases, leaks.device_blocks));
  }
  if (!handoffs.balanced()) out.push_back("boundary_stats: the row of hand-offs does not balance");
  if (!all_offers.balanced())
    out.push_back("boundary_stats: the row of all offers does not balance");
  return out;
}

}  // namespace kvc::host
