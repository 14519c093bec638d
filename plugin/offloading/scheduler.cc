#include "plugin/offloading/scheduler.h"

#include <fmt/format.h>

namespace kvc {

namespace {

class OffloadingPolicy final : public StorePolicy {
 public:
  explicit OffloadingPolicy(const OffloadingSchedulerOptions& options) : options_(options) {}
  [[nodiscard]] std::string_view name() const override { return "offloading"; }
  [[nodiscard]] std::string explain_options() const override {
    return fmt::format("\"blocks_per_chunk\":{},\"store_threshold\":{},\"max_tracker_size\":{},",
                       options_.blocks_per_chunk, options_.store_threshold,
                       options_.max_tracker_size);
  }

 private:
  OffloadingSchedulerOptions options_;
};

}  // namespace

Result<std::unique_ptr<SchedulerRole>> make_offloading_scheduler(
    Geometry geometry, const OpenLimits& limits, const OffloadingSchedulerOptions& options,
    HostServices& host) {
  if (options.max_tracker_size == 0) return {Code::arg, "max_tracker_size 0; at least 1 is needed"};
  OffloadingSchedulerOptions effective = options;
  effective.store_reachable_only = true;
  return make_tier_scheduler(std::move(geometry), limits, effective,
                             std::make_unique<OffloadingPolicy>(effective), host);
}

}  // namespace kvc
