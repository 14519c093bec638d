// The table of kvc.hints/1: what it reads, what it refuses and with which text.
#include <kvc/kvc_hints.h>
#include <kvc/kvc_util.h>

#include <boost/test/unit_test.hpp>
#include <string>

#include "plugin/edge/tests/abi_host.h"

namespace kvc::abi_test {

BOOST_AUTO_TEST_SUITE(hints_table)

namespace {

Tokens req(std::uint64_t seed, std::uint64_t k) { return tokens_of(seed, 16 * k + 1); }

const kvc_hints_api& table_of(World& w) {
  const void* const table = w.api().extension(kvc_text_of(KVC_HINTS_EXTENSION));
  BOOST_REQUIRE(table != nullptr);
  return *static_cast<const kvc_hints_api*>(table);
}

void refused(World& w, kvc_status status, kvc_status expected, const std::string& part) {
  BOOST_TEST(status == expected);
  const std::string text = w.last_error();
  BOOST_TEST(text.find(part) != std::string::npos, text << " has not: " << part);
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_table_has_its_size_and_all_functions) {
  World w(Setup{});
  const kvc_hints_api& t = table_of(w);
  BOOST_TEST(t.struct_size == sizeof t);
  BOOST_TEST(t.reserved0 == 0U);
  BOOST_TEST(KVC_CAN(&t, kvc_hints_api, hint));
  BOOST_TEST(KVC_CAN(&t, kvc_hints_api, pin));
  BOOST_TEST(KVC_CAN(&t, kvc_hints_api, unpin));
}

BOOST_AUTO_TEST_CASE(bad_hints_have_a_status_and_a_text) {
  World w(Setup{});
  const kvc_hints_api& t = table_of(w);
  w.begin(1, req(1, 2));
  const kvc_hint_in right{sizeof right, 0, 1, 2, 0, 77};
  BOOST_TEST(t.hint(w.sched(), &right) == KVC_OK);
  const auto with = [&](auto change) {
    kvc_hint_in in = right;
    change(in);
    return t.hint(w.sched(), &in);
  };
  using In = kvc_hint_in;
  BOOST_TEST(t.hint(nullptr, &right) == KVC_E_ARG);
  refused(w, t.hint(w.sched(), nullptr), KVC_E_ARG, "kvc_hint_in is NULL");
  refused(w, with([](In& in) { in.struct_size = 24; }), KVC_E_ARG, "struct_size is 24");
  BOOST_TEST(with([](In& in) { in.flags = KVC_HINT_PREFETCH; }) == KVC_OK);  // without a disk
  refused(w, with([](In& in) { in.flags = 4; }), KVC_E_UNSUPPORTED, "kvc_hint_in.flags");
  refused(w, with([](In& in) { in.reserved0 = 9; }), KVC_E_UNSUPPORTED, "reserved0 is 9");
  refused(w, with([](In& in) { in.request = 5; }), KVC_E_ARG, "request 5 is unknown");
  refused(w, with([](In& in) { in.priority = -7; }), KVC_E_ARG, "priority -7; -2 to 2");
  w.compute(1, 33);
  w.step();
  refused(w, with([](In&) {}), KVC_E_STATE, "was admitted 1 times");
  w.drain();
  w.end(1);
  w.drain();
  w.check_quiet();
}

BOOST_AUTO_TEST_CASE(bad_pins_have_a_status_and_a_text) {
  Setup s;
  s.host_blocks = 8;
  s.connector_toml = "max_pins = 1\nmax_pinned_percent = 25";
  World w(s);
  const kvc_hints_api& t = table_of(w);
  w.store(1, req(1, 4));
  w.begin(2, req(1, 4));
  const kvc_pin_in right{sizeof right, 0, 2, 33};
  kvc_pin_out out{};
  out.struct_size = sizeof out;
  const auto with = [&](auto change) {
    kvc_pin_in in = right;
    change(in);
    return t.pin(w.sched(), &in, &out);
  };
  using In = kvc_pin_in;
  BOOST_TEST(t.pin(nullptr, &right, &out) == KVC_E_ARG);
  refused(w, t.pin(w.sched(), nullptr, &out), KVC_E_ARG, "kvc_pin_in is NULL");
  refused(w, t.pin(w.sched(), &right, nullptr), KVC_E_ARG, "kvc_pin_out is NULL");
  refused(w, with([](In& in) { in.struct_size = 16; }), KVC_E_ARG, "struct_size is 16");
  refused(w, with([](In& in) { in.flags = 1; }), KVC_E_UNSUPPORTED, "kvc_pin_in.flags");
  refused(w, with([](In& in) { in.request = 5; }), KVC_E_ARG, "request 5 is unknown");
  refused(w, with([](In& in) { in.tokens = 0; }), KVC_E_ARG, "0 tokens");
  refused(w, with([](In& in) { in.tokens = KVC_NO_LIMIT; }), KVC_E_FULL,
          "a pin of 4 blocks beside 0 pinned ones; max_pinned_percent 25 of 8 slots allows 2");
  BOOST_TEST(out.pin == 0U);
  BOOST_TEST(t.pin(w.sched(), &right, &out) == KVC_OK);
  BOOST_TEST(out.pin != 0U);
  BOOST_TEST(out.tokens == 32U);
  BOOST_TEST(out.blocks == 2U);
  refused(w, with([](In& in) { in.tokens = 16; }), KVC_E_FULL, "1 pins are open, max_pins is 1");
  refused(w, t.unpin(w.sched(), out.pin + 1), KVC_E_ARG, "no pin had the id");
  refused(w, t.unpin(w.sched(), 0), KVC_E_ARG, "no pin had the id 0");
  BOOST_TEST(t.unpin(nullptr, out.pin) == KVC_E_ARG);
  BOOST_TEST(t.unpin(w.sched(), out.pin) == KVC_OK);
  BOOST_TEST(t.unpin(w.sched(), out.pin) == KVC_OK);
  w.end(2);
  w.check_quiet();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvc::abi_test
