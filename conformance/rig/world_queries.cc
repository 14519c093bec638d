// The queries of World and the checks after every call.
#include <kvc/kvc_util.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "conformance/rig/world.h"
#include "host_stub/loader/status_text.h"

namespace kvc::rig {

std::ostream& operator<<(std::ostream& out, const Found& f) {
  return out << "status " << f.status << ", " << f.tokens << " tokens, why " << f.why;
}

// ------------------------------------------------------------------------------------ checks

void World::check_after(std::string_view call) {
  if (!check_counts) return;
  const kvc_boundary_stats c = counts();
  const auto balanced = [&](const kvc_offer_counts& o, std::string_view row) {
    const std::uint64_t sum = o.stored + o.pending + o.skipped_already_cached +
                              o.skipped_in_flight + o.skipped_not_hashed + o.dropped_pool_full +
                              o.dropped_request_gone + o.dropped_null_block + o.dropped_bad_offer +
                              o.dropped_no_parent + o.dropped_parent_failed +
                              o.dropped_copy_failed + o.dropped_leased + o.dropped_hold_budget +
                              o.dropped_reset + o.dropped_plan_full;
    need(o.published == sum, "KVC-P-110", "after {}: {} published {}, outcomes sum to {}", call,
         row, o.published, sum);
  };
  balanced(c.handoffs, "handoffs");
  balanced(c.all_offers, "all_offers");
  if (!check_structure) return;
  const std::string broken = verify();
  need(broken.empty(), "KVC-P-130", "after {}: {}", call, broken);
}

kvc_boundary_stats World::counts() {
  kvc_boundary_stats c{};
  c.struct_size = sizeof c;
  const kvc_status s = api().boundary_stats(sched_, &c);
  need(s == KVC_OK, "KVC-P-110", "boundary_stats answered {}", host::Said{s});
  return c;
}

kvc_pending World::pending() {
  kvc_pending p{};
  p.struct_size = sizeof p;
  const kvc_status s = api().has_pending(sched_, &p);
  need(s == KVC_OK, "KVC-P-112", "has_pending answered {}", host::Said{s});
  return p;
}

std::vector<kvc_stat> World::all_stats() {
  std::uint64_t needed = 0;
  api().stats(sched_, nullptr, sizeof(kvc_stat), 0, &needed);
  std::vector<kvc_stat> rows(needed);
  const kvc_status s = api().stats(sched_, rows.data(), sizeof(kvc_stat), rows.size(), &needed);
  need(s == KVC_OK, "KVC-P-111", "stats with room for {} rows answered {}", rows.size(),
       host::Said{s});
  return rows;
}

namespace {

std::string text_of(kvc_bytes b) {
  return b.size == 0 ? std::string() : std::string(reinterpret_cast<const char*>(b.data), b.size);
}

}  // namespace

bool World::has_stat(std::string_view name) {
  for (const kvc_stat& s : all_stats()) {
    if (text_of(s.name) == name) return true;
  }
  return false;
}

std::uint64_t World::stat(std::string_view name) {
  std::uint64_t sum = 0;
  bool found = false;
  for (const kvc_stat& s : all_stats()) {
    if (text_of(s.name) != name) continue;
    sum += s.value;
    found = true;
  }
  need(found, "KVC-P-111", "no stat is called {}", name);
  return sum;
}

std::string World::explain(std::uint64_t id) {
  std::uint64_t needed = 0;
  const kvc_status s = api().explain(sched_, id, nullptr, 0, &needed);
  if (s != KVC_E_ROOM) return {};
  std::string text(needed, ' ');
  const kvc_status again = api().explain(sched_, id, text.data(), text.size(), &needed);
  need(again == KVC_OK, "KVC-P-011", "explain with {} bytes of room, all it asked for, answered {}",
       text.size(), host::Said{again});
  return text;
}

std::string World::last_error() {
  std::uint64_t needed = 0;
  api().last_error_scheduler(sched_, nullptr, 0, &needed);
  std::string text(needed, ' ');
  const kvc_status s = api().last_error_scheduler(sched_, text.data(), text.size(), &needed);
  need(s == KVC_OK, "KVC-P-011", "last_error_scheduler with {} bytes of room answered {}",
       text.size(), host::Said{s});
  return text;
}

std::string World::last_error_of(std::uint32_t rank) {
  std::uint64_t needed = 0;
  api().last_error_rank(ranks_.at(rank), nullptr, 0, &needed);
  std::string text(needed, ' ');
  const kvc_status s = api().last_error_rank(ranks_.at(rank), text.data(), text.size(), &needed);
  need(s == KVC_OK, "KVC-P-011", "last_error_rank with {} bytes of room answered {}", text.size(),
       host::Said{s});
  return text;
}

std::string World::verify() {
  if (library_.test() == nullptr) return {};
  std::uint64_t needed = 0;
  library_.test()->verify(sched_, nullptr, 0, &needed);
  std::string text(needed, ' ');
  const kvc_status s = library_.test()->verify(sched_, text.data(), text.size(), &needed);
  need(s == KVC_OK, "KVC-P-011", "verify answered {}", host::Said{s});
  return text;
}

std::vector<kvc_event> World::events() {
  std::vector<kvc_event> all;
  for (;;) {
    std::vector<kvc_event> some(16);
    std::uint64_t n = 0;
    const kvc_status s = api().take_events(sched_, some.data(), sizeof(kvc_event), some.size(), &n);
    need(s == KVC_OK || s == KVC_MORE, "KVC-P-114", "take_events answered {}", host::Said{s});
    need(n <= some.size(), "KVC-P-114", "take_events wrote {} events into room for {}", n,
         some.size());
    all.insert(all.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(n));
    if (s == KVC_OK) return all;
    need(n > 0, "KVC-P-114", "take_events answered KVC_MORE and wrote none");
  }
}

std::vector<std::pair<std::int32_t, std::string>> World::log() const {
  const std::lock_guard lock(log_mutex_);
  return log_;
}

bool World::logged(std::int32_t level, std::string_view part) const {
  const auto lines = log();
  return std::any_of(lines.begin(), lines.end(), [&](const auto& line) {
    return line.first == level && line.second.find(part) != std::string::npos;
  });
}

std::uint64_t World::logged_times(std::string_view part) const {
  const auto lines = log();
  return static_cast<std::uint64_t>(
      std::count_if(lines.begin(), lines.end(),
                    [&](const auto& line) { return line.second.find(part) != std::string::npos; }));
}

void World::check_quiet() {
  const kvc_pending p = pending();
  expect(p.load_jobs == 0 && p.store_jobs == 0 && p.held_blocks == 0, "KVC-P-131",
         "nothing is open, has_pending says {} loads, {} stores, {} held blocks", p.load_jobs,
         p.store_jobs, p.held_blocks);
  const kvc_boundary_stats c = counts();
  expect(c.all_offers.pending == 0 && c.handoffs.pending == 0, "KVC-P-110",
         "nothing is open, {} offers and {} hand-offs are pending", c.all_offers.pending,
         c.handoffs.pending);
  for (const auto& [job, kind] : open_jobs_) {
    expect(false, "KVC-P-090", "job {} ({}) never ended", job,
           kind == KVC_JOB_LOAD ? "load" : "store");
  }
  expect(holds_.empty() && end_holds_.empty(), "KVC-P-131", "{} device blocks are still held",
         held_count());
  for (const kvc_job job : loads_without_verdict_) {
    expect(false, "KVC-P-091", "load job {} never got a verdict", job);
  }
  expect(free_.size() + owners_.size() + 1 == setup_.device_blocks, "KVC-P-131",
         "{} device blocks are free and {} in tables, of {}", free_.size(), owners_.size(),
         setup_.device_blocks);
}

}  // namespace kvc::rig
