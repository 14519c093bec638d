#include "plugin/offload/job_table.h"

#include <fmt/format.h>

namespace kvc {

std::unique_ptr<Job> JobTable::fresh() const {
  auto job = std::make_unique<Job>();
  job->ended_bits.resize(ceil_div(ranks_, 64));
  job->heard_bits.resize(ceil_div(ranks_, 64));
  return job;
}

void JobTable::reserve(std::uint64_t jobs, std::uint64_t copies) {
  nodes_.reserve(copies);
  ids_.reserve(jobs);
  open_.reserve(jobs);
  free_.reserve(jobs);
  pool_.reserve(jobs);
  while (pool_.size() < jobs) {
    pool_.push_back(fresh());
    free_.push_back(static_cast<std::uint32_t>(pool_.size() - 1));
  }
}

Job& JobTable::create(JobKind kind, RequestId request, RequestIndex index) {
  if (free_.empty()) reserve(pool_.size() + 16, nodes_.capacity());
  const std::uint32_t at = free_.back();
  Job& job = *pool_[at];
  ids_.emplace(last_id_ + 1, at);
  open_.push_back(at);
  free_.pop_back();
  job.id = ++last_id_;
  job.kind = kind;
  job.request = request;
  job.request_index = index;
  job.open_at = static_cast<std::uint32_t>(open_.size() - 1);
  if (kind == JobKind::load) ++open_loads_;
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
  const auto it = ids_.find(id);
  return it == ids_.end() ? nullptr : pool_[it->second].get();
}

void JobTable::add_copy(Job& job, const CopyRecord& copy) {
  std::uint32_t at = free_node_;
  if (at != 0) {
    free_node_ = nodes_[at - 1].next;
    nodes_[at - 1] = Node{copy, 0};
  } else {
    nodes_.push_back(Node{copy, 0});
    at = static_cast<std::uint32_t>(nodes_.size());
  }
  if (job.last_copy != 0) {
    nodes_[job.last_copy - 1].next = at;
  } else {
    job.first_copy = at;
  }
  job.last_copy = at;
  ++job.copies;
  ++(job.kind == JobKind::load ? load_copies_ : store_copies_);
}

void JobTable::remove(Job& job) {
  KVC_CHECK(job.id != 0 && job.planned);
  if (job.last_copy != 0) {
    nodes_[job.last_copy - 1].next = free_node_;
    free_node_ = job.first_copy;
  }
  (job.kind == JobKind::load ? load_copies_ : store_copies_) -= job.copies;
  if (job.kind == JobKind::load) --open_loads_;
  const std::uint32_t at = open_[job.open_at];
  open_[job.open_at] = open_.back();
  pool_[open_.back()]->open_at = job.open_at;
  open_.pop_back();
  ids_.erase(job.id);
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
    for (std::uint32_t n = job.first_copy; n != 0; n = nodes_[n - 1].next) ++own;
    if (own != job.copies) {
      return fmt::format("job {} counts {} copies, {} are there", job.id, job.copies, own);
    }
    if (job.ranks_ended >= ranks_) return fmt::format("job {} has ended and is open", job.id);
    copies += own;
  }
  if (copies != load_copies_ + store_copies_) return "copies of open jobs are miscounted";
  return {};
}

}  // namespace kvc
