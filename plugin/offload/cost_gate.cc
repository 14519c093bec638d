#include "plugin/offload/cost_gate.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvc {

namespace {

constexpr double ns_per_second = 1e9;

// Expected times are not exact: what does not fit is long.
std::uint64_t whole(double value) {
  constexpr double most = 9e18;
  return value >= most ? static_cast<std::uint64_t>(most) : static_cast<std::uint64_t>(value);
}

std::uint64_t per_second(double ns_per_unit) {
  return ns_per_unit > 0 ? whole(ns_per_second / ns_per_unit) : 0;
}

}  // namespace

std::string_view name_of(CostGateMode mode) {
  switch (mode) {
    case CostGateMode::off:
      break;
    case CostGateMode::on:
      return "on";
    case CostGateMode::report:
      return "report";
  }
  return "off";
}

std::string_view name_of(GateDecision decision) {
  switch (decision) {
    case GateDecision::none:
      break;
    case GateDecision::unmeasured:
      return "unmeasured";
    case GateDecision::load:
      return "load";
    case GateDecision::refused:
      return "refused";
    case GateDecision::would_refuse:
      return "would_refuse";
    case GateDecision::probe:
      return "probe";
  }
  return "none";
}

bool CostGate::knows(const HitCost& hit) const {
  return (hit.disk == Bytes{} ? host_loads_.ready() : disk_loads_.ready()) &&
         (!measures_prefill() || steps_.ready());
}

double CostGate::load_ns(const HitCost& hit) const {
  const double host = host_.at(hit.bytes.n);
  return hit.disk == Bytes{} ? host : host + disk_.at(hit.disk.n);
}

double CostGate::recompute_ns(Tokens tokens) const {
  const auto n = static_cast<double>(tokens.n);
  if (!measures_prefill()) {
    return n * ns_per_second / static_cast<double>(options_.prefill_tokens_per_second);
  }
  return n * ns_per_token_;
}

GateAnswer CostGate::decide(const HitCost& hit, std::uint64_t request) {
  if (!watches()) return {};
  ++counters_.decisions;
  if (!knows(hit)) {
    ++counters_.unmeasured;
    return {GateDecision::unmeasured, 0, 0};
  }
  const double load = load_ns(hit);
  const double recompute = recompute_ns(hit.tokens);
  GateAnswer answer{GateDecision::load, whole(load), whole(recompute)};
  if (load < recompute) return answer;
  if (options_.mode == CostGateMode::on && probes(request)) {
    ++counters_.probes;
    answer.decision = GateDecision::probe;
    return answer;
  }
  ++counters_.refused;
  counters_.refused_tokens += hit.tokens;
  answer.decision =
      options_.mode == CostGateMode::on ? GateDecision::refused : GateDecision::would_refuse;
  return answer;
}

// Both are compared by what they save: with an empty hit in the place of `without` this would be
// what decide asks.
DiskAnswer CostGate::choose(const HitCost& without, const HitCost& with_disk,
                            std::uint64_t request) {
  if (!watches() || !knows(without) || !knows(with_disk)) return {};
  const double more = load_ns(with_disk) - load_ns(without);
  const double saved = recompute_ns(with_disk.tokens) - recompute_ns(without.tokens);
  if (more < saved) return {};
  if (options_.mode == CostGateMode::on && probes(request)) {
    ++counters_.probes;
    return {DiskChoice::probe, whole(load_ns(without) + saved)};
  }
  ++counters_.disk_left;
  return {options_.mode == CostGateMode::on ? DiskChoice::without : DiskChoice::with_disk, 0};
}

void CostGate::loaded(const HitCost& load, std::uint64_t ns, std::uint64_t beats_ns) {
  if (!watches() || load.bytes == Bytes{}) return;
  Ring<Load>& ring = load.disk == Bytes{} ? host_loads_ : disk_loads_;
  // The probe was right and all that was known is wrong: begin anew, with this one.
  if (ns < beats_ns) ring = {};
  ring.add({load.bytes.n, load.disk.n, ns});
  fit_loads();
}

void CostGate::fit_loads() {
  std::array<CostSample, cost_samples_max> samples{};
  const auto fit = [&](const Ring<Load>& ring, auto sample_of) {
    if (!ring.ready()) return CostLine{};
    std::transform(ring.all.begin(), ring.all.begin() + static_cast<std::ptrdiff_t>(ring.size()),
                   samples.begin(), sample_of);
    return fit_line(std::span(samples).first(ring.size()));
  };
  host_ = fit(host_loads_, [](const Load& l) { return CostSample{l.bytes, l.ns}; });
  disk_ = fit(disk_loads_, [&](const Load& l) {
    return CostSample{l.disk, l.ns - std::min(l.ns, whole(host_.at(l.bytes)))};
  });
  const auto medium = [](const Ring<Load>& ring, const CostLine& line) {
    return CostGateReport::Medium{ring.size(), whole(line.fixed_ns / 1000),
                                  per_second(line.ns_per_unit)};
  };
  report_.host = medium(host_loads_, host_);
  report_.disk = medium(disk_loads_, disk_);
  ++measured_;
}

// The time between two steps is what the first one took only if the engine had more to do: a
// request of its prompts goes on.
void CostGate::end_step() {
  if (went_on_ && last_prefilled_ > Tokens{} && now_ns_ > last_ns_) {
    steps_.add({last_prefilled_.n, now_ns_ - last_ns_});
    fit_steps();
  }
  last_ns_ = now_ns_;
  last_prefilled_ = prefilled_;
  prefilled_ = Tokens{};
  went_on_ = false;
}

void CostGate::fit_steps() {
  report_.steps = steps_.size();
  ++measured_;
  if (!steps_.ready()) return;
  std::array<CostSample, cost_samples_max> samples = steps_.all;
  ns_per_token_ = middle_pace(std::span(samples).first(steps_.size()));
  report_.prefill_tokens_per_second = per_second(ns_per_token_);
}

std::string explain(const CostGateOptions& options, const CostGateReport& report) {
  if (options.mode == CostGateMode::off) return "{\"mode\":\"off\"}";
  const auto medium = [](const CostGateReport::Medium& m) {
    return fmt::format("{{\"loads_measured\":{},\"fixed_us\":{},\"bytes_per_second\":{}}}",
                       m.samples, m.fixed_us, m.bytes_per_second);
  };
  const bool measured = options.prefill_tokens_per_second == 0;
  return fmt::format(
      "{{\"mode\":\"{}\",\"measurements_needed\":{},\"host\":{},\"disk\":{},"
      "\"prefill\":{{\"from\":\"{}\",\"steps_measured\":{},\"tokens_per_second\":{}}}}}",
      name_of(options.mode), cost_samples_least, medium(report.host), medium(report.disk),
      measured ? "steps" : "option", report.steps,
      measured ? report.prefill_tokens_per_second : options.prefill_tokens_per_second);
}

}  // namespace kvc
