#include "plugin/edge/log_ring.h"

#include <boost/test/unit_test.hpp>
#include <string>
#include <thread>
#include <vector>

#include "plugin/edge/last_error.h"
#include "plugin/edge/tests/form_fixture.h"

namespace kvc::edge {

BOOST_AUTO_TEST_SUITE(edge_log)

namespace {

std::string take(LogRing& ring, std::size_t cap, bool& more) {
  std::string buf(cap, '\0');
  buf.resize(ring.take(buf.data(), cap, more));
  return buf;
}

}  // namespace

BOOST_AUTO_TEST_CASE(lines_come_out_whole_and_in_order) {
  LogRing ring(256, std::pmr::get_default_resource());
  ring.add(LogLevel::info, "one");
  ring.add(LogLevel::peer_fault, "the host broke rule R-108");
  bool more = false;
  BOOST_CHECK_EQUAL(take(ring, 12, more), "info one\n");
  BOOST_CHECK(more);
  BOOST_CHECK_EQUAL(take(ring, 100, more), "peer_fault the host broke rule R-108\n");
  BOOST_CHECK(!more);
  BOOST_CHECK_EQUAL(take(ring, 100, more), "");
}

BOOST_AUTO_TEST_CASE(a_line_feed_inside_a_text_does_not_split_it) {
  LogRing ring(256, std::pmr::get_default_resource());
  ring.add(LogLevel::warn, "a\nb");
  bool more = false;
  BOOST_CHECK_EQUAL(take(ring, 100, more), "warn a b\n");
}

BOOST_AUTO_TEST_CASE(a_full_ring_loses_the_oldest_lines_and_says_so) {
  LogRing ring(64, std::pmr::get_default_resource());
  for (int i = 0; i < 100; ++i) ring.add(LogLevel::info, "line " + std::to_string(i));
  bool more = false;
  const std::string text = take(ring, 200, more);
  BOOST_CHECK_EQUAL(text.substr(0, text.find('\n')), "warn lines lost: 96");
  BOOST_CHECK(text.find("info line 99\n") != std::string::npos);
  BOOST_CHECK(text.find("info line 96\n") != std::string::npos);
  BOOST_CHECK(text.find("info line 95\n") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_line_longer_than_ring_or_buffer_is_cut_and_the_drain_advances) {
  LogRing ring(32, std::pmr::get_default_resource());
  ring.add(LogLevel::info, std::string(500, 'x'));
  bool more = true;
  BOOST_CHECK_EQUAL(take(ring, 10, more), "info xxxx\n");
  BOOST_CHECK(!more);
  LogRing tiny(1, std::pmr::get_default_resource());
  tiny.add(LogLevel::info, "x");
  BOOST_CHECK_EQUAL(take(tiny, 40, more), "warn lines lost: 1\n");
}

BOOST_AUTO_TEST_CASE(many_threads_add_whole_lines) {
  LogRing ring(1 << 16, std::pmr::get_default_resource());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&ring] {
      for (int i = 0; i < 200; ++i) ring.add(LogLevel::debug, "0123456789");
    });
  }
  for (std::thread& t : threads) t.join();
  bool more = false;
  const std::string text = take(ring, 1 << 17, more);
  BOOST_REQUIRE_EQUAL(text.size(), 800 * std::string("debug 0123456789\n").size());
  for (std::size_t at = 0; at < text.size(); at += 17) {
    BOOST_REQUIRE_EQUAL(text.substr(at, 17), "debug 0123456789\n");
  }
}

BOOST_AUTO_TEST_CASE(a_cut_error_text_keeps_whole_characters) {
  LastError e;
  std::string text(997 - 6, 'x');
  text += "\xC3\xA4\xC3\xA4";  // two letters of two bytes over the edge of the room
  e.set("slot", text);
  BOOST_CHECK_LE(e.text().size(), 1000U);
  BOOST_CHECK((static_cast<unsigned char>(e.text().back()) & 0xC0U) != 0xC0U);
  e.set("slot", "");
  BOOST_CHECK_EQUAL(e.text(), "slot");
}

BOOST_FIXTURE_TEST_CASE(a_host_without_log_drains_it_per_handle, testing::Form) {
  host.log = nullptr;
  sched();
  rank();
  testing::script().host->log(LogLevel::info, "gate fine_hits is off");
  char text[64] = {};
  std::uint64_t n = 9;
  BOOST_CHECK_EQUAL(api.take_log_rank(r, text, sizeof text, &n), KVC_OK);
  BOOST_CHECK_EQUAL(n, 0U);
  BOOST_CHECK_EQUAL(api.take_log_scheduler(s, text, sizeof text, &n), KVC_OK);
  BOOST_CHECK_EQUAL(std::string(text, n), "info gate fine_hits is off\n");
  BOOST_CHECK_EQUAL(api.take_log_scheduler(s, nullptr, 8, &n), KVC_E_ARG);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvc::edge
