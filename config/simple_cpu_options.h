// Options of the simple_cpu connector: TOML text to a plain struct, and back.
#pragma once
#include <string>
#include <string_view>

#include "config/parsed.h"
#include "config/shared_options.h"

namespace kvc::config {

enum class StoreMode { eager, lazy };

// Validated once by parse_simple_cpu, immutable after.
struct SimpleCpuOptions : SharedOptions {
  // [connector]
  // eager: a block is stored in the step that fills it; lazy: when the engine is about to evict it
  StoreMode mode = StoreMode::eager;

  friend bool operator==(const SimpleCpuOptions&, const SimpleCpuOptions&) = default;
};

// Options from TOML text; an empty text gives the defaults above. `file` is the name used in
// messages. Errors: not TOML, unknown table or key (with the allowed ones and the nearest), wrong
// type, value out of range, store_decode_blocks = false in lazy mode (the connector cannot know
// which request filled a block), another eviction than lru in lazy mode or with a flat index, a
// pool below two blocks. Any bytes are safe input.
Parsed<SimpleCpuOptions> parse_simple_cpu(std::string_view text, std::string_view file);

// All values, defaults included, as TOML that parse_simple_cpu reads back to an equal struct.
[[nodiscard]] std::string effective_toml(const SimpleCpuOptions& options);

}  // namespace kvc::config
