// Calls as values turned back into the structs of kvc.h: for replays, and for guard pages.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <kvc/kvc.h>
#include <kvc/kvc_layerwise.h>
#include <kvc/kvc_retention.h>

#include "conformance/validate/calls.h"

namespace kvc::validate {

// Memory for the structs of one call.
class Arena {
 public:
  virtual ~Arena() = default;
  // `bytes` zero bytes, aligned for everything in kvc.h. NULL: there is no more.
  [[nodiscard]] virtual void* take(std::size_t bytes) = 0;
};

// Threads:    one. Owns: what it gave, until clear().
// Invariants: none.
class HeapArena final : public Arena {
 public:
  void* take(std::size_t bytes) override;
  void clear() { pieces_.clear(); }

 private:
  std::vector<std::unique_ptr<std::max_align_t[]>> pieces_;
};

// The structs of a call; what they point to lies in the arena too. NULL: it had no room.
const kvc_open* c_open(Arena& a, const OpenIn& in);
const kvc_list* c_ranks(Arena& a, const SetRanksIn& in);
const kvc_request* c_begin(Arena& a, const BeginIn& in);
const kvc_extend* c_extend(Arena& a, const ExtendIn& in);
const kvc_lookup_in* c_lookup(Arena& a, const LookupIn& in);
const kvc_retention_in* c_retention(Arena& a, const RetentionIn& in);
const kvc_load_in_step* c_in_step(Arena& a, const InStepIn& in);
const kvc_alloc_in* c_alloc(Arena& a, const AllocIn& in);
const kvc_step* c_step(Arena& a, const StepIn& in);
const kvc_bytes* c_reports(Arena& a, const std::vector<ByteString>& reports);
const kvc_end_in* c_end(Arena& a, const EndIn& in);
const kvc_list* c_regions(Arena& a, const RegionsIn& in);
bool c_bytes(Arena& a, const ByteString& bytes, kvc_bytes& out);

}  // namespace kvc::validate
