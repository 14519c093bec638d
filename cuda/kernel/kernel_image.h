// The compiled kernel, carried by the library.
#pragma once

namespace kvc::cuda {

// A fat binary for the driver (cuModuleLoadData), of copy_fragments.cu; null in a build without
// KVC_CUDA.
const void* kernel_image();

}  // namespace kvc::cuda
