// kvc.hints/1: priorities, times to live and pins.
#include <fmt/format.h>
#include <kvc/kvc_hints.h>
#include <kvc/kvc_util.h>

#include "config/shared_options.h"
#include "conformance/cases/families.h"
#include "conformance/cases/support.h"
#include "host_stub/loader/status_text.h"

namespace kvc::conform {

namespace {

const kvc_hints_api& hints(Context& c) {
  const auto* const table =
      static_cast<const kvc_hints_api*>(c.api().extension(kvc_text_of(KVC_HINTS_EXTENSION)));
  if (table == nullptr) Context::skip("the connector has no kvc.hints/1");
  c.need(KVC_CAN(table, kvc_hints_api, hint) && KVC_CAN(table, kvc_hints_api, pin) &&
             KVC_CAN(table, kvc_hints_api, unpin),
         "KVC-P-143", "the table has not all three functions");
  return *table;
}

kvc_status hint(World& w, const kvc_hints_api& t, std::uint64_t request, std::int32_t priority,
                std::uint64_t ttl_ns = 0, std::uint32_t flags = 0) {
  const kvc_hint_in in{sizeof in, flags, request, priority, 0, ttl_ns};
  return t.hint(w.sched(), &in);
}

struct Pinned {
  kvc_status status = KVC_OK;
  kvc_pin_out out{};
};
Pinned pin(World& w, const kvc_hints_api& t, std::uint64_t request,
           std::uint64_t tokens = KVC_NO_LIMIT, std::uint32_t flags = 0) {
  const kvc_pin_in in{sizeof in, flags, request, tokens};
  Pinned p;
  p.out.struct_size = sizeof p.out;
  p.status = t.pin(w.sched(), &in, &p.out);
  return p;
}

void hint_form(Context& c) {
  const kvc_hints_api& t = hints(c);
  World w(c, c.plain());
  c.expect(hint(w, t, 7, 0) == KVC_E_ARG, "KVC-P-143", "a hint of an unknown id is no KVC_E_ARG");
  w.begin(1, prompt(1, 3));
  for (const std::int32_t wrong : {KVC_PRIORITY_LEAST - 1, KVC_PRIORITY_MOST + 1, INT32_MAX}) {
    const kvc_status s = hint(w, t, 1, wrong);
    c.expect(s == KVC_E_ARG, "KVC-P-143", "priority {} answered {}", wrong, host::Said{s});
  }
  c.expect(hint(w, t, 1, 0, 0, 1U << 31U) == KVC_E_UNSUPPORTED, "KVC-P-143",
           "an unknown flag is no KVC_E_UNSUPPORTED");
  const kvc_hint_in reserved{sizeof reserved, 0, 1, 0, 1, 0};
  c.expect(t.hint(w.sched(), &reserved) == KVC_E_UNSUPPORTED, "KVC-P-143",
           "a reserved field that is not 0 is no KVC_E_UNSUPPORTED");
  const kvc_hint_in half{sizeof half - 8, 0, 1, 0, 0, 0};
  c.expect(t.hint(w.sched(), &half) == KVC_E_ARG, "KVC-P-143", "half a struct is no KVC_E_ARG");
  c.expect(t.hint(w.sched(), nullptr) == KVC_E_ARG, "KVC-P-143", "no struct is no KVC_E_ARG");
  for (const std::int32_t right : {KVC_PRIORITY_LEAST, KVC_PRIORITY_MOST, KVC_PRIORITY_NORMAL}) {
    const kvc_status s = hint(w, t, 1, right, UINT64_MAX);
    c.expect(s == KVC_OK, "KVC-P-143", "priority {} answered {}: {}", right, host::Said{s},
             w.last_error());
  }
  const kvc_status early = hint(w, t, 1, 1, 0, KVC_HINT_PREFETCH);
  c.expect(early == KVC_OK || early == KVC_E_UNSUPPORTED, "KVC-P-143", "a prefetch answered {}",
           host::Said{early});
  w.compute(1, 33);
  w.step();
  c.expect(hint(w, t, 1, 1) == KVC_E_STATE, "KVC-P-143",
           "a hint behind the first step is no KVC_E_STATE");
  w.drain();
  w.end(1);
  w.drain();
  w.check_quiet();
}

void pin_form(Context& c) {
  const kvc_hints_api& t = hints(c);
  World w(c, c.plain());
  c.expect(pin(w, t, 7).status == KVC_E_ARG, "KVC-P-143", "a pin of an unknown id is no KVC_E_ARG");
  c.expect(t.unpin(w.sched(), 0) == KVC_E_ARG, "KVC-P-143", "pin 0 is no KVC_E_ARG");
  c.expect(t.unpin(w.sched(), std::uint64_t{1} << 60U) == KVC_E_ARG, "KVC-P-143",
           "a pin that was never there is no KVC_E_ARG");
  w.begin(1, prompt(1, 3));
  const Pinned none = pin(w, t, 1);
  c.expect(none.status == KVC_OK && none.out.pin == 0 && none.out.tokens == 0, "KVC-P-143",
           "a pin of nothing answered {}, {} tokens", host::Said{none.status}, none.out.tokens);
  c.expect(pin(w, t, 1, 0).status == KVC_E_ARG, "KVC-P-143", "0 tokens are no KVC_E_ARG");
  c.expect(pin(w, t, 1, 1, 1U << 31U).status == KVC_E_UNSUPPORTED, "KVC-P-143",
           "an unknown flag is no KVC_E_UNSUPPORTED");
  const kvc_pin_in in{sizeof in, 0, 1, 1};
  c.expect(t.pin(w.sched(), &in, nullptr) == KVC_E_ARG, "KVC-P-143", "no room is no KVC_E_ARG");
  kvc_pin_out small{};
  small.struct_size = sizeof small - 8;
  c.expect(t.pin(w.sched(), &in, &small) == KVC_E_ARG, "KVC-P-143",
           "room for a part is no KVC_E_ARG");
  w.end(1);
  w.check_quiet();
}

// A setup in which few blocks fill the pool. Sizes are the connector's own matter: one that does
// not take them as those here do is not asked.
Setup small_pool(Context& c, std::uint64_t blocks) {
  Setup s = c.plain();
  const auto toml = config::with_host_blocks(c.config_toml, "options", blocks);
  if (!toml.ok()) Context::skip("pool: the connector's options are no TOML with a table [host]");
  s.toml = toml.value();
  s.may_decline = true;
  return s;
}

void full_pool_or_skip(World& w, std::uint64_t blocks) {
  if (!w.has_stat("host_slots_total") || w.stat("host_slots_total") > blocks) {
    Context::skip("pool: its size is not known, or not that of [host] blocks");
  }
}

void pins_hold(Context& c) {
  constexpr std::uint64_t blocks = 8;
  const kvc_hints_api& t = hints(c);
  World w(c, small_pool(c, blocks));
  full_pool_or_skip(w, blocks);
  const Tokens tokens = prompt(1, 3);
  w.store(1, tokens);
  const std::uint64_t stored = stored_hit(c, w, tokens, 48);
  w.begin(2, tokens);
  const Pinned part = pin(w, t, 2, 20);
  c.expect(part.status == KVC_OK && part.out.tokens <= 20, "KVC-P-144",
           "a pin of at most 20 tokens answered {} and holds {}", host::Said{part.status},
           part.out.tokens);
  const Pinned whole = pin(w, t, 2);
  // A pool of fewer slots than blocks were asked for, as of chunks, may be too small for both.
  if (whole.status == KVC_E_FULL && w.stat("host_slots_total") < blocks) {
    Context::skip(fmt::format("room: {}", w.last_error()));
  }
  c.need(whole.status == KVC_OK && whole.out.pin != 0 && whole.out.tokens == stored, "KVC-P-144",
         "a pin of all answered {} and holds {} of {} tokens: {}", host::Said{whole.status},
         whole.out.tokens, stored, w.last_error());
  w.end(2);
  for (std::uint64_t id = 10; id < 20; ++id) {
    w.store(id, prompt(id, 4));
    const std::uint64_t now = w.hit(tokens);
    c.expect(now == stored, "KVC-P-144", "{} of {} pinned tokens are found", now, stored);
  }
  for (const std::uint64_t id : {part.out.pin, whole.out.pin, whole.out.pin}) {
    if (id == 0) continue;
    const kvc_status s = t.unpin(w.sched(), id);
    c.expect(s == KVC_OK, "KVC-P-144", "unpin answered {}", host::Said{s});
  }
  w.check_quiet();
}

void pins_end_with_a_reset(Context& c) {
  const kvc_hints_api& t = hints(c);
  World w(c, c.plain());
  const Tokens tokens = prompt(1, 3);
  w.store(1, tokens);
  stored_hit(c, w, tokens, 48);
  w.begin(2, tokens);
  const Pinned p = pin(w, t, 2);
  c.need(p.status == KVC_OK && p.out.pin != 0, "KVC-P-144", "a pin answered {}: {}",
         host::Said{p.status}, w.last_error());
  w.end(2);
  w.reset();
  c.expect(w.hit(tokens) == 0, "KVC-P-144", "a pinned prefix is found after a reset");
  w.drain();
  c.expect(t.unpin(w.sched(), p.out.pin) == KVC_OK, "KVC-P-144",
           "a pin that a reset ended is no KVC_OK");
  w.store(3, tokens);
  c.expect(w.hit(tokens) == 48, "KVC-P-144", "what was pinned before a reset is not stored again");
  w.check_quiet();
}

void store_with(Context& c, World& w, const kvc_hints_api& t, std::uint64_t id,
                const Tokens& tokens, std::int32_t priority, std::uint64_t ttl_ns = 0) {
  w.begin(id, tokens);
  const kvc_status s = hint(w, t, id, priority, ttl_ns);
  c.need(s == KVC_OK, "KVC-P-143", "a hint before everything answered {}: {}", host::Said{s},
         w.last_error());
  w.compute(id, tokens.size());
  w.step();
  w.drain();
  w.end(id);
  w.drain();
}

void lower_priority_goes_first(Context& c) {
  constexpr std::uint64_t blocks = 10;
  const kvc_hints_api& t = hints(c);
  World w(c, small_pool(c, blocks));
  full_pool_or_skip(w, blocks);
  const Tokens high = prompt(1, 3);
  const Tokens low = prompt(2, 3);
  const Tokens normal = prompt(3, 3);
  store_with(c, w, t, 1, high, 1);
  stored_hit(c, w, high, 48);
  store_with(c, w, t, 3, normal, 0);
  store_with(c, w, t, 2, low, -1);
  for (std::uint64_t id = 10; id < 16; ++id) {
    store_with(c, w, t, id, prompt(id, 2), 0);
    c.expect(w.hit(high) == 48, "KVC-P-145", "a block of higher priority went, {} tokens are left",
             w.hit(high));
    c.expect(w.hit(normal) == 48 || w.hit(low) == 0, "KVC-P-145",
             "{} tokens of normal priority are left, {} of lower", w.hit(normal), w.hit(low));
  }
  const auto kept = [&] {
    std::uint64_t sum = w.hit(high) + w.hit(normal);
    for (std::uint64_t id = 10; id < 16; ++id) sum += w.hit(prompt(id, 2));
    return sum;
  };
  const std::uint64_t before = kept();
  store_with(c, w, t, 20, prompt(20, 4), -2);
  c.expect(kept() == before, "KVC-P-145", "a store of lower priority took {} tokens of {}",
           before - kept(), before);
  w.check_quiet();
}

void what_outlived_its_time_goes_first(Context& c) {
  constexpr std::uint64_t blocks = 8;
  constexpr std::uint64_t ttl_ns = 60'000'000'000;
  const kvc_hints_api& t = hints(c);
  World w(c, small_pool(c, blocks));
  full_pool_or_skip(w, blocks);
  const Tokens old = prompt(1, 3);
  const Tokens timed = prompt(2, 3);
  store_with(c, w, t, 1, old, 0);
  stored_hit(c, w, old, 48);
  store_with(c, w, t, 2, timed, 2, ttl_ns);
  w.advance_ns(2 * ttl_ns);
  w.step();
  c.expect(w.hit(timed) == 48, "KVC-P-145", "{} of 48 tokens are found after their time to live",
           w.hit(timed));
  w.store(3, prompt(3, 4));
  c.expect(w.hit(old) == 48 || w.hit(timed) == 0, "KVC-P-145",
           "{} of 48 tokens are left, and {} of those past their time to live", w.hit(old),
           w.hit(timed));
  w.check_quiet();
}

constexpr Case cases[] = {
    {"hints.a_hint_has_its_form", "KVC-P-143", hint_form},
    {"hints.a_pin_has_its_form", "KVC-P-143", pin_form},
    {"hints.pins_hold", "KVC-P-144", pins_hold},
    {"hints.pins_end_with_a_reset", "KVC-P-144", pins_end_with_a_reset},
    {"hints.lower_priority_goes_first", "KVC-P-145", lower_priority_goes_first},
    {"hints.what_outlived_its_time_goes_first", "KVC-P-145", what_outlived_its_time_goes_first},
};

}  // namespace

std::span<const Case> hint_cases() { return cases; }

}  // namespace kvc::conform
