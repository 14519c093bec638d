// Loads that the forward of their step reads layer by layer (kvc.layerwise/1).
#include <fmt/format.h>

#include <algorithm>

#include "plugin/offload/rank_engine.h"

namespace kvc {

// Its parts are ready; it goes on with the other loads in step of the plan.
void RankEngine::join_step(std::uint32_t at, std::uint64_t step) {
  if (open_steps_.empty() || step_loads_[open_steps_.back()].step != step) {
    if (free_steps_.empty()) {
      step_loads_.emplace_back();
      step_loads_.back().layers.resize(layout_->layers().size());
      free_steps_.push_back(static_cast<std::uint32_t>(step_loads_.size() - 1));
    }
    open_steps_.push_back(free_steps_.back());
    free_steps_.pop_back();
    StepLoads& fresh = step_loads_[open_steps_.back()];
    KVC_CHECK(fresh.jobs.empty() && fresh.jobs_open == 0);
    fresh.step = step;
    fresh.next_layer = 0;
  }
  Job& job = jobs_[at];
  job.step_loads = open_steps_.back();
  StepLoads& loads = step_loads_[job.step_loads];
  loads.jobs.push_back(at);
  ++loads.jobs_open;
  for (const Part& part : job.parts) ++loads.layers[part.layer].parts;
  enter_backlog(at);
}

void RankEngine::leave_step(const Job& job) {
  if (job.step_loads == none) return;
  StepLoads& loads = step_loads_[job.step_loads];
  if (--loads.jobs_open != 0) return;
  const auto it = std::find(open_steps_.begin(), open_steps_.end(), job.step_loads);
  KVC_CHECK(it != open_steps_.end() && loads.jobs.empty());
  open_steps_.erase(it);
  free_steps_.push_back(job.step_loads);
}

// What the jobs come after is known, or a job failed for want of its source; false: not yet.
bool RankEngine::resolve_step(const StepLoads& loads) {
  for (const std::uint32_t at : loads.jobs) {
    Job& job = jobs_[at];
    if (job.next_part == job.parts.size()) continue;
    after_.clear();
    if (!resolve_sources(job)) return false;
    job.after.assign(after_.begin(), after_.end());
    if (job.status != Code::ok) drop_parts(job);
  }
  return true;
}

// A layer of all jobs, then the next: the forward wants them in this order.
RankEngine::Fed RankEngine::feed_step(StepLoads& loads) {
  if (!resolve_step(loads)) return Fed::blocked;
  for (; loads.next_layer < loads.layers.size(); ++loads.next_layer) {
    for (const std::uint32_t at : loads.jobs) {
      Job& job = jobs_[at];
      while (job.next_part < job.parts.size() &&
             job.parts[job.next_part].layer == loads.next_layer) {
        if (!feed_part(at, job.after)) return Fed::full;
        if (job.status != Code::ok) drop_parts(job);
      }
    }
  }
  return Fed::done;
}

// False: the copy engine has no room.
bool RankEngine::feed_steps() {
  for (std::size_t i = 0; i < open_steps_.size();) {
    const std::uint32_t index = open_steps_[i];
    StepLoads& loads = step_loads_[index];
    const Fed fed = loads.jobs.empty() ? Fed::blocked : feed_step(loads);
    if (fed == Fed::full) return false;
    if (fed == Fed::done) {
      taken_.assign(loads.jobs.begin(), loads.jobs.end());
      loads.jobs.clear();
      for (const std::uint32_t at : taken_) {
        leave_backlog(jobs_[at]);
        end_if_done(at);
      }
    }
    // With its last job the record has left the list.
    if (i < open_steps_.size() && open_steps_[i] == index) ++i;
  }
  return true;
}

Status RankEngine::layer_fence(std::uint64_t step, std::uint32_t layer, Fence& out) {
  out = {};
  if (layout_ == nullptr) {
    return {Code::state, fmt::format("rank {}: no regions are registered", options_.rank)};
  }
  if (step == 0 || step > last_step_[0]) {
    return {Code::state, fmt::format("rank {}: a layer of step {}; loads were submitted up to {}",
                                     options_.rank, step, last_step_[0])};
  }
  const auto found = std::lower_bound(
      open_steps_.begin(), open_steps_.end(), step,
      [this](std::uint32_t i, std::uint64_t s) { return step_loads_[i].step < s; });
  if (found == open_steps_.end() || step_loads_[*found].step != step) {
    if (step >= unbroken_from_) return {};
    return {Code::state, fmt::format("rank {}: a layer of step {}; loads of all steps came from {} "
                                     "to {} only",
                                     options_.rank, step, unbroken_from_, last_step_[0])};
  }
  const auto layers = layout_->layers();
  const auto at = std::lower_bound(layers.begin(), layers.end(), layer);
  if (at == layers.end() || *at != layer) return {};
  const StepLoads::Layer& l =
      step_loads_[*found].layers[static_cast<std::size_t>(at - layers.begin())];
  const std::uint64_t parts = l.parts;
  if (copies_->fence_of(l.mark, parts, out) == Code::ok) return {};
  // Hands over what waits for room; it may have been the last of the step.
  const CopyMark& mark = l.mark;
  advance();
  return {copies_->fence_of(mark, parts, out), {}};
}

std::string RankEngine::verify_steps() const {
  for (const std::uint32_t index : open_steps_) {
    const StepLoads& loads = step_loads_[index];
    const auto open = std::count_if(jobs_.begin(), jobs_.end(), [&](const Job& j) {
      return !j.free && !j.ended && j.step_loads == index;
    });
    if (static_cast<std::uint64_t>(open) != loads.jobs_open || open == 0) {
      return fmt::format("{} loads of step {} are open, {} counted", open, loads.step,
                         loads.jobs_open);
    }
  }
  for (const std::uint32_t index : free_steps_) {
    for (const StepLoads::Layer& l : step_loads_[index].layers) {
      if (l.mark.ended_now() != l.parts) return "a layer of a step that is over has not landed";
    }
  }
  return {};
}

}  // namespace kvc
