#include "conformance/rig/life.h"
#include "host_stub/loader/status_text.h"

#include <kvc/kvc_util.h>

#include <algorithm>

namespace kvc::rig {
namespace {

constexpr std::size_t requests_most = 6;
constexpr std::uint64_t blocks_spared = 24;  // what one request takes at most
constexpr std::size_t plans_waiting_most = 3;

std::vector<Group> random_groups(Choices& choices, Setup& s) {
  switch (choices.below(9)) {
    case 0:
      return {full(8)};
    case 1:
      return {full(8), sliding(8, 20)};
    case 2:
      s.h = 4;
      return {full(16), state_align(16)};
    case 3:
      return {full(8), state_all(16)};
    case 4:
      s.h = 8;
      s.cp = 2;
      return {full(8, KVC_GROUP_CAP_SHARDED), state_align(16)};
    case 5:
      return {full(8), chunked(8, 32), full(16)};
    case 6:
      s.flags = KVC_OPEN_DRAFT_DROP;
      return {full(8, KVC_GROUP_CAP_DRAFT), state_align(8), sliding(8, 17)};
    case 7:
      return {sliding(8, 24), scratch(8)};
    default:
      s.h = 8;
      return {full(16), full(32), state_align(32)};
  }
}

}  // namespace

Setup random_setup(Choices& choices, bool options) {
  Setup s;
  s.groups = random_groups(choices, s);
  if (s.cp == 1) s.ranks = 1 + static_cast<std::uint32_t>(choices.below(2));
  s.host_blocks = options ? 3 + choices.below(24) : 0;
  s.device_blocks = 96;
  s.max_live = requests_most;
  s.max_running = requests_most;
  s.key_bytes = choices.chance(2) ? 8 : 32;
  if (!options) {
    s.toml = "";
    return s;
  }
  const auto number = [&](std::uint64_t least, std::uint64_t n) {
    return std::to_string(least + choices.below(n));
  };
  s.connector_toml = "lease_steps = " + number(1, 8) + "\nmax_leases = " + number(1, 4);
  s.connector_toml += choices.chance(2) ? "\nsingle_flight = true" : "\nsingle_flight = false";
  s.connector_toml +=
      choices.chance(4) ? "\nstore_decode_blocks = false" : "\nstore_decode_blocks = true";
  s.connector_toml += "\nheld_device_blocks_max = " + number(2, 40);
  return s;
}

Life::Life(Choices& choices, const Setup& setup, const Library& library, Judge& judge, bool faults)
    : choices_(choices), w_(setup, library, judge), reach_(w_.setup()), faults_(faults) {}

void Life::step() {
  for (std::uint64_t n = choices_.below(4); n != 0; --n) one_thing();
  plan();
  move();
  if (choices_.chance(3)) complete();
}

// A small tree: what requests share is a prefix.
Tokens Life::prompt() {
  Tokens t = tokens_of(1 + choices_.below(2), 8 + 8 * choices_.below(4));
  t = t + tokens_of(10 + choices_.below(2), choices_.below(40));
  return t + tokens_of(100 + choices_.below(4), 1 + choices_.below(20));
}

std::uint64_t Life::any_id() {
  auto it = live_.begin();
  std::advance(it, static_cast<std::ptrdiff_t>(choices_.below(live_.size())));
  return it->first;
}

void Life::one_thing() {
  if (live_.empty() || (live_.size() < requests_most && choices_.chance(4))) return come();
  const std::uint64_t id = any_id();
  Live& l = live_.at(id);
  if (choices_.chance(60)) return reset();
  if (choices_.chance(14)) return leave(id);
  if (l.state == State::waiting) return admit(id, l);
  if (l.state == State::running && choices_.chance(10)) return preempt(id, l);
  if (l.state == State::running) return compute(id, l);
}

void Life::come() {
  const Tokens t = prompt();
  const std::uint32_t flags = choices_.chance(10)   ? KVC_REQUEST_NO_READ
                              : choices_.chance(10) ? KVC_REQUEST_NO_WRITE
                                                    : 0;
  const std::uint64_t limit = choices_.chance(8) ? choices_.below(60) : KVC_NO_LIMIT;
  const kvc_status s = w_.try_begin(++last_id_, t, flags, 0, limit,
                                    choices_.chance(8) ? choices_.below(60) : KVC_NO_LIMIT);
  // Shells of ended requests with open copies may still count.
  need(s == KVC_OK || s == KVC_E_FULL, "KVC-P-051", "request_begin answered {}", host::Said{s});
  Live l;
  l.prompt = t.size();
  live_[last_id_] = l;
}

void Life::admit(std::uint64_t id, Live& l) {
  const Found f = w_.lookup(id, 0, choices_.chance(6) ? choices_.below(80) : KVC_NO_LIMIT);
  need(f.status == KVC_OK || f.status == KVC_LATER, "KVC-P-012", "lookup answered {}",
       host::Said{f.status});
  const Request& r = w_.request(id);
  need(f.tokens < r.tokens.size() && f.tokens % w_.setup().h == 0, "KVC-P-060",
       "{} of {} tokens offered, h is {}", f.tokens, r.tokens.size(), w_.setup().h);
  need(f.tokens == 0 || reach_.serves(r, f.tokens), "KVC-P-130",
       "{} tokens offered, but not every group was ever given what they need", f.tokens);
  if (f.status == KVC_LATER || choices_.chance(3)) return;
  if (choices_.chance(8)) {
    const kvc_status s = w_.lookup_cancel(id);
    need(s == KVC_OK, "KVC-P-066", "lookup_cancel answered {}", host::Said{s});
    if (choices_.chance(2)) return;
  }
  l.accepted = f.tokens;
  if (choices_.chance(5)) l.accepted = choices_.below(f.tokens / w_.setup().h + 1) * w_.setup().h;
  if (w_.free_blocks() < blocks_spared) return;
  l.job = w_.take(id, l.accepted);
  l.state = l.job == 0 ? State::running : State::loading;
}

void Life::compute(std::uint64_t id, Live& l) {
  Request& r = w_.request(id);
  if (r.computed == r.tokens.size()) {
    if (r.tokens.size() > l.prompt + 24) return leave(id);
    w_.extend(id, tokens_of(5000 + id, 1 + choices_.below(6)), !choices_.chance(4));
  }
  if (w_.free_blocks() < blocks_spared) return;
  std::uint64_t upto =
      std::min<std::uint64_t>(r.tokens.size(), r.computed + 1 + choices_.below(30));
  const std::uint64_t h = w_.setup().h;
  if (choices_.chance(2) && upto / h * h > r.computed) upto = upto / h * h;
  // One chunk per step: a state that a hand-off of this record names is not written again.
  if (std::any_of(w_.handoffs.begin(), w_.handoffs.end(),
                  [&](const kvc_handoff& o) { return o.request == id; })) {
    return;
  }
  reach_.wrote(r, r.computed, upto);
  w_.compute(id, upto);
  if (upto % h == 0 && !choices_.chance(4)) hand_off(id, upto);
  if (choices_.chance(6)) release_windows(r);
  if (choices_.chance(5)) w_.extend(id, {});
}

void Life::hand_off(std::uint64_t id, std::uint64_t boundary) {
  for (std::uint32_t g = 0; g < w_.setup().groups.size(); ++g) {
    const Group& d = w_.setup().groups[g];
    if (d.kind != KVC_GROUP_STATE || (d.caps & KVC_GROUP_CAP_POSITION_STABLE) != 0) continue;
    reach_.handed_off(w_.request(id), g, boundary);
    w_.hand_off(id, g, w_.request(id).tables[g].back(), boundary);
  }
}

// The engine gives back what no later token of the request reads.
void Life::release_windows(Request& r) {
  for (std::uint32_t g = 0; g < w_.setup().groups.size(); ++g) {
    const Group& d = w_.setup().groups[g];
    if (d.kind != KVC_GROUP_SLIDING) continue;
    for (std::uint64_t p = 0; (p + 1) * d.tokens + d.window <= r.computed; ++p) {
      if (r.tables[g][p] != w_.setup().null_block) w_.null_out(r.id, g, p);
    }
  }
}

void Life::forget(std::uint64_t id) {
  std::erase_if(w_.scheduled, [&](const World::Scheduled& s) { return s.id == id; });
  if (choices_.chance(2)) return;  // hand-offs of departed requests are dropped, not believed
  std::erase_if(w_.handoffs, [&](const kvc_handoff& h) { return h.request == id; });
}

void Life::preempt(std::uint64_t id, Live& l) {
  forget(id);
  if (choices_.chance(2)) w_.lookup(id);
  w_.preempt(id);
  l.state = State::waiting;
}

void Life::leave(std::uint64_t id) {
  const Live& l = live_.at(id);
  Request& r = w_.request(id);
  forget(id);
  const auto named = std::find(w_.preempted.begin(), w_.preempted.end(), id);
  if (named != w_.preempted.end()) {
    // It ends before the record that tells of its preemption: a lookup is the notice.
    w_.preempted.erase(named);
    w_.lookup(id);
  }
  const std::vector<kvc_handoff> tails = last_states(id);
  w_.end(id, static_cast<std::int32_t>(choices_.below(4)),
         l.state == State::running ? r.computed : 0, tails);
  live_.erase(id);
}

std::vector<kvc_handoff> Life::last_states(std::uint64_t id) {
  const Request& r = w_.request(id);
  std::vector<kvc_handoff> states;
  if (live_.at(id).state != State::running || r.computed == 0 || r.computed % w_.setup().h != 0 ||
      !choices_.chance(2)) {
    return states;
  }
  for (std::uint32_t g = 0; g < w_.setup().groups.size(); ++g) {
    if (w_.setup().groups[g].kind != KVC_GROUP_STATE || r.tables[g].empty()) continue;
    reach_.handed_off(r, g, r.computed);
    states.push_back({sizeof(kvc_handoff), g, id, r.tables[g].back(), r.computed});
  }
  return states;
}

void Life::reset() {
  const std::uint64_t flags = choices_.chance(3) ? KVC_RESET_INVALIDATE : 0;
  const kvc_status s = w_.reset(flags);
  need(s == KVC_OK || s == KVC_LATER, "KVC-P-101", "reset answered {}", host::Said{s});
  reach_.reset();
  // What live requests have on the device may be stored again, unless the weights changed.
  for (const auto& [id, l] : live_) {
    if (flags == 0 && l.state == State::running) {
      reach_.wrote(w_.request(id), 0, w_.request(id).computed);
    }
  }
  for (const kvc_handoff& h : w_.handoffs) {
    if (live_.count(h.request) != 0) {
      reach_.handed_off(w_.request(h.request), h.group, h.boundary_tokens);
    }
  }
  if (w_.has_stat("host_published_now")) {
    const std::uint64_t left = w_.stat("host_published_now");
    need(left == 0, "KVC-P-100", "{} blocks can still be hit", left);
  }
}

void Life::plan() {
  if (plans_.size() >= plans_waiting_most) return;
  plans_.push_back({w_.plan(), std::vector<bool>(w_.setup().ranks, false)});
}

// Each rank takes its plans in order, at its own pace.
void Life::move() {
  for (std::uint32_t r = 0; r < w_.setup().ranks; ++r) {
    for (Sent& sent : plans_) {
      if (sent.to[r]) continue;
      if (choices_.chance(3)) break;
      w_.submit_to(r, sent.plan, 0);
      sent.to[r] = true;
    }
    if (!choices_.chance(3)) work(r);
  }
  const auto everywhere = [](const Sent& s) {
    return std::all_of(s.to.begin(), s.to.end(), [](bool b) { return b; });
  };
  while (!plans_.empty() && everywhere(plans_.front())) plans_.pop_front();
}

// A rank copies, and reports or not.
void Life::work(std::uint32_t rank) {
  const kvc_test_api* const test = faults_ ? w_.library().test() : nullptr;
  if (test != nullptr && choices_.chance(12)) {
    const bool load = choices_.chance(2);
    test->set_fault(kvc_text_of(load ? "copy.load" : "copy.store"), choices_.below(3));
  }
  const auto before = w_.snapshot();
  w_.pump_one(rank);
  const std::string touched = w_.touched(before, w_.blocks_of_open_loads());
  need(touched.empty(), "KVC-P-126", "{}", touched);
  if (test != nullptr) test->clear_faults();
  if (choices_.chance(4)) return;
  auto bytes = w_.report_of(rank);
  if (!bytes.empty()) reports_.push_back(std::move(bytes));
}

void Life::complete() {
  for (std::size_t i = reports_.size(); i > 1; --i) {
    std::swap(reports_[i - 1], reports_[choices_.below(i)]);
  }
  const std::size_t n = choices_.below(reports_.size() + 1);
  std::vector<std::vector<std::uint8_t>> some(reports_.end() - static_cast<std::ptrdiff_t>(n),
                                              reports_.end());
  reports_.resize(reports_.size() - n);
  if (!some.empty() && choices_.chance(8)) some.push_back(some.front());
  if (choices_.chance(12)) some.push_back(std::vector<std::uint8_t>(choices_.below(90), 7));
  take(w_.complete(some));
}

void Life::take(const Completed& c) {
  need(c.status == KVC_OK, "KVC-P-094", "complete answered {}", host::Said{c.status});
  for (const kvc_verdict& v : c.verdicts) {
    const auto it = live_.find(v.request);
    if (it == live_.end() || it->second.job != v.job) continue;
    Live& l = it->second;
    Request& r = w_.request(v.request);
    need(l.state == State::loading, "KVC-P-091", "a verdict of request {} that does not load",
         v.request);
    if (v.status == KVC_OK) {
      const std::string wrong = w_.wrong_bytes(r, 0, l.accepted);
      need(wrong.empty(), "KVC-P-075", "{}", wrong);
      // What a load brought lies on the device and may be stored again.
      reach_.wrote(r, 0, l.accepted);
      r.computed = l.accepted;
      l.state = State::running;
      ++loads_;
    } else {
      w_.drop_blocks(v.request);
      l.state = State::waiting;
    }
    l.job = 0;
  }
}

// Everything that is open ends.
void Life::drain() {
  for (int i = 0; i < 40; ++i) {
    plan();
    for (Sent& sent : plans_) {
      for (std::uint32_t r = 0; r < w_.setup().ranks; ++r) {
        if (!sent.to[r]) w_.submit_to(r, sent.plan, 0);
      }
    }
    plans_.clear();
    w_.pump();
    for (auto& bytes : w_.reports()) reports_.push_back(std::move(bytes));
    take(w_.complete(reports_));
    reports_.clear();
  }
}

void Life::finish() {
  while (!live_.empty()) leave(live_.begin()->first);
  drain();
  w_.check_quiet();
  for (const char* name : {"host_slots_leaked_now", "host_slots_reserved_now"}) {
    if (!w_.has_stat(name)) continue;
    const std::uint64_t left = w_.stat(name);
    need(left == 0, "KVC-P-131", "{} is {}", name, left);
  }
  // What is still found is right.
  for (int i = 0; i < 6; ++i) {
    w_.begin(++last_id_, prompt());
    w_.load(last_id_);
    w_.end(last_id_, KVC_END_ABORT);
  }
  w_.drain();
  w_.check_quiet();
}

}  // namespace kvc::rig
