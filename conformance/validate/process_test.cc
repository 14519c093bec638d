// What needs a process of its own: guard pages, which crash whoever keeps a pointer, and what is
// still open at the end.
#include <sys/wait.h>
#include <unistd.h>
#include <boost/filesystem.hpp>
#include <boost/test/unit_test.hpp>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "conformance/validate/guard.h"
#include "conformance/validate/recording.h"
#include "conformance/validate/table.h"
#include "conformance/validate/tests/scripted.h"

namespace kvc::validate::testing {
namespace {

// How a child that does this ends: its exit code, 128 + signal after a crash.
template <class F>
int in_child(const F& f) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int signal : {SIGSEGV, SIGBUS, SIGABRT}) std::signal(signal, SIG_DFL);
    f();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::uint8_t first_key_of(const kvc_request* r) {
  return *static_cast<const volatile std::uint8_t*>(r->keys);
}

const kvc_request* kept = nullptr;

// A connector that looks at the last request again when the next one begins.
void keep_requests() {
  script().request_begin = [](kvc_sched* s, const kvc_request* r) {
    if (kept != nullptr && first_key_of(kept) == 0xEE) std::puts("never");
    kept = r;
    return right_api().request_begin(s, r);
  };
}

BOOST_AUTO_TEST_SUITE(processes)

BOOST_AUTO_TEST_CASE(a_connector_that_keeps_a_pointer_crashes_on_guard_pages) {
  const int code = in_child([] {
    Host h(KVC_HOST_BLOCK_QUERY, "guard = true\n");
    h.open();
    kept = nullptr;
    keep_requests();
    h.begin(1, 32);
    h.begin(2, 32);
  });
  BOOST_TEST(code != 0);
}

BOOST_AUTO_TEST_CASE(a_connector_that_writes_its_inputs_crashes_on_guard_pages) {
  const int code = in_child([] {
    Host h(KVC_HOST_BLOCK_QUERY, "guard = true\n");
    h.open();
    script().request_begin = [](kvc_sched* s, const kvc_request* r) {
      *const_cast<volatile std::uint8_t*>(r->keys) = 1;
      return right_api().request_begin(s, r);
    };
    h.begin(1, 32);
  });
  BOOST_TEST(code != 0);
}

BOOST_AUTO_TEST_CASE(a_right_connector_works_on_guard_pages) {
  Host h(KVC_HOST_BLOCK_QUERY, "guard = true\n");
  h.open();
  script().offer = 32;
  h.begin(1, 48);
  h.lookup(1, 48);
  h.alloc(1, 32, {1, 2});
  BOOST_TEST(h.step() == KVC_OK);
  h.schedule(1, 48, {1, 2, 3}, 2);
  BOOST_TEST(h.step() == KVC_OK);
  BOOST_TEST(h.end(1, 48, {1, 2, 3}) == KVC_OK);
  h.close();
  BOOST_TEST(found_texts() == "");
}

BOOST_AUTO_TEST_CASE(what_was_taken_from_guard_pages_is_gone_after_close) {
  const int code = in_child([] {
    GuardPages pages;
    auto* const bytes = static_cast<volatile std::uint8_t*>(pages.take(100));
    bytes[0] = 1;
    pages.lock();
    if (bytes[0] != 1) ::_exit(0);
    pages.close();
    if (bytes[0] == 1) ::_exit(0);
  });
  BOOST_TEST(code != 0);
}

BOOST_AUTO_TEST_CASE(what_was_recorded_before_a_crash_is_in_the_file) {
  namespace fs = boost::filesystem;
  const fs::path folder = fs::temp_directory_path() / fs::unique_path("kvc_crash_%%%%%%%%");
  fs::create_directory(folder);
  const int code = in_child([&] {
    Host h(KVC_HOST_BLOCK_QUERY, "record = \"" + (folder / "a.kvcc").string() + "\"\n");
    h.open();
    h.begin(1, 32);
    script().lookup = [](kvc_sched*, const kvc_lookup_in*, kvc_lookup_out*) -> kvc_status {
      std::abort();
    };
    h.lookup(1, 32);
  });
  BOOST_TEST(code == 128 + SIGABRT);
  const fs::path file = fs::directory_iterator(folder)->path();  // a.kvcc, and which engine it was
  const auto recording = Recording::read(file.string(), Recording::Cut::allowed);
  fs::remove_all(folder);
  BOOST_REQUIRE(recording.ok());
  const auto& calls = recording.value().calls();
  BOOST_REQUIRE(calls.size() == 5U);  // two opens, regions, ranks, a request
  BOOST_TEST(calls.back().head.slot == static_cast<std::uint32_t>(Slot::request_begin));
}

BOOST_AUTO_TEST_CASE(queries_on_other_threads_are_no_finding) {
  Host h;
  h.open();
  std::thread other([&] {
    for (int i = 0; i < 200; ++i) {
      kvc_pending p{};
      p.struct_size = sizeof p;
      slots::has_pending(h.sched, &p);
    }
  });
  for (std::uint64_t i = 0; i < 200; ++i) slots::pump_rank(h.rank, 1);
  other.join();
  h.close();
  BOOST_TEST(found_texts() == "");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::validate::testing
