// kvc.hpp on both sides: a connector made with its plugin half, driven through its host half.
#include <kvc/kvc.hpp>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace line = kvc::abi;

// Counts what reaches it, stores nothing. `open` and `closed` prove who closes what.
struct Counting {
  static inline int opened = 0;
  static inline int closed = 0;
  std::vector<kvc_event> events;
  std::vector<kvc_block> held;
  std::string error = "the last error";
  std::string log;
  std::uint64_t begun = 0;
};

template <class Handle>
// NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): the guard catches it
kvc_status open_counting(const kvc_open* open, Handle** out) noexcept {
  kvc_open mine;
  *out = nullptr;
  if (const kvc_status s = line::read(&mine, open); s != KVC_OK) return s;
  return line::guard(
      [&] {
        std::vector<kvc_group> groups;
        const kvc_status s = line::read_list(&groups, mine.groups, KVC_GROUPS_MAX);
        if (s != KVC_OK) return s;
        *out = line::to_handle<Handle>(new Counting);
        ++Counting::opened;
        return static_cast<kvc_status>(KVC_OK);
      },
      [](std::string_view) {});
}
template <class Handle>
void close_counting(Handle* h) noexcept {
  if (h == nullptr) return;
  delete line::from_handle<Counting>(h);
  ++Counting::closed;
}

// A slot that nothing in these tests calls, with any signature.
template <class F>
struct Unused;
template <class R, class... A>
struct Unused<R (*)(A...) noexcept> {
  static R call(A...) noexcept { return R(); }
};

kvc_status alloc_update(kvc_sched* s, const kvc_alloc_in*, kvc_alloc_out* out) noexcept {
  auto* mine = line::from_handle<Counting>(s);
  for (std::uint32_t i = 0; i < 3; ++i) {
    mine->held.push_back(line::sized<kvc_block>());
    mine->held.back().block = 7 + i;
  }
  auto answer = line::sized<kvc_alloc_out>();
  answer.job = 5;
  answer.held = line::list_of(mine->held);
  return line::write(out, answer);
}
kvc_status take_events(kvc_sched* s, void* out, std::uint32_t stride, std::uint64_t cap,
                       std::uint64_t* count) noexcept {
  auto& events = line::from_handle<Counting>(s)->events;
  *count = std::min<std::uint64_t>(cap, events.size());
  for (std::uint64_t i = 0; i < *count; ++i) {
    const kvc_status w =
        kvc_write_at(out, stride, i, &events[i], sizeof(kvc_event), kvc_event_least);
    if (w != KVC_OK) return w;
  }
  events.erase(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(*count));
  return events.empty() ? KVC_OK : KVC_MORE;
}

kvc_status take_log(Counting* mine, char* buf, std::uint64_t cap, std::uint64_t* count) noexcept {
  *count = std::min<std::uint64_t>(cap, mine->log.size());
  std::copy_n(mine->log.begin(), *count, buf);
  mine->log.erase(0, *count);
  return mine->log.empty() ? KVC_OK : KVC_MORE;
}

kvc_plugin_api table() {
  auto t = line::sized<kvc_plugin_api>();
  t.abi_minor = KVC_MINOR;
#define KVC_SLOT(slot, handle, role, attributes, minor, need, capability) \
  t.slot = Unused<decltype(t.slot)>::call;
#include <kvc/kvc_calls.def>
  t.caps = KVC_CAP_EVENTS | KVC_CAP_STEPPED;
  t.describe = [](kvc_description* out) noexcept {
    auto d = line::sized<kvc_description>();
    d.name = line::bytes("counting");
    return line::write(out, d);
  };
  t.open_scheduler = [](const kvc_host_api*, const kvc_open* open, kvc_sched** out) noexcept {
    return open_counting(open, out);
  };
  t.open_rank = [](const kvc_host_api*, const kvc_open* open, kvc_rank** out) noexcept {
    return open_counting(open, out);
  };
  t.close_scheduler = [](kvc_sched* s) noexcept { close_counting(s); };
  t.close_rank = [](kvc_rank* r) noexcept { close_counting(r); };
  t.last_error_scheduler = [](const kvc_sched* s, char* buf, std::uint64_t cap,
                              std::uint64_t* needed) noexcept {
    return kvc_put(buf, cap, needed, line::bytes(line::from_handle<Counting>(s)->error));
  };
  t.last_error_rank = [](const kvc_rank* r, char* buf, std::uint64_t cap,
                         std::uint64_t* needed) noexcept {
    return kvc_put(buf, cap, needed, line::bytes(line::from_handle<Counting>(r)->error));
  };
  t.take_log_scheduler = [](kvc_sched* s, char* buf, std::uint64_t cap,
                            std::uint64_t* count) noexcept {
    return take_log(line::from_handle<Counting>(s), buf, cap, count);
  };
  t.take_log_rank = [](kvc_rank* r, char* buf, std::uint64_t cap, std::uint64_t* count) noexcept {
    return take_log(line::from_handle<Counting>(r), buf, cap, count);
  };
  t.pump_scheduler = [](kvc_sched*, std::uint32_t) noexcept -> kvc_status { return KVC_MORE; };
  t.pump_rank = [](kvc_rank*, std::uint32_t) noexcept -> kvc_status { return KVC_LATER; };
  t.request_begin = [](kvc_sched* s, const kvc_request*) noexcept -> kvc_status {
    ++line::from_handle<Counting>(s)->begun;
    return 99;  // a status that this minor does not know
  };
  t.alloc_update = alloc_update;
  t.take_events = take_events;
  t.stats = [](const kvc_sched* s, void* out, std::uint32_t stride, std::uint64_t cap,
               std::uint64_t* needed) noexcept -> kvc_status {
    *needed = 2;
    if (cap < 2) return KVC_E_ROOM;
    for (std::uint64_t i = 0; i < 2; ++i) {
      auto one = line::sized<kvc_stat>();
      one.name = line::bytes(i == 0 ? "first" : "second");
      one.value = line::from_handle<Counting>(s)->begun + i;
      if (kvc_write_at(out, stride, i, &one, sizeof one, kvc_stat_least) != KVC_OK) {
        return KVC_E_ARG;
      }
    }
    return KVC_OK;
  };
  return t;
}

kvc_plugin_api current;
kvc_status answer = KVC_OK;
kvc_status entry(std::uint32_t, kvc_plugin_api* out) noexcept {
  return answer == KVC_OK ? line::fill_table(out, current) : answer;
}

struct World {
  World() {
    current = table();
    answer = KVC_OK;
    group.caps_known = KVC_GROUP_CAPS_ALL;
    how.groups = line::list_of(&group, 1);
    BOOST_REQUIRE(line::Connector::load(entry, &connector, &why) == KVC_OK);
  }
  kvc_group group = line::sized<kvc_group>();
  kvc_open how = line::sized<kvc_open>();
  kvc_host_api host = line::sized<kvc_host_api>();
  line::Connector connector;
  std::string why;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(hpp)

BOOST_AUTO_TEST_CASE(a_handle_closes_itself_exactly_once) {
  World w;
  Counting::opened = Counting::closed = 0;
  {
    line::Scheduler s;
    line::Rank r;
    BOOST_REQUIRE(line::Scheduler::open(w.connector, w.host, w.how, &s) == KVC_OK);
    BOOST_REQUIRE(line::Rank::open(w.connector, w.host, w.how, &r) == KVC_OK);
    line::Scheduler moved = std::move(s);
    BOOST_TEST(!s.is_open());  // NOLINT: the state after a move is what is tested
    BOOST_TEST(moved.is_open());
    moved.close();
    moved.close();
    BOOST_REQUIRE(line::Rank::open(w.connector, w.host, w.how, &r) ==
                  KVC_OK);  // replaces the first
    BOOST_TEST(Counting::closed == 2);
  }
  BOOST_TEST(Counting::opened == 3);
  BOOST_TEST(Counting::closed == 3);
}

BOOST_AUTO_TEST_CASE(a_failed_open_leaves_nothing) {
  World w;
  Counting::opened = 0;
  w.group.struct_size = 8;
  line::Scheduler s;
  BOOST_TEST(line::Scheduler::open(w.connector, w.host, w.how, &s) == KVC_E_ARG);
  BOOST_TEST(!s.is_open());
  BOOST_TEST(Counting::opened == 0);
}

BOOST_AUTO_TEST_CASE(absent_optional_slots_answer_unsupported) {
  World w;
  current.caps = 0;
  current.take_events = nullptr;
  current.pump_scheduler = nullptr;
  current.pump_rank = nullptr;
  line::Connector c;
  BOOST_REQUIRE(line::Connector::load(entry, &c, &w.why) == KVC_OK);
  line::Scheduler s;
  line::Rank r;
  BOOST_REQUIRE(line::Scheduler::open(c, w.host, w.how, &s) == KVC_OK);
  BOOST_REQUIRE(line::Rank::open(c, w.host, w.how, &r) == KVC_OK);
  std::vector<kvc_event> events;
  BOOST_TEST(s.take_events(&events) == KVC_E_UNSUPPORTED);
  BOOST_TEST(s.pump(1) == KVC_E_UNSUPPORTED);
  BOOST_TEST(r.pump(1) == KVC_E_UNSUPPORTED);
}

BOOST_AUTO_TEST_CASE(each_required_slot_that_is_missing_is_named) {
  World w;
#define KVC_SLOT(slot, handle, role, attributes, minor, need, capability)     \
  {                                                                           \
    current = table();                                                        \
    current.slot = nullptr;                                                   \
    line::Connector c;                                                        \
    /* the optional ones too: their capability bit is set */                  \
    BOOST_TEST(line::Connector::load(entry, &c, &w.why) == KVC_E_ARG, #slot); \
    BOOST_TEST(w.why.find(" " #slot ",") != std::string::npos, w.why);        \
    BOOST_TEST(!c.loaded());                                                  \
  }
#include <kvc/kvc_calls.def>
}

BOOST_AUTO_TEST_CASE(a_table_cut_at_any_length_lacks_a_slot_or_loads) {
  World w;
  for (std::uint32_t n = 0; n <= sizeof(kvc_plugin_api); ++n) {
    current = table();
    static std::uint32_t cut;
    cut = n;
    const kvc_plugin_entry_fn short_entry = [](std::uint32_t, kvc_plugin_api* out) noexcept {
      out->struct_size = cut < out->struct_size ? cut : out->struct_size;
      const kvc_status s = line::fill_table(out, current);
      return s;
    };
    line::Connector c;
    const bool whole = n == sizeof(kvc_plugin_api);
    BOOST_TEST((line::Connector::load(short_entry, &c, &w.why) == KVC_OK) == whole, n);
  }
}

BOOST_AUTO_TEST_CASE(an_entry_that_refuses_is_reported_with_its_status) {
  World w;
  line::Connector c;
  answer = KVC_E_UNSUPPORTED;
  BOOST_TEST(line::Connector::load(entry, &c, &w.why) == KVC_E_UNSUPPORTED);
  BOOST_TEST(w.why.find("KVC_E_UNSUPPORTED") != std::string::npos);
  answer = KVC_LATER;  // not an error, but no table either
  BOOST_TEST(line::Connector::load(entry, &c, &w.why) < 0);
  answer = -42;
  BOOST_TEST(line::Connector::load(entry, &c, &w.why) == KVC_E_INTERNAL);
}

BOOST_AUTO_TEST_CASE(unknown_statuses_become_what_kvc_h_says) {
  BOOST_TEST(line::known(KVC_LATER) == KVC_LATER);
  BOOST_TEST(line::known(3) == KVC_OK);
  BOOST_TEST(line::known(KVC_E_DEADLINE) == KVC_E_DEADLINE);
  BOOST_TEST(line::known(-9) == KVC_E_INTERNAL);
  BOOST_TEST(line::known(KVC_E_INTERNAL) == KVC_E_INTERNAL);
  World w;
  line::Scheduler s;
  BOOST_REQUIRE(line::Scheduler::open(w.connector, w.host, w.how, &s) == KVC_OK);
  BOOST_TEST(s.request_begin(line::sized<kvc_request>()) == KVC_OK);
}

BOOST_AUTO_TEST_CASE(texts_counters_events_and_lists_come_through) {
  World w;
  line::Scheduler s;
  BOOST_REQUIRE(line::Scheduler::open(w.connector, w.host, w.how, &s) == KVC_OK);
  BOOST_TEST(s.last_error() == "the last error");
  BOOST_TEST(line::text(w.connector.describe().name) == "counting");
  std::vector<kvc_stat> stats;
  BOOST_TEST(s.stats(&stats) == KVC_OK);
  BOOST_REQUIRE_EQUAL(stats.size(), 2u);
  BOOST_TEST(line::text(stats[1].name) == "second");
  BOOST_TEST(s.stats(&stats) == KVC_OK);  // again, with room from before
  BOOST_TEST(stats.size() == 2u);

  auto& events = line::from_handle<Counting>(s.handle())->events;
  for (std::uint64_t i = 0; i < 600; ++i) {
    events.push_back(line::sized<kvc_event>());
    events.back().end_tokens = i;
  }
  std::vector<kvc_event> taken;
  BOOST_TEST(s.take_events(&taken) == KVC_OK);
  BOOST_REQUIRE_EQUAL(taken.size(), 600u);
  BOOST_TEST(taken.back().end_tokens == 599u);

  kvc_alloc_out out;
  BOOST_TEST(s.alloc_update(line::sized<kvc_alloc_in>(), &out) == KVC_OK);
  std::vector<std::int64_t> blocks;
  for (const kvc_block b : line::view<kvc_block>(out.held)) blocks.push_back(b.block);
  BOOST_TEST(blocks == (std::vector<std::int64_t>{7, 8, 9}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(each_role_reaches_its_own_slots_for_what_both_have) {
  World w;
  line::Scheduler s;
  line::Rank r;
  BOOST_REQUIRE(line::Scheduler::open(w.connector, w.host, w.how, &s) == KVC_OK);
  BOOST_REQUIRE(line::Rank::open(w.connector, w.host, w.how, &r) == KVC_OK);
  line::from_handle<Counting>(s.handle())->error = std::string(500, 's');
  line::from_handle<Counting>(r.handle())->error = std::string(700, 'r');
  BOOST_TEST(s.last_error() == std::string(500, 's'));
  BOOST_TEST(r.last_error() == std::string(700, 'r'));
  line::from_handle<Counting>(s.handle())->log = std::string(40'000, 'S');
  line::from_handle<Counting>(r.handle())->log = "line\n";
  std::string log = "before|";
  BOOST_TEST(s.take_log(&log) == KVC_OK);
  BOOST_TEST(log == "before|" + std::string(40'000, 'S'));
  BOOST_TEST(r.take_log(&log) == KVC_OK);
  BOOST_TEST(log == "before|" + std::string(40'000, 'S') + "line\n");
  BOOST_TEST(s.pump(1) == KVC_MORE);
  BOOST_TEST(r.pump(1) == KVC_LATER);

  Counting::closed = 0;
  line::Rank other;
  BOOST_REQUIRE(line::Rank::open(w.connector, w.host, w.how, &other) == KVC_OK);
  kvc_rank* const kept = other.handle();
  r = std::move(other);  // closes what it had
  BOOST_TEST(Counting::closed == 1);
  BOOST_TEST(r.handle() == kept);
  r.close();
  BOOST_TEST(Counting::closed == 2);
}

BOOST_AUTO_TEST_CASE(a_view_reads_older_and_newer_elements) {
  struct Newer {
    kvc_block old;
    std::uint64_t more;
  };
  std::vector<Newer> newer(2);
  for (auto& n : newer) {
    n.old = line::sized<kvc_block>();
    n.old.struct_size = sizeof(Newer);
    n.old.position = 11;
    n.more = UINT64_MAX;
  }
  const auto of_newer = line::view<kvc_block>(line::list_of(newer));
  BOOST_TEST(of_newer.size() == 2u);
  BOOST_TEST(of_newer[1].position == 11u);
  BOOST_TEST(of_newer[1].struct_size == sizeof(kvc_block));

  struct Older {
    std::uint32_t struct_size;
    std::uint32_t group;
  };
  const std::vector<Older> older(3, Older{sizeof(Older), 4});
  const auto of_older = line::view<kvc_block>(line::list_of(older));
  BOOST_TEST(of_older[2].group == 4u);
  BOOST_TEST(of_older[2].position == 0u);
  const kvc_block last = of_older[2];
  BOOST_TEST(!KVC_HAS(&last, kvc_block, position));

  kvc_list bad = line::list_of(older);
  bad.data = nullptr;
  BOOST_TEST(line::view<kvc_block>(bad).empty());
}

BOOST_AUTO_TEST_CASE(no_exception_passes_the_guard) {
  std::string told;
  const auto note = [&](std::string_view t) { told = t; };
  BOOST_TEST(line::guard([]() -> kvc_status { throw std::bad_alloc(); }, note) == KVC_E_FULL);
  BOOST_TEST(told.empty());
  BOOST_TEST(line::guard([]() -> kvc_status { throw std::runtime_error("why"); }, note) ==
             KVC_E_INTERNAL);
  BOOST_TEST(told == "why");
  BOOST_TEST(line::guard([]() -> kvc_status { throw 1; }, note) == KVC_E_INTERNAL);
  BOOST_TEST(line::guard([]() -> kvc_status { return KVC_LATER; }, note) == KVC_LATER);
}

BOOST_AUTO_TEST_CASE(a_request_list_is_read_whole_or_refused) {
  std::vector<kvc_group> in(3, line::sized<kvc_group>());
  std::vector<kvc_group> out;
  BOOST_TEST(line::read_list(&out, line::list_of(in), 3) == KVC_OK);
  BOOST_TEST(out.size() == 3u);
  BOOST_TEST(line::read_list(&out, line::list_of(in), 2) == KVC_E_ARG);
  in[2].struct_size = 4;
  BOOST_TEST(line::read_list(&out, line::list_of(in), 3) == KVC_E_ARG);
  kvc_list list = line::list_of(in);
  list.reserved0 = 1;
  BOOST_TEST(line::read_list(&out, list, 3) == KVC_E_UNSUPPORTED);
}

BOOST_AUTO_TEST_SUITE_END()
