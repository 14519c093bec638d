#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "host_stub/tools/exposition_test.h"
#include "host_stub/tools/metrics_server.h"

namespace kvc::host {
namespace {

MetricsSnapshot example() {
  MetricsSnapshot s;
  s.connector = {{"lookups", "", 7},
                 {"host_slots_total", "", 100},
                 {"host_slots_used_now", "", 40},
                 {"loaded_bytes", "", 4096},
                 {"holds_budget", "", 12},
                 {"handoffs", "outcome=stored", 3},
                 {"handoffs", "outcome=pending", 0},
                 {"1 odd\nname", "a b=x\"y\\z,bad", 1}};
  s.pass.external_hit_tokens = 1234;
  s.explain = "{\"requests\":[{\"request\":7,\"phase\":\"ended\"}]}";
  return s;
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

BOOST_AUTO_TEST_SUITE(run_metrics)

BOOST_AUTO_TEST_CASE(levels_are_gauges_and_the_rest_counts_up) {
  const std::string text = metrics_text(example());
  BOOST_TEST(has_line(text, "# TYPE kvc:lookups_total counter"), text);
  BOOST_TEST(has_line(text, "kvc:lookups_total 7"), text);
  BOOST_TEST(has_line(text, "# TYPE kvc:host_slots gauge"), text);
  BOOST_TEST(has_line(text, "kvc:host_slots 100"), text);
  BOOST_TEST(has_line(text, "kvc:host_slots_used 40"), text);
  BOOST_TEST(has_line(text, "# TYPE kvc:holds_budget gauge"), text);
  BOOST_TEST(has_line(text, "kvc:holds_budget 12"), text);
  BOOST_TEST(has_line(text, "kvc:run_prompt_tokens{source=\"connector\"} 1234"), text);
}

BOOST_AUTO_TEST_CASE(a_statistic_says_what_it_means) {
  const std::string text = metrics_text(example());
  BOOST_TEST(has_line(text, "# HELP kvc:lookups_total lookups: lookups, repeated ones too."), text);
  BOOST_TEST(has_line(text, "# HELP kvc:_1_odd_name_total Statistic _1_odd_name of the connector."),
             text);
}

BOOST_AUTO_TEST_CASE(names_of_vllm_are_used_where_it_has_them) {
  const std::string text = metrics_text(example());
  BOOST_TEST(has_line(text, "vllm:kv_offload_load_bytes_total 4096"), text);
  BOOST_TEST(has_line(text, "vllm:simple_kv_offload_save_outcomes_total{outcome=\"stored\"} 3"),
             text);
}

BOOST_AUTO_TEST_CASE(every_family_has_its_type_once_and_its_samples_together) {
  const std::string text = metrics_text(example());
  const std::string type = "# TYPE vllm:simple_kv_offload_save_outcomes_total ";
  BOOST_TEST(text.find(type) != std::string::npos);
  BOOST_TEST(text.find(type) == text.rfind(type));
  BOOST_TEST(text.find("{outcome=\"pending\"} 0\n"
                       "vllm:simple_kv_offload_save_outcomes_total{outcome=\"stored\"} 3\n") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(names_and_labels_of_a_foreign_connector_cannot_break_the_format) {
  const std::string text = metrics_text(example());
  BOOST_TEST(has_line(text, "kvc:_1_odd_name_total{a_b=\"x\\\"y\\\\z\"} 1"), text);
}

BOOST_AUTO_TEST_CASE(the_text_has_the_format_to_the_letter) {
  MetricsSnapshot s = example();
  for (const std::string& problem : Exposition::problems(metrics_text(s))) BOOST_ERROR(problem);
  // A connector that wants to break it.
  for (const char* odd :
       {"", "_total", "a\\", "a\nb 7", "# TYPE x gauge", "x{y=\"1\"}", "\xC3\x28"}) {
    for (const char* labels : {"", ",", "a", "a=", "=1", "a=1,a=2", "a=\\", "a=\"\n}", "9=x"}) {
      s.connector.push_back({odd, labels, 1});
    }
  }
  for (const std::string& problem : Exposition::problems(metrics_text(s))) BOOST_ERROR(problem);
}

// The judge above, judged.
BOOST_AUTO_TEST_CASE(each_fault_of_a_text_of_metrics_is_seen) {
  const std::string right =
      "# HELP a_total Text with \\n and \\\\.\n# TYPE a_total counter\na_total "
      "1\na_total{b=\"\\\"\"} "
      "2\n";
  BOOST_TEST(Exposition::problems(right).empty(), right);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = right;
    const std::size_t at = text.find(from);
    BOOST_REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
  };
  const std::string type = "# TYPE a_total counter\n";
  for (const std::string& wrong : {right.substr(0, right.size() - 1),
                                   right + "\n",
                                   right + right,
                                   changed(type, ""),
                                   changed(type, type + type),
                                   changed("counter", "histogram"),
                                   changed("counter", "gauge"),
                                   changed("\\n", "\\x"),
                                   changed("a_total 1", "a_total one"),
                                   changed("a_total 1", "a_total -1"),
                                   changed("a_total 1", "a_total NaN"),
                                   changed("a_total 1", "a_total  1"),
                                   changed("a_total 1", "a_total 1 "),
                                   changed("a_total 1", "9a 1"),
                                   changed("a_total 1", "b 1"),
                                   changed("{b=", "{9b="),
                                   changed("{b=", "{b"),
                                   changed("\\\"\"}", "\"\"}"),
                                   changed("\"}", "\",b=\"1\"}"),
                                   changed("{b=\"\\\"\"}", ""),
                                   changed("{b=\"\\\"\"}", "{}"),
                                   changed("# HELP", "# HLEP"),
                                   right + "# HELP b x\n# TYPE b gauge\n",
                                   right + "# HELP a_total again\n"}) {
    BOOST_TEST(!Exposition::problems(wrong).empty(), wrong);
  }
}

BOOST_AUTO_TEST_CASE(the_server_shows_the_newest_snapshot_and_nothing_else) {
  auto opened = MetricsServer::open(0);
  BOOST_REQUIRE(opened.ok());
  MetricsServer& server = *opened.value();
  httplib::Client client("127.0.0.1", server.port());
  BOOST_TEST(client.Get("/explain")->body == "{}");
  server.publish(example());
  const auto metrics = client.Get("/metrics");
  BOOST_REQUIRE(metrics);
  BOOST_TEST(metrics->status == 200);
  BOOST_TEST(metrics->body == metrics_text(example()));
  BOOST_TEST(metrics->get_header_value("Content-Type").starts_with("text/plain; version=0.0.4"));
  BOOST_TEST(client.Get("/explain")->body == example().explain);
  BOOST_TEST(client.Get("/")->status == 404);
}

BOOST_AUTO_TEST_CASE(one_request_is_explained_alone_and_what_is_no_question_is_refused) {
  auto opened = MetricsServer::open(0);
  BOOST_REQUIRE(opened.ok());
  opened.value()->publish(example());
  httplib::Client client("127.0.0.1", opened.value()->port());
  const auto one = client.Get("/explain?request=7");
  BOOST_REQUIRE(one);
  BOOST_TEST(one->status == 200);
  BOOST_TEST(one->body == "{\"phase\":\"ended\",\"request\":7}");
  for (const char* wrong : {"/explain?request=8", "/explain?request=", "/explain?request=7x",
                            "/explain?id=7", "/explain?request=7&x=1"}) {
    const auto answer = client.Get(wrong);
    BOOST_REQUIRE(answer);
    BOOST_TEST(answer->status == 400, wrong);
  }
}

BOOST_AUTO_TEST_CASE(a_port_that_is_taken_is_refused_by_its_number) {
  auto first = MetricsServer::open(0);
  BOOST_REQUIRE(first.ok());
  const auto second = MetricsServer::open(first.value()->port());
  BOOST_REQUIRE(!second.ok());
  BOOST_TEST(second.error().text.find(std::to_string(first.value()->port())) != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_server_that_nobody_asked_ends_at_once) {
  for (int i = 0; i < 20; ++i) BOOST_TEST(MetricsServer::open(0).ok());
}

// Connected, and what it sent is no whole request. -1: not connected.
int begun_request(std::uint16_t port) {
  const int client = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in there{};
  there.sin_family = AF_INET;
  there.sin_port = htons(port);
  there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const std::string begun = "GET /metrics HTTP/1.1\r\nA: ";
  if (client < 0 || ::connect(client, reinterpret_cast<sockaddr*>(&there), sizeof there) != 0 ||
      ::send(client, begun.data(), begun.size(), MSG_NOSIGNAL) <= 0) {
    return -1;
  }
  return client;
}

BOOST_AUTO_TEST_CASE(a_client_that_never_ends_its_request_does_not_keep_the_server) {
  int client = -1;
  {
    auto server = MetricsServer::open(0, std::chrono::hours(24));
    BOOST_REQUIRE(server.ok());
    client = begun_request(server.value()->port());
    BOOST_REQUIRE(client >= 0);
    // Another request is answered meanwhile, so a worker has the first.
    BOOST_TEST(httplib::Client("127.0.0.1", server.value()->port()).Get("/metrics")->status == 200);
  }
  char byte = 0;
  BOOST_TEST(::recv(client, &byte, 1, 0) <= 0);
  ::close(client);
}

// Each of them has the server's patience of a day: whoever waited for one would not be answered.
BOOST_AUTO_TEST_CASE(a_scrape_waits_for_no_idle_connection) {
  auto server = MetricsServer::open(0, std::chrono::hours(24));
  BOOST_REQUIRE(server.ok());
  std::vector<int> idle(64);
  for (int& client : idle) {
    client = begun_request(server.value()->port());
    BOOST_REQUIRE(client >= 0);
  }
  for (int i = 0; i < 8; ++i) {
    httplib::Client scrape("127.0.0.1", server.value()->port());
    scrape.set_read_timeout(20);
    const auto got = scrape.Get("/metrics");
    BOOST_REQUIRE_MESSAGE(got, "not answered");
    BOOST_TEST(got->status == 200);
  }
  for (const int client : idle) ::close(client);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::host
