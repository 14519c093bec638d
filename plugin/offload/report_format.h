// The report: flat bytes that the engine carries from a rank to the scheduler role (design 2.1).
// Byte layout: docs/formats/report.md.
//
// A rank says two things about a job: that its deadline has passed while its copies go on
// (`deadline`, at most once, before the end), and that its part has ended (`ended`, exactly once).
// Slots and holds are free only after `ended` of every rank (design 2.4).
#pragma once
#include <cstdint>
#include <span>

#include "plugin/core/result.h"
#include "plugin/offload/scheduler_role.h"

namespace kvc {

inline constexpr std::uint32_t report_magic = 0x5243564B;  // the bytes "KVCR"
inline constexpr std::uint16_t report_version = 1;
inline constexpr std::size_t report_header_bytes = 64;
inline constexpr std::size_t report_entry_bytes = 32;
inline constexpr std::size_t report_failed_bytes = 32;

[[nodiscard]] constexpr std::uint64_t report_bytes(std::uint64_t entries, std::uint64_t failed) {
  return report_header_bytes + entries * report_entry_bytes + failed * report_failed_bytes;
}

enum class ReportPhase : std::uint32_t {
  deadline = 1,  // the job is past its deadline and still open; status is Code::deadline
  ended = 2,     // no byte of it moves any more on this rank
};

// Of the rank's disk tier: `off` moves nothing until a probe finds it well again.
enum class DiskState : std::uint32_t { none = 0, on = 1, off = 2 };

struct ReportJob {
  JobId job = 0;
  JobKind kind = JobKind::load;
  ReportPhase phase = ReportPhase::ended;
  Code status = Code::ok;
  std::uint64_t moved_bytes = 0;  // on this rank, of ended jobs

  friend bool operator==(const ReportJob&, const ReportJob&) = default;
};

// Writes one report after another into a buffer of the caller. No heap.
//
// Threads: one user. Owns: nothing. Invariants: never writes beyond the buffer.
class ReportEncoder {
 public:
  // Requires: buffer.size() >= report_header_bytes.
  explicit ReportEncoder(std::span<std::uint8_t> buffer);

  // `sequence` counts this rank's reports, 1, 2, ...
  void begin(std::uint64_t epoch, std::uint32_t rank, std::uint64_t sequence);
  // False, and nothing changed, if the entry does not fit. FailedBlock::rank is not written.
  [[nodiscard]] bool add(const ReportJob& job, std::span<const FailedBlock> failed);
  [[nodiscard]] std::uint32_t entries() const { return entries_; }
  // A piece of the inventory of the rank's disk tier (docs/formats/disk.md), last of all. False,
  // and nothing changed, if it does not fit, or there is one.
  [[nodiscard]] bool set_inventory(std::span<const std::uint8_t> piece);
  [[nodiscard]] bool has_inventory() const { return inventory_bytes_ != 0; }
  // Until begin: none.
  void set_disk_state(DiskState state) { disk_state_ = state; }
  // Bytes that still fit.
  [[nodiscard]] std::uint64_t room() const { return buffer_.size() - used_; }
  // The bytes to carry, inside the buffer, valid until the next begin.
  [[nodiscard]] std::span<const std::uint8_t> finish();

 private:
  std::span<std::uint8_t> buffer_;
  std::uint64_t used_ = 0;
  std::uint64_t epoch_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint32_t rank_ = 0;
  std::uint32_t entries_ = 0;
  std::uint64_t inventory_bytes_ = 0;
  DiskState disk_state_ = DiskState::none;
};

// One entry of a report; a view into its bytes.
class ReportEntry {
 public:
  [[nodiscard]] const ReportJob& job() const { return job_; }
  [[nodiscard]] std::uint32_t failed_count() const { return failed_; }
  // Requires: i < failed_count(). The rank is filled in.
  [[nodiscard]] FailedBlock failed(std::uint32_t i) const;

 private:
  friend class ReportReader;
  ReportJob job_;
  std::uint32_t failed_ = 0;
  std::uint32_t rank_ = 0;
  const std::uint8_t* at_ = nullptr;
};

class ReportReader {
 public:
  // False at the end.
  [[nodiscard]] bool next(ReportEntry& entry);

 private:
  friend class ReportView;
  const std::uint8_t* at_ = nullptr;
  std::uint32_t left_ = 0;
  std::uint32_t rank_ = 0;
};

// A report whose every byte was checked.
//
// Threads: immutable; any thread. Owns: nothing; the bytes outlive the view.
class ReportView {
 public:
  // Survives any bytes. Errors: arg, with a text that names the field: too short, magic, version,
  // length, checksum, an entry that crosses the end, unknown kind, phase, status, side or disk
  // state.
  static Result<ReportView> read(std::span<const std::uint8_t> bytes);

  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  [[nodiscard]] std::uint64_t sequence() const { return sequence_; }
  [[nodiscard]] std::uint32_t rank() const { return entries_.rank_; }
  [[nodiscard]] std::uint32_t size() const { return entries_.left_; }
  [[nodiscard]] ReportReader entries() const { return entries_; }
  // Empty: none. Its own bytes are not checked here.
  [[nodiscard]] std::span<const std::uint8_t> inventory() const { return inventory_; }
  [[nodiscard]] DiskState disk_state() const { return disk_state_; }

 private:
  std::uint64_t epoch_ = 0;
  std::uint64_t sequence_ = 0;
  ReportReader entries_;
  std::span<const std::uint8_t> inventory_;
  DiskState disk_state_ = DiskState::none;
};

}  // namespace kvc
