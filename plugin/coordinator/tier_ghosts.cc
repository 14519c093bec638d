#include "plugin/coordinator/tier_ghosts.h"

#include "plugin/core/check.h"

namespace kvc::tier {

void Ghosts::link_youngest(GhostId id) {
  Ghost& g = ghosts_[id];
  g.older = youngest_;
  g.younger = 0;
  if (youngest_ != 0) ghosts_[youngest_ - 1].younger = id + 1;
  youngest_ = id + 1;
  if (oldest_ == 0) oldest_ = id + 1;
}

void Ghosts::unlink(GhostId id) {
  const Ghost& g = ghosts_[id];
  (g.older != 0 ? ghosts_[g.older - 1].younger : oldest_) = g.younger;
  (g.younger != 0 ? ghosts_[g.younger - 1].older : youngest_) = g.older;
}

GhostId Ghosts::insert(std::uint64_t tag, const Mark& mark) {
  KVC_CHECK(size_ < capacity_ && tag != 0);
  GhostId id = free_ - 1;
  if (free_ != 0) {
    free_ = ghosts_[id].younger;
  } else {
    id = used_++;
  }
  std::uint32_t& first = table_[home(tag)];
  ghosts_[id] = {tag, mark, 0, 0, first, 0};
  first = id + 1;
  link_youngest(id);
  ++size_;
  return id;
}

void Ghosts::erase(GhostId id) {
  std::uint32_t* link = &table_[home(ghosts_[id].tag)];
  while (*link != id + 1) {
    KVC_CHECK(*link != 0);
    link = &ghosts_[*link - 1].chained;
  }
  *link = ghosts_[id].chained;
  unlink(id);
  ghosts_[id] = {0, {}, 0, free_, 0, 0};
  free_ = id + 1;
  --size_;
}

void Ghosts::make_youngest(GhostId id) {
  if (youngest_ == id + 1) return;
  unlink(id);
  link_youngest(id);
}

void Ghosts::clear() {
  while (oldest_ != 0) erase(oldest_ - 1);
}

bool Ghosts::verify() const {
  std::uint64_t seen = 0;
  std::uint32_t before = 0;
  for (std::uint32_t at = oldest_; at != 0; at = ghosts_[at - 1].younger) {
    const Ghost& g = ghosts_[at - 1];
    if (++seen > size_ || g.older != before || find(g.tag) != at - 1) return false;
    before = at;
  }
  return seen == size_ && youngest_ == before && size_ <= capacity_;
}

}  // namespace kvc::tier
