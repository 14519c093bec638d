// The keys of all requests of a trace, made once for every capacity and policy.
#pragma once
#include <cstdint>
#include <vector>

#include "host_stub/traces/trace.h"
#include "plugin/coordinator/keys.h"
#include "plugin/core/units.h"

namespace kvc::host {

struct SizeRequest {
  Tokens prompt;
  Tokens output;            // >= 1
  std::uint64_t first = 0;  // of its keys
  std::uint64_t prompt_keys = 0;
  std::uint64_t keys = 0;  // with those of the answer
};

// Threads:    immutable once made, any thread may read.
// Owns:       the keys: 8 bytes for each complete hash unit of prompt and answer, without the last
//             sampled token, which has no KV. Answers belong to their request alone.
// Invariants: equal prompt prefixes have equal keys, others differ but by chance (2^-64 a pair).
class SizeTrace {
 public:
  static constexpr std::uint32_t key_bytes = 8;

  // Requires hash_unit > 0.
  SizeTrace(const Trace& trace, Tokens hash_unit);

  [[nodiscard]] const std::vector<SizeRequest>& requests() const { return requests_; }
  [[nodiscard]] KeyView prompt_keys(const SizeRequest& r) const { return view(r, r.prompt_keys); }
  [[nodiscard]] KeyView keys(const SizeRequest& r) const { return view(r, r.keys); }
  [[nodiscard]] std::uint64_t key(std::uint64_t index) const { return keys_[index]; }
  [[nodiscard]] Tokens prompt_tokens() const { return prompt_tokens_; }
  [[nodiscard]] Tokens longest() const { return longest_; }

 private:
  [[nodiscard]] KeyView view(const SizeRequest& r, std::uint64_t count) const {
    return {reinterpret_cast<const std::byte*>(keys_.data() + r.first), key_bytes, count};
  }

  std::vector<SizeRequest> requests_;
  std::vector<std::uint64_t> keys_;
  Tokens prompt_tokens_;
  Tokens longest_;  // prompt and answer
};

}  // namespace kvc::host
