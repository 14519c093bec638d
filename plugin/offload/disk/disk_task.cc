#include "plugin/offload/disk/disk_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "plugin/offload/wire.h"

namespace kvc::disk {

namespace {

Code code_of(std::int32_t error) {
  return error == ENOSPC || error == EDQUOT ? Code::full : Code::io;
}

std::byte* bytes_of(std::span<std::uint8_t> bytes) {
  return reinterpret_cast<std::byte*>(bytes.data());
}

}  // namespace

void DiskTask::prepare() {
  status = Code::ok;
  error = 0;
  corrupt = false;
  record_touched = false;
  detail = {};
  phase_.store(Phase::waiting);
  stage_ = Stage::begin;
  call_ = {};
  moved_ = 0;
}

bool DiskTask::give_up() {
  return advance(Phase::waiting, Phase::gone) || advance(Phase::quiet, Phase::gone) || given_up();
}

// An exception must not end the engine's process (design 2.5.5).
IoCall DiskTask::step(IoResult result) {
  try {
    return guarded_step(result);
  } catch (...) {
    return fail(Code::internal, 0);
  }
}

IoCall DiskTask::guarded_step(IoResult result) {
  if (stage_ == Stage::begin) return begin();
  if (result < 0)
    return fail(code_of(static_cast<std::int32_t>(-result)), static_cast<std::int32_t>(-result));
  if (call_.kind == IoKind::read || call_.kind == IoKind::write) {
    const auto n = static_cast<std::uint64_t>(result);
    if (n < call_.bytes) {
      // The rest again, from an aligned offset on: O_DIRECT takes no other.
      const std::uint64_t whole = std::min(n, call_.bytes) / alignment * alignment;
      if (whole == 0) {
        corrupt = kind == TaskKind::read && !given_up();
        if (corrupt) {
          detail = {Code::io, fmt::format("block: {} bytes of {} can be read", moved_ + n,
                                          moved_ + call_.bytes)};
        }
        return fail(Code::io, 0);
      }
      moved_ += whole;
      call_.memory += whole;
      call_.offset += whole;
      call_.bytes -= whole;
      return call_;
    }
  }
  return after(result);
}

IoCall DiskTask::begin() {
  stage_ = Stage::first;
  if (!advance(Phase::waiting, Phase::working)) return end();
  switch (kind) {
    case TaskKind::write: {
      if (!take_buffer()) return fail(Code::full, 0);
      std::memcpy(buffer().data() + block_header_bytes, memory, header.payload_bytes);
      seal_block(header, buffer(), shared->summed);
      break;
    }
    case TaskKind::read:
      if (!take_buffer()) return fail(Code::full, 0);
      break;
    case TaskKind::superblock:
    case TaskKind::probe:
      if (!take_buffer()) return fail(Code::full, 0);
      if (kind == TaskKind::superblock) {
        write_superblock(superblock, buffer());
      } else {
        std::fill(buffer().begin(), buffer().end(), static_cast<std::uint8_t>(record.sequence));
      }
      break;
    case TaskKind::record:
    case TaskKind::punch:
      break;
  }
  if (!advance(Phase::working, Phase::quiet)) return fail(Code::internal, 0);
  const std::uint64_t at = record.place * place_bytes(header.payload_bytes);
  switch (kind) {
    case TaskKind::write:
      return call_ = {IoKind::write, data_fd, bytes_of(buffer()), buffer_bytes_, at};
    case TaskKind::read:
      return call_ = {IoKind::read, data_fd, bytes_of(buffer()), buffer_bytes_, at};
    case TaskKind::record:
      return write_record_call();
    case TaskKind::punch:
      return call_ = {IoKind::punch, data_fd, nullptr, place_bytes(header.payload_bytes), at};
    case TaskKind::superblock:
      return call_ = {IoKind::write, shared->superblock_fd, bytes_of(buffer()), superblock_bytes,
                      superblock.generation % 2 * superblock_bytes};
    case TaskKind::probe:
      return call_ = {IoKind::write, shared->probe_fd, bytes_of(buffer()), alignment, 0};
  }
  return fail(Code::internal, 0);
}

// The call that is out has moved all its bytes.
IoCall DiskTask::after(IoResult /*result*/) {
  moved_ = 0;
  // Given up: a block whose caller was told that it failed must not appear.
  if (given_up() && kind != TaskKind::record && kind != TaskKind::punch) return end();
  switch (kind) {
    case TaskKind::read:
      return finish_read();
    case TaskKind::record:
    case TaskKind::write:
    case TaskKind::punch:
      return after_data();
    case TaskKind::superblock:
      if (stage_ == Stage::last) return end();
      stage_ = Stage::last;
      return call_ = {IoKind::sync, shared->superblock_fd, nullptr, 0, 0};
    case TaskKind::probe:
      return check_probe();
  }
  return fail(Code::internal, 0);
}

// write: data, [sync], record, [sync]. punch: hole, record. record: record, [sync].
IoCall DiskTask::after_data() {
  if (stage_ == Stage::first && kind == TaskKind::write && shared->sync) {
    stage_ = Stage::synced;
    return call_ = {IoKind::sync, data_fd, nullptr, 0, 0};
  }
  const bool recorded = stage_ == Stage::recorded || (stage_ == Stage::first && record_touched);
  if (!recorded && stage_ != Stage::last) return write_record_call();
  if (stage_ != Stage::last && shared->sync) {
    stage_ = Stage::last;
    return call_ = {IoKind::sync, index_fd, nullptr, 0, 0};
  }
  return end();
}

IoCall DiskTask::write_record_call() {
  stage_ = Stage::recorded;
  record_touched = true;
  write_record(record, record_bytes_);
  return call_ = {IoKind::write, index_fd, bytes_of(record_bytes_), record_bytes,
                  record.place * record_bytes};
}

IoCall DiskTask::finish_read() {
  const auto read = read_block(buffer(), shared->summed);
  if (!read.ok()) {
    corrupt = true;
    detail = read.error();
    return fail(Code::io, 0);
  }
  BlockHeader expected = header;
  expected.what.has_parent = read.value().what.has_parent;
  expected.what.parent = read.value().what.parent;
  expected.valid_bytes = read.value().valid_bytes;
  if (read.value() != expected) {
    corrupt = true;
    detail = {Code::io,
              fmt::format("block: the place holds group {} end {} sequence {} "
                          "generation {}, wanted are group {} end {} sequence {} "
                          "generation {}, or key, namespace or length differ",
                          read.value().what.group, read.value().what.end_tokens,
                          read.value().sequence, read.value().generation, header.what.group,
                          header.what.end_tokens, header.sequence, header.generation)};
    return fail(Code::io, 0);
  }
  header = read.value();
  if (!advance(Phase::quiet, Phase::delivering)) return end();
  std::memcpy(memory, buffer().data() + block_header_bytes, header.payload_bytes);
  return end();
}

IoCall DiskTask::check_probe() {
  const auto pattern = static_cast<std::uint8_t>(record.sequence);
  if (stage_ == Stage::first) {
    std::fill(buffer().begin(), buffer().end(), static_cast<std::uint8_t>(~pattern));
    stage_ = Stage::second;
    return call_ = {IoKind::read, shared->probe_fd, bytes_of(buffer()), alignment, 0};
  }
  const bool same = std::all_of(buffer().begin(), buffer().begin() + alignment,
                                [&](std::uint8_t b) { return b == pattern; });
  return same ? end() : fail(Code::io, 0);
}

IoCall DiskTask::fail(Code code, std::int32_t why) {
  status = code;
  error = why;
  return end();
}

IoCall DiskTask::end() {
  if (buffer_ != no_buffer) shared->staging.give_back(buffer_);
  buffer_ = no_buffer;
  // Given up stays given up.
  Phase now = phase_.load();
  while (now != Phase::gone && !phase_.compare_exchange_weak(now, Phase::done)) {
  }
  return call_ = {};
}

bool DiskTask::take_buffer() {
  buffer_ = shared->staging.take();
  const bool block = kind == TaskKind::write || kind == TaskKind::read;
  buffer_bytes_ = block ? place_bytes(header.payload_bytes) : alignment;
  return buffer_ != no_buffer;
}

std::span<std::uint8_t> DiskTask::buffer() const {
  return {reinterpret_cast<std::uint8_t*>(shared->staging.bytes(buffer_)), buffer_bytes_};
}

}  // namespace kvc::disk
