#include "plugin/offload/flows/hints.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvc {

Status HintFlow::hint(RequestId request, const Hint& hint) {
  const FoundRequest found = core_.find(request);
  if (!found.live()) return found.status;
  const RequestIndex index = found.index;
  if (hint.priority < priority_least || hint.priority > priority_most) {
    return {Code::arg, fmt::format("request {}: priority {}; {} to {} are possible", request,
                                   hint.priority, priority_least, priority_most)};
  }
  Request& r = core_.requests[index];
  if (r.explain.admissions != 0) {
    return {Code::state, fmt::format("request {} was admitted {} times; a hint comes before that",
                                     request, r.explain.admissions)};
  }
  if (r.prefetched) {
    return {Code::state, fmt::format("request {}: what it will hit is being read from disk; other "
                                     "hints come with that or before",
                                     request)};
  }
  // Times to live count from now.
  if (hint.ttl_ns != 0) core_.tier.tick(core_.host.now_ns());
  r.hint = hint;
  core_.tier.hint(r.run, hint);
  ++core_.counters.hints_taken;
  r.explain.hint = hint;
  core_.touch_explain(index);
  if (hint.prefetch && core_.disk.configured()) {
    r.prefetched = true;
    lookups_.prefetch(index);
  }
  return {};
}

// A tier without bound has room for all of them.
std::uint64_t HintFlow::room() const {
  const std::uint64_t slots = core_.tier.slots_total();
  const std::uint64_t percent = core_.options.max_pinned_percent;
  return slots / 100 * percent + slots % 100 * percent / 100;
}

Result<PinAnswer> HintFlow::pin(RequestId request, Tokens most) {
  const FoundRequest found = core_.find(request);
  if (!found.live()) return found.or_answer(PinAnswer{});
  const RequestIndex index = found.index;
  if (most == Tokens{}) {
    return {Code::arg, fmt::format("request {}: a pin of 0 tokens", request)};
  }
  Request& r = core_.requests[index];
  if (!core_.tier.sized()) return PinAnswer{};
  Hit& hit = lookups_.stored(r, most);
  if (hit.tokens == Tokens{}) return PinAnswer{};
  PinBook& pins = core_.pins;
  if (pins.full()) {
    pins.count_refusal();
    return {Code::full, fmt::format("request {}: {} pins are open, max_pins is {}", request,
                                    pins.open_pins(), pins.pins_max())};
  }
  const std::uint64_t blocks = PinBook::blocks_of(hit);
  if (pins.blocks() + blocks > room()) {
    pins.count_refusal();
    return {Code::full,
            fmt::format("request {}: a pin of {} blocks beside {} pinned ones; max_pinned_percent "
                        "{} of {} slots allows {}",
                        request, blocks, pins.blocks(), core_.options.max_pinned_percent,
                        core_.tier.slots_total(), room())};
  }
  const Tokens tokens = hit.tokens;
  const PinId pin = pins.open(hit, tokens);
  ++r.explain.pins;
  r.explain.pinned = std::max(r.explain.pinned, tokens);
  core_.touch_explain(index);
  return PinAnswer{pin, tokens, blocks};
}

Status HintFlow::unpin(PinId pin) {
  if (core_.pins.end(pin)) return {};
  return {Code::arg, fmt::format("no pin had the id {}", pin)};
}

}  // namespace kvc
