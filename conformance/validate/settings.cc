#include "conformance/validate/settings.h"

#include <cstdlib>

#include <fmt/format.h>

#include "config/layer_table.h"
#include "host_stub/tools/program_files.h"

namespace kvc::validate {
namespace {

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

Result<Settings> environment_settings() {
  Settings s;
  s.next = environment("KVC_LAYER_NEXT");
  s.record = environment("KVC_LAYER_RECORD");
  s.findings = environment("KVC_LAYER_FINDINGS");
  const std::string guard = environment("KVC_LAYER_GUARD");
  s.guard = guard == "1" || guard == "true";
  if (!s.guard && !guard.empty() && guard != "0" && guard != "false") {
    return Status{Code::arg, fmt::format("KVC_LAYER_GUARD is \"{}\"; 1, true, 0, false or nothing "
                                         "is allowed",
                                         config::one_line(guard, 60))};
  }
  return s;
}

Result<LayerText> split_layer_table(std::string_view toml, const Settings& from_environment) {
  auto table = config::take_layer_table(toml, "config_toml");
  if (!table.ok()) return Status{Code::arg, table.error().text};
  config::LayerTable& t = table.value();
  LayerText text{from_environment, std::move(t.rest), t.there};
  if (t.next) text.settings.next = *t.next;
  if (t.record) text.settings.record = *t.record;
  if (t.findings) text.settings.findings = *t.findings;
  if (t.guard) text.settings.guard = *t.guard;
  const Settings& s = text.settings;
  const auto twice = host::file_named_twice({{"layer.record (KVC_LAYER_RECORD)", s.record},
                                             {"layer.findings (KVC_LAYER_FINDINGS)", s.findings}},
                                            {{"layer.next (KVC_LAYER_NEXT)", s.next}});
  if (twice) return Status{Code::arg, *twice};
  return text;
}

}  // namespace kvc::validate
