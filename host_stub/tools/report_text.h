// The report of a run as text for a person.
#pragma once
#include <cstdint>
#include <string>

#include "host_stub/tools/run_report.h"

namespace kvc::host {

// The geometry of the model: one line per group, hash unit, scheduler block, sim_bytes_per_token.
[[nodiscard]] std::string geometry_text(const ModelReport& model);

// One column per pass, then the non-zero outcomes of the offers, then leaks and the verdict.
[[nodiscard]] std::string report_text(const RunReport& report);

// 1234567 as "1,234,567".
[[nodiscard]] std::string grouped(std::uint64_t value);
// Bytes with a binary unit, three digits: "1.46 GiB".
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);

}  // namespace kvc::host
