// The report of a run as JSON, schema kvc.run/1 (docs/formats/run.md).
#pragma once
#include <string>

#include "host_stub/tools/run_report.h"

namespace kvc::host {

// The whole document with a final newline. Text that is not UTF-8 is shown with replacement
// characters; counts are exact.
[[nodiscard]] std::string to_json(const RunReport& report);

}  // namespace kvc::host
