#include "host_stub/engine/key_chain.h"

#include <cstring>

#include <xxhash.h>

namespace kvc::host {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "keys are hashes of little-endian tokens");

void hash_to(std::span<const std::byte> input, std::byte* out) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(input.data(), input.size()));
  static_assert(sizeof canonical == engine_key_bytes);
  std::memcpy(out, &canonical, sizeof canonical);
}

}  // namespace

KeyChain::KeyChain(std::uint64_t hash_unit, std::uint64_t seed, std::string_view salt)
    : unit_(hash_unit), extra_(salt.size()) {
  KVC_CHECK(hash_unit > 0);
  if (!salt.empty()) std::memcpy(extra_.data(), salt.data(), salt.size());
  std::byte text[16] = {};
  std::memcpy(text, "kvc root", 8);
  std::memcpy(text + 8, &seed, 8);
  hash_to(text, root_);
}

std::uint64_t KeyChain::extend(std::span<const TokenId> tokens) {
  const std::uint64_t before = count();
  const std::uint64_t units = tokens.size() / unit_;
  const std::size_t token_bytes = unit_ * sizeof(TokenId);
  for (std::uint64_t i = before; i < units; ++i) {
    const std::size_t extra = i == 0 ? extra_.size() : 0;
    input_.resize(engine_key_bytes + token_bytes + extra);
    const std::byte* parent = i == 0 ? root_ : bytes_.data() + (i - 1) * engine_key_bytes;
    std::memcpy(input_.data(), parent, engine_key_bytes);
    std::memcpy(input_.data() + engine_key_bytes, tokens.data() + i * unit_, token_bytes);
    if (extra > 0)
      std::memcpy(input_.data() + engine_key_bytes + token_bytes, extra_.data(), extra);
    bytes_.resize(bytes_.size() + engine_key_bytes);
    hash_to(input_, bytes_.data() + i * engine_key_bytes);
  }
  return count() - before;
}

}  // namespace kvc::host
