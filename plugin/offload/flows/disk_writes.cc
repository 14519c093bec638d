// What goes to disk: entries of the host tier, each after the one that it continues.
#include <algorithm>
#include <cstring>

#include "plugin/offload/flows/disk_flow.h"

namespace kvc {

void DiskFlow::note(SlotId entry, RequestIndex request) {
  if (request == no_request) return;
  if (notes_.size() == notes_.capacity()) {
    ++counters_.spills_skipped;
    return;
  }
  notes_.push_back({entry, request});
}

RunId DiskFlow::run_of(Request& r) {
  if (r.disk_run == no_run) {
    r.disk_run = index_.open_run();
  } else {
    index_.schedule(r.disk_run);
  }
  return r.disk_run;
}

bool DiskFlow::on_path(SlotId entry, const KeyView& path) const {
  if (!host_.published(entry) || host_.bad(entry)) return false;
  const SlotKey key = host_.key_of(entry);
  const Tokens h = geometry_.hash_unit();
  return key.end.n / h.n <= path.count &&
         std::memcmp(key.key, block_key(path, key.end, h), key_bytes_) == 0;
}

void DiskFlow::settle_notes() {
  for (const Note& n : notes_) {
    Request& r = requests_[n.request];
    const KeyView path = requests_.keys(r);
    if (r.id == 0 || !on_path(n.entry, path)) continue;
    const SlotKey key = host_.key_of(n.entry);
    SlotId below = no_slot;
    const Presence presence = index_.find(key.group, key.key, below);
    if (presence == Presence::reserved) continue;
    if (presence == Presence::absent && options_.on_eviction) continue;
    const RunId run = run_of(r);
    if (run == no_run) continue;
    if (presence == Presence::published) {
      index_.use(below, run, path);
    } else {
      static_cast<void>(spill_path(n.entry, path, run));
    }
  }
  notes_.clear();
}

// The entry, and before it its ancestors that are not on disk, as far as there is room. True: the
// entry is on disk or on its way.
bool DiskFlow::spill_path(SlotId entry, const KeyView& path, RunId run) {
  if (ranks_off_ != 0 || reset_wanted_ || open_spills() >= options_.open_blocks) {
    ++counters_.spills_skipped;
    return false;
  }
  climb_.clear();
  for (SlotId at = entry; at != no_slot;) {
    const SlotKey key = host_.key_of(at);
    SlotId below = no_slot;
    if (index_.find(key.group, key.key, below) != Presence::absent) break;
    if (!host_.readable(at)) {
      // What continues a block that cannot be on disk cannot, either; others may hang on nothing.
      const bool alone = climb_.size() == 1 && geometry_.chain() != host_.key_of(entry).group;
      if (!alone) return false;
      break;
    }
    climb_.push_back(at);
    at = host_.index().chained() ? host_.parent_of(at) : no_slot;
  }
  for (std::size_t i = climb_.size(); i > 0; --i) {
    if (!spill_one(climb_[i - 1], path, run)) return false;
  }
  return true;
}

bool DiskFlow::spill_one(SlotId entry, const KeyView& path, RunId run) {
  if (open_spills() >= options_.open_blocks || jobs_.copies_left() == 0) {
    ++counters_.spills_skipped;
    return false;
  }
  if (spills_ == nullptr) spills_ = jobs_.create(JobKind::spill);
  if (spills_ == nullptr) {
    ++counters_.spills_skipped;
    return false;
  }
  const SlotKey key = host_.key_of(entry);
  SlotId bad = no_slot;
  if (index_.find(key.group, key.key, bad) != Presence::absent) return true;
  const SlotId to = index_.reserve(key.group, key.key, path, key.end, run, bad);
  if (to == no_slot) return false;
  host_.pin(entry, PinKind::job);
  jobs_.add(*spills_, entry, to);
  return true;
}

void DiskFlow::evicted_from_host(GroupId group, const std::byte* key) {
  if (!on()) return;
  SlotId below = no_slot;
  if (index_.find(group, key, below) != Presence::published) ++counters_.lost_on_eviction;
}

void DiskFlow::make_headroom() {
  if (!on() || !options_.on_eviction || ranks_off_ != 0 || reset_wanted_) return;
  if (paused_ && host_.slots_used() <= paused_used_) return;
  paused_ = false;
  while (short_of_slots(open_spills())) {
    const SlotId victim = host_.next_victim();
    if (victim == no_slot || !demote(victim)) return;
  }
}

bool DiskFlow::short_of_slots(std::uint64_t coming) const {
  const std::uint64_t total = host_.slots_total();
  const std::uint64_t used = host_.slots_used();
  return total != UINT64_MAX && (total > used ? total - used : 0) + coming < headroom_;
}

// The next victim of the host tier leaves it, or is written first. False: neither.
bool DiskFlow::demote(SlotId entry) {
  KVC_OP(entry, 1);
  const SlotKey key = host_.key_of(entry);
  SlotId below = no_slot;
  if (host_.bad(entry) || index_.find(key.group, key.key, below) == Presence::published) {
    host_.evict(entry);
    return true;
  }
  if (open_spills() >= options_.open_blocks || scratch_.empty()) return false;
  const RunId run = index_.open_run();
  if (run == no_run) return false;
  for (SlotId at = entry; at != no_slot;) {
    const SlotKey one = host_.key_of(at);
    lay_path(at);
    if (index_.find(one.group, one.key, below) != Presence::absent) break;
    at = host_.index().chained() ? host_.parent_of(at) : no_slot;
  }
  const bool written = spill_path(entry, laid_path(), run);
  clear_path();
  index_.close_run(run);
  return written;
}

void DiskFlow::lay_key(Tokens end, const std::byte* key) {
  const std::uint64_t at = (end.n / geometry_.hash_unit().n - 1) * key_bytes_;
  if (at + key_bytes_ > scratch_.size()) return;
  std::memcpy(scratch_.data() + at, key, key_bytes_);
  laid_.push_back(end);
}

void DiskFlow::lay_path(SlotId entry) {
  const SlotKey key = host_.key_of(entry);
  lay_key(key.end, key.key);
  if (!host_.index().chained()) return;
  const Supports s = host_.index().supports_of(entry);
  for (const SlotId support : {s.first, s.second}) {
    if (support == no_slot) continue;
    const SlotKey other = host_.key_of(support);
    lay_key(other.end, other.key);
  }
}

void DiskFlow::clear_path() {
  for (const Tokens end : laid_) {
    const std::uint64_t at = (end.n / geometry_.hash_unit().n - 1) * key_bytes_;
    std::memset(scratch_.data() + at, 0, key_bytes_);
  }
  laid_.clear();
}

KeyView DiskFlow::laid_path() const {
  return {scratch_.data(), key_bytes_, scratch_.size() / key_bytes_};
}

}  // namespace kvc
