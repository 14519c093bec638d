#include "plugin/coordinator/prefix_tags.h"

#include "plugin/coordinator/key_hash.h"

namespace kvc {

bool PrefixTags::make(std::uint64_t capacity) {
  capacity_ = capacity;
  places_ = capacity * 3 / 2 + 8;
  return ring_.size_for(capacity) && table_.size_for(places_);
}

std::uint64_t PrefixTags::tag_of(const std::byte* key, std::uint32_t key_bytes) {
  std::uint64_t h = key_bytes;
  for (std::uint32_t i = 0; i + 8 <= key_bytes; i += 8)
    h = key_hash::mix(h ^ key_hash::load64(key + i), 0x9e3779b97f4a7c15U);
  if (key_bytes % 8 != 0)
    h = key_hash::mix(h ^ key_hash::load64(key + key_bytes - 8), 0x9e3779b97f4a7c15U);
  h &= ~end_bit;
  return h == 0 ? 2 : h;
}

std::uint64_t PrefixTags::place(std::uint64_t tag) const {
  std::uint64_t p = home(tag);
  while (table_[p] != 0 && (table_[p] & ~end_bit) != tag) p = after(p);
  return p;
}

void PrefixTags::insert(std::uint64_t tag) {
  if (size_ == capacity_) {
    erase(ring_[next_]);
  } else {
    ++size_;
  }
  ring_[next_] = tag;
  next_ = next_ + 1 == capacity_ ? 0 : next_ + 1;
  table_[place(tag)] = tag;
}

void PrefixTags::erase(std::uint64_t tag) {
  std::uint64_t gap = place(tag);
  table_[gap] = 0;
  // What was pushed behind the gap moves up.
  for (std::uint64_t p = after(gap); table_[p] != 0; p = after(p)) {
    const std::uint64_t own = home(table_[p]);
    const bool between = gap <= p ? gap < own && own <= p : gap < own || own <= p;
    if (between) continue;
    table_[gap] = table_[p];
    table_[p] = 0;
    gap = p;
  }
}

PrefixTags::Shared PrefixTags::note(const KeyView& path) {
  Shared shared;
  bool leading = true;
  for (std::uint64_t i = 0; i < path.count; ++i) {
    const std::uint64_t tag = tag_of(path.at(i), path.key_bytes);
    const std::uint64_t known = table_[place(tag)];
    leading = leading && known != 0;
    if (leading) shared = {i + 1, (known & end_bit) != 0};
    if (known == 0) insert(tag);
    if (i + 1 == path.count) table_[place(tag)] |= end_bit;
  }
  return shared;
}

void PrefixTags::clear() {
  for (std::uint64_t i = 0; i < size_; ++i) erase(ring_[i]);
  size_ = next_ = 0;
}

}  // namespace kvc
