#include "plugin/offload/job_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace kvc {

std::unique_ptr<Job> JobTable::fresh() const {
  auto job = std::make_unique<Job>();
  job->ended_bits.resize(ceil_div(ranks_, 64));
  job->heard_bits.resize(ceil_div(ranks_, 64));
  return job;
}

void JobTable::reserve(std::uint64_t jobs, std::uint64_t copies) {
  // Every job may end in a chunk that is not full.
  chunks_.reserve(copies / CopyChunk::room + jobs + 1);
  parts_.reserve(copies);
  open_.reserve(jobs);
  open_loads_.reserve(jobs);
  free_.reserve(jobs);
  pool_.reserve(jobs);
  while (pool_.size() < jobs) {
    pool_.push_back(fresh());
    free_.push_back(static_cast<std::uint32_t>(pool_.size() - 1));
  }
  if (ids_.size() >= 2 * jobs) return;
  ids_.assign(std::bit_ceil(2 * jobs), 0);
  for (const std::uint32_t at : open_) insert_id(at);
}

std::size_t JobTable::place_of(JobId id) const {
  const std::size_t mask = ids_.size() - 1;
  std::size_t p = id & mask;
  while (ids_[p] != 0 && pool_[ids_[p] - 1]->id != id) p = (p + 1) & mask;
  return p;
}

void JobTable::insert_id(std::uint32_t at) { ids_[place_of(pool_[at]->id)] = at + 1; }

// Closes the gap: later ids of the same cluster move towards their home.
void JobTable::erase_id(JobId id) {
  const std::size_t mask = ids_.size() - 1;
  std::size_t gap = place_of(id);
  for (std::size_t p = (gap + 1) & mask; ids_[p] != 0; p = (p + 1) & mask) {
    const std::size_t home = pool_[ids_[p] - 1]->id & mask;
    if (((p - home) & mask) < ((p - gap) & mask)) continue;  // it would stand before its home
    ids_[gap] = ids_[p];
    gap = p;
  }
  ids_[gap] = 0;
}

Job& JobTable::create(JobKind kind, RequestId request, RequestIndex index) {
  if (free_.empty()) reserve(pool_.size() + 16, 0);
  const std::uint32_t at = free_.back();
  Job& job = *pool_[at];
  open_.push_back(at);
  free_.pop_back();
  job.id = ++last_id_;
  insert_id(at);
  job.kind = kind;
  job.request = request;
  job.request_index = index;
  job.open_at = static_cast<std::uint32_t>(open_.size() - 1);
  if (kind == JobKind::load) {
    job.load_at = static_cast<std::uint32_t>(open_loads_.size());
    open_loads_.push_back(at);
  }
  Queue& q = queue(kind);
  if (q.last != 0) {
    pool_[q.last - 1]->next_waiting = at + 1;
  } else {
    q.first = at + 1;
  }
  q.last = at + 1;
  return job;
}

Job* JobTable::find(JobId id) {
  if (ids_.empty() || id == 0) return nullptr;
  const std::uint32_t at = ids_[place_of(id)];
  return at == 0 ? nullptr : pool_[at - 1].get();
}

CopyChunk& JobTable::chunk_with_room(Job& job) {
  if (job.last_chunk != 0 && chunks_[job.last_chunk - 1].used < CopyChunk::room) {
    return chunks_[job.last_chunk - 1];
  }
  std::uint32_t at = free_chunk_;
  if (at != 0) {
    free_chunk_ = chunks_[at - 1].next;
    chunks_[at - 1].next = chunks_[at - 1].used = 0;
  } else {
    chunks_.emplace_back();
    at = static_cast<std::uint32_t>(chunks_.size());
  }
  (job.last_chunk != 0 ? chunks_[job.last_chunk - 1].next : job.first_chunk) = at;
  job.last_chunk = at;
  return chunks_[at - 1];
}

JobTable::Part& JobTable::part_of(Job& job, RequestIndex request, OpenParts& parts) {
  if (job.last_part != 0 && parts_[job.last_part - 1].request == request) {
    return parts_[job.last_part - 1];
  }
  const std::uint32_t place = chunk_with_room(job).used;
  std::uint32_t at = free_part_;
  if (at != 0) {
    free_part_ = parts_[at - 1].next_of_job;
  } else {
    parts_.emplace_back();
    at = static_cast<std::uint32_t>(parts_.size());
  }
  parts_[at - 1] = Part{request, job.last_chunk, place, 0, parts.first, 0, 0};
  if (parts.first != 0) parts_[parts.first - 1].prev_of_request = at;
  parts.first = at;
  (job.last_part != 0 ? parts_[job.last_part - 1].next_of_job : job.first_part) = at;
  job.last_part = at;
  return parts_[at - 1];
}

void JobTable::unlink_part(const Part& part, OpenParts& parts) {
  if (part.prev_of_request != 0) {
    parts_[part.prev_of_request - 1].next_of_request = part.next_of_request;
  } else {
    parts.first = part.next_of_request;
  }
  if (part.next_of_request != 0) {
    parts_[part.next_of_request - 1].prev_of_request = part.prev_of_request;
  }
}

void JobTable::add_copy(Job& job, const CopyRecord& copy, OpenParts& parts) {
  ++part_of(job, copy.request, parts).copies;
  CopyChunk& chunk = chunk_with_room(job);
  chunk.copies[chunk.used++] = copy;
  ++job.copies;
  ++(job.kind == JobKind::load ? load_copies_ : store_copies_);
  if (job.kind != JobKind::store || !copy.closes) return;
  ++job.entries;
  ++store_entries_;
}

void JobTable::add_copies(Job& job, const CopyRun& run, OpenParts& parts) {
  if (run.blocks_per_chunk > 1) return add_chunks(job, run, parts);
  const std::size_t n = run.entries.size();
  if (n == 0) return;
  KVC_CHECK(run.first + n <= UINT32_MAX);
  part_of(job, run.request, parts).copies += static_cast<std::uint32_t>(n);
  for (std::size_t i = 0; i < n;) {
    CopyChunk& chunk = chunk_with_room(job);
    const std::size_t end = std::min<std::size_t>(n, i + CopyChunk::room - chunk.used);
    for (CopyRecord* to = &chunk.copies[chunk.used]; i < end; ++i, ++to, ++chunk.used) {
      CopyRecord copy;
      copy.block = run.blocks[i];
      copy.position = static_cast<std::uint32_t>(run.first + i);
      copy.entry = run.entries[i];
      copy.request = run.request;
      copy.group = static_cast<std::uint8_t>(run.group);
      copy.pinned = i >= run.pinned_from;
      *to = copy;
    }
  }
  job.copies += n;
  (job.kind == JobKind::load ? load_copies_ : store_copies_) += n;
  if (job.kind != JobKind::store) return;
  job.entries += n;
  store_entries_ += n;
}

// Blocks of chunks, of which the first may lack its first ones and the last its last.
void JobTable::add_chunks(Job& job, const CopyRun& run, OpenParts& parts) {
  const std::uint64_t per = run.blocks_per_chunk;
  const std::uint64_t first_chunk = run.first / per;
  if (run.count == 0) return;
  KVC_CHECK(run.first + run.count <= UINT32_MAX);
  KVC_CHECK((run.first + run.count - 1) / per - first_chunk + 1 == run.entries.size());
  for (std::uint64_t i = 0; i < run.count; ++i) {
    const std::uint64_t position = run.first + i;
    const std::uint64_t entry = position / per - first_chunk;
    CopyRecord copy;
    copy.block = run.blocks[i];
    copy.position = static_cast<std::uint32_t>(position);
    copy.entry = run.entries[entry];
    copy.request = run.request;
    copy.group = static_cast<std::uint8_t>(run.group);
    copy.closes = i + 1 == run.count || (position + 1) % per == 0;
    copy.pinned = copy.closes && entry >= run.pinned_from;
    add_copy(job, copy, parts);
  }
}

void JobTable::forget(Job& job) {
  KVC_CHECK(job.id != 0 && job.planned);
  if (job.last_chunk != 0) {
    chunks_[job.last_chunk - 1].next = free_chunk_;
    free_chunk_ = job.first_chunk;
  }
  if (job.last_part != 0) {
    parts_[job.last_part - 1].next_of_job = free_part_;
    free_part_ = job.first_part;
  }
  (job.kind == JobKind::load ? load_copies_ : store_copies_) -= job.copies;
  store_entries_ -= job.entries;
  if (job.kind == JobKind::load) {
    open_loads_[job.load_at] = open_loads_.back();
    pool_[open_loads_.back()]->load_at = job.load_at;
    open_loads_.pop_back();
  }
  const std::uint32_t at = open_[job.open_at];
  open_[job.open_at] = open_.back();
  pool_[open_.back()]->open_at = job.open_at;
  open_.pop_back();
  erase_id(job.id);
  Job empty;
  empty.ended_bits.swap(job.ended_bits);
  empty.heard_bits.swap(job.heard_bits);
  empty.failed.swap(job.failed);
  std::fill(empty.ended_bits.begin(), empty.ended_bits.end(), 0);
  std::fill(empty.heard_bits.begin(), empty.heard_bits.end(), 0);
  empty.failed.clear();
  job = std::move(empty);
  free_.push_back(at);
}

Job* JobTable::waiting(JobKind kind) {
  const std::uint32_t first = queue(kind).first;
  return first == 0 ? nullptr : pool_[first - 1].get();
}

void JobTable::pop_waiting(JobKind kind) {
  Queue& q = queue(kind);
  KVC_CHECK(q.first != 0);
  Job& job = *pool_[q.first - 1];
  q.first = job.next_waiting;
  if (q.first == 0) q.last = 0;
  job.next_waiting = 0;
  job.planned = true;
}

bool JobTable::set_bit(std::vector<std::uint64_t>& bits, std::uint32_t rank) {
  std::uint64_t& word = bits[rank / 64];
  const std::uint64_t bit = std::uint64_t{1} << rank % 64;
  const bool fresh_bit = (word & bit) == 0;
  word |= bit;
  return fresh_bit;
}

JobTable::Heard JobTable::mark_ended(Job& job, std::uint32_t rank) {
  KVC_CHECK(rank < ranks_);
  if (!set_bit(job.ended_bits, rank)) return Heard::repeated;
  ++job.ranks_ended;
  job.ranks_heard += set_bit(job.heard_bits, rank);
  return Heard::first;
}

JobTable::Heard JobTable::mark_overdue(Job& job, std::uint32_t rank) {
  KVC_CHECK(rank < ranks_);
  if (!set_bit(job.heard_bits, rank)) return Heard::repeated;
  ++job.ranks_heard;
  job.overdue = true;
  return Heard::first;
}

std::string JobTable::verify() const {
  std::uint64_t copies = 0;
  for (const std::uint32_t at : open_) {
    const Job& job = *pool_[at];
    std::uint64_t own = 0;
    for (std::uint32_t c = job.first_chunk; c != 0; c = chunks_[c - 1].next) {
      const CopyChunk& chunk = chunks_[c - 1];
      if (chunk.used == 0 || (chunk.next != 0 && chunk.used != CopyChunk::room)) {
        return fmt::format("job {}: a chunk with {} copies", job.id, chunk.used);
      }
      own += chunk.used;
    }
    if (own != job.copies) {
      return fmt::format("job {} counts {} copies, {} are there", job.id, job.copies, own);
    }
    if (job.ranks_ended >= ranks_) return fmt::format("job {} has ended and is open", job.id);
    if (ids_[place_of(job.id)] != at + 1)
      return fmt::format("job {} is not found by its id", job.id);
    std::uint64_t in_parts = 0;
    for (std::uint32_t p = job.first_part; p != 0; p = parts_[p - 1].next_of_job) {
      in_parts += parts_[p - 1].copies;
    }
    if (in_parts != own) return fmt::format("job {}: its parts hold {} copies", job.id, in_parts);
    copies += own;
  }
  if (copies != load_copies_ + store_copies_) return "copies of open jobs are miscounted";
  return {};
}

}  // namespace kvc
