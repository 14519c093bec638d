// What names a request: begin, extend, end, lookup, and ids that nobody knows.
#include <kvc/kvc_retention.h>
#include <kvc/kvc_util.h>

#include <algorithm>

#include "conformance/cases/families.h"
#include "conformance/cases/support.h"
#include "host_stub/loader/status_text.h"

namespace kvc::conform {

namespace {

void bad_begins(Context& c) {
  Setup s = c.plain();
  s.max_prompt = 64;
  s.max_total = 128;
  World w(c, s);
  Raw raw(w);
  const auto refused = [&](kvc_status got, std::string_view what) {
    c.expect(got == KVC_E_ARG, "KVC-P-050", "{} answered {}", what, host::Said{got});
  };
  refused(raw.begin(0, 33, 2), "id 0");
  refused(raw.begin(1, 65, 0), "a prompt of 65 tokens, max_prompt_tokens 64,");
  refused(raw.begin(1, 33, 3), "3 keys of 16 tokens for 33 tokens");
  c.expect(raw.begin(1, 33, 2) == KVC_OK, "KVC-P-050",
           "id 1 cannot begin after begins of it were refused: {}", w.last_error());
  refused(raw.begin(1, 33, 2), "an id that lives");
  c.expect(raw.end(1, 0) == KVC_OK, "KVC-P-096", "request_end of a fresh request failed");
  refused(raw.begin(1, 33, 2), "an id that has ended");
  w.check_quiet();
}

// Calls for a request that was refused for want of room do nothing and are right.
void no_ops(Context& c, World& w, std::uint64_t id) {
  const Found f = w.lookup(id);
  c.expect(f.status == KVC_OK && f.tokens == 0, "KVC-P-051",
           "lookup of a refused request answered {}, {} tokens", host::Said{f.status}, f.tokens);
  c.expect(f.why == KVC_WHY_NOT_TRACKED, "KVC-P-051", "lookup of a refused request: why {}", f.why);
  c.expect(w.take(id, 0) == 0, "KVC-P-051", "a refused request got a job");
  c.expect(w.lookup_cancel(id) == KVC_OK, "KVC-P-051", "lookup_cancel of a refused request failed");
  const std::uint64_t before = w.counts().all_offers.published;
  w.compute(id, 32);
  const kvc_status extended = w.extend(id, tokens_of(99, 16));
  c.expect(extended == KVC_OK, "KVC-P-051", "request_extend of a refused request answered {}",
           host::Said{extended});
  w.step();
  w.preempt(id);
  w.step();
  c.expect(w.end(id) == 0, "KVC-P-051", "request_end of a refused request gave a job");
  c.expect(w.counts().all_offers.published == before, "KVC-P-051",
           "a refused request made {} offers", w.counts().all_offers.published - before);
}

void live_limit(Context& c) {
  Setup s = c.plain();
  s.max_live = 4;
  World w(c, s);
  for (std::uint64_t id = 1; id <= 4; ++id) w.begin(id, prompt(id, 2));
  const kvc_status fifth = w.try_begin(5, prompt(5, 2));
  c.need(fifth == KVC_E_FULL, "KVC-P-051", "the fifth of 4 live requests answered {}",
         host::Said{fifth});
  no_ops(c, w, 5);
  w.end(1, KVC_END_ABORT);
  c.expect(w.try_begin(6, prompt(6, 2)) == KVC_OK, "KVC-P-051",
           "room that an ended request left is not used: {}", w.last_error());
}

void memory_limit(Context& c) {
  Setup s = c.plain();
  s.max_request_bytes = 2 * 4096 + 1024;
  s.max_live = 100'000;
  World w(c, s);
  std::uint64_t id = 1;
  while (w.try_begin(id, prompt(id, 240)) == KVC_OK) {
    if (++id == 300) Context::skip("keys: 300 requests of 240 keys need no memory");
  }
  no_ops(c, w, id);
  w.end(1, KVC_END_ABORT);
  c.expect(w.try_begin(1000, prompt(5, 2)) == KVC_OK, "KVC-P-051",
           "room that an ended request left is not used: {}", w.last_error());
}

void bad_extends(Context& c) {
  Setup s = c.plain();
  s.max_prompt = 64;
  s.max_total = 128;
  World w(c, s);
  Raw raw(w);
  const auto refused = [&](kvc_status got, std::string_view what) {
    c.expect(got == KVC_E_ARG, "KVC-P-052", "{} answered {}", what, host::Said{got});
  };
  refused(raw.extend(9, 0, 1), "an unknown id");
  c.need(raw.begin(1, 33, 2) == KVC_OK, "KVC-P-050", "request_begin failed: {}", w.last_error());
  refused(raw.extend(1, 1, 1), "first_key 1 behind 2 keys");
  refused(raw.extend(1, 3, 1), "first_key 3 behind 2 keys");
  refused(raw.extend(1, 2, 7), "9 keys of 16 tokens, max_total_tokens 128,");
  c.expect(raw.extend(1, 2, 6) == KVC_OK, "KVC-P-052", "the last 6 keys were refused: {}",
           w.last_error());
  refused(raw.extend(1, 8, 1), "a ninth key");
  raw.end(1, 0);
  refused(raw.extend(1, 8, 0), "an ended id");
}

void unknown_ids(Context& c) {
  World w(c, c.plain());
  Raw raw(w);
  for (const std::uint64_t id : {std::uint64_t{5}, std::uint64_t{0}, UINT64_MAX}) {
    c.expect(raw.extend(id, 0, 1) == KVC_E_ARG, "KVC-P-052", "request_extend of unknown {}", id);
    c.expect(raw.lookup(id, 33, 0) == KVC_E_ARG, "KVC-P-063", "lookup of unknown {}", id);
    c.expect(w.lookup_cancel(id) == KVC_E_ARG, "KVC-P-066", "lookup_cancel of unknown {}", id);
    c.expect(raw.alloc(id, 0) == KVC_E_ARG, "KVC-P-071", "alloc_update of unknown {}", id);
    c.expect(raw.end(id, 0) == KVC_E_ARG, "KVC-P-096", "request_end of unknown {}", id);
  }
  w.check_quiet();
}

void ends(Context& c) {
  World w(c, c.plain());
  Raw raw(w);
  w.begin(1, prompt(1, 4));
  w.take(1, 0);
  w.compute(1, 64);
  w.step();
  kvc_end_out out{};
  // Confirmed tokens that fell: the request ends all the same.
  w.try_end(1, KVC_END_STOP, 16, {}, out);
  c.expect(raw.end(1, 64) == KVC_E_ARG, "KVC-P-096",
           "the request lives after an end with confirmed tokens that fell");
  w.drop_blocks(1);
  w.drain();
  w.check_quiet();
}

void hits_end_where_they_may(Context& c) {
  World w(c, c.plain());
  const Tokens tokens = prompt(1, 6);
  w.store(1, tokens, 96);
  const std::uint64_t full = stored_hit(c, w, tokens, 96);
  std::uint64_t id = 10;
  for (const std::uint64_t cap : {0U, 1U, 15U, 16U, 17U, 31U, 48U, 95U, 96U, 97U, 1000U}) {
    for (const std::uint64_t limit : {0U, 15U, 16U, 40U, 96U, 1000U}) {
      for (const std::uint64_t n : {1U, 16U, 17U, 33U, 96U, 97U}) {
        const Tokens some(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n));
        const kvc_status begun = w.try_begin(++id, some, 0, 0, limit);
        c.need(begun == KVC_OK, rig::begin_rule(begun), "begin: {}", w.last_error());
        const Found f = w.lookup(id, 0, cap);
        c.expect(f.status == KVC_OK && f.tokens % 16 == 0 && f.tokens < n && f.tokens <= cap &&
                     f.tokens <= limit && f.tokens <= full,
                 "KVC-P-060", "{} tokens, cap {}, load limit {}: status {}, {} tokens", n, cap,
                 limit, host::Said{f.status}, f.tokens);
        c.expect((f.tokens == 0) == (f.why != KVC_WHY_NONE), "KVC-P-060", "{} tokens with why {}",
                 f.tokens, f.why);
        w.end(id, KVC_END_ABORT);
      }
    }
  }
}

void local_unaligned(Context& c) {
  World w(c, c.plain());
  w.store(1, prompt(1, 4), 64);
  w.begin(2, prompt(1, 4));
  for (const std::uint64_t device : {8U, 17U, 47U}) {
    const Found f = w.lookup(2, device);
    c.expect(f.status == KVC_OK && f.tokens == 0 && f.why == KVC_WHY_LOCAL_UNALIGNED, "KVC-P-061",
             "{} device tokens, scheduler block 16: status {}, {} tokens, why {}", device,
             host::Said{f.status}, f.tokens, f.why);
  }
}

void no_read(Context& c) {
  World w(c, c.plain());
  w.store(1, prompt(1, 2), 32);
  const std::uint64_t offers = w.counts().all_offers.published;
  w.begin(2, prompt(1, 2), KVC_REQUEST_NO_READ);
  const Found f = w.lookup(2);
  c.expect(f.status == KVC_OK && f.tokens == 0 && f.why == KVC_WHY_NO_READ, "KVC-P-062",
           "status {}, {} tokens, why {}", host::Said{f.status}, f.tokens, f.why);
  w.begin(3, prompt(3, 2), KVC_REQUEST_NO_READ);
  w.take(3, 0);
  w.compute(3, 32);
  w.step();
  c.expect(w.counts().all_offers.published == 2 * offers, "KVC-P-062",
           "a request that does not read made {} offers, one that does {}",
           w.counts().all_offers.published - offers, offers);
}

void bad_lookups(Context& c) {
  Setup s = c.plain();
  s.max_total = 1024;
  s.max_prompt = 512;
  World w(c, s);
  Raw raw(w);
  w.store(1, prompt(1, 3), 48);
  w.begin(2, prompt(1, 3));
  const auto refused = [&](kvc_status got, std::string_view what) {
    c.expect(got == KVC_E_ARG, "KVC-P-063", "{} answered {}", what, host::Said{got});
  };
  refused(raw.lookup(2, 0, 0), "0 tokens");
  refused(raw.lookup(2, 49, 64), "64 device tokens of 49");
  refused(raw.lookup(2, 1025, 0), "1025 tokens, max_total_tokens 1024,");
  const Found f = w.lookup(2);
  if (f.tokens == 0) return;
  w.take(2, f.tokens);
  c.expect(w.lookup(2).status == KVC_E_STATE, "KVC-P-063",
           "a lookup while the load has no verdict answered {}", host::Said{w.lookup(2).status});
  w.step();
  c.expect(w.lookup(2).status == KVC_OK, "KVC-P-063", "a lookup after the verdict failed");
}

void lookups_repeat(Context& c) {
  World w(c, c.plain());
  for (std::uint64_t id = 1; id <= 3; ++id) w.store(id, prompt(id, 2 + id), 16 * (2 + id));
  for (std::uint64_t id = 1; id <= 3; ++id) w.begin(10 + id, prompt(id, 2 + id));
  std::vector<std::uint64_t> first;
  const kvc_offer_counts before = w.counts().all_offers;
  for (int turn = 0; turn < 20; ++turn) {
    for (std::uint64_t id = 1; id <= 3; ++id) {
      const Found f = w.lookup(10 + id);
      c.need(f.status == KVC_OK, "KVC-P-064", "lookup {} answered {}", turn, host::Said{f.status});
      if (turn == 0) first.push_back(f.tokens);
      c.expect(f.tokens == first[id - 1], "KVC-P-064", "lookup {} of {}: {} tokens, first {}", turn,
               10 + id, f.tokens, first[id - 1]);
    }
    if (turn % 5 == 4) w.step();
  }
  const kvc_offer_counts after = w.counts().all_offers;
  c.expect(std::memcmp(&before, &after, sizeof before) == 0, "KVC-P-064",
           "lookups changed the counts of offers");
  // Also after a reset, whatever the reason is then.
  w.reset();
  const Found none = w.lookup(11);
  c.expect(none.tokens == 0, "KVC-P-100", "{} tokens after a reset", none.tokens);
  for (int turn = 0; turn < 3; ++turn) {
    const Found f = w.lookup(11);
    c.expect(f.tokens == none.tokens && f.why == none.why, "KVC-P-064",
             "after a reset: {} tokens, why {}; first {} tokens, why {}", f.tokens, f.why,
             none.tokens, none.why);
  }
  for (std::uint64_t id = 11; id <= 13; ++id) w.end(id, KVC_END_ABORT);
  w.check_quiet();
}

// Between a lookup and its alloc_update everything else but build_store_jobs may come. False: the
// stores of a request of so many blocks, planned before the lookup, took the room of the hit.
bool lease_holds_beside(Context& c, std::uint64_t blocks) {
  World w(c, c.plain());
  const Tokens tokens = prompt(1, 4);
  w.store(1, tokens, 64);
  stored_hit(c, w, tokens, 64);
  w.begin(2, prompt(2, blocks));
  w.take(2, 0);
  w.compute(2, 16 * blocks);
  w.submit(w.plan());
  w.pump();
  w.begin(3, tokens);
  const Found f = w.lookup(3);
  if (f.tokens == 0) return false;
  w.complete(w.reports());
  for (std::uint64_t id = 20; id < 30; ++id) {
    w.begin(id, prompt(id, 2));
    w.lookup(id);
    w.end(id, KVC_END_ABORT);
  }
  w.end(2);
  const kvc_job job = w.take(3, f.tokens);
  const Completed done = w.step();
  const auto v = std::find_if(done.verdicts.begin(), done.verdicts.end(),
                              [&](const kvc_verdict& one) { return one.job == job; });
  c.need(v != done.verdicts.end(), "KVC-P-091", "job {} has no verdict", job);
  c.expect(v->status == KVC_OK, "KVC-P-065", "what was offered could not be loaded: {}",
           host::Said{v->status});
  c.expect(w.wrong_bytes(w.request(3), 0, f.tokens).empty(), "KVC-P-075", "wrong: {}",
           w.wrong_bytes(w.request(3), 0, f.tokens));
  return true;
}

// The larger the other request the better; small tiers keep the hit beside a small one only.
void leases_hold(Context& c) {
  for (const std::uint64_t blocks : {20U, 8U, 2U}) {
    if (lease_holds_beside(c, blocks)) return;
  }
  Context::skip("hits: 4 blocks do not stay beside the stores of 2 others");
}

void cancels(Context& c) {
  World w(c, c.plain());
  w.store(1, prompt(1, 2), 32);
  w.begin(2, prompt(1, 2));
  const auto cancel = [&](std::string_view when) {
    const kvc_status s = w.lookup_cancel(2);
    c.expect(s == KVC_OK, "KVC-P-066", "lookup_cancel {} answered {}", when, host::Said{s});
  };
  cancel("before any lookup");
  w.lookup(2);
  cancel("of a lease");
  cancel("a second time");
  const std::uint64_t loaded = w.load(2);
  cancel("after a load");
  w.request(2).computed = loaded;
  w.compute(2, 33);
  w.step();
  cancel("of a running request");
  w.end(2);
  c.expect(w.lookup_cancel(2) == KVC_E_ARG, "KVC-P-066", "lookup_cancel of an ended id");
  w.drain();
  w.check_quiet();
}

void before_set_ranks(Context& c) {
  Setup s = c.plain();
  s.join = false;
  World w(c, s);
  w.begin(1, prompt(1, 2));
  const Found f = w.lookup(1);
  c.expect(f.status == KVC_OK && f.tokens == 0 && f.why == KVC_WHY_NO_RANKS, "KVC-P-042",
           "status {}, {} tokens, why {}", host::Said{f.status}, f.tokens, f.why);
  w.end(1, KVC_END_ABORT);
}

// Single flight is a choice; who answers LATER says why, and not for ever.
void later_is_attached(Context& c) {
  World w(c, c.plain());
  const Tokens tokens = prompt(1, 4);
  w.store(1, tokens, 64);
  stored_hit(c, w, tokens, 64);
  w.begin(2, tokens);
  w.take(2, w.lookup(2).tokens);
  w.begin(3, tokens);
  const Found f = w.lookup(3);
  c.expect(f.status == KVC_OK || (f.status == KVC_LATER && f.why == KVC_WHY_ATTACHED), "KVC-P-060",
           "beside an open load of the same tokens: status {}, why {}", host::Said{f.status},
           f.why);
  w.step();
  const Found after = w.lookup(3);
  c.expect(after.status == KVC_OK, "KVC-P-060", "after that load: status {}, why {}",
           host::Said{after.status}, after.why);
  w.take(3, after.tokens);
  w.step();
  w.end(2);
  w.end(3, KVC_END_ABORT, 0);
  w.drain();
  w.check_quiet();
}

// Whatever is wanted, and whatever was asked before.
void retention_form(Context& c) {
  const auto* const table = static_cast<const kvc_retention_api*>(
      c.api().extension(kvc_text_of(KVC_RETENTION_EXTENSION)));
  if (table == nullptr) Context::skip("the connector has no kvc.retention/1");
  c.need(KVC_CAN(table, kvc_retention_api, boundaries), "KVC-P-140", "the table has no boundaries");
  Setup s = c.plain();
  World w(c, s);
  const auto ask = [&](std::uint64_t id, std::uint64_t begin, std::uint32_t flags,
                       std::vector<std::uint64_t>& ends) {
    kvc_retention_in in{};
    in.struct_size = sizeof in;
    in.flags = flags;
    in.request = id;
    in.begin_tokens = begin;
    kvc_retention_out out{};
    out.struct_size = sizeof out;
    const kvc_status status = table->boundaries(w.sched(), &in, &out);
    ends.clear();
    for (std::uint64_t i = 0; status == KVC_OK && i < out.n_boundaries; ++i)
      ends.push_back(out.boundaries[i]);
    return status;
  };
  std::vector<std::uint64_t> ends;
  c.expect(ask(7, 0, 0, ends) == KVC_E_ARG, "KVC-P-140", "an unknown id is no KVC_E_ARG");
  const std::uint64_t tokens = 16 * 6 + 1;
  w.begin(1, prompt(1, 6));
  w.begin(2, prompt(1, 6));
  for (const std::uint64_t id : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{1}}) {
    for (const std::uint64_t begin : {std::uint64_t{0}, std::uint64_t{32}}) {
      std::vector<std::uint64_t> again;
      c.expect(ask(id, begin, 0, ends) == KVC_OK, "KVC-P-140", "{}", w.last_error());
      c.expect(ask(id, begin, 0, again) == KVC_OK && again == ends, "KVC-P-140",
               "two answers differ for one question");
      std::uint64_t before = begin == 0 ? 0 : begin - 1;
      for (const std::uint64_t end : ends) {
        c.expect(end > before && end % 16 == 0 && end <= tokens, "KVC-P-140",
                 "{} behind {}, a prompt of {} tokens", end, before, tokens);
        before = end;
      }
    }
  }
  c.expect(ask(1, tokens + 1, 0, ends) == KVC_E_ARG, "KVC-P-140",
           "a begin behind the prompt is no KVC_E_ARG");
  c.expect(ask(1, 0, 1U << 31U, ends) == KVC_E_UNSUPPORTED, "KVC-P-140",
           "an unknown flag is no KVC_E_UNSUPPORTED");
  w.end(1);
  w.end(2);
  w.check_quiet();
}

constexpr Case cases[] = {
    {"requests.retention_has_its_form", "KVC-P-140", retention_form},
    {"requests.bad_begins", "KVC-P-050", bad_begins},
    {"requests.the_limit_of_live_requests", "KVC-P-051", live_limit},
    {"requests.the_limit_of_memory", "KVC-P-051", memory_limit},
    {"requests.bad_extends", "KVC-P-052", bad_extends},
    {"requests.unknown_ids", "KVC-P-063", unknown_ids},
    {"requests.ends", "KVC-P-096", ends},
    {"lookup.hits_end_where_they_may", "KVC-P-060", hits_end_where_they_may},
    {"lookup.unaligned_device_tokens", "KVC-P-061", local_unaligned},
    {"lookup.requests_that_do_not_read", "KVC-P-062", no_read},
    {"lookup.bad_lookups", "KVC-P-063", bad_lookups},
    {"lookup.again_and_again", "KVC-P-064", lookups_repeat},
    {"lookup.leases_hold_until_the_step", "KVC-P-065", leases_hold},
    {"lookup.cancels", "KVC-P-066", cancels},
    {"lookup.before_set_ranks", "KVC-P-042", before_set_ranks},
    {"lookup.later_means_attached", "KVC-P-060", later_is_attached},
};

}  // namespace

std::span<const Case> request_cases() { return cases; }

}  // namespace kvc::conform
