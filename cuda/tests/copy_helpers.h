// Shared by the tests of the copy engine.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "cuda/host_copy_engine.h"

namespace kvc::copy_test {

inline std::unique_ptr<HostCopyEngine> make_engine(const HostCopyOptions& options) {
  auto made = HostCopyEngine::create(options);
  if (!made.ok()) throw std::runtime_error(made.error().text);
  return std::move(made.value());
}

inline std::unique_ptr<HostCopyEngine> make_stepped(CopyFault* fault = nullptr) {
  HostCopyOptions o;
  o.workers = 0;
  o.operations_max = 64;
  o.runs_max = 4096;
  o.predecessors_max = 64;
  o.fault = fault;
  return make_engine(o);
}

inline std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    out[i] = static_cast<std::byte>((i * 131 + std::size_t{seed} * 29 + 7) & 0xff);
  return out;
}

// One operation with its descriptors.
struct Plan {
  std::uint64_t id = 0;
  CopyDirection direction = CopyDirection::store;
  std::vector<CopyDescriptor> copies;
  std::vector<std::uint64_t> after;

  [[nodiscard]] CopyOperation operation() const { return {id, direction, copies, after}; }
};

inline Status submit(CopyEngine& engine, const std::vector<Plan>& plans, Fence fence = {}) {
  std::vector<CopyOperation> ops;
  ops.reserve(plans.size());
  for (const Plan& p : plans) ops.push_back(p.operation());
  return engine.submit({fence, ops});
}

inline std::vector<CopyCompletion> poll_all(CopyEngine& engine) {
  std::vector<CopyCompletion> out;
  CopyCompletion some[3];
  while (const std::size_t n = engine.poll(some)) out.insert(out.end(), some, some + n);
  return out;
}

inline std::vector<std::uint64_t> ids(const std::vector<CopyCompletion>& completions) {
  std::vector<std::uint64_t> out;
  out.reserve(completions.size());
  for (const CopyCompletion& c : completions) out.push_back(c.id);
  return out;
}

}  // namespace kvc::copy_test
