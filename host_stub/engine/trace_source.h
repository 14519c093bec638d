// A trace as the requests of a pass.
#pragma once
#include <cstddef>
#include <vector>

#include "host_stub/engine/options.h"
#include "host_stub/traces/trace.h"

namespace kvc::host {

// Requires that the trace outlives it.
class TraceSource final : public RequestSource {
 public:
  explicit TraceSource(const Trace& trace) : trace_(trace) {}
  [[nodiscard]] std::size_t size() const override { return trace_.size(); }
  [[nodiscard]] RequestSpec request(std::size_t index) const override {
    const TraceRequest row = trace_.request(index);
    RequestSpec spec;
    spec.prompt_tokens = row.prompt_tokens;
    spec.output_tokens = row.output_tokens;
    return spec;
  }
  void expand_prompt(std::size_t index, std::vector<TokenId>& tokens) const override {
    trace_.expand_prompt(index, tokens);
  }

 private:
  const Trace& trace_;
};

}  // namespace kvc::host
