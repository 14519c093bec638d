#include "plugin/offload/plan_format.h"

#include <boost/test/unit_test.hpp>

#include "plugin/offload/tests/format_bytes.h"
#include "plugin/offload/wire.h"
#include "plugin/tests/seed.h"

namespace kvc {
namespace {

using format_test::Buffer;
using format_test::exact;

// The example of docs/formats/plan.md.
std::span<const std::uint8_t> example(PlanEncoder& e) {
  e.begin(0x1122334455667788, 7);
  const PlanCopy load[] = {{0, 3, 41, 0}, {1, 9, 42, 5}};
  const PlanCopy store[] = {{0, 4, -1, 1}};
  BOOST_REQUIRE(e.add_job(JobKind::load, 100, 12, load));
  BOOST_REQUIRE(e.add_job(JobKind::store, 101, 0, store));
  return e.finish();
}

// Recomputes the checksum, so that damage behind it is reached.
void reseal(Buffer& b) {
  if (b.size() >= plan_header_bytes) {
    wire::put(b.data() + 8, static_cast<std::uint64_t>(b.size()));
    wire::put(b.data() + 48, wire::checksum(b, 48));
  }
}

struct Walked {
  std::uint64_t jobs = 0;
  std::uint64_t copies = 0;
  std::uint32_t slots = 0;
};

// Reads everything a view gives; ASan judges.
Walked walk(const PlanView& view) {
  Walked w;
  for (PlanReader reader : {view.loads(), view.stores()}) {
    PlanJob job;
    while (reader.next(job)) {
      ++w.jobs;
      for (std::uint64_t i = 0; i < job.size(); ++i) {
        w.slots ^= job.copy(i).slot;
        ++w.copies;
      }
    }
  }
  return w;
}

BOOST_AUTO_TEST_SUITE(plan_format)

BOOST_AUTO_TEST_CASE(a_plan_reads_back_what_was_written) {
  Buffer buffer(1024);
  PlanEncoder e(buffer);
  const Buffer bytes = exact(example(e));
  BOOST_TEST(bytes.size() == plan_bytes(2, 3));
  const auto view = PlanView::read(bytes);
  BOOST_REQUIRE(view.ok());
  const PlanView& v = view.value();
  BOOST_TEST(v.epoch() == 0x1122334455667788u);
  BOOST_TEST(v.step() == 7u);
  BOOST_TEST(v.load_jobs() == 1u);
  BOOST_TEST(v.store_jobs() == 1u);
  PlanReader loads = v.loads();
  PlanJob job;
  BOOST_REQUIRE(loads.next(job));
  BOOST_TEST((job.kind() == JobKind::load));
  BOOST_TEST(job.job() == 100u);
  BOOST_TEST(job.request() == 12u);
  BOOST_TEST(job.size() == 2u);
  BOOST_TEST((job.copy(1) == PlanCopy{1, 9, 42, 5}));
  BOOST_TEST(!loads.next(job));
  PlanReader stores = v.stores();
  BOOST_REQUIRE(stores.next(job));
  BOOST_TEST((job.kind() == JobKind::store));
  BOOST_TEST((job.copy(0) == PlanCopy{0, 4, -1, 1}));
  BOOST_TEST(!stores.next(job));
}

BOOST_AUTO_TEST_CASE(the_page_of_the_format_shows_these_bytes) {
  Buffer buffer(1024);
  PlanEncoder e(buffer);
  const Buffer bytes = exact(example(e));
  const Buffer page = format_test::hex_example("plan.md");
  BOOST_TEST(bytes == page, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(an_empty_plan_is_a_header) {
  Buffer buffer(plan_header_bytes);
  PlanEncoder e(buffer);
  e.begin(1, 1);
  BOOST_TEST(e.copies_that_fit() == PlanEncoder::no_job);
  BOOST_TEST(!e.begin_job(JobKind::load, 1, 1));
  const auto view = PlanView::read(e.finish());
  BOOST_REQUIRE(view.ok());
  BOOST_TEST(walk(view.value()).jobs == 0u);
}

BOOST_AUTO_TEST_CASE(the_encoder_tells_what_fits_and_never_writes_beyond) {
  // Room for two jobs and three copies; a fence of marked bytes behind.
  Buffer buffer(plan_bytes(2, 3) + 32, 0xa5);
  PlanEncoder e(std::span<std::uint8_t>(buffer).first(plan_bytes(2, 3)));
  e.begin(5, 1);
  BOOST_TEST(e.copies_that_fit() == 4u);  // the second job's header is room for one more copy
  BOOST_REQUIRE(e.begin_job(JobKind::load, 1, 1));
  BOOST_TEST(e.copies_that_fit() == 4u);
  BOOST_TEST(e.add_copy({0, 1, 1, 1}));
  BOOST_TEST(e.copies_that_fit() == 3u);
  e.drop_last_copy();
  BOOST_TEST(e.add_copy({0, 2, 2, 2}));
  e.end_job();
  BOOST_TEST(e.copies_that_fit() == 2u);
  const PlanCopy three[3] = {};
  BOOST_TEST(!e.add_job(JobKind::store, 2, 1, three));
  BOOST_REQUIRE(e.begin_job(JobKind::store, 3, 1));
  BOOST_TEST(e.add_copy({0, 7, 7, 7}));
  e.abandon_job();
  BOOST_TEST(e.add_job(JobKind::store, 4, 1, std::span(three).first(2)));
  BOOST_TEST(e.copies_that_fit() == PlanEncoder::no_job);
  BOOST_TEST(e.jobs() == 2u);
  const auto view = PlanView::read(e.finish());
  BOOST_REQUIRE(view.ok());
  BOOST_TEST(walk(view.value()).copies == 3u);
  PlanReader stores = view.value().stores();
  PlanJob job;
  BOOST_REQUIRE(stores.next(job));
  BOOST_TEST(job.job() == 4u);
  for (std::size_t i = plan_bytes(2, 3); i < buffer.size(); ++i) BOOST_TEST(buffer[i] == 0xa5);
}

BOOST_AUTO_TEST_CASE(each_damaged_field_is_refused_by_name) {
  Buffer buffer(1024);
  PlanEncoder e(buffer);
  const Buffer good = exact(example(e));
  const auto text = [&](std::size_t at, std::uint8_t value, bool sealed) {
    Buffer b = good;
    b[at] = value;
    if (sealed) wire::put(b.data() + 48, wire::checksum(b, 48));
    const auto view = PlanView::read(b);
    return view.ok() ? std::string("accepted") : view.error().text;
  };
  const auto names = [&](std::size_t at, std::uint8_t value, bool sealed, const char* word) {
    const std::string t = text(at, value, sealed);
    BOOST_TEST(t.find(word) != std::string::npos, "byte " << at << ": " << t);
  };
  names(0, 0, true, "magic");
  names(4, 2, true, "version");
  names(6, 65, true, "header of");
  names(8, 1, true, "named in the header");
  names(20, 0xff, false, "checksum");
  names(48, 0xff, false, "checksum");
  names(100, 0xff, false, "checksum");
  names(56, 1, true, "cross the end");
  names(63, 1, true, "disk section");
  names(32, 2, true, "crosses the end");
  names(32, 0, true, "behind the last");
  names(36, 0, true, "behind the last");
  names(47, 1, true, "load section");
  names(64, 2, true, "kind");
  names(66, 2, true, "flags 0x2");
  names(67, 1, true, "flags 0x100");
  names(68, 1, true, "no error");
  names(71, 0x80, true, "no error");
  names(95, 0x80, true, "cross the end");
  BOOST_TEST(!PlanView::read(std::span(good).first(63)).ok());
  BOOST_TEST(!PlanView::read({}).ok());
}

BOOST_AUTO_TEST_CASE(a_load_in_step_says_so_and_a_store_cannot) {
  Buffer buffer(1024);
  PlanEncoder e(buffer);
  e.begin(5, 1);
  for (const bool in_step : {true, false}) {
    BOOST_REQUIRE(e.begin_job(JobKind::load, in_step ? 2 : 3, 12, Code::ok, in_step));
    BOOST_REQUIRE(e.add_copy({1, 9, 42, 5}));
    e.end_job();
  }
  BOOST_REQUIRE(e.begin_job(JobKind::store, 4, 0));
  e.end_job();
  Buffer bytes = exact(e.finish());
  const auto view = PlanView::read(bytes);
  BOOST_REQUIRE(view.ok());
  PlanReader loads = view.value().loads();
  PlanJob job;
  BOOST_REQUIRE(loads.next(job));
  BOOST_TEST(job.in_step());
  BOOST_TEST(job.size() == 1u);
  BOOST_REQUIRE(loads.next(job));
  BOOST_TEST(!job.in_step());
  const std::size_t store = bytes.size() - plan_job_bytes;
  bytes[store + 2] = 1;
  wire::put(bytes.data() + 48, wire::checksum(bytes, 48));
  const auto bad = PlanView::read(bytes);
  BOOST_REQUIRE(!bad.ok());
  BOOST_TEST(bad.error().text.find("flags 0x1") != std::string::npos, bad.error().text);
}

PlanDiskBlock disk_block() {
  PlanDiskBlock b;
  b.group = 1;
  b.slot = 4;
  b.end_tokens = 48;
  b.has_parent = true;
  b.key.fill(7);
  b.parent.fill(8);
  return b;
}

BOOST_AUTO_TEST_CASE(disk_jobs_read_back_as_they_were_written) {
  Buffer buffer(plan_bytes(4, 1) + 2 * plan_disk_block_bytes);
  PlanEncoder e(buffer);
  e.begin(5, 1);
  const PlanCopy copy{0, 3, 41, 0};
  BOOST_REQUIRE(e.add_job(JobKind::store, 9, 0, std::span(&copy, 1)));
  const PlanDiskBlock blocks[] = {disk_block(), {}};
  BOOST_TEST(e.add_disk_job(JobKind::spill, 10, 0, blocks));
  BOOST_TEST(e.add_disk_job(JobKind::disk_reset, 11, 0, {}));
  BOOST_TEST(!e.add_disk_job(JobKind::fill, 12, 3, blocks));  // no room, nothing changed
  BOOST_TEST(e.add_disk_job(JobKind::drop, 13, 0, {}));
  BOOST_TEST(e.jobs() == 4u);
  const Buffer bytes = exact(e.finish());
  BOOST_TEST(bytes.size() == buffer.size());
  const auto view = PlanView::read(bytes);
  BOOST_REQUIRE(view.ok());
  BOOST_TEST(view.value().store_jobs() == 1u);
  BOOST_TEST(view.value().disk_jobs() == 3u);
  PlanReader disk = view.value().disk();
  PlanJob job;
  BOOST_REQUIRE(disk.next(job));
  BOOST_TEST((job.kind() == JobKind::spill && job.job() == 10 && job.size() == 2));
  BOOST_TEST((job.disk_block(0) == blocks[0]));
  BOOST_TEST((job.disk_block(1) == blocks[1]));
  BOOST_REQUIRE(disk.next(job));
  BOOST_TEST((job.kind() == JobKind::disk_reset && job.job() == 11 && job.size() == 0));
  BOOST_REQUIRE(disk.next(job));
  BOOST_TEST((job.kind() == JobKind::drop && job.job() == 13));
  BOOST_TEST(!disk.next(job));
}

BOOST_AUTO_TEST_CASE(each_damaged_field_of_a_disk_job_is_refused_by_name) {
  Buffer buffer(1024);
  PlanEncoder e(buffer);
  e.begin(5, 1);
  const PlanDiskBlock block = disk_block();
  BOOST_REQUIRE(e.add_disk_job(JobKind::spill, 10, 0, std::span(&block, 1)));
  const Buffer good = exact(e.finish());
  const auto names = [&](std::size_t at, std::uint8_t value, const char* word) {
    Buffer b = good;
    b[at] = value;
    wire::put(b.data() + 48, wire::checksum(b, 48));
    const auto view = PlanView::read(b);
    const std::string t = view.ok() ? std::string("accepted") : view.error().text;
    BOOST_TEST(t.find(word) != std::string::npos, "byte " << at << ": " << t);
  };
  names(64, 2, "disk job 0 has kind 2");
  names(64, 7, "disk job 0 has kind 7");
  names(64, 6, "is a reset and has 1 blocks");
  names(66, 1, "flags 0x1");
  names(68, 1, "outcome 1");
  names(88, 2, "2 blocks of disk job 0 cross the end");
  names(88, 0, "disk job 1");
  names(96 + 16, 2, "flags 0x2");
  names(96 + 23, 1, "flags");
}

BOOST_AUTO_TEST_CASE(a_decided_outcome_is_carried_and_has_no_copies) {
  Buffer buffer(1024);
  PlanEncoder e(buffer);
  e.begin(5, 1);
  BOOST_REQUIRE(e.begin_job(JobKind::load, 7, 3, Code::io));
  e.end_job();
  BOOST_REQUIRE(e.add_job(JobKind::load, 8, 3, {}));
  const Buffer good = exact(e.finish());
  const auto view = PlanView::read(good);
  BOOST_REQUIRE(view.ok());
  PlanReader loads = view.value().loads();
  PlanJob job;
  BOOST_REQUIRE(loads.next(job));
  BOOST_CHECK(job.outcome() == Code::io && job.size() == 0);
  BOOST_REQUIRE(loads.next(job));
  BOOST_CHECK(job.outcome() == Code::ok);
  // A job with copies and an outcome is refused: 4 bytes from 68, the first job of the example.
  Buffer b = exact(example(e));
  wire::put(b.data() + 68, std::int32_t{-6});
  reseal(b);
  const auto refused = PlanView::read(b);
  BOOST_REQUIRE(!refused.ok());
  BOOST_TEST(refused.error().text.find("copies") != std::string::npos, refused.error().text);
}

BOOST_AUTO_TEST_CASE(random_damage_is_survived_and_never_accepted) {
  const std::uint64_t seed = test::seed_or(4711);
  std::mt19937_64 rng(seed);
  Buffer buffer(1024);
  PlanEncoder e(buffer);
  const Buffer good = exact(example(e));
  std::uint64_t sealed_accepted = 0;
  for (int round = 0; round < 50'000; ++round) {
    BOOST_TEST_CONTEXT("round " << round << "; " << test::repeat_command(seed)) {
      Buffer b = format_test::mutated(good, rng);
      if (b != good) BOOST_REQUIRE(!PlanView::read(b).ok());
      reseal(b);  // now the structure alone must hold
      const auto view = PlanView::read(b);
      if (view.ok()) {
        ++sealed_accepted;
        const Walked w = walk(view.value());
        BOOST_REQUIRE(plan_bytes(w.jobs, w.copies) == b.size());
      }
    }
  }
  BOOST_TEST(sealed_accepted > 0u);  // damaged ids and blocks are for the rank to judge
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
