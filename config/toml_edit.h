// Changing one value of a TOML text and leaving the rest where it was. Internal to config/.
#pragma once
#include <string>
#include <string_view>

namespace kvc::config {

// `text` with [table] key = value, a value as TOML has it. Every other line stays as it is, in its
// place, so that a later error names the line that people see in their file: the key's own line is
// replaced, else a line of its table that is empty or a comment, else one at the end of the text.
// Where none of these can be, a line is added below the table's name; where the table stands in no
// lines of its own (host = {..}), the text is written anew.
// Throws Refused: `text` is not TOML, the table is none.
[[nodiscard]] std::string with_value(std::string_view text, std::string_view file,
                                     std::string_view table, std::string_view key,
                                     std::string_view value);

}  // namespace kvc::config
