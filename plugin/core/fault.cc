#include "plugin/core/fault.h"

namespace kvc {

void Faults::arm(std::string_view name, std::uint64_t nth) {
  const std::lock_guard lock(mutex_);
  Point& p = points_[std::string(name)];
  p.armed = true;
  p.left = nth;
  tripped_ = false;
}

void Faults::arm_any(std::uint64_t nth) {
  const std::lock_guard lock(mutex_);
  any_armed_ = true;
  any_left_ = nth;
  tripped_ = false;
}

void Faults::clear() {
  const std::lock_guard lock(mutex_);
  points_.clear();
  any_armed_ = false;
  tripped_ = false;
}

bool Faults::tripped() const {
  const std::lock_guard lock(mutex_);
  return tripped_;
}

std::uint64_t Faults::visits(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto it = points_.find(name);
  return it == points_.end() ? 0 : it->second.visits;
}

bool Faults::visit(std::string_view name) {
  const std::lock_guard lock(mutex_);
  auto it = points_.find(name);
  if (it == points_.end()) it = points_.emplace(std::string(name), Point{}).first;
  Point& p = it->second;
  ++p.visits;
  bool fail = false;
  if (p.armed && p.left-- == 0) {
    p.armed = false;
    fail = true;
  }
  if (any_armed_ && any_left_-- == 0) {
    any_armed_ = false;
    fail = true;
  }
  tripped_ = tripped_ || fail;
  return fail;
}

Faults& faults() {
  static Faults all;
  return all;
}

}  // namespace kvc
