// Keys are opaque: whatever differs in them never meets (field reports K9); and the events of
// spec 9.2.
#include <kvc/kvc_util.h>

#include <boost/test/unit_test.hpp>
#include <cstring>

#include "plugin/edge/tests/abi_host.h"

namespace kvc::abi_test {

BOOST_AUTO_TEST_SUITE(keys_and_events)

namespace {

Tokens req(std::uint64_t seed, std::uint64_t k) { return tokens_of(seed, 16 * k + 1); }

}  // namespace

// K9-79: the same tokens under three adapters (or tenants): a hit on the diagonal only.
BOOST_AUTO_TEST_CASE(adapters_and_tenants_never_see_each_others_blocks) {
  for (std::uint64_t writer = 0; writer < 3; ++writer) {
    World w(Setup{});
    w.store(1, tokens_of(1, 64), 64, writer);
    for (std::uint64_t reader = 0; reader < 3; ++reader) {
      BOOST_CHECK_EQUAL(w.hit(tokens_of(1, 64), reader), reader == writer ? 48U : 0U);
    }
  }
}

// K9-81: as many images as do not fit 16 bits, equal tokens: no cross hit.
BOOST_AUTO_TEST_CASE(seventy_thousand_images_never_cross) {
  World w(Setup{});
  w.store(1, tokens_of(1, 33), 32, 1);
  w.check_structure = false;
  std::uint64_t hits = 0;
  for (std::uint64_t image = 2; image < 70'002; ++image) {
    hits += w.hit(tokens_of(1, 33), image) != 0 ? 1 : 0;
  }
  BOOST_CHECK_EQUAL(hits, 0U);
  BOOST_CHECK_EQUAL(w.hit(tokens_of(1, 33), 1), 32U);
}

// Every byte of a key counts, for every key length.
BOOST_AUTO_TEST_CASE(keys_that_differ_in_one_byte_are_different) {
  for (const std::uint32_t bytes : {8U, 16U, 20U, 31U, 32U}) {
    Setup s;
    s.key_bytes = bytes;
    World w(s);
    w.store(1, tokens_of(1, 17), 16);
    const Request& r = w.begin(2, tokens_of(1, 17));
    const std::vector<std::uint8_t> key = w.keys_of(r, 1);
    for (std::uint32_t i = 0; i < bytes; ++i) {
      std::vector<std::uint8_t> other = key;
      other[i] ^= 1U;
      const kvc_request raw{sizeof raw,   0, 100 + i,      17,
                            other.data(), 1, KVC_NO_LIMIT, KVC_NO_LIMIT};
      BOOST_REQUIRE_EQUAL(w.api().request_begin(w.sched(), &raw), KVC_OK);
      const kvc_lookup_in in{sizeof in, 0, 100 + i, 17, 0, KVC_NO_LIMIT};
      kvc_lookup_out out{};
      out.struct_size = sizeof out;
      BOOST_REQUIRE_EQUAL(w.api().lookup(w.sched(), &in, &out), KVC_OK);
      BOOST_CHECK_EQUAL(out.external_tokens, 0U);
    }
    BOOST_CHECK_EQUAL(w.load(2), 16U);
  }
}

// Keys are copied: the host's buffer may change at once.
BOOST_AUTO_TEST_CASE(keys_are_copied_at_the_call) {
  World w(Setup{});
  w.store(1, tokens_of(1, 17), 16);
  Request r = w.begin(2, tokens_of(1, 17));
  std::vector<std::uint8_t> keys = w.keys_of(r, 1);
  const kvc_request raw{sizeof raw, 0, 3, 17, keys.data(), 1, KVC_NO_LIMIT, KVC_NO_LIMIT};
  BOOST_REQUIRE_EQUAL(w.api().request_begin(w.sched(), &raw), KVC_OK);
  std::fill(keys.begin(), keys.end(), std::uint8_t{0});
  const kvc_lookup_in in{sizeof in, 0, 3, 17, 0, KVC_NO_LIMIT};
  kvc_lookup_out out{};
  out.struct_size = sizeof out;
  BOOST_REQUIRE_EQUAL(w.api().lookup(w.sched(), &in, &out), KVC_OK);
  BOOST_CHECK_EQUAL(out.external_tokens, 16U);
}

// Two engines in one process share nothing, whatever their namespace says.
BOOST_AUTO_TEST_CASE(two_connectors_at_once_share_nothing) {
  for (const char* name : {"model-a", "model-b"}) {
    Setup s;
    World a(s);
    s.name_space = name;
    World b(s);
    a.store(1, req(1, 2), 32);
    BOOST_CHECK_EQUAL(a.hit(req(1, 2)), 32U);
    BOOST_CHECK_EQUAL(b.hit(req(1, 2)), 0U);
    b.store(1, req(2, 2), 32);
    BOOST_CHECK_EQUAL(b.hit(req(2, 2)), 32U);
    BOOST_CHECK_EQUAL(a.hit(req(2, 2)), 0U);
    BOOST_CHECK_EQUAL(a.counts().all_offers.stored, 1U * 2);
  }
}

BOOST_AUTO_TEST_CASE(a_random_root_is_fine_without_a_persistent_tier) {
  Setup s;
  s.flags = KVC_OPEN_RANDOM_ROOT;
  World w(s);
  w.store(1, req(1, 1), 16);
  BOOST_CHECK_EQUAL(w.hit(req(1, 1)), 16U);
}

BOOST_AUTO_TEST_CASE(stored_blocks_are_announced_with_span_key_and_parent) {
  World w(Setup{});
  w.run(1, req(1, 2), 32);
  const std::vector<kvc_event> events = w.events();
  BOOST_REQUIRE_EQUAL(events.size(), 2U);
  const std::vector<std::uint8_t> keys = w.keys_of(w.request(1), 2);
  for (std::uint64_t i = 0; i < 2; ++i) {
    const kvc_event& e = events[i];
    BOOST_CHECK_EQUAL(e.kind, KVC_EVENT_STORED);
    BOOST_CHECK_EQUAL(e.medium, KVC_MEDIUM_HOST);
    BOOST_CHECK_EQUAL(e.group, 0U);
    BOOST_CHECK_EQUAL(e.begin_tokens, 16 * i);
    BOOST_CHECK_EQUAL(e.end_tokens, 16 * (i + 1));
    BOOST_CHECK_EQUAL(e.request, 1U);
    BOOST_CHECK_EQUAL(e.key_bytes, 16U);
    BOOST_CHECK(std::memcmp(e.key, &keys[16 * i], 16) == 0);
    BOOST_CHECK_EQUAL(e.has_parent, i);
    if (i == 1) BOOST_CHECK(std::memcmp(e.parent_key, keys.data(), 16) == 0);
    for (std::size_t b = 16; b < sizeof e.key; ++b) BOOST_CHECK_EQUAL(e.key[b], 0);
  }
  BOOST_CHECK(w.events().empty());
}

BOOST_AUTO_TEST_CASE(events_that_are_off_are_never_made) {
  Setup s;
  s.connector_toml = "event_ring = 0";
  World w(s);
  w.run(1, req(1, 2), 32);
  BOOST_CHECK(w.events().empty());
}

// K11-110: parents are those of the block, not the one stored before it.
BOOST_AUTO_TEST_CASE(a_stored_block_names_the_parent_of_its_path) {
  World w(Setup{});
  w.store(1, tokens_of(1, 17), 16);
  w.events();
  w.run(2, tokens_of(1, 16) + tokens_of(2, 17), 32);
  const std::vector<kvc_event> events = w.events();
  BOOST_REQUIRE_EQUAL(events.size(), 1U);
  const std::vector<std::uint8_t> keys = w.keys_of(w.request(2), 2);
  BOOST_CHECK_EQUAL(events[0].has_parent, 1U);
  BOOST_CHECK(std::memcmp(events[0].parent_key, keys.data(), 16) == 0);
  BOOST_CHECK(std::memcmp(events[0].key, &keys[16], 16) == 0);
}

BOOST_AUTO_TEST_CASE(evicted_blocks_are_announced_for_their_medium) {
  Setup s;
  s.host_blocks = 4;
  World w(s);
  w.store(1, req(1, 2), 32);
  w.store(2, req(2, 2), 32);
  w.events();
  w.store(3, req(3, 2), 32);
  std::uint64_t removed = 0;
  std::uint64_t stored = 0;
  for (const kvc_event& e : w.events()) {
    BOOST_CHECK_EQUAL(e.medium, KVC_MEDIUM_HOST);
    removed += e.kind == KVC_EVENT_REMOVED;
    stored += e.kind == KVC_EVENT_STORED;
  }
  BOOST_CHECK_EQUAL(removed, 2U);
  BOOST_CHECK_EQUAL(stored, 2U);
}

// CW-26, K11-116: a reset is announced with its medium, after it nothing older is announced or
// found.
BOOST_AUTO_TEST_CASE(a_reset_is_announced_as_cleared) {
  World w(Setup{});
  w.store(1, req(1, 2), 32);
  w.events();
  BOOST_CHECK_EQUAL(w.reset(), KVC_OK);
  const std::vector<kvc_event> events = w.events();
  BOOST_REQUIRE_EQUAL(events.size(), 1U);
  BOOST_CHECK_EQUAL(events[0].kind, KVC_EVENT_CLEARED);
  BOOST_CHECK_EQUAL(events[0].medium, KVC_MEDIUM_HOST);
  BOOST_CHECK_EQUAL(events[0].key_bytes, 0U);
  BOOST_CHECK_EQUAL(w.hit(req(1, 2)), 0U);
}

BOOST_AUTO_TEST_CASE(every_group_is_announced_with_its_index_and_span) {
  Setup s;
  s.groups = {full(16, KVC_GROUP_CAP_SHARDED), state_align(64)};
  s.cp = 2;
  s.h = 16;
  s.s = 64;
  World w(s);
  w.begin(1, tokens_of(1, 65));
  w.take(1, 0);
  w.compute(1, 64);
  w.hand_off(1, 1, w.request(1).tables[1].back(), 64);
  w.step();
  std::uint64_t attention = 0;
  std::uint64_t states = 0;
  for (const kvc_event& e : w.events()) {
    if (e.group == 0) {
      BOOST_CHECK_EQUAL(e.end_tokens - e.begin_tokens, 32U);
      ++attention;
    } else {
      BOOST_CHECK_EQUAL(e.group, 1U);
      BOOST_CHECK_EQUAL(e.end_tokens, 64U);
      ++states;
    }
  }
  BOOST_CHECK_EQUAL(attention, 2U);
  BOOST_CHECK_EQUAL(states, 1U);
}

BOOST_AUTO_TEST_CASE(a_ring_that_is_full_counts_what_it_lost) {
  Setup s;
  s.connector_toml = "event_ring = 4";
  World w(s);
  w.run(1, req(1, 10), 160);
  BOOST_CHECK_EQUAL(w.events().size(), 4U);
  BOOST_CHECK_EQUAL(w.stat("events_lost"), 6U);
}

// What is announced as stored and not as removed is what can be found.
BOOST_AUTO_TEST_CASE(the_events_add_up_to_what_is_found) {
  Setup s;
  s.host_blocks = 6;
  World w(s);
  std::set<std::string> known;
  for (std::uint64_t i = 1; i <= 12; ++i) {
    w.store(i, req(i % 5, 1 + i % 3), 16 * (1 + i % 3));
    for (const kvc_event& e : w.events()) {
      const std::string key(reinterpret_cast<const char*>(e.key), e.key_bytes);
      if (e.kind == KVC_EVENT_STORED) BOOST_CHECK(known.insert(key).second);
      if (e.kind == KVC_EVENT_REMOVED) BOOST_CHECK_EQUAL(known.erase(key), 1U);
    }
  }
  BOOST_CHECK_EQUAL(known.size(), w.stat("host_published_now"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvc::abi_test
