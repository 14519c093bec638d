// Opening and closing: layouts, options, what a host may lack, and that nothing stays behind.
#include <kvc/kvc_util.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <optional>
#include <thread>

#include <nlohmann/json.hpp>

#include "conformance/cases/families.h"
#include "conformance/cases/support.h"
#include "conformance/rig/device_memory.h"
#include "host_stub/loader/status_text.h"

namespace kvc::conform {

namespace {

using rig::full;

void defaults_work(Context& c) {
  World w(c, c.plain());
  one_life(w);
}

// What a raw open answers, and what it logged.
struct Tried {
  kvc_status status = KVC_OK;
  bool handle = false;
  std::vector<std::string> texts;
};

// Opens with a log of its own, so that the lines are those of this open.
struct Trial {
  explicit Trial(Context& context) : c(context), host{} {
    host.struct_size = sizeof host;
    host.self = reinterpret_cast<kvc_host*>(this);
    if (c.can(KVC_CAP_STEPPED)) host.caps = KVC_HOST_STEPPED;
    host.now_ns = [](kvc_host*) noexcept { return std::uint64_t{1}; };
    host.log = [](kvc_host* h, std::int32_t, kvc_bytes text) noexcept {
      const char* const data = reinterpret_cast<const char*>(text.data);
      reinterpret_cast<Trial*>(h)->texts.emplace_back(data, text.size);
    };
  }
  Tried scheduler(const kvc_open& open) {
    texts.clear();
    kvc_sched* s = reinterpret_cast<kvc_sched*>(this);  // must become NULL
    const kvc_status status = c.api().open_scheduler(&host, &open, &s);
    Tried t{status, s != nullptr, texts};
    if (status == KVC_OK) c.api().close_scheduler(s);
    return t;
  }
  Tried rank(const kvc_open& open) {
    texts.clear();
    kvc_rank* r = reinterpret_cast<kvc_rank*>(this);
    const kvc_status status = c.api().open_rank(&host, &open, &r);
    Tried t{status, r != nullptr, texts};
    if (status == KVC_OK) c.api().close_rank(r);
    return t;
  }
  Context& c;
  kvc_host_api host;
  std::vector<std::string> texts;
};

// Whether a text tells where to look: a number, or the field by its name.
bool names_something(const std::vector<std::string>& texts) {
  return std::any_of(texts.begin(), texts.end(), [](const std::string& t) {
    return t.find("kvc_open") != std::string::npos || t.find("group") != std::string::npos ||
           std::any_of(t.begin(), t.end(), [](unsigned char ch) { return std::isdigit(ch) != 0; });
  });
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& t : texts) all += (all.empty() ? "" : " | ") + t;
  return all;
}

void must_refuse(Context& c, const Tried& t, RuleId rule, std::string_view what) {
  c.expect(t.status == KVC_E_ARG || t.status == KVC_E_UNSUPPORTED, rule, "{}: open answered {}",
           what, host::Said{t.status});
  if (t.status == KVC_OK) return;
  c.expect(!t.handle, rule, "{}: open answered {} and left *out as it was", what,
           host::Said{t.status});
  c.expect(!t.texts.empty() && !joined(t.texts).empty(), rule,
           "{}: open answered {} and logged nothing", what, host::Said{t.status});
}

struct BadOpen {
  std::string_view what;
  void (*change)(kvc_open&, std::vector<kvc_group>&);
};

constexpr BadOpen bad_opens[] = {
    {"no groups", [](kvc_open&, std::vector<kvc_group>& g) { g.clear(); }},
    {"65 groups", [](kvc_open&, std::vector<kvc_group>& g) { g.resize(65, g[0]); }},
    {"an unknown kind", [](kvc_open&, std::vector<kvc_group>& g) { g[0].kind = 77; }},
    {"a negative kind", [](kvc_open&, std::vector<kvc_group>& g) { g[0].kind = -1; }},
    {"caps_known without CACHEABLE",
     [](kvc_open&, std::vector<kvc_group>& g) { g[0].caps_known &= ~KVC_GROUP_CAP_CACHEABLE; }},
    {"no caps_known", [](kvc_open&, std::vector<kvc_group>& g) { g[0].caps_known = 0; }},
    {"an unknown group bit",
     [](kvc_open&, std::vector<kvc_group>& g) {
       g[0].caps |= std::uint64_t{1} << 40U;
       g[0].caps_known |= std::uint64_t{1} << 40U;
     }},
    {"blocks of 0 tokens", [](kvc_open&, std::vector<kvc_group>& g) { g[0].tokens_per_block = 0; }},
    {"a state group without STATE",
     [](kvc_open&, std::vector<kvc_group>& g) { g[0].kind = KVC_GROUP_STATE; }},
    {"a hash unit of 0", [](kvc_open& o, std::vector<kvc_group>&) { o.hash_unit_tokens = 0; }},
    {"a scheduler block of 0",
     [](kvc_open& o, std::vector<kvc_group>&) { o.scheduler_block_tokens = 0; }},
    {"context parallel of 0", [](kvc_open& o, std::vector<kvc_group>&) { o.context_parallel = 0; }},
    {"no ranks", [](kvc_open& o, std::vector<kvc_group>&) { o.ranks = 0; }},
    {"3 ranks, context parallel 2",
     [](kvc_open& o, std::vector<kvc_group>&) {
       o.ranks = 3;
       o.context_parallel = 2;
     }},
    {"an interleave of 0",
     [](kvc_open& o, std::vector<kvc_group>&) { o.cp_interleave_tokens = 0; }},
    {"no device blocks", [](kvc_open& o, std::vector<kvc_group>&) { o.device_blocks = 0; }},
    {"keys of 7 bytes", [](kvc_open& o, std::vector<kvc_group>&) { o.key_bytes = 7; }},
    {"keys of 33 bytes", [](kvc_open& o, std::vector<kvc_group>&) { o.key_bytes = 33; }},
    {"an unknown flag",
     [](kvc_open& o, std::vector<kvc_group>&) { o.flags = std::uint64_t{1} << 33U; }},
};

void bad_layouts(Context& c) {
  World w(c, c.plain());
  Trial trial(c);
  for (const BadOpen& bad : bad_opens) {
    for (const bool rank : {false, true}) {
      kvc_open o = w.open_struct();
      std::vector<kvc_group> groups(1);
      std::memcpy(&groups[0], o.groups.data, sizeof(kvc_group));
      bad.change(o, groups);
      o.groups = kvc_list_of(groups.data(), groups.size(), sizeof(kvc_group));
      const Tried t = rank ? trial.rank(o) : trial.scheduler(o);
      must_refuse(c, t, "KVC-P-030", bad.what);
      c.expect(t.status == KVC_OK || names_something(t.texts), "KVC-P-030",
               "{}: the text names no group, bit or number: {}", bad.what, joined(t.texts));
    }
  }
  kvc_open o = w.open_struct();
  o.rank = o.ranks;
  must_refuse(c, trial.rank(o), "KVC-P-030", "rank 1 of 1");
}

// Block sizes that cannot work together: the text says whose they are (field report 118).
struct Misfit {
  std::string_view what;
  std::vector<Group> groups;
  std::uint64_t h, s;
  std::vector<std::string_view> named;  // the group and the sizes
};

void sizes_that_do_not_fit(Context& c) {
  const Misfit rows[] = {
      {"24 tokens, hash unit 16", {full(16), full(24)}, 16, 48, {"group 1", "24", "16"}},
      {"24 tokens, scheduler block 32", {full(16), full(24)}, 8, 32, {"group 1", "24", "32"}},
      {"8 tokens, hash unit 32", {full(32), rig::sliding(8, 128)}, 32, 32, {"group 1", "8", "32"}},
      {"scheduler block 40, hash unit 16", {full(16), full(16)}, 16, 40, {"40", "16"}},
  };
  std::size_t refused = 0;
  for (const Misfit& row : rows) {
    Setup s = c.layout(row.groups);
    s.h = 8;  // opens with sizes that fit, if at all
    s.s = 96;
    try {
      World w(c, s);
      kvc_open o = w.open_struct();
      o.hash_unit_tokens = row.h;
      o.scheduler_block_tokens = row.s;
      Trial trial(c);
      for (const bool rank : {false, true}) {
        const Tried t = rank ? trial.rank(o) : trial.scheduler(o);
        if (t.status == KVC_OK) continue;
        ++refused;
        must_refuse(c, t, "KVC-P-030", row.what);
        for (const std::string_view part : row.named) {
          c.expect(joined(t.texts).find(part) != std::string::npos, "KVC-P-030",
                   "{}: the text says nothing of \"{}\": {}", row.what, part, joined(t.texts));
        }
      }
    } catch (const rig::Declined&) {
      continue;
    }
  }
  if (refused == 0) Context::skip("sizes that do not fit: the connector serves them all");
}

// A layout is declined at open or served to the end (field report 124): not found out later.
void layouts_are_declined_at_open(Context& c) {
  std::string declined;
  std::size_t served = 0;
  for (Layout& layout : layouts(c)) {
    try {
      World w(c, layout.setup);
      const std::uint64_t n = 4 * w.setup().s;
      w.store(1, tokens_of(1, n + 1), n);
      w.begin(2, tokens_of(1, n + 1));
      w.load(2);
      w.end(2, KVC_END_ABORT);
      w.drain();
      w.check_quiet();
      ++served;
    } catch (const rig::Declined& d) {
      declined += fmt::format("{}{}", declined.empty() ? "" : ", ", layout.name);
    }
  }
  c.expect(served != 0, "KVC-P-030", "every layout was declined: {}", declined);
}

void bad_toml(Context& c) {
  World w(c, c.plain());
  Trial trial(c);
  const std::string wild(100'000, '[');
  const std::pair<std::string, std::string> rows[] = {
      {"surely_no_option_of_anyone = 1\n", "surely_no_option_of_anyone"},
      {"[surely_no_table_of_anyone]\nx = 1\n", "surely_no_table_of_anyone"},
      {"# fine\n\nthis is no toml\n", "3"},
      {"x = \n", "1"},
      {"x = \"\xFF\xFE\"\n", ""},
      {std::string("x = 1\0y", 7), ""},
      {wild, ""},
  };
  for (const auto& [toml, part] : rows) {
    for (const bool rank : {false, true}) {
      kvc_open o = w.open_struct();
      o.config_toml = kvc_bytes_of(toml.data(), toml.size());
      const Tried t = rank ? trial.rank(o) : trial.scheduler(o);
      const std::string shown = toml.substr(0, toml.find('\n')).substr(0, 40);
      c.expect(t.status == KVC_E_ARG, "KVC-P-031", "TOML \"{}\": open answered {}", shown,
               host::Said{t.status});
      if (t.status == KVC_OK) continue;
      c.expect(!t.handle, "KVC-P-031", "TOML \"{}\": *out is not NULL", shown);
      const std::string text = joined(t.texts);
      // The key, or the line in which it stands.
      c.expect(!text.empty() && (text.find(part) != std::string::npos || names_something(t.texts)),
               "KVC-P-031", "TOML \"{}\": the text names neither key nor line: {}", shown, text);
    }
  }
  kvc_open o = w.open_struct();
  o.config_toml = {nullptr, 12};
  must_refuse(c, trial.scheduler(o), "KVC-P-031", "12 bytes of TOML without data");
}

void failed_opens_leave_nothing(Context& c) {
  Setup s = c.plain();
  s.host_alloc = true;
  World w(c, s);
  const std::uint64_t threads = thread_count();
  const std::uint64_t live = w.host_memory().live();
  for (int i = 0; i < 20; ++i) {
    for (const BadOpen& bad : bad_opens) {
      kvc_open o = w.open_struct();
      std::vector<kvc_group> groups(1);
      std::memcpy(&groups[0], o.groups.data, sizeof(kvc_group));
      bad.change(o, groups);
      o.groups = kvc_list_of(groups.data(), groups.size(), sizeof(kvc_group));
      kvc_sched* sched = nullptr;
      kvc_rank* rank = nullptr;
      if (c.api().open_scheduler(&w.host(), &o, &sched) == KVC_OK) c.api().close_scheduler(sched);
      if (c.api().open_rank(&w.host(), &o, &rank) == KVC_OK) c.api().close_rank(rank);
    }
  }
  c.expect(w.host_memory().live() == live, "KVC-P-032", "{} pieces of memory are left behind",
           w.host_memory().live() - live);
  c.expect(thread_count() == threads, "KVC-P-032", "{} threads are left behind",
           thread_count() - threads);
  one_life(w);
}

void closing_nothing(Context& c) {
  c.api().close_scheduler(nullptr);
  c.api().close_rank(nullptr);
  c.api().close_scheduler(nullptr);
}

void closing_with_jobs_in_flight(Context& c) {
  for (const bool stepped : {true, false}) {
    for (int i = 0; i < 10; ++i) {
      Setup s = c.plain();
      if (!stepped) s.host_caps = 0;
      s.host_alloc = true;
      World w(c, s);
      w.store(1, prompt(1, 4), 64);
      w.begin(2, prompt(1, 4));
      const Found f = w.lookup(2);
      w.take(2, f.tokens);
      w.begin(3, prompt(3, 4));
      w.take(3, 0);
      w.compute(3, 64);
      const Planned p = w.plan();
      w.submit_to(0, p, i % 2 == 0 ? 5 : 0);  // 5: a fence that is not reached
      w.close();
      const std::uint64_t calls = w.host_calls();
      const auto before = w.snapshot();
      w.reach(5);
      for (int turn = 0; turn < 200; ++turn) std::this_thread::yield();
      c.expect(w.host_calls() == calls, "KVC-P-033", "{} calls of the host's table after close",
               w.host_calls() - calls);
      c.expect(w.touched(before, {}).empty(), "KVC-P-033", "written after close: {}",
               w.touched(before, {}));
    }
  }
}

// close leaves no thread behind, stepped or not.
void closing_ends_threads(Context& c) {
  const std::uint64_t before = thread_count();
  for (int i = 0; i < 5; ++i) {
    Setup s = c.plain();
    s.host_caps = 0;
    World w(c, s);
    one_life(w);
  }
  c.expect(thread_count() == before, "KVC-P-033", "{} threads run on after close",
           thread_count() - before);
}

void stepped_needs_a_clock(Context& c) {
  Setup s = c.plain();
  World w(c, s);
  Trial trial(c);
  trial.host.caps = KVC_HOST_STEPPED;
  trial.host.now_ns = nullptr;
  const Tried sched = trial.scheduler(w.open_struct());
  const Tried rank = trial.rank(w.open_struct());
  c.expect(sched.status == KVC_E_ARG, "KVC-P-035", "open_scheduler answered {}",
           host::Said{sched.status});
  c.expect(rank.status == KVC_E_ARG, "KVC-P-035", "open_rank answered {}", host::Said{rank.status});
}

// Under KVC_HOST_STEPPED a connector that has no pump cannot work: it says so at open.
void stepped_hosts_are_served_or_refused(Context& c) {
  World w(c, c.plain());
  if (c.can(KVC_CAP_STEPPED)) return;
  Trial trial(c);
  trial.host.caps = KVC_HOST_STEPPED;
  must_refuse(c, trial.scheduler(w.open_struct()), "KVC-P-021",
              "KVC_HOST_STEPPED without KVC_CAP_STEPPED");
}

// How many of the longer words of a line stand in a text.
bool names(const std::string& text, const std::string& line) {
  std::size_t words = 0;
  std::size_t there = 0;
  std::string word;
  const auto count = [&] {
    if (word.size() >= 5) {
      ++words;
      if (text.find(word) != std::string::npos) ++there;
    }
    word.clear();
  };
  for (const char ch : line) {
    if (std::isalnum(static_cast<unsigned char>(ch)) != 0 || ch == '_') {
      word += ch;
    } else {
      count();
    }
  }
  count();
  return words == 0 || there * 3 >= words;
}

void gates_are_named(Context& c) {
  std::vector<Layout> all = layouts(c);
  Setup long_blocks = c.layout({full(8320)});
  long_blocks.max_prompt = long_blocks.max_total = 4096;
  long_blocks.device_blocks = 8;
  all.push_back({"blocks_longer_than_any_request", long_blocks});
  for (Layout& layout : all) {
    try {
      World w(c, layout.setup);
      const std::string explained = w.explain();
      std::vector<std::string> seen;
      for (const auto& [level, text] : w.log()) {
        if (level != KVC_LOG_WARN) continue;
        c.expect(names(explained, text), "KVC-P-034", "{}: explain says nothing of \"{}\"",
                 layout.name, text);
      }
    } catch (const rig::Declined&) {
      continue;
    }
  }
}

// kvc.h, KVC_OPEN_DRAFT_DROP: without a DRAFT group no effect and one log line.
void drop_without_draft_groups_is_logged_once(Context& c) {
  const auto lines = [&](std::uint64_t flags) {
    Setup s = c.plain();
    s.flags = flags;
    World w(c, s);
    Trial trial(c);
    return trial.scheduler(w.open_struct()).texts;
  };
  const std::vector<std::string> without = lines(0);
  const std::vector<std::string> with = lines(KVC_OPEN_DRAFT_DROP);
  c.expect(with.size() == without.size() + 1, "KVC-P-034",
           "open logs {} lines without the flag and {} with it: {}", without.size(), with.size(),
           joined(with));
}

void random_root(Context& c) {
  if (!c.can(KVC_CAP_PERSISTENT)) Context::skip("KVC_CAP_PERSISTENT");
  World w(c, c.plain());
  kvc_open o = w.open_struct();
  o.flags |= KVC_OPEN_RANDOM_ROOT;
  Trial trial(c);
  const bool persists = w.rank_infos()[0].inventory.size != 0;
  const Tried t = trial.scheduler(o);
  if (persists) must_refuse(c, t, "KVC-P-036", "KVC_OPEN_RANDOM_ROOT with a persistent tier");
}

// What malloc has given and has not got back, in all arenas; 0 where a sanitizer stands in its
// place.
std::uint64_t heap_bytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

std::uint64_t mapped_bytes() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// A growth of memory that goes on over all of these stretches is no noise.
constexpr std::uint64_t stretch_opens = 200;
constexpr int stretches = 4;
constexpr std::uint64_t heap_least = 16;  // bytes per open: less than any block of malloc
constexpr std::uint64_t mapped_least = 4096;

void expect_no_growth(Context& c, const char* what, std::uint64_t least,
                      const std::vector<std::uint64_t>& sizes) {
  std::uint64_t each = UINT64_MAX;
  for (std::size_t i = 1; i < sizes.size(); ++i) {
    each = std::min(each, sizes[i] > sizes[i - 1] ? (sizes[i] - sizes[i - 1]) / stretch_opens : 0);
  }
  c.expect(each < least, "KVC-P-020",
           "{} bytes of {} per open and close are left behind, over {} of them", each, what,
           stretch_opens * stretches);
}

void a_thousand_opens(Context& c) {
  Setup s = c.plain();
  s.device_blocks = 8;
  s.host_alloc = true;
  const std::uint64_t threads = thread_count();
  std::vector<std::uint64_t> heap;
  std::vector<std::uint64_t> mapped;
  for (std::uint64_t i = 0; i < stretch_opens * (stretches + 1); ++i) {
    {
      World w(c, s);
      if (i % 100 == 0) one_life(w);
    }
    if ((i + 1) % stretch_opens != 0) continue;
    heap.push_back(heap_bytes());
    mapped.push_back(mapped_bytes());
  }
  // A fake device keeps its own books, in this process.
  if (rig::device_memory().kind() == KVC_DEVICE_HOST) {
    expect_no_growth(c, "heap", heap_least, heap);
    expect_no_growth(c, "mapped memory", mapped_least, mapped);
  }
  c.expect(thread_count() == threads, "KVC-P-020", "{} threads are left behind",
           thread_count() - threads);
}

// Two engines with the same requests, in step: the answers are those of one alone.
void two_instances(Context& c) {
  const auto answers = [&](bool two) {
    World a(c, c.plain());
    std::optional<World> b;
    Setup other = c.plain();
    other.name_space = "model-b";
    if (two) b.emplace(c, other);
    std::vector<std::uint64_t> all;
    for (std::uint64_t id = 1; id <= 6; ++id) {
      if (b) b->store(id, prompt(90 + id, 3), 48);
      a.store(id, prompt(id % 3, 3), 48);
      all.push_back(a.hit(prompt(id % 3, 3)));
      all.push_back(a.hit(prompt(90 + id, 3)));  // only the other has it
      if (b && id == 4) b->reset();
      if (b && id == 5) b.reset();
    }
    const kvc_offer_counts n = a.counts().all_offers;
    all.insert(all.end(), {n.published, n.stored, n.skipped_already_cached});
    return all;
  };
  c.expect(answers(false) == answers(true), "KVC-P-020",
           "the answers beside a second instance are not those of one alone");
}

void namespaces_never_meet(Context& c) {
  World a(c, c.plain());
  a.store(1, prompt(1, 3), 48);
  Setup other = c.plain();
  other.name_space = "model-b";
  World b(c, other);
  c.expect(b.hit(prompt(1, 3)) == 0, "KVC-P-130", "a hit on the blocks of another namespace");
}

constexpr Case cases[] = {
    {"open.the_options_given_work", "KVC-P-031", defaults_work},
    {"open.bad_layouts_are_refused", "KVC-P-030", bad_layouts},
    {"open.layouts_are_declined_at_open_or_served", "KVC-P-030", layouts_are_declined_at_open, 120},
    {"open.sizes_that_do_not_fit_are_named", "KVC-P-030", sizes_that_do_not_fit},
    {"open.bad_toml_is_refused", "KVC-P-031", bad_toml},
    {"open.a_failed_open_leaves_nothing", "KVC-P-032", failed_opens_leave_nothing},
    {"open.closing_nothing", "KVC-P-033", closing_nothing},
    {"open.closing_with_jobs_in_flight", "KVC-P-033", closing_with_jobs_in_flight, 120},
    {"open.closing_ends_threads", "KVC-P-033", closing_ends_threads},
    {"open.stepped_needs_a_clock", "KVC-P-035", stepped_needs_a_clock},
    {"open.stepped_hosts_are_served_or_refused", "KVC-P-021", stepped_hosts_are_served_or_refused},
    {"open.gates_are_named", "KVC-P-034", gates_are_named, 120},
    {"open.drop_without_draft_groups_is_logged_once", "KVC-P-034",
     drop_without_draft_groups_is_logged_once},
    {"open.random_root_and_persistence", "KVC-P-036", random_root},
    {"open.a_thousand_opens", "KVC-P-020", a_thousand_opens, 240},
    {"open.two_instances", "KVC-P-020", two_instances},
    {"open.namespaces_never_meet", "KVC-P-130", namespaces_never_meet},
};

}  // namespace

std::span<const Case> open_cases() { return cases; }

}  // namespace kvc::conform
