// The table [layer] in a text of connector options. It is for the layer between engine and
// connector (docs/conformance.md), which takes it out before the connector sees the text.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "config/parsed.h"

namespace kvc::config {

struct LayerTable {
  std::optional<std::string> next;      // path of the real connector
  std::optional<std::string> record;    // file
  std::optional<std::string> findings;  // file
  std::optional<bool> guard;
  bool there = false;
  std::string rest;  // the text for the connector; unchanged where there is no table
};

// Takes the table out: its lines become empty, so that the lines of all others keep their numbers.
// A text that is no TOML is not the layer's to refuse: it comes back unchanged. Errors: a key or
// value of the table that is not allowed; options of the layer that stand elsewhere.
Parsed<LayerTable> take_layer_table(std::string_view text, std::string_view file);

}  // namespace kvc::config
