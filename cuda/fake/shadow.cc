#include "cuda/fake/shadow.h"

#include <algorithm>

namespace kvc::cuda::fake {

void Shadow::cut(std::uint64_t address) {
  auto next = segments_.lower_bound(address);
  if (next == segments_.begin()) return;
  auto at = std::prev(next);
  if (at->first == address || at->second.end <= address) return;
  Segment back = at->second;
  at->second.end = address;
  segments_.emplace_hint(next, address, std::move(back));
}

std::optional<Race> Shadow::race_in(std::uint64_t begin, const Segment& segment, bool writes,
                                    const Clock& before) {
  const auto open = [&](const Touch& t) { return t.time > before.of(t.actor); };
  const std::uint64_t bytes = segment.end - begin;
  if (segment.written && open(segment.write)) return Race{begin, bytes, segment.write, true};
  if (!writes) return std::nullopt;
  const auto it = std::find_if(segment.reads.begin(), segment.reads.end(), open);
  if (it == segment.reads.end()) return std::nullopt;
  return Race{begin, bytes, *it, false};
}

std::optional<Race> Shadow::touch(std::uint64_t address, std::uint64_t bytes, bool writes,
                                  Touch who, const Clock& before) {
  std::optional<Race> found;
  if (bytes == 0) return found;
  const std::uint64_t end = address + bytes;
  cut(address);
  cut(end);
  std::uint64_t at = address;
  auto it = segments_.lower_bound(address);
  while (at < end) {
    if (it == segments_.end() || it->first > at) {  // a gap: nobody was here
      const std::uint64_t gap_end = it == segments_.end() ? end : std::min(end, it->first);
      it = segments_.emplace_hint(it, at, Segment{gap_end, false, {}, {}});
    }
    Segment& s = it->second;
    if (!found) found = race_in(it->first, s, writes, before);
    if (writes) {
      s.written = true;
      s.write = who;
      s.reads.clear();
    } else {
      const auto mine = std::find_if(s.reads.begin(), s.reads.end(),
                                     [&](const Touch& t) { return t.actor == who.actor; });
      if (mine == s.reads.end()) {
        s.reads.push_back(who);
      } else {
        mine->time = who.time;
      }
    }
    at = s.end;
    ++it;
  }
  return found;
}

std::optional<Race> Shadow::unordered(std::uint64_t address, std::uint64_t bytes,
                                      const Clock& before) const {
  auto it = segments_.upper_bound(address);
  if (it != segments_.begin() && std::prev(it)->second.end > address) --it;
  for (; it != segments_.end() && it->first < address + bytes; ++it) {
    if (auto race = race_in(it->first, it->second, true, before)) return race;
  }
  return std::nullopt;
}

void Shadow::forget(std::uint64_t address, std::uint64_t bytes) {
  cut(address);
  cut(address + bytes);
  segments_.erase(segments_.lower_bound(address), segments_.lower_bound(address + bytes));
}

}  // namespace kvc::cuda::fake
