#include "plugin/offload/disk_jobs.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvc {

DiskJobs::DiskJobs(std::uint32_t ranks, std::uint32_t jobs, std::uint32_t kept,
                   std::uint32_t copies)
    : ranks_(ranks), kept_(kept), pool_(jobs), copies_(copies), copies_left_(copies) {
  for (DiskJob& job : pool_) job.ended_bits.resize(ceil_div(ranks, 64));
  for (std::uint32_t i = jobs; i > 0; --i) free_.push_back(i - 1);
  open_.reserve(jobs);
  for (std::uint32_t i = copies; i > 0; --i) {
    copies_[i - 1].next = free_copy_;
    free_copy_ = i;
  }
}

DiskJob* DiskJobs::create(JobKind kind) {
  if (free_.size() <= (kind == JobKind::fill ? 0 : kept_)) return nullptr;
  const std::uint32_t at = free_.back();
  free_.pop_back();
  open_.push_back(at);
  DiskJob& job = pool_[at];
  job.id = next_id_++;
  job.kind = kind;
  return &job;
}

DiskJob* DiskJobs::find(JobId id) {
  const auto it = std::find_if(open_.begin(), open_.end(),
                               [&](std::uint32_t at) { return pool_[at].id == id; });
  return it == open_.end() ? nullptr : &pool_[*it];
}

DiskJob* DiskJobs::find_fill(JobId load) {
  const auto it = std::find_if(open_.begin(), open_.end(), [&](std::uint32_t at) {
    return pool_[at].kind == JobKind::fill && pool_[at].load == load;
  });
  return it == open_.end() ? nullptr : &pool_[*it];
}

void DiskJobs::add(DiskJob& job, SlotId host, SlotId disk) {
  KVC_CHECK(free_copy_ != 0);
  const std::uint32_t at = free_copy_;
  DiskCopy& copy = copies_[at - 1];
  free_copy_ = copy.next;
  --copies_left_;
  copy = DiskCopy{host, disk, 0, false, false};
  (job.last == 0 ? job.first : copies_[job.last - 1].next) = at;
  job.last = at;
  ++job.copies;
  ++(job.kind == JobKind::fill ? fill_copies_ : spill_copies_);
}

DiskCopy& DiskJobs::copy(const DiskJob& job, std::uint64_t number) {
  KVC_CHECK(number < job.copies);
  std::uint32_t at = job.first;
  for (; number > 0; --number) at = copies_[at - 1].next;
  return copies_[at - 1];
}

void DiskJobs::remove(DiskJob& job) {
  (job.kind == JobKind::fill ? fill_copies_ : spill_copies_) -= job.copies;
  copies_left_ += job.copies;
  if (job.last != 0) {
    copies_[job.last - 1].next = free_copy_;
    free_copy_ = job.first;
  }
  const auto at = static_cast<std::uint32_t>(&job - pool_.data());
  std::vector<std::uint64_t> bits = std::move(job.ended_bits);
  std::fill(bits.begin(), bits.end(), 0);
  job = DiskJob{};
  job.ended_bits = std::move(bits);
  // In order: what is planned is planned in the order of creation.
  open_.erase(std::find(open_.begin(), open_.end(), at));
  free_.push_back(at);
}

bool DiskJobs::mark_ended(DiskJob& job, std::uint32_t rank) {
  KVC_CHECK(rank < ranks_);
  std::uint64_t& word = job.ended_bits[rank / 64];
  const std::uint64_t bit = std::uint64_t{1} << (rank % 64);
  if ((word & bit) != 0) return false;
  word |= bit;
  job.ended = ++job.ranks_ended == ranks_;
  return true;
}

std::string DiskJobs::verify() const {
  std::uint64_t copies = 0;
  for (const std::uint32_t at : open_) copies += pool_[at].copies;
  if (copies + copies_left_ != copies_.size() || copies != fill_copies_ + spill_copies_) {
    return fmt::format("{} copies of disk jobs are open, {} are counted", copies,
                       fill_copies_ + spill_copies_);
  }
  return {};
}

}  // namespace kvc
