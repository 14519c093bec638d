// What can be asked at any time: counts, rows, texts, events; and that answers stay as they are.
#include <kvc/kvc_util.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <stop_token>
#include <thread>

#include <nlohmann/json.hpp>

#include "conformance/cases/families.h"
#include "conformance/cases/support.h"
#include "host_stub/loader/status_text.h"

namespace kvc::conform {

namespace {

std::string text_of(kvc_bytes b) {
  return b.size == 0 ? std::string() : std::string(reinterpret_cast<const char*>(b.data), b.size);
}

// Requests of several fates; the rig judges the balance after every call.
void many_fates(World& w) {
  for (std::uint64_t id = 1; id <= 6; ++id) {
    w.begin(id, prompt(id % 4, 3));
    w.load(id);
    w.request(id).computed = 0;
    w.drop_blocks(id);
    w.preempt(id);
    w.step();
    w.take(id, 0);
    w.compute(id, 16);
    w.step();
    w.compute(id, 48, 32);
    w.step();
    w.schedule(id, 48);
    w.step();
    w.end(id, static_cast<std::int32_t>(id % 4));
  }
  w.drain();
}

void counts_balance(Context& c) {
  for (Layout& layout : layouts(c)) {
    if (layout.setup.groups.size() > 3 || layout.setup.cp > 2) continue;
    try {
      World w(c, layout.setup);
      const std::uint64_t n = 3 * w.setup().s;
      w.store(1, tokens_of(1, n + 1), n);
      w.begin(2, tokens_of(2, n + 1));
      w.take(2, 0);
      compute_step(w, 2, w.setup().s);
      w.preempt(2);
      w.step();
      w.end(2, KVC_END_ABORT, 0);
      w.reset();
      w.store(3, tokens_of(3, n + 1), n);
      w.drain();
      w.check_quiet();
    } catch (const rig::Declined&) {
      continue;
    }
  }
  World w(c, c.plain());
  many_fates(w);
  w.check_quiet();
}

void rows_are_monotonic(Context& c) {
  World w(c, c.plain());
  std::map<std::string, std::uint64_t> last;
  const auto look = [&](std::string_view when) {
    std::map<std::string, std::uint64_t> now;
    for (const kvc_stat& row : w.all_stats()) {
      const std::string name = text_of(row.name);
      c.expect(!name.empty(), "KVC-P-111", "a row without name");
      const std::string key = name + "{" + text_of(row.labels) + "}";
      c.expect(now.emplace(key, row.value).second, "KVC-P-111", "row {} stands twice", key);
      const auto before = last.find(key);
      c.expect(before == last.end() || before->second <= row.value || name.ends_with("_now"),
               "KVC-P-111", "{} fell from {} to {} {}", key,
               before == last.end() ? 0 : before->second, row.value, when);
    }
    for (const auto& [key, value] : last) {
      c.expect(now.count(key) != 0, "KVC-P-111", "row {} is gone {}", key, when);
    }
    last = now;
  };
  look("after open");
  many_fates(w);
  look("after some requests");
  w.reset();
  look("after a reset");
  w.store(100, prompt(9, 2), 32);
  look("after a store");
}

void pending_is_right(Context& c) {
  World w(c, c.plain());
  const auto says = [&](std::uint64_t loads, std::uint64_t stores, std::uint64_t held,
                        std::string_view when) {
    const kvc_pending p = w.pending();
    c.expect(p.load_jobs == loads && p.store_jobs == stores && p.held_blocks == held, "KVC-P-112",
             "{}: {} loads, {} stores, {} held blocks; has_pending says {}, {}, {}", when, loads,
             stores, held, p.load_jobs, p.store_jobs, p.held_blocks);
  };
  says(0, 0, 0, "at the start");
  w.begin(1, prompt(1, 2));
  w.take(1, 0);
  w.compute(1, 32);
  const Planned p = w.plan();
  says(0, p.stores.size(), w.held_count(), "with a store planned");
  w.submit(p);
  w.pump();
  says(0, p.stores.size(), w.held_count(), "with a store copied, not reported");
  w.complete(w.reports());
  says(0, 0, 0, "after its report");
  w.begin(2, prompt(1, 2));
  const std::uint64_t hit = w.lookup(2).tokens;
  w.take(2, hit);
  says(hit == 0 ? 0 : 1, 0, w.held_count(), "with a load accepted");
  w.step();
  says(0, 0, 0, "after its report");
}

void explain_is_json(Context& c) {
  World w(c, c.plain());
  w.store(7, prompt(1, 2), 32);
  w.begin(8, prompt(1, 2));
  w.lookup(8);
  for (const std::uint64_t id : {0U, 7U, 8U}) {
    const std::string text = w.explain(id);
    c.expect(!text.empty(), "KVC-P-113", "explain({}) has no text", id);
    c.expect(nlohmann::json::accept(text), "KVC-P-113", "explain({}) is no JSON: {}", id,
             text.substr(0, 200));
  }
  std::uint64_t needed = 0;
  for (const std::uint64_t id : {std::uint64_t{99}, UINT64_MAX}) {
    const kvc_status s = w.api().explain(w.sched(), id, nullptr, 0, &needed);
    c.expect(s == KVC_E_ARG, "KVC-P-113", "explain of unknown {} answered {}", id, host::Said{s});
  }
}

using Key = std::vector<std::uint8_t>;

// Router and engine agree on keys (field report 144): events name blocks by the engine's own keys.
void events(Context& c) {
  if (!c.can(KVC_CAP_EVENTS)) Context::skip("KVC_CAP_EVENTS");
  World w(c, c.plain());
  const Tokens tokens = prompt(1, 6);
  w.store(1, tokens, 96);
  w.begin(2, tokens);
  const Key keys = w.keys_of(w.request(2), 6);
  const auto key = [&](std::uint64_t i) {
    return Key(keys.begin() + static_cast<std::ptrdiff_t>(16 * i),
               keys.begin() + static_cast<std::ptrdiff_t>(16 * (i + 1)));
  };
  std::uint64_t count = 0;
  std::vector<kvc_event> all;
  for (int i = 0; i < 1000; ++i) {
    kvc_event e{};
    const kvc_status s = w.api().take_events(w.sched(), &e, sizeof e, 1, &count);
    c.need(s == KVC_OK || s == KVC_MORE, "KVC-P-114", "take_events answered {}", host::Said{s});
    c.need(count <= 1 && (s == KVC_OK || count == 1), "KVC-P-114",
           "take_events with room for 1 wrote {} and answered {}", count, host::Said{s});
    if (count == 1) all.push_back(e);
    if (s == KVC_OK) break;
  }
  c.expect(all.size() == w.counts().all_offers.stored, "KVC-P-114", "{} events, {} blocks stored",
           all.size(), w.counts().all_offers.stored);
  std::uint64_t last = 0;
  for (const kvc_event& e : all) {
    c.expect(e.kind == KVC_EVENT_STORED && e.group == 0, "KVC-P-114", "kind {} of group {}", e.kind,
             e.group);
    c.expect(e.begin_tokens < e.end_tokens && e.end_tokens % 16 == 0 && e.end_tokens <= 96,
             "KVC-P-114", "an event of [{}, {})", e.begin_tokens, e.end_tokens);
    c.expect(e.end_tokens > last, "KVC-P-114", "an event of end {} behind one of {}", e.end_tokens,
             last);
    last = e.end_tokens;
    c.need(e.key_bytes == 16 && e.end_tokens >= 16, "KVC-P-114", "a key of {} bytes", e.key_bytes);
    c.expect(Key(e.key, e.key + 16) == key(e.end_tokens / 16 - 1), "KVC-P-114",
             "the key of the event of end {} is not the engine's", e.end_tokens);
    if (e.has_parent == 0 || e.begin_tokens < 16) continue;
    c.expect(Key(e.parent_key, e.parent_key + 16) == key(e.begin_tokens / 16 - 1), "KVC-P-114",
             "the parent key of the event of end {} is not the engine's", e.end_tokens);
  }
  w.end(2, KVC_END_ABORT);
  w.reset();
  bool cleared = false;
  for (const kvc_event& e : w.events()) cleared = cleared || e.kind == KVC_EVENT_CLEARED;
  c.expect(cleared, "KVC-P-114", "a reset of a tier with blocks gives no CLEARED event");
}

void log_drains(Context& c) {
  Setup s = c.plain();
  s.host_log = false;
  World w(c, s);
  w.begin(1, prompt(1, 1));
  w.take(1, 0);
  for (std::uint64_t i = 0; i < 30; ++i) w.preempted.push_back(1000 + i);
  w.step();
  std::string all;
  std::vector<char> room(4096);
  for (const std::uint64_t cap : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{256}}) {
    for (int i = 0; i < 200; ++i) {
      std::uint64_t n = 0;
      const kvc_status status = w.api().take_log_scheduler(w.sched(), room.data(), cap, &n);
      c.need(status == KVC_OK || status == KVC_MORE, "KVC-P-115", "take_log answered {}",
             host::Said{status});
      c.need(n <= cap, "KVC-P-115", "take_log wrote {} bytes into {}", n, cap);
      all.append(room.data(), n);
      c.expect(n == 0 || room[n - 1] == '\n', "KVC-P-115", "take_log of {} bytes ends in a line",
               cap);
      if (status == KVC_OK || n == 0) break;
    }
  }
  std::uint64_t n = 1;
  const kvc_status over = w.api().take_log_scheduler(w.sched(), room.data(), room.size(), &n);
  c.expect(over == KVC_OK && n == 0, "KVC-P-115", "a drained log: status {}, {} bytes",
           host::Said{over}, n);
  c.expect(!all.empty(), "KVC-P-115", "30 faults of the host are no line");
  std::uint64_t rank_bytes = 0;
  const kvc_status rank = w.api().take_log_rank(w.rank(0), room.data(), room.size(), &rank_bytes);
  c.expect(rank == KVC_OK || rank == KVC_MORE, "KVC-P-115", "take_log_rank answered {}",
           host::Said{rank});
}

void sizes(Context& c) {
  World w(c, c.plain());
  w.store(1, prompt(1, 2), 32);
  Raw(w).lookup(0, 1, 0);  // a failure to have a text
  using Query = std::function<kvc_status(char*, std::uint64_t, std::uint64_t*)>;
  const std::pair<const char*, Query> texts[] = {
      {"explain", [&](char* b, std::uint64_t n,
                      std::uint64_t* m) { return w.api().explain(w.sched(), 0, b, n, m); }},
      {"last_error_scheduler",
       [&](char* b, std::uint64_t n, std::uint64_t* m) {
         return w.api().last_error_scheduler(w.sched(), b, n, m);
       }},
      {"last_error_rank", [&](char* b, std::uint64_t n, std::uint64_t* m) {
         return w.api().last_error_rank(w.rank(0), b, n, m);
       }}};
  for (const auto& [name, query] : texts) {
    std::uint64_t needed = UINT64_MAX;
    const kvc_status s = query(nullptr, 0, &needed);
    c.need(needed != UINT64_MAX && s == (needed == 0 ? KVC_OK : KVC_E_ROOM), "KVC-P-011",
           "{} without buffer answered {}, needed {}", name, host::Said{s}, needed);
    for (const std::uint64_t room :
         {needed / 2, needed - std::min<std::uint64_t>(needed, 1), needed, needed + 1}) {
      std::vector<char> buffer(needed + 8, '\x7F');
      std::uint64_t again = 0;
      const kvc_status got = query(buffer.data(), room, &again);
      c.expect(got == (room < needed ? KVC_E_ROOM : KVC_OK), "KVC-P-011",
               "{} of {} bytes with room for {} answered {}", name, needed, room, host::Said{got});
      c.expect(again == needed, "KVC-P-011", "{}: needed was {} and is {}", name, needed, again);
      const std::size_t from = got == KVC_OK ? needed : 0;
      c.expect(std::all_of(buffer.begin() + static_cast<std::ptrdiff_t>(from), buffer.end(),
                           [](char ch) { return ch == '\x7F'; }),
               "KVC-P-011", "{} with room for {} wrote where nothing was to be written", name,
               room);
    }
    c.expect(query(nullptr, 0, nullptr) == KVC_E_ARG, "KVC-P-011", "{} without needed", name);
  }
  std::uint64_t rows = UINT64_MAX;
  const kvc_status s = w.api().stats(w.sched(), nullptr, sizeof(kvc_stat), 0, &rows);
  c.expect(rows != UINT64_MAX && s == (rows == 0 ? KVC_OK : KVC_E_ROOM), "KVC-P-011",
           "stats without buffer answered {}", host::Said{s});
}

void error_texts(Context& c) {
  World w(c, c.plain());
  c.expect(w.last_error().empty(), "KVC-P-010", "before any failure the text is \"{}\"",
           w.last_error());
  Raw raw(w);
  raw.lookup(4711, 33, 0);
  const std::string first = w.last_error();
  c.expect(!first.empty(), "KVC-P-010", "a failed lookup has no text");
  w.begin(1, prompt(1, 2));
  w.take(1, 0);
  c.expect(w.last_error() == first, "KVC-P-010", "a success changed the text to \"{}\"",
           w.last_error());
  raw.begin(0, 33, 2);
  c.expect(w.last_error() != first && !w.last_error().empty(), "KVC-P-010",
           "the text after another failure is \"{}\"", w.last_error());
  World other(c, c.plain());
  c.expect(other.last_error().empty(), "KVC-P-010", "a handle without failure says \"{}\"",
           other.last_error());
}

// Lists and bytes stay as they are until the next call of the same slot.
void answers_stay(Context& c) {
  World w(c, c.plain());
  w.store(1, prompt(1, 3), 48);
  w.begin(2, prompt(2, 3));
  w.take(2, 0);
  w.compute(2, 48);
  // A plan by hand, to look at its own memory later.
  const std::vector<kvc_table> tables = {
      {sizeof(kvc_table), 0, w.request(2).tables[0].data(), w.request(2).tables[0].size(), 0}};
  const kvc_step_request record{sizeof record, 0, 2, 48,
                                kvc_list_of(tables.data(), 1, sizeof(kvc_table))};
  auto step = sized<kvc_step>();
  step.step = w.next_step;
  step.scheduled = kvc_list_of(&record, 1, sizeof record);
  auto plan = sized<kvc_plan>();
  c.need(w.api().build_store_jobs(w.sched(), &step, &plan) == KVC_OK, "KVC-P-081", "a step failed");
  const auto copy = [](const void* data, std::uint64_t n) {
    const auto* const bytes = static_cast<const std::uint8_t*>(data);
    return n == 0 ? std::vector<std::uint8_t>() : std::vector<std::uint8_t>(bytes, bytes + n);
  };
  const auto bytes = copy(plan.bytes.data, plan.bytes.size);
  const auto jobs = copy(plan.jobs.data, plan.jobs.count * plan.jobs.stride);
  for (std::uint64_t id = 10; id < 30; ++id) {
    w.begin(id, prompt(id % 3, 3));
    w.lookup(id);
    kvc_alloc_out out{};
    w.try_take(id, 0, out);
    w.complete({});
    w.end(id, KVC_END_ABORT, 0);
  }
  w.lookup_cancel(2);
  w.counts();
  w.explain();
  c.expect(copy(plan.bytes.data, plan.bytes.size) == bytes, "KVC-P-016",
           "the plan's bytes changed before the next build_store_jobs");
  c.expect(copy(plan.jobs.data, plan.jobs.count * plan.jobs.stride) == jobs, "KVC-P-016",
           "the plan's list of jobs changed before the next build_store_jobs");
}

// What answers an error has changed nothing: the same life with refused calls between all others
// has the same answers.
void errors_change_nothing(Context& c) {
  const auto life = [&](bool disturbed) {
    World w(c, c.plain());
    Raw raw(w);
    const auto disturb = [&] {
      if (!disturbed) return;
      raw.begin(0, 33, 2);
      raw.begin(4712, UINT64_MAX, 0);
      raw.extend(1, 999, 1);
      raw.lookup(1, 0, 0);
      raw.lookup(4711, 1, 0);
      raw.alloc(1, 17);
      raw.alloc(4711, 0);
      raw.end(4711, 0);
      w.lookup_cancel(4711);
      w.reset(std::uint64_t{1} << 40U);
      Planned p;
      w.try_plan(p, 0);
    };
    std::vector<std::uint64_t> all;
    for (std::uint64_t id = 1; id <= 3; ++id) {
      disturb();
      w.begin(id, prompt(1, 3));
      disturb();
      const Found f = w.lookup(id);
      all.push_back(f.tokens);
      disturb();
      w.take(id, f.tokens);
      disturb();
      w.step();
      w.request(id).computed = f.tokens;
      w.compute(id, 48);
      disturb();
      w.step();
      disturb();
      w.end(id);
      w.drain();
    }
    const kvc_offer_counts n = w.counts().all_offers;
    all.insert(all.end(), {n.published, n.stored, n.skipped_already_cached, n.dropped_bad_offer,
                           n.dropped_no_parent, n.pending});
    w.check_quiet();
    return all;
  };
  c.expect(life(false) == life(true), "KVC-P-009",
           "with refused calls in between the answers are others");
}

void other_threads(Context& c) {
  World w(c, c.plain());
  std::atomic<std::uint64_t> wrong{0};
  // Ends on every way out: a finding may be the end of the case.
  std::jthread reader([&](const std::stop_token& stop) {
    std::vector<kvc_stat> rows(1024);
    std::vector<char> text(1 << 20);
    while (!stop.stop_requested()) {
      auto counts = sized<kvc_boundary_stats>();
      auto pending = sized<kvc_pending>();
      auto description = sized<kvc_description>();
      std::uint64_t n = 0;
      if (w.api().boundary_stats(w.sched(), &counts) != KVC_OK) ++wrong;
      if (counts.all_offers.published < counts.all_offers.stored) ++wrong;
      if (w.api().has_pending(w.sched(), &pending) != KVC_OK) ++wrong;
      const auto stride = static_cast<std::uint32_t>(sizeof(kvc_stat));
      if (w.api().stats(w.sched(), rows.data(), stride, rows.size(), &n) != KVC_OK) ++wrong;
      const kvc_status s = w.api().explain(w.sched(), 0, text.data(), text.size(), &n);
      if (s != KVC_OK && s != KVC_E_ROOM) ++wrong;
      if (w.api().describe(&description) != KVC_OK) ++wrong;
      w.api().extension(kvc_text_of("kvc.unknown/1"));
    }
  });
  for (std::uint64_t i = 1; i <= 150; ++i) w.store(i, prompt(i % 9, 1 + i % 4), 16 * (1 + i % 4));
  reader.request_stop();
  reader.join();
  c.expect(wrong == 0, "KVC-P-116", "{} queries from another thread failed or were torn",
           wrong.load());
}

// Every status of every call is judged in every case (conformance/rig/watch.h); here for many.
void only_known_statuses(Context& c) {
  World w(c, c.plain());
  many_fates(w);
  Raw raw(w);
  for (const std::uint64_t n : odd_numbers) {
    raw.begin(n, n, 0);
    raw.extend(n, n, 0);
    raw.lookup(n, n, n);
    raw.alloc(n, n);
    raw.end(n, n);
  }
  w.reset();
  w.check_counts = false;
  w.api().pump_scheduler(w.sched(), 1);
  w.api().wait(w.rank(0), nullptr, 0, 0);
}

void poisoned_handles(Context& c) {
  World w(c, c.plain());
  w.store(1, prompt(1, 2), 32);
  w.begin(2, prompt(1, 2));
  kvc_status broken = KVC_OK;
  {
    const Fault fault(c, "edge.broken_invariant");
    if (!fault.there()) Context::skip("kvc.test/1: no invariant can be broken");
    w.check_counts = false;
    broken = w.lookup(2).status;
  }
  if (broken != KVC_E_INTERNAL) Context::skip("kvc.test/1 without the point edge.broken_invariant");
  const std::pair<const char*, kvc_status> answers[] = {
      {"lookup", w.lookup(2).status},        {"request_begin", w.try_begin(4, prompt(4, 1))},
      {"lookup_cancel", w.lookup_cancel(2)}, {"reset", w.reset()},
      {"complete", w.complete({}).status},
  };
  for (const auto& [slot, s] : answers) {
    c.expect(s == KVC_E_INTERNAL, "KVC-P-013", "{} of a poisoned handle answered {}", slot,
             host::Said{s});
  }
  Planned p;
  const kvc_status build = w.try_plan(p);
  c.expect(build == KVC_E_INTERNAL, "KVC-P-013", "build_store_jobs of a poisoned handle: {}",
           build);
  w.counts();
  w.pending();
  c.expect(!w.last_error().empty(), "KVC-P-010", "a poisoned handle has no text");
}

constexpr Case cases[] = {
    {"queries.counts_balance", "KVC-P-110", counts_balance},
    {"queries.rows_are_monotonic", "KVC-P-111", rows_are_monotonic},
    {"queries.pending_is_right", "KVC-P-112", pending_is_right},
    {"queries.explain_is_json", "KVC-P-113", explain_is_json},
    {"queries.events_have_the_engines_keys", "KVC-P-114", events},
    {"queries.the_log_drains", "KVC-P-115", log_drains},
    {"queries.sizes", "KVC-P-011", sizes},
    {"queries.error_texts", "KVC-P-010", error_texts},
    {"queries.answers_stay", "KVC-P-016", answers_stay},
    {"queries.errors_change_nothing", "KVC-P-009", errors_change_nothing},
    {"queries.from_other_threads", "KVC-P-116", other_threads},
    {"queries.only_known_statuses", "KVC-P-012", only_known_statuses},
    {"queries.poisoned_handles", "KVC-P-013", poisoned_handles},
};

}  // namespace

std::span<const Case> query_cases() { return cases; }

}  // namespace kvc::conform
