// memcpy that leaves the caches alone. Internal to cuda/.
#pragma once
#include <cstddef>
#include <cstdint>

namespace kvc::copy_detail {

// From how many bytes on it pays to write past the caches: those of the largest one, but at most
// 32 MiB, because a larger one is shared with others. The same where the system does not say.
std::uint64_t streaming_bytes_default();

// As std::memcpy. Destinations are written past the caches: right when more is copied than fits in
// them and nobody reads it soon; otherwise slower. Whatever follows on this thread sees the bytes.
void copy_streaming(std::byte* dst, const std::byte* src, std::size_t bytes);

}  // namespace kvc::copy_detail
