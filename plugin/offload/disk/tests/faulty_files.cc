#include "plugin/offload/disk/tests/faulty_files.h"

#include <fcntl.h>

namespace kvc::disk_test {

using disk::IoCall;
using disk::IoKind;
using disk::IoResult;

int FaultyFiles::open(const std::string& path, int flags) {
  if (direct_refused && (flags & O_DIRECT) != 0) return -EINVAL;
  return PosixFiles::open(path, flags);
}

IoResult FaultyFiles::preview(const IoCall& call) {
  std::unique_lock lock(mutex_);
  if (held_ == call.kind && call.kind != IoKind::none) {
    if (stepped_) return not_yet;
    ++hanging_;
    let_go_.notify_all();
    let_go_.wait(lock, [&] { return held_ != call.kind; });
    --hanging_;
  }
  ++calls_[static_cast<std::size_t>(call.kind)];
  if (call.kind == IoKind::punch && punch_refused) return -EOPNOTSUPP;
  if (!plan_ || (plan_->kind != IoKind::none && plan_->kind != call.kind)) return go_on;
  if (plan_->left != 0) {
    --plan_->left;
    return go_on;
  }
  tripped_ = true;
  const IoResult result = plan_->result;
  if (--plan_->times == 0) plan_.reset();
  if (result != half || (call.kind != IoKind::read && call.kind != IoKind::write)) {
    return result == half ? -EIO : result;
  }
  IoCall part = call;
  part.bytes = call.bytes / 2;
  return run(part);
}

}  // namespace kvc::disk_test
