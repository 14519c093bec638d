#include "plugin/simple_cpu/scheduler.h"

#include "plugin/simple_cpu/candidate_planner.h"

namespace kvc {

namespace {

class EagerPolicy final : public StorePolicy {
 public:
  [[nodiscard]] std::string_view name() const override { return "simple_cpu"; }
  [[nodiscard]] std::string explain_options() const override { return "\"mode\":\"eager\","; }
};

class LazyPolicy final : public StorePolicy {
 public:
  [[nodiscard]] std::string_view name() const override { return "simple_cpu"; }
  [[nodiscard]] std::string explain_options() const override { return "\"mode\":\"lazy\","; }
  [[nodiscard]] std::vector<Gate> gates() const override {
    return {{"store_when_filled",
             "mode = \"lazy\": filled blocks, tails and hand-offs are not offered; a block is "
             "stored when the engine names it as an eviction candidate"}};
  }
  [[nodiscard]] Job* offer_candidates(SchedulerCore& core, std::span<const Candidate> candidates,
                                      std::uint64_t room) override {
    return CandidatePlanner(core).offer(candidates, room);
  }
};

}  // namespace

std::unique_ptr<StorePolicy> make_simple_cpu_policy(bool lazy) {
  if (lazy) return std::make_unique<LazyPolicy>();
  return std::make_unique<EagerPolicy>();
}

Result<std::unique_ptr<SchedulerRole>> make_simple_cpu_scheduler(
    Geometry geometry, const OpenLimits& limits, const SimpleCpuSchedulerOptions& options,
    HostServices& host) {
  FlowOptions flows = options;
  flows.store_when_filled = !options.lazy;
  if (options.lazy) {
    if (limits.no_device_cache) {
      return {
          Code::unsupported,
          "mode = \"lazy\" stores what the engine's own prefix cache is about to evict, and this "
          "engine has none (KVC_HOST_NO_DEVICE_CACHE); use mode = \"eager\""};
    }
    GeometryOptions coarse = geometry.options();
    coarse.fine_hits_allowed = false;
    Result<Geometry> made = Geometry::make(std::move(coarse));
    if (!made.ok()) return made.error();
    geometry = std::move(made).value();
    // What comes in the order of eviction comes tails first: no chain (design 3.1).
    flows.chained_index = false;
  }
  return make_tier_scheduler(std::move(geometry), limits, flows,
                             make_simple_cpu_policy(options.lazy), host);
}

}  // namespace kvc
