// What a connector put out, as it was: it must stay so until the next call of the same slot on the
// same handle (KVC-P-016).
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <kvc/kvc.h>
#include <kvc/kvc_retention.h>

#include "conformance/validate/model.h"
#include "conformance/validate/slots.h"

namespace kvc::validate {

// Ranges of the connector's memory.
struct Range {
  const void* data = nullptr;
  std::uint64_t bytes = 0;
};
using Ranges = std::vector<Range>;

// The lists and bytes behind an out-struct, nested ones too. What cannot be stepped through is left
// out.
Ranges ranges_of(const kvc_list& plain);
Ranges ranges_of(const kvc_alloc_out& out);
Ranges ranges_of(const kvc_plan& out);
Ranges ranges_of(const kvc_complete_out& out);
Ranges ranges_of(const kvc_end_out& out);
Ranges ranges_of(const kvc_rank_info& out);
Ranges ranges_of(const kvc_retention_out& out);
Ranges ranges_of(const kvc_progress& out);

// Threads:    one caller at a time, as the slots that it serves.
// Owns:       hashes; the memory is the connector's. Invariants: none.
class Outputs {
 public:
  void keep(Slot slot, const Ranges& ranges);
  // The slot is called again. Not empty: what changed since.
  [[nodiscard]] std::string changed(Slot slot);

 private:
  struct Kept {
    Range range;
    KeyId hash;
  };
  std::array<std::vector<Kept>, static_cast<std::size_t>(Slot::count)> kept_;
};

}  // namespace kvc::validate
