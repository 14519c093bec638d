#include "host_stub/tools/run_driver.h"
namespace kvc::host {
Result<RunReport> run_passes(const RunOptions&, const RunInputs&, Progress&) {
  return Status{Code::unsupported, "x"};
}
}  // namespace kvc::host
