// The report of a run as one self-contained SVG picture.
#pragma once
#include <string>

#include "host_stub/tools/run_report.h"

namespace kvc::host {

// Two panels over the requests in the order in which they finished, all passes side by side:
// above, stacked bars of prompt tokens per request by source (mean of a bin of requests); below,
// lines of how full the device and the host pool were. An unlimited pool is drawn against its own
// peak. Well-formed for any names; a run without requests gives empty panels.
[[nodiscard]] std::string to_svg(const RunReport& report);

}  // namespace kvc::host
