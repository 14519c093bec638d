// The fat binary that nvcc made of copy_fragments.cu, in the library's read-only data.
#include "cuda/kernel/kernel_image.h"

asm(".section .rodata\n"
    ".balign 64\n"
    ".hidden kvc_kernel_fatbin\n"
    ".global kvc_kernel_fatbin\n"
    "kvc_kernel_fatbin:\n"
    ".incbin \"" KVC_KERNEL_FATBIN
    "\"\n"
    ".previous\n");

extern "C" const char kvc_kernel_fatbin[];

namespace kvc::cuda {

const void* kernel_image() { return kvc_kernel_fatbin; }

}  // namespace kvc::cuda
