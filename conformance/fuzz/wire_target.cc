// Any bytes are a safe plan and a safe report; what is accepted is read, and written back to the
// same bytes.
#include <algorithm>
#include <cstring>
#include <vector>

#include "conformance/fuzz/fuzz_target.h"
#include "plugin/offload/plan_format.h"
#include "plugin/offload/report_format.h"
#include "plugin/offload/wire.h"

namespace {

using namespace kvc;  // NOLINT: a program of one file
using fuzz::promise;
using Flat = std::vector<std::uint8_t>;

constexpr std::size_t plan_checksum = 48;    // docs/formats/plan.md
constexpr std::size_t report_checksum = 40;  // docs/formats/report.md

void check_same(std::span<const std::uint8_t> written, const Flat& read, const char* what) {
  promise(std::equal(written.begin(), written.end(), read.begin(), read.end()),
          std::string("a ") + what + " was written back to other bytes");
}

void check_plan(const Flat& bytes) {
  const auto plan = PlanView::read(bytes);
  if (!plan.ok()) return promise(!plan.error().text.empty(), "a refused plan without text");
  Flat room(bytes.size());
  PlanEncoder encoder(room);
  encoder.begin(plan.value().epoch(), plan.value().step());
  for (PlanReader reader : {plan.value().loads(), plan.value().stores()}) {
    PlanJob job;
    while (reader.next(job)) {
      promise(encoder.begin_job(job.kind(), job.job(), job.request(), job.outcome(), job.in_step()),
              "no room for a job");
      for (std::uint64_t i = 0; i < job.size(); ++i) {
        promise(encoder.add_copy(job.copy(i)), "no room for a copy");
      }
      encoder.end_job();
    }
  }
  check_same(encoder.finish(), bytes, "plan");
}

void check_report(const Flat& bytes) {
  const auto report = ReportView::read(bytes);
  if (!report.ok()) return promise(!report.error().text.empty(), "a refused report without text");
  Flat room(bytes.size());
  ReportEncoder encoder(room);
  encoder.begin(report.value().epoch(), report.value().rank(), report.value().sequence());
  ReportReader reader = report.value().entries();
  ReportEntry entry;
  while (reader.next(entry)) {
    std::vector<FailedBlock> failed;
    for (std::uint32_t i = 0; i < entry.failed_count(); ++i) failed.push_back(entry.failed(i));
    promise(encoder.add(entry.job(), failed), "no room for an entry");
  }
  check_same(encoder.finish(), bytes, "report");
}

// With right lengths and checksum, so that what lies behind them is reached.
Flat sealed(Flat bytes, std::size_t checksum) {
  if (bytes.size() < checksum + 8) return bytes;
  wire::put(bytes.data() + wire::at_total, std::uint64_t{bytes.size()});
  wire::put(bytes.data() + checksum, wire::checksum(bytes, checksum));
  return bytes;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Flat bytes(data, data + size);
  check_plan(bytes);
  check_report(bytes);
  check_plan(sealed(bytes, plan_checksum));
  check_report(sealed(bytes, report_checksum));
  return 0;
}
