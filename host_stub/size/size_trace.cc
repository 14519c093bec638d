#include "host_stub/size/size_trace.h"

#include <xxhash.h>

#include <algorithm>

namespace kvc::host {

SizeTrace::SizeTrace(const Trace& trace, Tokens hash_unit) {
  std::vector<TokenId> tokens;
  requests_.reserve(trace.size());
  for (std::size_t i = 0; i < trace.size(); ++i) {
    const TraceRequest row = trace.request(i);
    SizeRequest r;
    r.prompt = Tokens{row.prompt_tokens};
    r.output = Tokens{std::max<std::uint64_t>(row.output_tokens, 1)};
    r.first = keys_.size();
    r.prompt_keys = row.prompt_tokens / hash_unit.n;
    r.keys = (r.prompt + r.output - Tokens{1}).n / hash_unit.n;
    trace.expand_prompt(i, tokens);
    std::uint64_t before = 0;
    for (std::uint64_t k = 0; k < r.prompt_keys; ++k) {
      before = XXH3_64bits_withSeed(tokens.data() + k * hash_unit.n, hash_unit.n * sizeof(TokenId),
                                    before);
      keys_.push_back(before);
    }
    for (std::uint64_t k = r.prompt_keys; k < r.keys; ++k) {
      const std::uint64_t own[2] = {i, k};
      before = XXH3_64bits_withSeed(own, sizeof own, before);
      keys_.push_back(before);
    }
    prompt_tokens_ = prompt_tokens_ + r.prompt;
    longest_ = std::max(longest_, r.prompt + r.output);
    requests_.push_back(r);
  }
}

}  // namespace kvc::host
