#include "plugin/core/fault.h"

#include <algorithm>

namespace kvc {

Faults::Point* Faults::find(std::string_view name) {
  for (std::size_t i = 0; i < used_; ++i) {
    if (name == points_[i].name.data()) return &points_[i];
  }
  if (used_ == points_.size() || name.size() >= points_[0].name.size()) return nullptr;
  Point& fresh = points_[used_++];
  fresh = {};
  std::copy(name.begin(), name.end(), fresh.name.begin());
  return &fresh;
}

void Faults::arm(std::string_view name, std::uint64_t nth) {
  const std::lock_guard lock(mutex_);
  tripped_ = false;
  Point* const p = find(name);
  if (p == nullptr) return;
  p->armed = true;
  p->left = nth;
}

void Faults::arm_any(std::uint64_t nth) {
  const std::lock_guard lock(mutex_);
  any_armed_ = true;
  any_left_ = nth;
  tripped_ = false;
}

void Faults::clear() {
  const std::lock_guard lock(mutex_);
  used_ = 0;
  any_armed_ = false;
  tripped_ = false;
}

bool Faults::tripped() const {
  const std::lock_guard lock(mutex_);
  return tripped_;
}

std::uint64_t Faults::visits(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < used_; ++i) {
    if (name == points_[i].name.data()) return points_[i].visits;
  }
  return 0;
}

bool Faults::visit(std::string_view name) {
  const std::lock_guard lock(mutex_);
  bool fail = false;
  if (Point* const p = find(name); p != nullptr) {
    ++p->visits;
    if (p->armed && p->left-- == 0) {
      p->armed = false;
      fail = true;
    }
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
