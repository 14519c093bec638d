// The geometry of a model file.
#pragma once
#include <cstdint>

#include "config/model_config.h"
#include "plugin/coordinator/geometry.h"
#include "plugin/core/result.h"

namespace kvc::host {

// Errors: those of Geometry::make.
Result<Geometry> geometry_of(const config::ModelConfig& model, bool draft_drop = false,
                             std::int64_t retention_tokens = -1);

}  // namespace kvc::host
