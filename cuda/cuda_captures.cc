#include "cuda/cuda_captures.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvc::cuda {

CudaCaptures::CudaCaptures(std::uint32_t max) : max_(max) {
  captures_.reserve(max);
  unused_.reserve(max);
}

Status CudaCaptures::open(const Driver& driver, int priority) {
  for (Stream& s : catchers_) {
    if (const DriverResult r = driver.stream_create(&s, stream_non_blocking, priority);
        r != driver_success) {
      return driver.error(r, "cannot make a stream");
    }
  }
  return {};
}

void CudaCaptures::close(const Driver& driver) {
  for (const Capture& c : captures_) {
    if (c.event != nullptr) static_cast<void>(driver.event_destroy(c.event));
  }
  captures_.clear();
  for (Stream& s : catchers_) {
    if (s != nullptr) static_cast<void>(driver.stream_destroy(s));
    s = nullptr;
  }
}

// Events are made when they are first needed. One that is not reached may still stand in a queue:
// it is used again only when it is.
Result<std::uint32_t> CudaCaptures::free_one(const Driver& driver) {
  for (std::size_t i = 0; i < unused_.size(); ++i) {
    const std::uint32_t at = unused_[i];
    const DriverResult r = driver.event_query(captures_[at].event);
    if (r == driver_not_ready) {
      // Older ones are reached first: with room left nobody looks further.
      if (captures_.size() < max_) break;
      continue;
    }
    if (r != driver_success) return driver.error(r, "a fence");
    unused_.erase(unused_.begin() + static_cast<std::ptrdiff_t>(i));
    Capture& c = captures_[at];
    if (c.catcher != UINT32_MAX) --caught_[c.catcher];
    c = Capture{c.event, 0, UINT32_MAX, {}};
    return at;
  }
  if (captures_.size() == max_) {
    return {Code::full, fmt::format("{} fences are open and none of them is reached", max_)};
  }
  Event event = nullptr;
  if (const DriverResult r = driver.event_create(&event, event_disable_timing);
      r != driver_success) {
    return driver.error(r, "cannot make an event");
  }
  captures_.push_back({event, 0, UINT32_MAX, {}});
  return static_cast<std::uint32_t>(captures_.size() - 1);
}

Result<std::uint32_t> CudaCaptures::take(const Driver& driver, const Fence& fence, bool skip_wait) {
  const bool stream = fence.kind == FenceKind::cuda_stream;
  if (!stream && fence.handle == nullptr) return {Code::arg, "the event of a fence is null"};
  const auto free = free_one(driver);
  if (!free.ok()) return free.error();
  const std::uint32_t at = free.value();
  Capture& c = captures_[at];
  DriverResult r = driver_success;
  Stream in = static_cast<Stream>(fence.handle);
  if (!stream) {
    c.catcher =
        static_cast<std::uint32_t>(std::min_element(caught_, caught_ + catchers_max) - caught_);
    in = catchers_[c.catcher];
    ++caught_[c.catcher];
    if (!skip_wait) r = driver.stream_wait_event(in, static_cast<Event>(fence.handle), 0);
  }
  if (r == driver_success) r = driver.event_record(c.event, in);
  c.references = 1;
  if (r != driver_success) {
    drop(at);
    return driver.error(r, stream ? "cannot record an event in the stream of a fence"
                                  : "cannot wait for the event of a fence");
  }
  return at;
}

void CudaCaptures::drop(std::uint32_t capture) {
  KVC_CHECK(captures_[capture].references != 0);
  if (--captures_[capture].references == 0) unused_.push_back(capture);
}

bool CudaCaptures::waited(std::uint32_t capture, CopyDirection direction) {
  bool& done = captures_[capture].waited[static_cast<std::size_t>(direction)];
  return std::exchange(done, true);
}

}  // namespace kvc::cuda
