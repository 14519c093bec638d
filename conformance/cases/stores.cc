// build_store_jobs: what is offered, what plans hold, and bad records.
#include <kvc/kvc_util.h>

#include <algorithm>
#include <optional>
#include <set>

#include "conformance/cases/families.h"
#include "conformance/cases/support.h"
#include "host_stub/loader/status_text.h"

namespace kvc::conform {

namespace {

// The jobs that stand in a plan's list, of both kinds.
std::size_t jobs_of(const Planned& p) { return p.loads.size() + p.stores.size(); }

// Ends the case as skipped if the connector stores nothing of a cold request.
void need_stores(Context& c, World& w) {
  w.store(900, prompt(900, 2), 32);
  if (w.counts().all_offers.stored == 0) {
    Context::skip("stores: the connector stored nothing of a cold request");
  }
  c.expect(w.counts().all_offers.published >= 2, "KVC-P-110", "{} offers of two full blocks",
           w.counts().all_offers.published);
}

// A request that does not hit gets its real blocks stored (field report 122).
void cold_requests(Context& c) {
  World w(c, c.plain());
  need_stores(c, w);
  w.begin(1, prompt(1, 4));
  const Found f = w.lookup(1);
  c.expect(f.tokens == 0, "KVC-P-130", "{} tokens of a cold request are offered", f.tokens);
  w.take(1, 0);
  w.compute(1, 64);
  const std::vector<std::int64_t> blocks = w.request(1).tables[0];
  const Planned p = w.plan();
  std::size_t held = 0;
  for (const std::int64_t b : blocks) held += w.held(b) ? 1U : 0U;
  c.expect(w.held_count() == held, "KVC-P-083", "{} blocks are held, {} of them are the request's",
           w.held_count(), held);
  w.submit(p);
  w.pump();
  w.complete(w.reports());
  w.end(1);
  w.drain();
  w.check_quiet();
}

// What one of two connectors of an engine, each asked for every request, has done in the end.
struct Share {
  std::uint64_t first_hit = 0;
  std::uint64_t stored = 0;
  std::uint64_t hit = 0;
};

// The engine loads from one connector only. It tells every one of them the tables that the request
// really has, and the others that it accepts 0 tokens (field report 122).
void serve(World& w, std::uint64_t id, const Tokens& tokens, std::uint64_t accepted) {
  const std::uint64_t n = tokens.size() / 16 * 16;
  w.begin(id, tokens);
  w.lookup(id);
  w.take(id, accepted);
  w.drain();  // a load first
  w.request(id).computed = accepted;
  w.compute(id, n);
  w.step();
  w.end(id);
  w.drain();
}

// Two connectors of one engine: a cold request, of which both store everything, and one that
// continues it, of which the hit is taken from the first connector alone.
void two_connectors(Context& c) {
  const auto shares = [&](bool both) {
    Setup other = c.plain();
    other.name_space = "model-b";
    World a(c, c.plain());
    std::optional<World> b;
    if (both) b.emplace(c, other);
    std::vector<World*> all = {&a};
    if (b) all.push_back(&*b);
    const Tokens cold = prompt(1, 4);
    const Tokens longer(Tokens(cold.begin(), cold.end() - 1) + prompt(2, 3));
    std::vector<Share> out(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      out[i].first_hit = all[i]->hit(cold);
      serve(*all[i], 1, cold, 0);
    }
    const std::uint64_t offered = a.hit(longer);
    for (std::size_t i = 0; i < all.size(); ++i) {
      serve(*all[i], 2, longer, i == 0 ? offered : 0);
      out[i].stored = all[i]->counts().all_offers.stored;
      out[i].hit = all[i]->hit(longer);
      all[i]->check_quiet();
    }
    return out;
  };
  const Share alone = shares(false).at(0);
  if (alone.stored == 0) Context::skip("stores: the connector stored nothing of a cold request");
  const std::vector<Share> both = shares(true);
  for (std::size_t i = 0; i < both.size(); ++i) {
    c.expect(both[i].first_hit == 0, "KVC-P-130", "connector {}: {} tokens of a cold request", i,
             both[i].first_hit);
    c.expect(both[i].stored == alone.stored && both[i].hit == alone.hit, "KVC-P-086",
             "connector {} of two, of which the first gives the hit: {} blocks stored and a hit of "
             "{} tokens; alone {} and {}",
             i + 1, both[i].stored, both[i].hit, alone.stored, alone.hit);
  }
}

void jobs_stand_in_one_plan(Context& c) {
  World w(c, c.plain());
  const Tokens tokens = prompt(1, 4);
  w.store(1, tokens, 64);
  const std::uint64_t hit = stored_hit(c, w, tokens, 64);
  std::set<kvc_job> handed_out;
  for (std::uint64_t id = 2; id < 6; ++id) {
    w.begin(id, tokens);
    const Found f = w.lookup(id);
    if (f.tokens == hit) handed_out.insert(w.take(id, hit));
  }
  // Finish-time stores of a request that no record named.
  Request& r = w.begin(9, prompt(9, 2));
  w.take(9, 0);
  w.allocate_for_compute(9, 32);
  w.write(r, 0, 32);
  const kvc_job last = w.end(9, KVC_END_STOP, 32);
  if (last != 0) handed_out.insert(last);
  Planned p = w.plan();
  std::set<kvc_job> planned(p.loads.begin(), p.loads.end());
  planned.insert(p.stores.begin(), p.stores.end());
  c.expect(planned == handed_out, "KVC-P-080",
           "{} jobs were handed out, the next plan has {} (an idle connector has room for all)",
           handed_out.size(), planned.size());
  w.submit(p);
  w.pump();
  w.complete(w.reports());
  p = w.plan();
  c.expect(jobs_of(p) == 0, "KVC-P-080", "an empty step with nothing new plans {} jobs",
           jobs_of(p));
  w.submit(p);
  for (std::uint64_t id = 2; id < 6; ++id) w.end(id, KVC_END_ABORT, 0);
  w.drain();
  w.check_quiet();
}

void empty_steps(Context& c) {
  World w(c, c.plain());
  for (int i = 0; i < 200; ++i) {
    const Planned p = w.plan();
    c.expect(jobs_of(p) == 0, "KVC-P-080", "empty step {} plans {} jobs", i + 1, jobs_of(p));
    w.submit(p);
    w.pump();
    w.complete(w.reports());
  }
  w.check_quiet();
}

void wrong_steps(Context& c) {
  World w(c, c.plain());
  w.begin(1, prompt(1, 2));
  w.take(1, 0);
  w.compute(1, 32);
  const kvc_offer_counts before = w.counts().all_offers;
  Planned p;
  for (const std::uint64_t wrong :
       {std::uint64_t{0}, std::uint64_t{2}, std::uint64_t{1} << 63U, UINT64_MAX}) {
    const kvc_status s = w.try_plan(p, wrong);
    c.expect(s < 0, "KVC-P-081", "step {} as the first answered {}", wrong, host::Said{s});
    const kvc_offer_counts after = w.counts().all_offers;
    c.expect(std::memcmp(&before, &after, sizeof before) == 0, "KVC-P-081",
             "a refused step changed the counts of offers");
  }
  const kvc_status right = w.try_plan(p);
  c.need(right == KVC_OK, "KVC-P-081", "the right step after refused ones answered {}: {}",
         host::Said{right}, w.last_error());
  Planned again;
  const kvc_status twice = w.try_plan(again, 1);
  c.expect(twice < 0, "KVC-P-081", "step 1 a second time answered {}", host::Said{twice});
  w.submit(p);
  w.pump();
  w.complete(w.reports());
  w.end(1);
  w.drain();
  w.check_quiet();
}

void bad_elements(Context& c) {
  World w(c, c.plain());
  need_stores(c, w);
  const std::uint64_t good_before = w.counts().all_offers.stored;
  for (std::uint64_t id = 1; id <= 4; ++id) {
    w.begin(id, prompt(id, 2));
    if (id != 4) w.take(id, 0);
  }
  w.compute(1, 32);
  w.compute(2, 32);
  const std::int64_t block = w.request(2).tables[0][0];
  w.request(2).tables[0][0] = 9999;  // foreign
  w.compute(3, 32);
  const std::int64_t cut = w.request(3).tables[0][1];
  w.request(3).tables[0].resize(1);  // shorter than confirmed
  w.schedule(4, 16);                 // never admitted
  w.preempted.push_back(77);         // unknown
  w.step();
  std::uint64_t faults = 0;
  for (const auto& [level, text] : w.log()) faults += level == KVC_LOG_PEER_FAULT ? 1U : 0U;
  c.expect(faults >= 3, "KVC-P-082", "{} PEER_FAULT lines for 4 bad elements", faults);
  c.expect(w.counts().all_offers.dropped_bad_offer >= 1, "KVC-P-082",
           "a foreign block is counted {} times as dropped_bad_offer",
           w.counts().all_offers.dropped_bad_offer);
  c.expect(w.counts().all_offers.stored >= good_before + 2, "KVC-P-082",
           "the right request beside the bad ones was not stored");
  w.request(2).tables[0][0] = block;
  w.request(3).tables[0].push_back(cut);
  for (std::uint64_t id = 1; id <= 3; ++id) w.end(id, KVC_END_ABORT);
  kvc_end_out out{};
  w.try_end(4, KVC_END_ABORT, 16, {}, out);  // whether it was believed is the connector's choice
  w.drain();
  w.check_quiet();
}

void bad_handoffs(Context& c) {
  World w(c, c.layout({rig::full(16), rig::state_align(16)}));
  Request& r = w.begin(1, tokens_of(1, 49));
  w.take(1, 0);
  w.compute(1, 48);
  const std::int64_t good = r.tables[1].back();
  w.hand_off(1, 0, good, 48);    // not a state group
  w.hand_off(1, 9, good, 48);    // no group
  w.hand_off(1, 1, good, 0);     // no boundary
  w.hand_off(1, 1, good, 47);    // not at a key
  w.hand_off(1, 1, good, 4096);  // behind the request
  w.hand_off(1, 1, 9999, 32);    // foreign block
  w.hand_off(777, 1, good, 48);  // unknown id
  w.hand_off(1, 1, w.setup().null_block, 16);
  w.hand_off(1, 1, good, 48);  // right
  w.step();
  const kvc_offer_counts n = w.counts().handoffs;
  if (n.published == 0) Context::skip("hand-offs: the connector takes none (KVC_CAP_STATES)");
  c.expect(n.published == 9, "KVC-P-110", "9 hand-offs, {} published", n.published);
  c.expect(n.dropped_bad_offer >= 6, "KVC-P-082", "7 bad hand-offs, {} counted dropped_bad_offer",
           n.dropped_bad_offer);
  c.expect(n.stored <= 1, "KVC-P-083", "{} hand-offs were stored, one was right", n.stored);
  w.end(1);
  w.drain();
  w.check_quiet();
}

// Of a block that is not confirmed nothing is read: a draft may still be rejected.
void only_confirmed(Context& c) {
  World w(c, c.plain());
  need_stores(c, w);
  w.begin(1, prompt(1, 4));
  w.take(1, 0);
  w.compute(1, 64, 20);
  const std::vector<std::int64_t> table = w.request(1).tables[0];
  const Planned p = w.plan();
  for (std::size_t i = 1; i < table.size(); ++i) {
    c.expect(!w.held(table[i]), "KVC-P-083", "position {} is stored, 20 tokens are confirmed", i);
  }
  // What is not confirmed is written again, with other tokens behind it.
  w.submit(p);
  w.pump();
  w.complete(w.reports());
  w.schedule(1, 64);
  w.step();
  w.end(1);
  w.drain();
  w.begin(2, prompt(1, 4));
  w.load(2);
  w.end(2, KVC_END_ABORT, 0);
  w.drain();
  w.check_quiet();
}

void deepest_first(Context& c) {
  World w(c, c.plain());
  need_stores(c, w);
  w.run(1, prompt(1, 12), 192);  // the rig judges the order of every plan's and end's holds
  Request& r = w.begin(2, prompt(2, 12));
  w.take(2, 0);
  w.allocate_for_compute(2, 192);
  w.write(r, 0, 192);
  w.end(2, KVC_END_STOP, 192);
  w.end(1);
  w.drain();
  w.check_quiet();
}

void no_write(Context& c) {
  World w(c, c.plain());
  w.begin(1, prompt(1, 3), KVC_REQUEST_NO_WRITE);
  w.take(1, 0);
  w.compute(1, 48);
  const Planned p = w.plan();
  c.expect(p.stores.empty(), "KVC-P-085", "a request that must not write is stored");
  w.submit(p);
  w.pump();
  w.complete(w.reports());
  const kvc_job last = w.end(1);
  c.expect(last == 0, "KVC-P-085", "a request that must not write has finish-time stores");
  w.drain();
  c.expect(w.counts().all_offers.stored == 0, "KVC-P-085", "{} blocks were stored",
           w.counts().all_offers.stored);
  c.expect(w.hit(prompt(1, 3)) == 0, "KVC-P-085", "what must not be written is offered");
}

void store_limit(Context& c) {
  World w(c, c.plain());
  for (const std::uint64_t limit : {0U, 15U, 16U, 40U}) {
    const std::uint64_t id = 1 + limit;
    const kvc_status begun = w.try_begin(id, prompt(id, 4), 0, 0, KVC_NO_LIMIT, limit);
    c.need(begun == KVC_OK, rig::begin_rule(begun), "request_begin: {}", w.last_error());
    w.take(id, 0);
    w.compute(id, 64);
    w.step();
    w.end(id);
    w.drain();
    const std::uint64_t hit = w.hit(prompt(id, 4));
    c.expect(hit <= limit, "KVC-P-085", "store limit {}: {} tokens are offered", limit, hit);
  }
}

// The same id twice in a record, and preempted and scheduled at once.
void ids_twice(Context& c) {
  World w(c, c.plain());
  w.begin(1, prompt(1, 2));
  w.take(1, 0);
  w.compute(1, 32);
  w.scheduled.push_back(w.scheduled[0]);
  w.step();
  const std::uint64_t once = w.counts().all_offers.stored;
  c.expect(once <= 2, "KVC-P-082", "an id twice in a record: {} blocks of 2 were stored", once);
  w.preempted = {1, 1};
  w.schedule(1, 32);
  w.step();
  w.end(1);
  w.drain();
  w.check_quiet();
}

// What a lazy connector takes: candidates, the wrong ones too.
void candidates(Context& c) {
  World w(c, c.plain());
  Request& r = w.begin(1, prompt(1, 4));
  w.take(1, 0);
  w.compute(1, 64);
  w.step();
  const std::vector<std::int64_t> table = r.tables[0];
  Request kept = r;
  for (const std::int64_t b : table) w.share_block(b);
  w.end(1);
  w.drain();
  for (std::uint64_t i = 4; i-- != 0;) w.name_candidate(kept, 0, table[i], 16 * (i + 1));
  w.name_candidate(kept, 0, 9999, 16);                  // foreign
  w.name_candidate(kept, 0, w.setup().null_block, 16);  // null
  w.candidates.push_back({sizeof(kvc_candidate), 7, table[0], w.candidate_keys[0].data(), 16});
  w.candidates.push_back({sizeof(kvc_candidate), 0, table[0], w.candidate_keys[0].data(), 7});
  w.step();
  w.drain();
  for (const std::int64_t b : table) w.drop_block(b);
  w.begin(2, prompt(1, 4));
  w.load(2);
  w.end(2, KVC_END_ABORT, 0);
  w.drain();
  w.check_quiet();
  if (!c.can(KVC_CAP_CANDIDATES)) {
    Context::skip("KVC_CAP_CANDIDATES: candidates were named and did no harm");
  }
}

constexpr Case cases[] = {
    {"stores.cold_requests", "KVC-P-083", cold_requests},
    {"stores.two_connectors_of_one_engine", "KVC-P-086", two_connectors},
    {"stores.jobs_stand_in_one_plan", "KVC-P-080", jobs_stand_in_one_plan},
    {"stores.empty_steps", "KVC-P-080", empty_steps},
    {"stores.wrong_steps", "KVC-P-081", wrong_steps},
    {"stores.bad_elements", "KVC-P-082", bad_elements},
    {"stores.bad_handoffs", "KVC-P-082", bad_handoffs},
    {"stores.only_confirmed_tokens", "KVC-P-083", only_confirmed},
    {"stores.holds_deepest_first", "KVC-P-084", deepest_first},
    {"stores.requests_that_do_not_write", "KVC-P-085", no_write},
    {"stores.limits", "KVC-P-085", store_limit},
    {"stores.ids_twice_in_a_record", "KVC-P-082", ids_twice},
    {"stores.candidates", "KVC-P-082", candidates},
};

}  // namespace

std::span<const Case> store_cases() { return cases; }

}  // namespace kvc::conform
