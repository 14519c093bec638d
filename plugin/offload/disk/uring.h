// One io_uring, by the system calls alone: no library has to be installed where a connector runs.
#pragma once
#include <linux/io_uring.h>

#include <cstddef>
#include <cstdint>

#include "plugin/core/result.h"
#include "plugin/offload/disk/io_engine.h"

namespace kvc::disk {

// Threads:    one user.
// Owns:       the ring and its mappings.
// Invariants: at most entries() calls are pushed and not submitted; completions are never lost as
//             long as fewer than 2 * entries() calls are open.
class Uring {
 public:
  struct Done {
    std::uint64_t id = 0;
    std::int32_t result = 0;
  };

  Uring() = default;
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;
  ~Uring();

  // Once. unsupported, with the reason, also if an operation that tasks need is missing.
  Status open(std::uint32_t entries);
  [[nodiscard]] std::uint32_t entries() const { return entries_; }

  // False: the submission queue is full; submit first.
  [[nodiscard]] bool push(const IoCall& call, std::uint64_t id);
  // Hands over what was pushed and waits until `wait_for` calls have ended. Negative errno.
  int submit(std::uint32_t wait_for);
  // False: nothing has ended.
  [[nodiscard]] bool pop(Done& done);

 private:
  Status map(const io_uring_params& params);
  [[nodiscard]] Status check_operations() const;

  int fd_ = -1;
  std::uint32_t entries_ = 0;
  std::uint32_t pushed_ = 0;
  std::byte* rings_ = nullptr;
  std::size_t rings_bytes_ = 0;
  io_uring_sqe* sqes_ = nullptr;
  std::size_t sqes_bytes_ = 0;
  std::uint32_t* sq_head_ = nullptr;
  std::uint32_t* sq_tail_ = nullptr;
  std::uint32_t* sq_array_ = nullptr;
  std::uint32_t sq_mask_ = 0;
  std::uint32_t* cq_head_ = nullptr;
  std::uint32_t* cq_tail_ = nullptr;
  io_uring_cqe* cqes_ = nullptr;
  std::uint32_t cq_mask_ = 0;
};

}  // namespace kvc::disk
