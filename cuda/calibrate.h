// From which size on one batched call is faster than the kernel, measured on the device.
#pragma once
#include "cuda/cuda_copy_engine.h"

namespace kvc {

// A threshold that is to be measured.
inline constexpr Bytes kernel_below_measured{UINT64_MAX};
// What is used where nothing is measured: as in the peer.
inline constexpr Bytes kernel_below_default{28u << 10};

// Replaces thresholds that are to be measured. It copies some MiB of its own through engines of its
// own, with the caller's thread waiting: some ten milliseconds, for an open. A host that steps has
// no clock and gets the default; on a device without kernel the outcome does not matter. Errors:
// those of CudaCopyEngine.
Status calibrate(CudaCopyOptions& options);

}  // namespace kvc
