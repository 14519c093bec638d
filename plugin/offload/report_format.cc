#include "plugin/offload/report_format.h"

#include <fmt/format.h>

#include <algorithm>

#include "plugin/offload/wire.h"

namespace kvc {

using wire::get;
using wire::put;

namespace {

// Offsets of docs/formats/report.md.
constexpr std::size_t at_epoch = 16;
constexpr std::size_t at_sequence = 24;
constexpr std::size_t at_rank = 32;
constexpr std::size_t at_entries = 36;
constexpr std::size_t at_checksum = 40;
constexpr std::size_t at_inventory_bytes = 48;
constexpr std::size_t at_disk_state = 56;
constexpr std::size_t at_reserved = 60;  // 4 bytes

constexpr std::size_t entry_job = 0;
constexpr std::size_t entry_kind = 8;
constexpr std::size_t entry_phase = 12;
constexpr std::size_t entry_status = 16;
constexpr std::size_t entry_failed = 20;
constexpr std::size_t entry_moved = 24;

constexpr std::size_t failed_group = 0;
constexpr std::size_t failed_status = 4;
constexpr std::size_t failed_block = 8;
constexpr std::size_t failed_position = 16;
constexpr std::size_t failed_side = 24;
constexpr std::size_t failed_reserved = 28;

constexpr wire::HeaderRules rules{
    "report", report_magic, report_version, report_header_bytes, at_checksum, at_reserved, 4};

template <class... Args>
Status bad(fmt::format_string<Args...> text, Args&&... args) {
  return wire::bad(rules.format, text, std::forward<Args>(args)...);
}

bool known(std::int32_t status) {
  switch (static_cast<Code>(status)) {
    case Code::ok:
    case Code::arg:
    case Code::state:
    case Code::room:
    case Code::unsupported:
    case Code::full:
    case Code::io:
    case Code::cancelled:
    case Code::deadline:
    case Code::internal:
      return true;
    case Code::more:
    case Code::later:
      break;
  }
  return false;
}

Status check_entry(const std::uint8_t* p, std::uint32_t i) {
  const auto kind = get<std::int32_t>(p + entry_kind);
  if (kind < static_cast<std::int32_t>(JobKind::load) ||
      kind > static_cast<std::int32_t>(JobKind::disk_reset)) {
    return bad("entry {} has kind {}", i, kind);
  }
  const auto phase = get<std::uint32_t>(p + entry_phase);
  if (phase != static_cast<std::uint32_t>(ReportPhase::deadline) &&
      phase != static_cast<std::uint32_t>(ReportPhase::ended)) {
    return bad("entry {} has phase {}", i, phase);
  }
  if (const auto status = get<std::int32_t>(p + entry_status); !known(status)) {
    return bad("entry {} has status {}", i, status);
  }
  return {};
}

Status check_failed(const std::uint8_t* p, std::uint32_t i) {
  const auto side = get<std::int32_t>(p + failed_side);
  if (side != static_cast<std::int32_t>(FailedSide::source) &&
      side != static_cast<std::int32_t>(FailedSide::destination)) {
    return bad("a failed block of entry {} has side {}", i, side);
  }
  if (const auto status = get<std::int32_t>(p + failed_status); !known(status)) {
    return bad("a failed block of entry {} has status {}", i, status);
  }
  if (get<std::uint32_t>(p + failed_reserved) != 0) {
    return bad("reserved bytes of a failed block of entry {} are not 0", i);
  }
  return {};
}

Status check_body(std::span<const std::uint8_t> body, std::uint32_t entries) {
  std::uint64_t at = 0;
  for (std::uint32_t i = 0; i < entries; ++i) {
    if (body.size() - at < report_entry_bytes) {
      return bad("entry {} of {} crosses the end of {} bytes", i, entries, body.size());
    }
    const std::uint8_t* entry = body.data() + at;
    if (Status s = check_entry(entry, i); !s.ok()) return s;
    at += report_entry_bytes;
    const auto failed = get<std::uint32_t>(entry + entry_failed);
    if (failed > (body.size() - at) / report_failed_bytes) {
      return bad("{} failed blocks of entry {} of {} cross the end of {} bytes", failed, i, entries,
                 body.size());
    }
    for (std::uint32_t f = 0; f < failed; ++f, at += report_failed_bytes) {
      if (Status s = check_failed(body.data() + at, i); !s.ok()) return s;
    }
  }
  if (at != body.size()) return bad("{} bytes behind {} entries", body.size() - at, entries);
  return {};
}

}  // namespace

ReportEncoder::ReportEncoder(std::span<std::uint8_t> buffer) : buffer_(buffer) {
  KVC_CHECK(buffer.size() >= report_header_bytes);
}

void ReportEncoder::begin(std::uint64_t epoch, std::uint32_t rank, std::uint64_t sequence) {
  used_ = report_header_bytes;
  epoch_ = epoch;
  rank_ = rank;
  sequence_ = sequence;
  entries_ = 0;
  inventory_bytes_ = 0;
  disk_state_ = DiskState::none;
}

bool ReportEncoder::add(const ReportJob& job, std::span<const FailedBlock> failed) {
  KVC_CHECK(used_ != 0 && inventory_bytes_ == 0);
  std::uint64_t left = buffer_.size() - used_;
  if (left < report_entry_bytes || entries_ == UINT32_MAX) return false;
  left -= report_entry_bytes;
  if (failed.size() > left / report_failed_bytes || failed.size() > UINT32_MAX) return false;
  std::uint8_t* at = buffer_.data() + used_;
  put(at + entry_job, job.job);
  put(at + entry_kind, static_cast<std::int32_t>(job.kind));
  put(at + entry_phase, static_cast<std::uint32_t>(job.phase));
  put(at + entry_status, static_cast<std::int32_t>(job.status));
  put(at + entry_failed, static_cast<std::uint32_t>(failed.size()));
  put(at + entry_moved, job.moved_bytes);
  at += report_entry_bytes;
  for (const FailedBlock& f : failed) {
    put(at + failed_group, f.group);
    put(at + failed_status, static_cast<std::int32_t>(f.status));
    put(at + failed_block, f.block);
    put(at + failed_position, f.position);
    put(at + failed_side, static_cast<std::int32_t>(f.side));
    put(at + failed_reserved, std::uint32_t{0});
    at += report_failed_bytes;
  }
  used_ = static_cast<std::uint64_t>(at - buffer_.data());
  ++entries_;
  return true;
}

bool ReportEncoder::set_inventory(std::span<const std::uint8_t> piece) {
  KVC_CHECK(used_ != 0);
  if (inventory_bytes_ != 0 || piece.size() > room()) return false;
  std::copy(piece.begin(), piece.end(), buffer_.begin() + static_cast<std::ptrdiff_t>(used_));
  used_ += piece.size();
  inventory_bytes_ = piece.size();
  return true;
}

std::span<const std::uint8_t> ReportEncoder::finish() {
  KVC_CHECK(used_ != 0);
  std::uint8_t* p = buffer_.data();
  put(p + at_epoch, epoch_);
  put(p + at_sequence, sequence_);
  put(p + at_rank, rank_);
  put(p + at_entries, entries_);
  put(p + at_inventory_bytes, inventory_bytes_);
  put(p + at_disk_state, static_cast<std::uint32_t>(disk_state_));
  const std::span<std::uint8_t> whole = buffer_.first(used_);
  wire::seal_header(whole, rules);
  return whole;
}

FailedBlock ReportEntry::failed(std::uint32_t i) const {
  KVC_CHECK(i < failed_);
  const std::uint8_t* p = at_ + std::uint64_t{i} * report_failed_bytes;
  FailedBlock f;
  f.group = get<std::uint32_t>(p + failed_group);
  f.block = get<std::int64_t>(p + failed_block);
  f.position = get<std::uint64_t>(p + failed_position);
  f.rank = rank_;
  f.status = static_cast<Code>(get<std::int32_t>(p + failed_status));
  f.side = static_cast<FailedSide>(get<std::int32_t>(p + failed_side));
  return f;
}

bool ReportReader::next(ReportEntry& entry) {
  if (left_ == 0) return false;
  --left_;
  entry.job_.job = get<std::uint64_t>(at_ + entry_job);
  entry.job_.kind = static_cast<JobKind>(get<std::int32_t>(at_ + entry_kind));
  entry.job_.phase = static_cast<ReportPhase>(get<std::uint32_t>(at_ + entry_phase));
  entry.job_.status = static_cast<Code>(get<std::int32_t>(at_ + entry_status));
  entry.job_.moved_bytes = get<std::uint64_t>(at_ + entry_moved);
  entry.failed_ = get<std::uint32_t>(at_ + entry_failed);
  entry.rank_ = rank_;
  entry.at_ = at_ + report_entry_bytes;
  at_ = entry.at_ + std::uint64_t{entry.failed_} * report_failed_bytes;
  return true;
}

Result<ReportView> ReportView::read(std::span<const std::uint8_t> bytes) {
  if (Status s = wire::check_header(bytes, rules); !s.ok()) return s;
  const std::uint8_t* p = bytes.data();
  const auto entries = get<std::uint32_t>(p + at_entries);
  const std::span<const std::uint8_t> body = bytes.subspan(report_header_bytes);
  const auto inventory = get<std::uint64_t>(p + at_inventory_bytes);
  if (inventory > body.size()) {
    return bad("an inventory of {} bytes in a body of {}", inventory, body.size());
  }
  const auto disk_state = get<std::uint32_t>(p + at_disk_state);
  if (disk_state > static_cast<std::uint32_t>(DiskState::off)) {
    return bad("the disk state is {}", disk_state);
  }
  if (Status s = check_body(body.first(body.size() - inventory), entries); !s.ok()) return s;
  ReportView view;
  view.epoch_ = get<std::uint64_t>(p + at_epoch);
  view.sequence_ = get<std::uint64_t>(p + at_sequence);
  view.entries_.at_ = bytes.data() + report_header_bytes;
  view.entries_.left_ = entries;
  view.entries_.rank_ = get<std::uint32_t>(p + at_rank);
  view.inventory_ = body.last(inventory);
  view.disk_state_ = static_cast<DiskState>(disk_state);
  return view;
}

}  // namespace kvc
