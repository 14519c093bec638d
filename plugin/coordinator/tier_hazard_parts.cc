// Samples, the index of worths, and what is read of the hazard policy.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "plugin/coordinator/tier_hazard.h"

namespace kvc::tier {

namespace {

// Floats in the order of numbers.
constexpr std::uint32_t sign = 1U << 31U;
std::uint64_t ordered(float worth, std::uint32_t id) {
  const auto bits = std::bit_cast<std::uint32_t>(worth);
  return std::uint64_t{(bits & sign) != 0 ? ~bits : bits | sign} << 32U | id;
}

}  // namespace

void WorthIndex::make(std::uint32_t classes) {
  const std::uint32_t spans = (classes + span - 1) / span;
  entries_.resize(std::size_t{spans} * span);
  for (std::uint32_t id = 0; id < entries_.size(); ++id) entries_[id] = ordered(empty, id);
  minima_.resize(spans);
  for (std::uint32_t s = 0; s < spans; ++s) minima_[s] = entries_[std::size_t{s} * span];
}

float WorthIndex::at(std::uint32_t id) const {
  const auto high = static_cast<std::uint32_t>(entries_[id] >> 32U);
  return std::bit_cast<float>((high & sign) != 0 ? high ^ sign : ~high);
}

void WorthIndex::set(std::uint32_t id, float worth) {
  const std::uint32_t s = id / span;
  const std::uint64_t entry = ordered(worth, id);
  const bool was_least = entries_[id] == minima_[s];
  entries_[id] = entry;
  minima_[s] = std::min(minima_[s], entry);
  if (!was_least || minima_[s] == entry) return;
  const std::uint64_t* first = entries_.data() + std::size_t{s} * span;
  std::uint64_t least = first[0];
  for (std::uint32_t i = 1; i < span; ++i) least = std::min(least, first[i]);
  minima_[s] = least;
}

// Without a branch that depends on worths: nobody can foretell them.
std::uint32_t WorthIndex::least(std::uint32_t classes) const {
  const std::uint32_t spans = (classes + span - 1) / span;
  std::uint64_t least = minima_[0];
  for (std::uint32_t s = 1; s < spans; ++s) least = std::min(least, minima_[s]);
  return static_cast<std::uint32_t>(least);
}

PolicyNumbers HazardPolicy::numbers() const {
  PolicyNumbers n;
  n.classes = survival_.used();
  n.declined = declined_;
  n.refreshes = survival_.refreshes();
  n.ghosts = ghosts_.size();
  n.requests = now_;
  n.bytes = base_bytes() + (ctx_.records.used() + ghosts_.size()) * sizeof(std::uint32_t) +
            ghosts_.bytes() + survival_.bytes() + samples_.bytes();
  return n;
}

PolicyReport report_of(const Survival& survival) {
  constexpr double nano = 1e9;
  PolicyReport out;
  for (std::uint32_t b = 0; b < age_buckets; ++b)
    out.hazard[b] = static_cast<std::uint64_t>(static_cast<double>(survival.pooled()[b]) * nano);
  // Descending; of equals the one that was used first.
  for (std::uint32_t id = 0; id < survival.used(); ++id) {
    PolicyReport::Class next{survival.code(static_cast<ClassId>(id)),
                             survival.hits_of(static_cast<ClassId>(id))};
    for (PolicyReport::Class& place : out.top)
      if (next.hits > place.hits) std::swap(next, place);
  }
  return out;
}

PolicyReport HazardPolicy::report() const { return report_of(survival_); }

Status HazardPolicy::verify() const {
  if (Status s = Policy::verify(); !s.ok()) return s;
  if (!ghosts_.verify()) return {Code::internal, "the ghost list is broken"};
  std::uint64_t sampled = 0;
  for (SlotId slot = 0; slot < ctx_.records.used(); ++slot) {
    const Record& r = ctx_.records[slot];
    const Mark& m = marks_[slot];
    if (r.keyed() != (m.touches != 0))
      return {Code::internal, fmt::format("slot {} is keyed and unknown, or the reverse", slot)};
    if (m.touches == 0) continue;
    if (m.stamp > now_ || m.list >= survival_.used())
      return {Code::internal, fmt::format("slot {} was touched in the future", slot)};
    sampled += m.has(Mark::sampled_bit) ? 1 : 0;
    if (!samples_.agrees(m, slot))
      return {Code::internal, fmt::format("slot {} has a wrong sample", slot)};
  }
  for (GhostId g = ghosts_.oldest(); g != no_ghost; g = ghosts_[g].younger - 1) {
    const Mark& m = ghosts_[g].mark;
    sampled += m.has(Mark::sampled_bit) ? 1 : 0;
    if (!samples_.agrees(m, g | Samples::ghost_bit))
      return {Code::internal, fmt::format("ghost {} has a wrong sample", g)};
  }
  if (sampled != samples_.size())
    return {Code::internal,
            fmt::format("{} entries are sampled, {} samples are kept", sampled, samples_.size())};
  for (std::uint32_t id = 0; id < survival_.used(); ++id)
    if (changed_at_[id] == 0 &&
        (lists_[id].old == no_slot) != (worths_.at(id) == WorthIndex::empty))
      return {Code::internal, fmt::format("class {} has a worth without entry, or none", id)};
  return {};
}

}  // namespace kvc::tier
