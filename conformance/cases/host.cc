// What a host may lack, what its table is asked for, and the accounts of its allocator.
#include <kvc/kvc_util.h>

#include <nlohmann/json.hpp>

#include "conformance/cases/families.h"
#include "conformance/cases/support.h"
#include "host_stub/loader/status_text.h"

namespace kvc::conform {

namespace {

using rig::full;

void without(Context& c, void (*take)(Setup&)) {
  Setup s = c.plain();
  take(s);
  World w(c, s);
  one_life(w);
}
void without_log(Context& c) {
  Setup s = c.plain();
  s.host_log = false;
  World w(c, s);
  // A fault of the host is a line.
  w.begin(1, prompt(1, 1));
  w.take(1, 0);
  w.preempted.push_back(77);
  w.step();
  std::string all;
  std::vector<char> room(1 << 16);
  for (int i = 0; i < 1000; ++i) {
    std::uint64_t n = 0;
    const kvc_status s1 = w.api().take_log_scheduler(w.sched(), room.data(), room.size(), &n);
    c.need(s1 == KVC_OK || s1 == KVC_MORE, "KVC-P-115", "take_log_scheduler answered {}",
           host::Said{s1});
    all.append(room.data(), n);
    if (s1 == KVC_OK) break;
  }
  c.expect(!all.empty(), "KVC-P-037",
           "an unknown preempted id is no line of take_log, the host has no log");
  one_life(w, 5);
}
void without_clock(Context& c) {
  without(c, [](Setup& s) {
    s.host_caps = 0;
    s.host_clock = false;
  });
}
void without_wake(Context& c) {
  without(c, [](Setup& s) { s.host_wake = false; });
  without(c, [](Setup& s) {
    s.host_caps = 0;
    s.host_wake = false;
  });
}
void with_allocator(Context& c) {
  without(c, [](Setup& s) { s.host_alloc = true; });
}
void bare_host(Context& c) {
  without(c, [](Setup& s) {
    s.host_caps = 0;
    s.host_clock = s.host_log = s.host_wake = false;
  });
}
void with_own_threads(Context& c) {
  without(c, [](Setup& s) { s.host_caps = 0; });
}

void block_queries(Context& c) {
  for (const std::uint64_t caps : {std::uint64_t{0}, KVC_HOST_BLOCK_QUERY}) {
    Setup s = c.plain();
    s.groups = {full(16), rig::sliding(16, 32)};
    s.may_decline = true;
    s.host_caps |= caps;
    World w(c, s);
    Request& r = w.begin(1, prompt(1, 4));
    w.take(1, 0);
    w.compute(1, 64);
    for (std::uint32_t g = 0; g < 2; ++g) {
      for (std::uint64_t p = 0; p < 4; ++p) {
        const auto keys = w.keys_of(r, p + 1);
        w.device_keys[{g, r.tables[g][p]}] = {{keys.end() - 16, keys.end()}, 16 * (p + 1)};
      }
    }
    w.step();
    w.end(1);
    w.drain();
    w.begin(2, prompt(1, 4));
    w.load(2);
    w.end(2, KVC_END_ABORT);
    w.drain();
    w.check_quiet();
  }
}

void log_lines(Context& c) {
  World w(c, c.plain());
  w.begin(1, prompt(1, 2));
  w.take(1, 0);
  w.compute(1, 32);
  w.preempted.push_back(4711);  // KVC-H-049
  w.schedule(4712, 16);         // KVC-H-023
  w.step();
  std::uint64_t faults = 0;
  for (const auto& [level, text] : w.log()) {
    c.expect(level >= KVC_LOG_DEBUG && level <= KVC_LOG_PEER_FAULT, "KVC-P-019",
             "level {} of \"{}\"", level, text);
    c.expect(
        nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::ignore) ==
            nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
        "KVC-P-019", "a line is no UTF-8: {}", text);
    c.expect(!text.empty() && text.find('\n') == std::string::npos, "KVC-P-019",
             "no finished line: \"{}\"", text);
    if (level != KVC_LOG_PEER_FAULT) continue;
    ++faults;
    const std::size_t at = text.find("KVC-H-");
    c.expect(at != std::string::npos && rules::find_rule(text.substr(at, 9)) != nullptr,
             "KVC-P-019", "PEER_FAULT names no rule: {}", text);
  }
  c.expect(faults >= 2, "KVC-P-082",
           "an unknown preempted and an unknown scheduled id: {} PEER_FAULT", faults);
}

void allocator_accounts(Context& c) {
  for (int i = 0; i < 3; ++i) {
    Setup s = c.plain();
    s.host_alloc = true;
    if (i == 1) s.host_caps = 0;
    World w(c, s);
    one_life(w);
    w.begin(3, prompt(3, 2));
    if (i == 2) w.reset();
    w.close();
  }
}

constexpr Case cases[] = {
    {"host.without_log", "KVC-P-037", without_log},
    {"host.without_clock", "KVC-P-037", without_clock},
    {"host.without_wake", "KVC-P-037", without_wake},
    {"host.with_an_allocator", "KVC-P-022", with_allocator},
    {"host.with_threads_of_the_connector", "KVC-P-037", with_own_threads},
    {"host.with_nothing_but_memory", "KVC-P-037", bare_host},
    {"host.block_queries_only_where_allowed", "KVC-P-018", block_queries},
    {"host.log_lines_are_text", "KVC-P-019", log_lines},
    {"host.allocator_accounts_balance", "KVC-P-022", allocator_accounts},
};

}  // namespace

std::span<const Case> host_cases() { return cases; }

}  // namespace kvc::conform
