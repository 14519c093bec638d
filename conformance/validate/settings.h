// What the layer itself is told: by the environment, or by the [layer] table of the TOML of open.
#pragma once
#include <string>
#include <string_view>

#include "plugin/core/result.h"

namespace kvc::validate {

struct Settings {
  std::string next;      // path of the real connector
  std::string record;    // file; empty: no recording
  std::string findings;  // file of JSON lines; empty: none
  bool guard = false;
};

// KVC_LAYER_NEXT, KVC_LAYER_RECORD, KVC_LAYER_FINDINGS, KVC_LAYER_GUARD. Errors: arg: a guard that
// is neither "1" nor "true", "0", "false" or empty.
Result<Settings> environment_settings();

struct LayerText {
  Settings settings;
  std::string rest;        // the TOML for the next connector
  bool had_table = false;  // false: rest is the text unchanged
};

// Takes the [layer] table out of a connector's TOML: its lines become empty, so that the lines of
// all others keep their numbers. What the table says wins over `from_environment`. A text that is
// no TOML is not the layer's to refuse: it passes unchanged. Errors: arg, naming key and value; a
// file to be written that is the other one, or the connector.
Result<LayerText> split_layer_table(std::string_view toml, const Settings& from_environment);

}  // namespace kvc::validate
