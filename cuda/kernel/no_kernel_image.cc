#include "cuda/kernel/kernel_image.h"

namespace kvc::cuda {

const void* kernel_image() { return nullptr; }

}  // namespace kvc::cuda
