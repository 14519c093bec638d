// Any text is safe input of the readers of TOML, and what they print is read back to the same.
#include <string_view>

#include "config/model_config.h"
#include "config/simple_cpu_options.h"
#include "conformance/fuzz/fuzz_target.h"

namespace {

using kvc::fuzz::promise;

void check_error(const std::string& text) {
  promise(text.starts_with("file:"), "an error names no place: " + text);
  promise(text.size() < 1200, "an error has " + std::to_string(text.size()) + " bytes");
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    promise(byte >= 0x20 && byte != 0x7f, "a control byte in: " + text);
  }
}

template <class Parse>
void check(Parse&& parse, std::string_view text) {
  const auto first = parse(text);
  if (!first.ok()) return check_error(first.error().text);
  const std::string printed = effective_toml(first.value());
  const auto again = parse(printed);
  promise(again.ok(), "what was printed is refused: " + printed);
  promise(again.value() == first.value(), "what was printed reads as something else: " + printed);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check([](std::string_view t) { return kvc::config::parse_simple_cpu(t, "file"); }, text);
  check([](std::string_view t) { return kvc::config::parse_model(t, "file"); }, text);
  return 0;
}
