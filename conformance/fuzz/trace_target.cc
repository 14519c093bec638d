// Any file is safe input of the trace reader; rows that it takes keep their promises; any text is a
// safe generator.
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <string>
#include <vector>

#include "conformance/fuzz/fuzz_target.h"
#include "host_stub/traces/trace.h"

namespace {

using kvc::fuzz::promise;
using kvc::host::Trace;

constexpr std::uint64_t expanded_tokens_most = 1U << 16U;

void check_rows(const Trace& trace) {
  std::vector<kvc::host::TokenId> tokens;
  std::uint64_t prompts = 0;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    const auto row = trace.request(i);
    promise(row.prompt_tokens >= 1 && row.prompt_tokens <= Trace::tokens_largest, "prompt tokens");
    promise(row.output_tokens >= 1 && row.output_tokens <= Trace::tokens_largest, "output tokens");
    prompts += row.prompt_tokens;
    if (row.prompt_tokens > expanded_tokens_most) continue;
    trace.expand_prompt(i, tokens);
    promise(tokens.size() == row.prompt_tokens, "a prompt of another length");
    promise(std::all_of(tokens.begin(), tokens.end(), [](auto t) { return t < (1U << 31U); }),
            "a token of 2^31 or more");
  }
  promise(trace.size() != 0, "a trace without rows");
  promise(prompts == trace.totals().prompt_tokens, "the prompts' sum");
  promise(trace.size() == trace.totals().requests, "the number of requests");
}

void check(const kvc::config::Parsed<Trace>& trace) {
  if (trace.ok()) return check_rows(trace.value());
  promise(!trace.error().text.empty(), "an error without text");
  promise(trace.error().text.find('\n') == std::string::npos, "an error of several lines");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A generator makes what it is asked for: 16 rows at most here.
  constexpr std::size_t rows = 16;
  if (size != 0 && data[0] == 'g') {
    check(
        Trace::open("gen:" + std::string(reinterpret_cast<const char*>(data) + 1, size - 1), rows));
    return 0;
  }
  static const int file = ::memfd_create("trace", 0);
  promise(file >= 0 && ::ftruncate(file, 0) == 0, "no file in memory");
  promise(::pwrite(file, data, size, 0) == static_cast<ssize_t>(size), "a file in memory is cut");
  check(Trace::open("/proc/self/fd/" + std::to_string(file)));
  return 0;
}
