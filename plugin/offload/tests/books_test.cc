// The small books of the scheduler role: holds, ids, offers, events, jobs, requests, ranks.
#include <boost/test/unit_test.hpp>
#include <deque>
#include <set>
#include <tuple>
#include <vector>

#include "plugin/core/prng.h"
#include "plugin/offload/event_ring.h"
#include "plugin/offload/explain_ring.h"
#include "plugin/offload/hold_book.h"
#include "plugin/offload/id_history.h"
#include "plugin/offload/job_table.h"
#include "plugin/offload/offer_ledger.h"
#include "plugin/offload/peer_faults.h"
#include "plugin/offload/request_table.h"

using namespace kvc;

namespace {

Geometry one_group() {
  GeometryOptions o;
  o.groups = {group_spec(GroupKind::full, Tokens{16})};
  o.hash_unit = o.scheduler_block = Tokens{16};
  return Geometry::make(std::move(o)).value();
}

TableView view(const std::vector<BlockId>& blocks, std::uint64_t first_changed = 0) {
  return {blocks.data(), blocks.size(), first_changed};
}

class LogHost final : public HostServices {
 public:
  void log(LogLevel level, std::string_view text) override {
    lines.emplace_back(text);
    BOOST_CHECK(level == LogLevel::peer_fault);
  }
  std::uint64_t now_ns() override { return 0; }
  [[nodiscard]] bool can_query_blocks() const override { return false; }
  bool has_key(std::uint32_t, BlockId, const std::uint8_t*, Tokens&) override { return false; }
  bool block_of(std::uint32_t, const std::uint8_t*, BlockId&) override { return false; }
  std::vector<std::string> lines;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(offload_books)

BOOST_AUTO_TEST_CASE(a_stretch_of_a_table_is_named_and_held_up_to_what_cannot_be) {
  for (const std::uint64_t pool : {std::uint64_t{64}, UINT64_MAX}) {
    HoldBook book(one_group(), pool, 0);
    std::vector<BlockId> blocks;
    for (BlockId b = 1; b < 60; ++b) blocks.push_back(60 - b);
    BOOST_TEST(book.name_and_hold(0, blocks.data(), 5, 5) == 5u);
    BOOST_TEST(book.held() == 0u);
    BOOST_TEST(book.name_and_hold(0, blocks.data(), 2, 59) == 59u);
    BOOST_TEST(book.held() == 57u);
    BOOST_TEST(book.table_references() == 57u);
    BOOST_TEST(book.orphaned() == 0u);
    BOOST_TEST(book.last_position(0, blocks[30]) == 30u);
    BOOST_TEST(book.only_table(0, blocks[2]));
    BOOST_TEST(!book.held_by_job(0, blocks[1]));
    // Held; the null block; no block at all.
    BOOST_TEST(book.name_and_hold(0, blocks.data(), 0, 59) == 2u);
    BOOST_TEST(book.held() == 59u);
    BOOST_TEST(book.first_unreal(blocks.data(), 3, 59) == 59u);
    BOOST_TEST(book.first_unreal(blocks.data(), 5, 5) == 5u);
    for (const BlockId bad : {BlockId{0}, BlockId{-1}, BlockId{1} << 50, INT64_MIN, INT64_MAX}) {
      const std::vector<BlockId> row{61, bad, 62};
      BOOST_TEST(book.first_unreal(row.data(), 0, 3) == (pool == UINT64_MAX ? 3u : 1u));
      BOOST_TEST(book.name_and_hold(0, row.data(), 0, 3) == 1u);
      book.release(0, 61);
      book.table_remove(0, 61);
    }
    const std::vector<BlockId> twice{61, 62, 61};
    BOOST_TEST(book.name_and_hold(0, twice.data(), 0, 3) == 2u);
    BOOST_TEST(book.held() == 61u);
    for (const BlockId b : blocks) {
      book.table_remove(0, b);
      BOOST_TEST(book.held_by_job(0, b));
    }
    BOOST_TEST(book.orphaned() == 59u);
  }
}

BOOST_AUTO_TEST_CASE(a_held_block_is_an_orphan_when_no_table_names_it) {
  HoldBook book(one_group(), 10, 0);
  book.table_add(0, 3, 0);
  book.hold(0, 3);
  book.hold(0, 3);
  BOOST_TEST(book.held() == 1u);
  BOOST_TEST(book.orphaned() == 0u);
  BOOST_TEST(book.only_table(0, 3));
  BOOST_TEST(!book.adds_orphan(0, 3, 1));
  BOOST_TEST(book.adds_orphan(0, 4, 1));
  book.table_remove(0, 3);
  BOOST_TEST(book.orphaned() == 1u);
  book.release(0, 3);
  BOOST_TEST(book.orphaned() == 1u);
  book.table_add(0, 3, 7);
  BOOST_TEST(book.orphaned() == 0u);
  BOOST_TEST(book.last_position(0, 3) == 7u);
  book.release(0, 3);
  BOOST_TEST(book.held() == 0u);
  BOOST_TEST(!book.real(0));
  BOOST_TEST(!book.real(10));
  BOOST_TEST(!book.real(-5));
}

BOOST_AUTO_TEST_CASE(a_pool_without_a_limit_grows_in_jumps_and_takes_no_number_that_is_far_off) {
  HoldBook book(one_group(), UINT64_MAX, 0);
  for (const BlockId far : {BlockId{1} << 39, BlockId{1} << 32, BlockId{1} << 24, INT64_MAX}) {
    BOOST_TEST(!book.real(far));
  }
  const BlockId near = (BlockId{1} << 24) - 1;
  BOOST_TEST(book.real(near));
  BOOST_TEST(!book.real(2 * near));
  book.hold(0, near);
  BOOST_TEST(book.real(2 * near));
  book.release(0, near);
  BOOST_TEST(book.held() == 0u);
}

BOOST_AUTO_TEST_CASE(ids_next_to_each_other_are_one_range_in_any_order) {
  IdHistory up;
  IdHistory down;
  IdHistory gap;
  for (std::uint64_t id = 1; id <= 100; ++id) {
    up.insert(id);
    down.insert(101 - id);
    if (id % 2 != 0) gap.insert(id);
  }
  BOOST_TEST(up.ranges() == 1U);
  BOOST_TEST(down.ranges() == 1U);
  BOOST_TEST(gap.ranges() == 50U);
  for (std::uint64_t id = 2; id <= 98; id += 2) gap.insert(id);
  BOOST_TEST(gap.ranges() == 1U);
  BOOST_TEST(!gap.contains(0));
  BOOST_TEST(gap.contains(99));
  BOOST_TEST(!gap.contains(100));
}

BOOST_AUTO_TEST_CASE(ids_in_order_cost_one_range_and_scattered_ones_are_remembered) {
  IdHistory ids;
  for (std::uint64_t i = 1; i <= 1000; ++i) ids.insert(i);
  BOOST_TEST(ids.ranges() == 1u);
  BOOST_TEST(ids.contains(500));
  BOOST_TEST(!ids.contains(1001));
  std::set<std::uint64_t> twin;
  IdHistory few;
  Prng random(3);
  for (int i = 0; i < 4000; ++i) {
    const std::uint64_t id = random.below(5000);
    BOOST_REQUIRE_EQUAL(few.contains(id), twin.contains(id));
    if (twin.insert(id).second) few.insert(id);
  }
}

// Behind the end of the line is the stack: what is written there only ASan sees.
BOOST_AUTO_TEST_CASE(a_fault_that_is_longer_than_a_line_is_cut) {
  LogHost host;
  PeerFaults faults(host);
  const std::string text(1000, 'x');
  faults.report("a-rule", "{}", text);
  faults.report(text, "{}", text);
  faults.report("a-rule", "short");
  BOOST_REQUIRE(host.lines.size() == 3U);
  const std::string begin = "the host broke rule a-rule: ";
  BOOST_TEST(host.lines[0] == begin + text.substr(0, 320 - begin.size()));
  BOOST_TEST(host.lines[1].size() == 320U);
  BOOST_TEST(host.lines[2] == begin + "short");
}

BOOST_AUTO_TEST_CASE(every_outcome_has_its_counter) {
  OfferLedger ledger;
  OfferCounts own;
  std::set<std::uint64_t*> fields;
  for (int i = 0; i <= static_cast<int>(Outcome::dropped_plan_full); ++i) {
    const auto outcome = static_cast<Outcome>(i);
    ledger.publish_ended(i % 2 == 0, outcome, own);
    fields.insert(&counter_of(own, outcome));
    BOOST_TEST(counter_of(own, outcome) == 1u);
    BOOST_TEST(!name_of(outcome).empty());
  }
  BOOST_TEST(fields.size() == 15u);
  ledger.publish(false, own);
  ledger.check_balanced();
  BOOST_TEST(ledger.counts().all_offers.published == 16u);
  BOOST_TEST(ledger.counts().all_offers.pending == 1u);
  BOOST_TEST(ledger.counts().handoffs.published == 8u);
}

BOOST_AUTO_TEST_CASE(an_event_ring_loses_the_oldest) {
  EventRing ring(3);
  for (std::uint64_t i = 1; i <= 5; ++i) {
    CacheEvent e;
    e.request = i;
    ring.push(e);
  }
  BOOST_TEST(ring.lost() == 2u);
  std::array<CacheEvent, 2> out;
  std::size_t count = 0;
  BOOST_TEST(ring.take(out, count));
  BOOST_TEST(out[0].request == 3u);
  BOOST_TEST(!ring.take(out, count));
  BOOST_TEST(count == 1u);
  EventRing none(0);
  none.push({});
  BOOST_TEST(!none.take(out, count));
}

BOOST_AUTO_TEST_CASE(the_explain_ring_keeps_the_newest_requests) {
  ExplainRing ring;
  std::vector<std::uint64_t> tickets;
  for (RequestId id = 1; id <= 300; ++id) {
    ExplainRecord r;
    r.id = id;
    tickets.push_back(ring.enter(r));
  }
  ExplainRecord r;
  BOOST_TEST(!ring.find(44, r));
  BOOST_TEST(ring.find(45, r));
  r.id = 1;
  ring.put(tickets[0], r);  // replaced long ago
  BOOST_TEST(!ring.find(1, r));
  ring.put_confirmed(tickets[0], Tokens{7});
  BOOST_TEST(ring.find(257, r));  // it has the place of the first
  BOOST_TEST(r.confirmed.n == 0u);
  ring.put_confirmed(tickets[256], Tokens{7});
  BOOST_TEST(ring.find(257, r));
  BOOST_TEST(r.confirmed.n == 7u);
  BOOST_TEST(r.prompt.n == 0u);
  std::array<ExplainRecord, ExplainRing::records> all;
  BOOST_TEST(ring.copy(all) == 256u);
  BOOST_TEST(all[0].id == 45u);
  BOOST_TEST(all[255].id == 300u);
  std::string json;
  append_json_string(json, "a\"b\\c\n");
  BOOST_TEST(json == "\"a\\\"b\\\\c\\u000a\"");
}

BOOST_AUTO_TEST_CASE(faults_are_all_counted_and_not_all_logged) {
  LogHost host;
  PeerFaults faults(host);
  for (int i = 0; i < 10'000; ++i) faults.report("a-rule", "number {}", i);
  BOOST_TEST(faults.count() == 10'000u);
  BOOST_TEST(host.lines.size() < 300u);
  BOOST_TEST(host.lines[0] == "the host broke rule a-rule: number 0");
  faults.report("long", "{}", std::string(1000, 'x'));
}

BOOST_AUTO_TEST_CASE(jobs_wait_in_order_and_end_once_per_rank) {
  JobTable jobs(70);
  OpenParts parts;
  jobs.reserve(2, 4);
  const JobId a = jobs.create(JobKind::load, 5, 0).id;
  const JobId b = jobs.create(JobKind::load, 6, 1).id;
  const JobId c = jobs.create(JobKind::store, 0, no_request).id;
  BOOST_TEST(jobs.waiting(JobKind::load)->id == a);
  jobs.pop_waiting(JobKind::load);
  BOOST_TEST(jobs.waiting(JobKind::load)->id == b);
  jobs.pop_waiting(JobKind::load);
  BOOST_TEST(jobs.waiting(JobKind::load) == nullptr);
  Job& job = *jobs.find(a);
  for (std::uint32_t i = 0; i < 5; ++i) {
    CopyRecord copy;
    copy.position = i;
    jobs.add_copy(job, copy, parts);
  }
  std::uint64_t next = 0;
  jobs.for_each_copy(job, [&](CopyRecord& copy) { BOOST_TEST(copy.position == next++); });
  for (std::uint32_t r = 0; r < 70; ++r) {
    BOOST_CHECK(jobs.mark_overdue(job, r) == JobTable::Heard::first);
  }
  BOOST_CHECK(jobs.mark_overdue(job, 69) == JobTable::Heard::repeated);
  BOOST_CHECK(jobs.mark_ended(job, 69) == JobTable::Heard::first);
  BOOST_CHECK(jobs.mark_ended(job, 69) == JobTable::Heard::repeated);
  BOOST_TEST(job.ranks_heard == 70u);
  BOOST_TEST(job.ranks_ended == 1u);
  BOOST_TEST(jobs.verify() == "");
  jobs.remove(job, [&](RequestIndex) -> OpenParts& { return parts; });
  BOOST_TEST(parts.first == 0u);
  BOOST_TEST(jobs.find(a) == nullptr);
  BOOST_TEST(jobs.open_of(JobKind::load) == 1u);
  BOOST_TEST(jobs.copies_of(JobKind::load) == 0u);
  BOOST_TEST(jobs.find(c)->id == c);
  BOOST_TEST(jobs.create(JobKind::store, 1, 0).id > c);
  BOOST_TEST(jobs.verify() == "");
}

BOOST_AUTO_TEST_CASE(a_request_finds_its_copies_among_those_of_others) {
  JobTable jobs(1);
  jobs.reserve(4, 16);
  std::array<OpenParts, 3> parts;
  const auto parts_of = [&](RequestIndex i) -> OpenParts& { return parts[i]; };
  const auto copies_of = [&](RequestIndex i) {
    std::vector<std::uint64_t> out;
    jobs.for_each_copy(parts[i], [&](const CopyRecord& c) {
      BOOST_TEST(c.request == i);
      out.push_back(c.position);
    });
    std::sort(out.begin(), out.end());
    return out;
  };
  const auto add = [&](Job& job, RequestIndex request, std::uint32_t position) {
    CopyRecord copy;
    copy.request = request;
    copy.position = position;
    jobs.add_copy(job, copy, parts[request]);
  };
  using List = std::vector<std::uint64_t>;
  Job& shared = jobs.create(JobKind::store, 0, no_request);
  for (const std::uint32_t p : {1U, 2U, 3U}) add(shared, 0, p);
  add(shared, 1, 4);
  add(shared, 0, 5);
  Job& own = jobs.create(JobKind::load, 7, 0);
  add(own, 0, 6);
  jobs.pop_waiting(JobKind::store);
  jobs.pop_waiting(JobKind::load);
  BOOST_TEST(copies_of(0) == (List{1, 2, 3, 5, 6}));
  BOOST_TEST(copies_of(1) == List{4});
  BOOST_TEST(copies_of(2) == List{});
  BOOST_TEST(jobs.verify() == "");
  jobs.remove(shared, parts_of);
  BOOST_TEST(copies_of(0) == List{6});
  BOOST_TEST(copies_of(1) == List{});
  jobs.remove(own, parts_of);
  BOOST_TEST(parts[0].first == 0u);
}

BOOST_AUTO_TEST_CASE(copies_of_many_requests_come_back_in_order_across_chunks) {
  JobTable jobs(1);
  jobs.reserve(8, 4096);
  Prng random(11);
  std::array<OpenParts, 3> parts;
  const auto parts_of = [&](RequestIndex i) -> OpenParts& { return parts[i]; };
  std::vector<BlockId> blocks(200);
  std::vector<SlotId> entries(200);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i] = static_cast<BlockId>(1000 + i);
    entries[i] = static_cast<SlotId>(i);
  }
  for (int round = 0; round < 200; ++round) {
    Job& job = jobs.create(JobKind::load, 1, 0);
    using Row = std::tuple<RequestIndex, std::uint64_t, BlockId, SlotId, bool>;
    std::vector<Row> all;
    while (all.size() < 300) {
      const auto request = static_cast<RequestIndex>(random.below(3));
      const std::uint64_t first = random.below(1000);
      const std::size_t n = random.below(66);
      const std::size_t pinned_from = random.below(n + 2);
      if (n == 1) {
        CopyRecord copy;
        copy.request = request;
        copy.position = static_cast<std::uint32_t>(first);
        jobs.add_copy(job, copy, parts[request]);
        all.emplace_back(request, first, 0, no_slot, false);
        continue;
      }
      jobs.add_copies(job,
                      {request, 0, first, blocks.data(), std::span(entries).first(n), pinned_from},
                      parts[request]);
      for (std::size_t i = 0; i < n; ++i) {
        all.emplace_back(request, first + i, blocks[i], entries[i], i >= pinned_from);
      }
    }
    const auto row = [](const CopyRecord& c) {
      return Row{c.request, c.position, c.block, c.entry, c.pinned};
    };
    std::vector<Row> seen;
    jobs.for_each_copy(job, [&](CopyRecord& c) { seen.push_back(row(c)); });
    BOOST_CHECK(seen == all);
    for (RequestIndex r = 0; r < 3; ++r) {
      std::vector<Row> own;
      std::copy_if(all.begin(), all.end(), std::back_inserter(own),
                   [&](const Row& x) { return std::get<0>(x) == r; });
      std::vector<Row> found;
      jobs.for_each_copy(parts[r], [&](const CopyRecord& c) { found.push_back(row(c)); });
      // Parts come newest first.
      std::sort(own.begin(), own.end());
      std::sort(found.begin(), found.end());
      BOOST_CHECK(own == found);
    }
    BOOST_TEST(jobs.verify() == "");
    jobs.pop_waiting(JobKind::load);
    jobs.remove(job, parts_of);
    for (const OpenParts& p : parts) BOOST_TEST(p.first == 0u);
  }
}

BOOST_AUTO_TEST_CASE(ids_of_jobs_are_found_however_many_come_and_go) {
  JobTable jobs(1);
  jobs.reserve(64, 64);
  std::deque<JobId> open;
  Prng random(4);
  const auto no_parts = [](RequestIndex) -> OpenParts& { throw std::logic_error("no copies"); };
  for (int i = 0; i < 20'000; ++i) {
    if (open.size() < 100 && (open.empty() || random.chance(1, 2))) {
      open.push_back(jobs.create(JobKind::load, 1, 0).id);
      jobs.pop_waiting(JobKind::load);
      continue;
    }
    const std::size_t at = random.below(open.size());
    jobs.remove(*jobs.find(open[at]), no_parts);
    BOOST_TEST(jobs.find(open[at]) == nullptr);
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
    for (const JobId id : open) BOOST_REQUIRE(jobs.find(id)->id == id);
  }
  BOOST_TEST(jobs.verify() == "");
}

BOOST_AUTO_TEST_CASE(tables_follow_their_changed_ranges) {
  const Geometry geometry = one_group();
  HoldBook holds(geometry, 100, 0);
  RequestTable table(geometry, geometry, {.key_bytes = 16, .max_total = Tokens{256}}, holds);
  RequestBegin in;
  in.request = 9;
  in.prompt = Tokens{64};
  const RequestIndex index = table.begin(in);
  Request& r = table[index];
  GroupProgress& g = r.groups[0];
  BOOST_TEST(table.set_table(r, 0, view({1, 2, 3, 4})) == 0u);
  BOOST_TEST(holds.table_references() == 4u);
  // Only entries from the second on are read.
  BOOST_TEST(table.set_table(r, 0, view({99, 0, 3, 200, 5}, 1)) == 1u);
  BOOST_TEST(RequestTable::block_at(g, 0) == 1);
  BOOST_TEST(RequestTable::block_at(g, 1) == RequestTable::null_cell);
  BOOST_TEST(RequestTable::block_at(g, 3) == RequestTable::foreign_cell);
  BOOST_TEST(RequestTable::block_at(g, 4) == 5);
  BOOST_TEST(holds.table_references() == 3u);
  g.cursor = 4;
  RequestTable::mark_waiting(g, 2);
  BOOST_TEST(table.verify() != "");  // a request with open positions is not settled
  r.unsettled = true;
  BOOST_TEST(RequestTable::block_at(g, 2) == 3);
  table.set_table(r, 0, view({1, 2, 7}, 1));
  BOOST_TEST(RequestTable::waits(g, 2));
  BOOST_TEST(RequestTable::block_at(g, 2) == 7);
  BOOST_TEST(g.length == 3u);
  BOOST_TEST(table.verify() == "");
  RequestTable::clear_waiting(g, 2);
  table.end(index);
  BOOST_TEST(holds.table_references() == 0u);
  table.release(index);
  BOOST_TEST(table.verify() == "");
}

BOOST_AUTO_TEST_CASE(requests_are_bounded_by_number_and_key_bytes) {
  const Geometry geometry = one_group();
  HoldBook holds(geometry, 100, 0);
  RequestTable table(
      geometry, geometry,
      {.live_max = 2, .key_bytes_max = 64, .key_bytes = 16, .max_total = Tokens{256}}, holds);
  const std::vector<std::uint8_t> keys(64, 7);
  RequestBegin in;
  in.request = 1;
  in.keys = keys.data();
  in.key_count = 3;
  const RequestIndex first = table.begin(in);
  BOOST_TEST(first != no_request);
  in.request = 2;
  in.key_count = 2;
  BOOST_TEST(table.begin(in) == no_request);
  RequestIndex index = no_request;
  BOOST_CHECK(table.find(2, index) == RequestTable::Known::untracked);
  BOOST_TEST(table.used(2));
  BOOST_TEST(table.extend(first, keys.data(), 1));
  BOOST_TEST(!table.extend(first, keys.data(), 1));
  table.forget(2);
  BOOST_CHECK(table.find(2, index) == RequestTable::Known::unknown);
  table.end(first);
  BOOST_CHECK(table.find(1, index) == RequestTable::Known::unknown);
  // A guess is never more than that.
  for (const RequestIndex guess :
       {RequestIndex{0}, RequestIndex{1}, RequestIndex{99}, no_request}) {
    BOOST_CHECK(table.find(1, guess, index) == RequestTable::Known::unknown);
    BOOST_CHECK(index == no_request);
  }
  BOOST_TEST(table.key_bytes_used() == 0u);
  BOOST_TEST(table.shells() == 1u);
  table.release(first);
  in.request = 3;
  BOOST_TEST(table.begin(in) == first);
  BOOST_TEST(table.verify() == "");
}

BOOST_AUTO_TEST_SUITE_END()
