#include "plugin/offload/report_format.h"

#include <boost/test/unit_test.hpp>

#include "plugin/offload/tests/format_bytes.h"
#include "plugin/offload/wire.h"
#include "plugin/tests/seed.h"

namespace kvc {
namespace {

using format_test::Buffer;
using format_test::exact;

constexpr ReportJob late{100, JobKind::load, ReportPhase::deadline, Code::deadline, 0};
constexpr ReportJob failed_store{101, JobKind::store, ReportPhase::ended, Code::io, 4096};

std::vector<FailedBlock> one_failed() {
  FailedBlock f;
  f.group = 1;
  f.block = 42;
  f.position = 5;
  f.rank = 3;
  f.status = Code::io;
  f.side = FailedSide::source;
  return {f};
}

// The example of docs/formats/report.md.
std::span<const std::uint8_t> example(ReportEncoder& e) {
  e.begin(0x1122334455667788, 3, 9);
  BOOST_REQUIRE(e.add(late, {}));
  BOOST_REQUIRE(e.add(failed_store, one_failed()));
  return e.finish();
}

BOOST_AUTO_TEST_SUITE(report_format)

BOOST_AUTO_TEST_CASE(a_report_reads_back_what_was_written) {
  Buffer buffer(512);
  ReportEncoder e(buffer);
  const Buffer bytes = exact(example(e));
  BOOST_TEST(bytes.size() == report_bytes(2, 1));
  const auto view = ReportView::read(bytes);
  BOOST_REQUIRE(view.ok());
  BOOST_TEST(view.value().epoch() == 0x1122334455667788u);
  BOOST_TEST(view.value().rank() == 3u);
  BOOST_TEST(view.value().sequence() == 9u);
  BOOST_TEST(view.value().size() == 2u);
  ReportReader reader = view.value().entries();
  ReportEntry entry;
  BOOST_REQUIRE(reader.next(entry));
  BOOST_TEST((entry.job() == late));
  BOOST_TEST(entry.failed_count() == 0u);
  BOOST_REQUIRE(reader.next(entry));
  BOOST_TEST((entry.job() == failed_store));
  BOOST_REQUIRE(entry.failed_count() == 1u);
  const FailedBlock f = entry.failed(0);
  BOOST_TEST(f.group == 1u);
  BOOST_TEST(f.block == 42);
  BOOST_TEST(f.position == 5u);
  BOOST_TEST(f.rank == 3u);
  BOOST_TEST((f.status == Code::io));
  BOOST_TEST((f.side == FailedSide::source));
  BOOST_TEST(!reader.next(entry));
}

BOOST_AUTO_TEST_CASE(the_page_of_the_format_shows_these_bytes) {
  Buffer buffer(512);
  ReportEncoder e(buffer);
  const Buffer bytes = exact(example(e));
  const Buffer page = format_test::hex_example("report.md");
  BOOST_TEST(bytes == page, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_piece_of_an_inventory_stands_behind_the_entries) {
  Buffer buffer(report_bytes(1, 0) + 20);
  ReportEncoder e(buffer);
  const Buffer piece(20, 0x5a);
  e.begin(1, 0, 1);
  BOOST_REQUIRE(e.add(late, {}));
  BOOST_TEST(e.room() == 20u);
  BOOST_TEST(!e.set_inventory(Buffer(21)));
  BOOST_TEST(!e.has_inventory());
  BOOST_TEST(e.set_inventory(piece));
  BOOST_TEST(!e.set_inventory({}));  // one a report
  const Buffer bytes = exact(e.finish());
  const auto view = ReportView::read(bytes);
  BOOST_REQUIRE(view.ok());
  BOOST_TEST(view.value().size() == 1u);
  BOOST_TEST((exact(view.value().inventory()) == piece));
  e.begin(1, 0, 2);
  BOOST_TEST(!e.has_inventory());
  const auto next = ReportView::read(e.finish());
  BOOST_REQUIRE(next.ok());
  BOOST_TEST(next.value().inventory().empty());
}

BOOST_AUTO_TEST_CASE(an_entry_that_does_not_fit_changes_nothing) {
  Buffer buffer(report_bytes(1, 0) + 31, 0xa5);
  ReportEncoder e(buffer);
  e.begin(1, 0, 1);
  BOOST_TEST(!e.add(failed_store, one_failed()));
  BOOST_TEST(e.entries() == 0u);
  BOOST_TEST(e.add(late, {}));
  BOOST_TEST(!e.add(late, {}));
  const auto view = ReportView::read(e.finish());
  BOOST_REQUIRE(view.ok());
  BOOST_TEST(view.value().size() == 1u);
  BOOST_TEST(buffer.back() == 0xa5);
}

BOOST_AUTO_TEST_CASE(each_damaged_field_is_refused_by_name) {
  Buffer buffer(512);
  ReportEncoder e(buffer);
  const Buffer good = exact(example(e));
  const auto names = [&](std::size_t at, std::uint8_t value, bool sealed, const char* word) {
    Buffer b = good;
    b[at] = value;
    if (sealed) wire::put(b.data() + 40, wire::checksum(b, 40));
    const auto view = ReportView::read(b);
    const std::string t = view.ok() ? "accepted" : view.error().text;
    BOOST_TEST(t.find(word) != std::string::npos, "byte " << at << ": " << t);
  };
  names(0, 0, true, "magic");
  names(4, 2, true, "version");
  names(6, 65, true, "header of");
  names(8, 1, true, "named in the header");
  names(33, 1, false, "checksum");
  names(63, 1, true, "reserved");
  names(36, 3, true, "crosses the end");
  names(36, 1, true, "behind");
  names(72, 7, true, "kind");
  names(72, 0, true, "kind");
  names(49, 1, true, "an inventory of 256 bytes");
  names(76, 0, true, "phase");
  names(80, 3, true, "status");  // no such code
  names(84, 99, true, "cross the end");
  names(96 + 32 + 24, 0, true, "side");
  names(96 + 32 + 4, 7, true, "status");
  names(96 + 32 + 28, 7, true, "reserved");
  BOOST_TEST(!ReportView::read(std::span(good).first(63)).ok());
  BOOST_TEST(!ReportView::read({}).ok());
}

BOOST_AUTO_TEST_CASE(random_damage_is_survived_and_never_accepted) {
  const std::uint64_t seed = test::seed_or(815);
  std::mt19937_64 rng(seed);
  Buffer buffer(512);
  ReportEncoder e(buffer);
  const Buffer good = exact(example(e));
  std::uint64_t sealed_accepted = 0;
  for (int round = 0; round < 50'000; ++round) {
    BOOST_TEST_CONTEXT("round " << round << "; " << test::repeat_command(seed)) {
      Buffer b = format_test::mutated(good, rng);
      if (b != good) BOOST_REQUIRE(!ReportView::read(b).ok());
      if (b.size() >= report_header_bytes) {
        wire::put(b.data() + 8, static_cast<std::uint64_t>(b.size()));
        wire::put(b.data() + 40, wire::checksum(b, 40));
      }
      const auto view = ReportView::read(b);
      if (!view.ok()) continue;
      ++sealed_accepted;
      std::uint64_t failed = 0;
      ReportReader reader = view.value().entries();
      ReportEntry entry;
      while (reader.next(entry)) {
        for (std::uint32_t i = 0; i < entry.failed_count(); ++i)
          failed += entry.failed(i).rank == view.value().rank();
      }
      BOOST_REQUIRE(report_bytes(view.value().size(), failed) + view.value().inventory().size() ==
                    b.size());
    }
  }
  BOOST_TEST(sealed_accepted > 0u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
