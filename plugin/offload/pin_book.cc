#include "plugin/offload/pin_book.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvc {

namespace {

// Pins are of prefixes, not of requests; a lease that is open names one all the same.
constexpr RequestIndex nobodys = 0;

}  // namespace

PinBook::PinBook(const Geometry& geometry, HostTier& tier, std::uint32_t pins_max,
                 Tokens max_tokens)
    : pins_max_(pins_max), table_(geometry, tier, std::max(pins_max, 1U), max_tokens) {
  KVC_CHECK(pins_max <= most);
}

std::uint64_t PinBook::blocks_of(const Hit& hit) {
  std::uint64_t blocks = 0;
  for (const GroupHit& group : hit.groups) blocks += group.count();
  return blocks;
}

PinId PinBook::open(Hit& hit, Tokens max_tokens) {
  KVC_CHECK(!full() && hit.tokens > Tokens{});
  blocks_ += blocks_of(hit);
  RequestIndex dropped = no_request;
  table_.open(nobodys, ++last_, max_tokens, hit, dropped);
  KVC_CHECK(dropped == no_request);
  return last_;
}

void PinBook::end_at(std::uint32_t at) {
  blocks_ -= blocks_of(table_[at].hit);
  table_.end(at);
}

bool PinBook::end(PinId pin) {
  if (pin == 0 || pin > last_) return false;
  for (std::uint32_t at = 0; at < table_.capacity(); ++at) {
    if (table_[at].request == no_request || table_[at].step != pin) continue;
    end_at(at);
    break;
  }
  return true;
}

void PinBook::end_all() {
  for (std::uint32_t at = table_.oldest(); at != no_lease; at = table_.oldest()) end_at(at);
}

void PinBook::give_up(SlotId entry) {
  if (table_.open_leases() == 0) return;
  for (std::uint32_t at = 0; at < table_.capacity(); ++at) {
    if (table_[at].request == no_request) continue;
    bool holds = false;
    table_[at].hit.for_each_pinned([&](SlotId pinned) { holds = holds || pinned == entry; });
    if (!holds) continue;
    end_at(at);
    ++counters_.lost;
  }
}

std::string PinBook::verify() const {
  std::uint64_t blocks = 0;
  for (std::uint32_t at = 0; at < table_.capacity(); ++at)
    if (table_[at].request != no_request) blocks += blocks_of(table_[at].hit);
  if (blocks == blocks_) return {};
  return fmt::format("{} blocks are pinned, {} counted", blocks, blocks_);
}

}  // namespace kvc
