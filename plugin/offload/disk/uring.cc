#include "plugin/offload/disk/uring.h"

#include <fmt/format.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "plugin/offload/disk/files.h"

namespace kvc::disk {

namespace {

std::uint32_t load_acquire(std::uint32_t* at) {
  return std::atomic_ref<std::uint32_t>(*at).load(std::memory_order_acquire);
}

void store_release(std::uint32_t* at, std::uint32_t value) {
  std::atomic_ref<std::uint32_t>(*at).store(value, std::memory_order_release);
}

constexpr std::uint8_t operations[] = {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_FSYNC,
                                       IORING_OP_FALLOCATE};

Status refused(const char* what, int error) {
  return {Code::unsupported, fmt::format("io_uring: {}: {}", what, errno_text(-error))};
}

}  // namespace

Uring::~Uring() {
  if (sqes_ != nullptr) ::munmap(sqes_, sqes_bytes_);
  if (rings_ != nullptr) ::munmap(rings_, rings_bytes_);
  if (fd_ >= 0) ::close(fd_);
}

Status Uring::open(std::uint32_t entries) {
  KVC_CHECK(fd_ < 0);
  io_uring_params params{};
  fd_ = static_cast<int>(::syscall(SYS_io_uring_setup, entries, &params));
  if (fd_ < 0) return refused("setup", errno);
  if ((params.features & IORING_FEAT_SINGLE_MMAP) == 0 ||
      (params.features & IORING_FEAT_NODROP) == 0) {
    return {Code::unsupported, "io_uring: the kernel is older than 5.5"};
  }
  if (Status s = check_operations(); !s.ok()) return s;
  return map(params);
}

Status Uring::check_operations() const {
  constexpr std::size_t count = 256;
  alignas(io_uring_probe)
      std::byte room[sizeof(io_uring_probe) + count * sizeof(io_uring_probe_op)]{};
  auto* const probe = reinterpret_cast<io_uring_probe*>(room);
  if (::syscall(SYS_io_uring_register, fd_, IORING_REGISTER_PROBE, probe, count) < 0) {
    return refused("probe", errno);
  }
  const auto* const ops = reinterpret_cast<const io_uring_probe_op*>(room + sizeof(io_uring_probe));
  for (const std::uint8_t op : operations) {
    if (op > probe->last_op || (ops[op].flags & IO_URING_OP_SUPPORTED) == 0) {
      return {Code::unsupported, fmt::format("io_uring: operation {} is missing", op)};
    }
  }
  return {};
}

Status Uring::map(const io_uring_params& params) {
  entries_ = params.sq_entries;
  rings_bytes_ =
      std::max<std::size_t>(params.sq_off.array + params.sq_entries * sizeof(std::uint32_t),
                            params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
  void* const rings = ::mmap(nullptr, rings_bytes_, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_POPULATE, fd_, IORING_OFF_SQ_RING);
  if (rings == MAP_FAILED) return refused("mapping the rings", errno);
  rings_ = static_cast<std::byte*>(rings);
  sqes_bytes_ = params.sq_entries * sizeof(io_uring_sqe);
  void* const sqes = ::mmap(nullptr, sqes_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                            fd_, IORING_OFF_SQES);
  if (sqes == MAP_FAILED) return refused("mapping the entries", errno);
  sqes_ = static_cast<io_uring_sqe*>(sqes);
  const auto number = [&](std::uint32_t at) {
    return reinterpret_cast<std::uint32_t*>(rings_ + at);
  };
  sq_head_ = number(params.sq_off.head);
  sq_tail_ = number(params.sq_off.tail);
  sq_array_ = number(params.sq_off.array);
  sq_mask_ = *number(params.sq_off.ring_mask);
  cq_head_ = number(params.cq_off.head);
  cq_tail_ = number(params.cq_off.tail);
  cq_mask_ = *number(params.cq_off.ring_mask);
  cqes_ = reinterpret_cast<io_uring_cqe*>(rings_ + params.cq_off.cqes);
  return {};
}

bool Uring::push(const IoCall& call, std::uint64_t id) {
  const std::uint32_t tail = *sq_tail_;
  if (tail - load_acquire(sq_head_) == entries_) return false;
  const std::uint32_t at = tail & sq_mask_;
  io_uring_sqe& e = sqes_[at];
  std::memset(&e, 0, sizeof e);
  e.fd = call.fd;
  e.user_data = id;
  e.off = call.offset;
  switch (call.kind) {
    case IoKind::read:
    case IoKind::write:
      e.opcode = call.kind == IoKind::read ? IORING_OP_READ : IORING_OP_WRITE;
      e.addr = reinterpret_cast<std::uintptr_t>(call.memory);
      // Longer than 1 GiB: a short transfer, which its task goes on with.
      e.len = static_cast<std::uint32_t>(std::min<std::uint64_t>(call.bytes, 1U << 30U));
      break;
    case IoKind::sync:
      e.opcode = IORING_OP_FSYNC;
      e.off = 0;
      e.fsync_flags = IORING_FSYNC_DATASYNC;
      break;
    case IoKind::punch:
      e.opcode = IORING_OP_FALLOCATE;
      e.addr = call.bytes;
      e.len = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
      break;
    case IoKind::none:
      KVC_CHECK(false);
  }
  sq_array_[at] = at;
  store_release(sq_tail_, tail + 1);
  ++pushed_;
  return true;
}

int Uring::submit(std::uint32_t wait_for) {
  const unsigned flags = wait_for == 0 ? 0U : static_cast<unsigned>(IORING_ENTER_GETEVENTS);
  const auto took =
      ::syscall(SYS_io_uring_enter, fd_, pushed_, wait_for, flags, nullptr, std::size_t{0});
  if (took < 0) return -errno;
  pushed_ -= static_cast<std::uint32_t>(took);
  return 0;
}

bool Uring::pop(Done& done) {
  const std::uint32_t head = *cq_head_;
  if (head == load_acquire(cq_tail_)) return false;
  const io_uring_cqe& e = cqes_[head & cq_mask_];
  done = {e.user_data, e.res};
  store_release(cq_head_, head + 1);
  return true;
}

}  // namespace kvc::disk
