// The gather/scatter kernel: a warp copies a fragment, between device memory and page-locked host
// memory that the device reads and writes over the bus.
#include "cuda/kernel/copy_fragments.h"

extern "C" __global__ void __launch_bounds__(kvc::cuda::fragment_block)
    kvc_copy_fragments(const kvc::cuda::Fragment* table, std::uint32_t count) {
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned groups = gridDim.x * blockDim.x / kvc::cuda::fragment_lanes;
  kvc::cuda::copy_fragments(table, count, thread / kvc::cuda::fragment_lanes, groups,
                            thread % kvc::cuda::fragment_lanes, kvc::cuda::fragment_lanes);
}
