// Guard pages: what is passed in lies on pages of its own that can only be read, and is gone when
// the call returns (KVC-P-017). A connector that keeps a pointer, or writes through one, crashes at
// the place.
#pragma once
#include <cstddef>
#include <cstdint>

#include "conformance/validate/c_structs.h"

namespace kvc::validate {

// Threads:    one.
// Owns:       a range of addresses. Invariants: after close() no byte of it can be read; the
//             addresses stay taken for a while, so that nothing else comes to lie there.
class GuardPages final : public Arena {
 public:
  GuardPages() = default;
  ~GuardPages() override { close(); }
  GuardPages(const GuardPages&) = delete;
  GuardPages& operator=(const GuardPages&) = delete;

  void* take(std::size_t bytes) override;
  // What was taken can be read, not written, from now on.
  void lock();
  void close();

 private:
  std::uint8_t* base_ = nullptr;
  std::size_t used_ = 0;
};

}  // namespace kvc::validate
