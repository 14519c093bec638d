// Bytes through real buffers: for every layout, what is offered could be served by every group, and
// what is loaded is at every position, byte for byte, what was stored; nothing else is written.
#include <algorithm>
#include <deque>
#include <string>

#include "conformance/cases/families.h"
#include "conformance/cases/support.h"
#include "conformance/rig/reach.h"
#include "host_stub/loader/status_text.h"

namespace kvc::conform {

namespace {

// Stores and loads of one layout.
class Bytes {
 public:
  Bytes(Context& context, const Layout& layout)
      : c_(context), name_(layout.name), w_(context, layout.setup), reach_(w_.setup()) {
    w_.check_structure = false;
  }

  void run() {
    const std::uint64_t s = w_.setup().s;
    const std::uint64_t h = w_.setup().h;
    // Ends at boundaries, one token behind them, inside hash units and inside blocks.
    for (const std::uint64_t n : {s + 1, 2 * s, 2 * s + h, 2 * s + h + 1, 3 * s - 1, 3 * s + 5}) {
      const Tokens tokens = tokens_of(++seed_, n);
      store(tokens);
      // The same prompt, a longer one, one that parts in the middle, one that parts at once.
      load(tokens);
      load(tokens + tokens_of(1'000 + seed_, h + 3));
      const Tokens half(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n / 2));
      load(half + tokens_of(2'000 + seed_, s + 1));
      load(tokens_of(3'000 + seed_, n));
    }
    w_.drain();
    w_.check_quiet();
    offers();
  }

 private:
  // Computes the prompt in chunks as an engine does: whole scheduler blocks, the last boundary,
  // the rest; states are handed off where they exist.
  void store(const Tokens& tokens) {
    const std::uint64_t n = tokens.size();
    const std::uint64_t s = w_.setup().s;
    const std::uint64_t h = w_.setup().h;
    const Request& r = w_.begin(++id_, tokens);
    w_.take(id_, 0);
    std::vector<std::uint64_t> ends;
    for (std::uint64_t end = s; end < n; end += s) ends.push_back(end);
    const std::uint64_t tail = (n - 1) / h * h;
    if (tail != 0 && (ends.empty() || ends.back() < tail)) ends.push_back(tail);
    ends.push_back(n);
    for (const std::uint64_t end : ends) {
      const std::uint64_t from = r.computed;
      compute_step(w_, id_, end);
      reach_.wrote(r, from, end);
      if (end % h != 0) continue;
      for (std::uint32_t g = 0; g < w_.setup().groups.size(); ++g) {
        if (w_.setup().groups[g].kind == KVC_GROUP_STATE) reach_.handed_off(r, g, end);
      }
    }
    w_.end(id_, KVC_END_LENGTH);
    w_.drain();
  }

  void load(const Tokens& tokens) {
    for (const std::uint64_t device : {std::uint64_t{0}, w_.setup().s, 2 * w_.setup().s}) {
      if (device >= tokens.size()) continue;
      const std::uint64_t all = load_behind(tokens, device, UINT64_MAX);
      if (all > w_.setup().h) load_behind(tokens, device, all / 2);
    }
  }

  // What is offered behind `device` tokens, at most `cap`: loaded, compared. How much that was.
  std::uint64_t load_behind(const Tokens& tokens, std::uint64_t device, std::uint64_t cap) {
    const Request& r = w_.begin(++id_, tokens);
    if (device != 0) {
      w_.allocate_for_load(id_, device);
      w_.write(w_.request(id_), 0, device);
    }
    const Found f = w_.lookup(id_, device, cap);
    const std::string what = fmt::format("{} ({}): {} tokens, {} on the device", name_,
                                         name_of(w_.setup()), tokens.size(), device);
    c_.need(f.status == KVC_OK, "KVC-P-063", "{}: lookup answered {}", what, host::Said{f.status});
    c_.expect(f.tokens <= cap && device + f.tokens < tokens.size(), "KVC-P-060",
              "{}, cap {}: {} are offered", what, cap, f.tokens);
    if (f.tokens != 0) {
      offered_ = true;
      c_.need(device == 0 ? reach_.serves(r, f.tokens) : true, "KVC-P-130",
              "{}: {} are offered, some group could never serve that", what, f.tokens);
      const kvc_job job = w_.take(id_, f.tokens, device);
      const std::set<std::int64_t> own = w_.blocks_of_open_loads();
      const auto before = w_.snapshot();
      const Completed done = w_.step();
      const auto v = std::find_if(done.verdicts.begin(), done.verdicts.end(),
                                  [&](const kvc_verdict& one) { return one.job == job; });
      c_.need(v != done.verdicts.end() && v->status == KVC_OK, "KVC-P-075",
              "{}: the load of {} ended {}", what, f.tokens,
              host::Said{v == done.verdicts.end() ? KVC_E_STATE : v->status});
      const std::string wrong = w_.wrong_bytes(r, device, device + f.tokens);
      c_.need(wrong.empty(), "KVC-P-075", "{}: {} loaded, wrong: {}", what, f.tokens, wrong);
      const std::string touched = w_.touched(before, own);
      c_.need(touched.empty(), "KVC-P-126", "{}: {} loaded, also written: {}", what, f.tokens,
              touched);
    }
    w_.end(id_, KVC_END_ABORT, 0);
    return f.tokens;
  }

  void offers() {
    if (offered_) return;
    const std::uint64_t stored = w_.counts().all_offers.stored;
    if (stored == 0)
      Context::skip("stores: the connector stored nothing, there is nothing to load");
    c_.warn(fmt::format("{} blocks were stored and nothing was ever offered", stored));
  }

  Context& c_;
  std::string_view name_;
  World w_;
  rig::Reach reach_;
  std::uint64_t seed_ = 0;
  std::uint64_t id_ = 0;
  bool offered_ = false;
};

void bytes_of_layout(Context& c) {
  const std::vector<Layout> all = layouts(c);
  Bytes bytes(c, all.at(c.param));
  bytes.run();
}

// Two salts, two keys: the same tokens under another root are others.
void salts_part_requests(Context& c) {
  World w(c, c.plain());
  w.store(1, prompt(1, 4), 64, 0);
  const std::uint64_t hit = w.hit(prompt(1, 4), 7);
  c.expect(hit == 0, "KVC-P-130", "{} tokens of another salt are offered", hit);
  w.begin(2, prompt(1, 4));
  w.load(2);
  w.end(2, KVC_END_ABORT, 0);
  w.drain();
  w.check_quiet();
}

// More than the tier holds: what is still offered is right, and the counts say what happened.
void more_than_fits(Context& c) {
  World w(c, c.plain());
  std::uint64_t slots = 0;
  for (const kvc_class& k : w.classes()) slots += k.usable_slots;
  if (slots == 0) Context::skip("stores: the ranks have no slots");
  if (slots > 512) {
    Context::skip(fmt::format("a small tier: it has {} slots (--connector-config)", slots));
  }
  w.check_structure = false;
  std::uint64_t id = 0;
  for (std::uint64_t round = 0; round < 3; ++round) {
    for (std::uint64_t seed = 1; seed * 4 <= 3 * slots + 8; ++seed)
      w.store(++id, prompt(seed, 4), 64);
    for (std::uint64_t seed = 1; seed * 4 <= 3 * slots + 8; seed += 3) {
      w.begin(++id, prompt(seed, 4));
      w.load(id);
      w.end(id, KVC_END_ABORT, 0);
    }
    w.drain();
    w.check_quiet();
  }
  // A request larger than the tier.
  const std::uint64_t blocks = std::min<std::uint64_t>(slots + 4, 56);
  w.store(++id, prompt(500, blocks), 16 * blocks);
  w.begin(++id, prompt(500, blocks));
  w.load(id);
  w.end(id, KVC_END_ABORT, 0);
  w.drain();
  w.check_quiet();
}

}  // namespace

std::span<const Case> data_cases() {
  static const std::vector<Case> all = [] {
    static std::deque<std::string> ids;
    std::vector<Case> some;
    const std::vector<Layout> every = layouts(Context());
    for (std::size_t i = 0; i < every.size(); ++i) {
      ids.push_back("data." + std::string(every[i].name));
      some.push_back({ids.back(), "KVC-P-075", bytes_of_layout, 120, i});
    }
    some.push_back({"data.salts_part_requests", "KVC-P-130", salts_part_requests});
    some.push_back({"data.more_than_fits", "KVC-P-131", more_than_fits, 120});
    return some;
  }();
  return all;
}

}  // namespace kvc::conform
