// The device blocks of World: who owns and who holds them, and the tables of requests.
#include <kvc/kvc_util.h>

#include <algorithm>

#include "conformance/rig/world.h"

namespace kvc::rig {

std::int64_t World::new_block() {
  for (std::size_t i = 0; i < free_.size(); ++i) {
    const std::int64_t b = free_.front();
    free_.pop_front();
    if (held(b)) {
      free_.push_back(b);
      continue;
    }
    owners_[b] = 1;
    return b;
  }
  need(false, "KVC-P-131", "the device has no free block, {} of {} are held by open jobs",
       held_count(), setup_.device_blocks);
  return setup_.null_block;
}

void World::free_if_unused(std::int64_t block) {
  if (owners_.count(block) == 0 && !held(block) && block != setup_.null_block &&
      std::find(free_.begin(), free_.end(), block) == free_.end()) {
    free_.push_back(block);
  }
}

void World::drop_block(std::int64_t block) {
  const auto it = owners_.find(block);
  if (it == owners_.end()) return;
  if (--it->second == 0) owners_.erase(it);
  free_if_unused(block);
}

void World::share_block(std::int64_t block) { ++owners_.at(block); }

void World::drop_blocks(std::uint64_t id) {
  for (auto& table : request(id).tables) {
    for (const std::int64_t b : table) drop_block(b);
    table.clear();
  }
}

void World::null_out(std::uint64_t id, std::uint32_t group, std::uint64_t position) {
  std::int64_t& entry = request(id).tables.at(group).at(position);
  drop_block(entry);
  entry = setup_.null_block;
}

bool World::held(std::int64_t block) const {
  for (const auto& [job, blocks] : holds_) {
    if (blocks.count(block) != 0) return true;
  }
  for (const auto& [job, blocks] : end_holds_) {
    if (blocks.count(block) != 0) return true;
  }
  return false;
}

std::uint64_t World::held_count() const {
  std::set<std::int64_t> all;
  for (const auto& [job, blocks] : holds_) all.insert(blocks.begin(), blocks.end());
  for (const auto& [job, blocks] : end_holds_) all.insert(blocks.begin(), blocks.end());
  return all.size();
}

std::set<std::int64_t> World::blocks_of_open_loads() const {
  std::set<std::int64_t> all;
  for (const auto& [job, blocks] : holds_) {
    const auto open = open_jobs_.find(job);
    if (open == open_jobs_.end() || open->second != KVC_JOB_LOAD) continue;
    all.insert(blocks.begin(), blocks.end());
  }
  return all;
}

void World::add_hold(kvc_job job, std::int64_t block) {
  need(block != setup_.null_block && block >= 0 &&
           static_cast<std::uint64_t>(block) < setup_.device_blocks,
       "KVC-P-083", "job {} holds block {}: the null block or none of the device's {}", job, block,
       setup_.device_blocks);
  holds_[job].insert(block);
}

void World::release_hold(const Ended& job) {
  for (std::size_t i = 1; i < job.released.size(); ++i) {
    const kvc_block& a = job.released[i - 1];
    const kvc_block& b = job.released[i];
    // Deepest position first, judged within a group.
    if (a.group != b.group || job.request == 0) continue;
    expect(a.position >= b.position, "KVC-P-092",
           "job {} releases position {} of group {} before position {}", job.job, a.position,
           a.group, b.position);
  }
  const auto known = holds_.find(job.job);
  const auto ended = end_holds_.find(job.job);
  need(known != holds_.end() || ended != end_holds_.end(), "KVC-P-090",
       "job {} ended, nobody handed it out", job.job);
  for (const kvc_block& b : job.released) {
    if (ended != end_holds_.end()) {
      expect(ended->second.count(b.block) != 0, "KVC-P-092",
             "job {} releases block {}, request_end did not list it as held", job.job, b.block);
      continue;
    }
    const auto at = known->second.find(b.block);
    need(at != known->second.end(), "KVC-P-092", "job {} releases block {}, which it did not hold",
         job.job, b.block);
    known->second.erase(at);
  }
  if (ended == end_holds_.end()) {
    expect(known->second.empty(), "KVC-P-092", "job {} ended and did not release {} blocks",
           job.job, known->second.size());
  }
  std::set<std::int64_t> over;
  for (const kvc_block& b : job.released) over.insert(b.block);
  if (ended != end_holds_.end()) over.insert(ended->second.begin(), ended->second.end());
  holds_.erase(job.job);
  end_holds_.erase(job.job);
  for (const std::int64_t b : over) free_if_unused(b);
}

void World::allocate_for_load(std::uint64_t id, std::uint64_t upto) {
  Request& r = request(id);
  for (std::uint32_t g = 0; g < setup_.groups.size(); ++g) {
    if (setup_.groups[g].kind == KVC_GROUP_OTHER) continue;
    const std::uint64_t b = block_tokens(g);
    auto& table = r.tables[g];
    for (std::uint64_t p = table.size(); p * b < upto; ++p) {
      table.push_back(p >= first_needed(g, upto) ? new_block() : setup_.null_block);
    }
  }
}

void World::allocate_for_compute(std::uint64_t id, std::uint64_t upto) {
  Request& r = request(id);
  for (std::uint32_t g = 0; g < setup_.groups.size(); ++g) {
    const Group& d = setup_.groups[g];
    if (d.kind == KVC_GROUP_OTHER) continue;
    const std::uint64_t b = block_tokens(g);
    const std::uint64_t n = (upto + b - 1) / b;
    const bool align = d.kind == KVC_GROUP_STATE && (d.caps & KVC_GROUP_CAP_POSITION_STABLE) == 0;
    auto& table = r.tables[g];
    // A state inside a block that was loaded or handed off is not overwritten: the engine goes on
    // in a block of its own.
    if (d.kind == KVC_GROUP_STATE && r.computed % b != 0 && r.computed < upto &&
        r.computed / b < table.size()) {
      drop_block(table[r.computed / b]);
      table[r.computed / b] = new_block();
    }
    while (table.size() < n) {
      table.push_back(align && table.size() + 1 < n ? setup_.null_block : new_block());
    }
  }
}

void World::compute(std::uint64_t id, std::uint64_t upto, std::optional<std::uint64_t> confirmed) {
  Request& r = request(id);
  allocate_for_compute(id, upto);
  write(r, r.computed, upto);
  r.computed = upto;
  schedule(id, confirmed.value_or(upto));
}

void World::schedule(std::uint64_t id, std::uint64_t confirmed, bool resumed) {
  const auto it = std::find_if(scheduled.begin(), scheduled.end(),
                               [&](const Scheduled& s) { return s.id == id; });
  if (it != scheduled.end()) {
    it->confirmed = confirmed;
    return;
  }
  scheduled.push_back({id, confirmed, resumed});
}

void World::hand_off(std::uint64_t id, std::uint32_t group, std::int64_t block,
                     std::uint64_t boundary) {
  handoffs.push_back({sizeof(kvc_handoff), group, id, block, boundary});
}

void World::name_candidate(const Request& r, std::uint32_t group, std::int64_t block,
                           std::uint64_t end) {
  const std::vector<std::uint8_t> keys = keys_of(r, end / setup_.h);
  candidate_keys.emplace_back(keys.end() - setup_.key_bytes, keys.end());
  candidates.push_back({sizeof(kvc_candidate), group, block, candidate_keys.back().data(), end});
}

void World::preempt(std::uint64_t id) {
  preempted.push_back(id);
  drop_blocks(id);
  request(id).computed = 0;
}

std::vector<kvc_table> World::tables_of(const Request& r, bool whole) const {
  std::vector<kvc_table> tables;
  for (std::uint32_t g = 0; g < setup_.groups.size(); ++g) {
    // A group without stable positions passes no table in a step (design 2.3).
    const bool pass = whole || (setup_.groups[g].caps & KVC_GROUP_CAP_POSITION_STABLE) != 0;
    const auto& t = r.tables[g];
    tables.push_back({sizeof(kvc_table), g, pass ? t.data() : nullptr, pass ? t.size() : 0, 0});
  }
  return tables;
}

}  // namespace kvc::rig
