// Valid structs to start from, and the table of the edge, for tests of the edge alone.
#pragma once
#include <kvc/kvc.h>
#include <kvc/kvc_util.h>

#include <map>
#include <string>
#include <vector>

#include "plugin/edge/tests/scripted_role.h"

namespace kvc::edge::testing {

// An allocator that counts, and fails on demand.
struct Memory {
  std::map<void*, std::pair<std::uint64_t, std::uint64_t>> live;
  std::uint64_t calls = 0;
  std::uint64_t fail_at = UINT64_MAX;  // the call that fails
  std::uint64_t bad_releases = 0;
};

struct Form {
  Form();
  ~Form();
  Form(const Form&) = delete;
  Form& operator=(const Form&) = delete;

  // Opens; a refused open is a failed test.
  kvc_sched* sched();
  kvc_rank* rank();
  kvc_status try_open(kvc_sched*& out);
  void close();
  [[nodiscard]] std::string last_error() const;
  [[nodiscard]] bool logged(std::string_view part) const;

  kvc_plugin_api api{};
  kvc_host_api host{};
  kvc_open open{};
  std::vector<kvc_group> groups;
  std::string toml;
  std::vector<std::pair<std::int32_t, std::string>> log;
  Memory memory;
  std::uint64_t now = 5;
  kvc_sched* s = nullptr;
  kvc_rank* r = nullptr;

  // A request of 32 tokens with two keys; a lookup, a table of group 0 with two blocks, a step with
  // it, an end.
  std::vector<std::uint8_t> keys;
  std::vector<std::int64_t> blocks = {3, 4};
  std::vector<kvc_table> tables;
  std::vector<kvc_handoff> handoffs;
  std::vector<kvc_candidate> candidates;
  std::vector<kvc_step_request> scheduled;
  std::vector<std::uint64_t> preempted = {8};
  std::vector<kvc_class> classes;
  std::vector<kvc_rank_info> ranks;
  kvc_request request{};
  kvc_extend extend{};
  kvc_lookup_in lookup{};
  kvc_alloc_in alloc{};
  kvc_step step{};
  kvc_end_in end{};
};

}  // namespace kvc::edge::testing
