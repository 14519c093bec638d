#include "plugin/edge/tests/form_fixture.h"

#include <boost/test/unit_test.hpp>
#include <cstdlib>

namespace kvc::edge::testing {

namespace {

Form& form(kvc_host* h) { return *reinterpret_cast<Form*>(h); }

void log(kvc_host* h, std::int32_t level, kvc_bytes text) noexcept {
  form(h).log.emplace_back(level, std::string(reinterpret_cast<const char*>(text.data), text.size));
}

std::uint64_t now_ns(kvc_host* h) noexcept { return form(h).now; }

void* alloc(kvc_host* h, std::uint64_t bytes, std::uint64_t align) noexcept {
  Memory& m = form(h).memory;
  if (m.calls++ == m.fail_at) return nullptr;
  const std::uint64_t rounded = (bytes + align - 1) / align * align;
  void* p = std::aligned_alloc(align < 8 ? 8 : align, (rounded + 7) / 8 * 8);
  m.live[p] = {bytes, align};
  return p;
}

void release(kvc_host* h, void* p, std::uint64_t bytes, std::uint64_t align) noexcept {
  Memory& m = form(h).memory;
  const auto it = m.live.find(p);
  if (it == m.live.end() || it->second != std::pair(bytes, align)) {
    ++m.bad_releases;
    return;
  }
  m.live.erase(it);
  std::free(p);
}

template <class T>
kvc_list list_of(const std::vector<T>& items) {
  return kvc_list_of(items.data(), items.size(), sizeof(T));
}

}  // namespace

Form::Form() {
  script() = Script{};
  api.struct_size = sizeof api;
  BOOST_REQUIRE_EQUAL(kvc_plugin_entry_v1(KVC_MINOR, &api), KVC_OK);
  host = {sizeof host,  0,       KVC_HOST_STEPPED, reinterpret_cast<kvc_host*>(this),
          testing::log, now_ns,  testing::alloc,   testing::release,
          nullptr,      nullptr, nullptr};
  kvc_group full{};
  full.struct_size = sizeof full;
  full.kind = KVC_GROUP_FULL;
  full.caps = KVC_GROUP_CAP_CACHEABLE | KVC_GROUP_CAP_POSITION_STABLE | KVC_GROUP_CAP_FINE_LOOKUP;
  full.caps_known = KVC_GROUP_CAPS_ALL;
  full.tokens_per_block = 16;
  groups = {full};
  open.struct_size = sizeof open;
  open.groups = list_of(groups);
  open.hash_unit_tokens = 16;
  open.scheduler_block_tokens = 16;
  open.context_parallel = 1;
  open.ranks = 1;
  open.cp_interleave_tokens = 1;
  open.device_blocks = 32;
  open.key_bytes = 16;
  open.max_prompt_tokens = 1024;
  open.max_total_tokens = 2048;
  open.max_batch_tokens = 512;
  open.max_live_requests = 8;
  open.max_running = 4;
  open.max_request_bytes = 1 << 20;
  open.max_steps_in_flight = 2;
  open.retention_tokens = -1;

  for (std::uint8_t i = 0; i < 32; ++i) keys.push_back(i);
  request = {sizeof request, KVC_REQUEST_NO_READ, 7, 33, keys.data(), 2, KVC_NO_LIMIT, 32};
  extend = {sizeof extend, 0, 7, 1, keys.data(), 2};
  lookup = {sizeof lookup, 0, 7, 33, 16, 32};
  tables = {{sizeof(kvc_table), 0, blocks.data(), blocks.size(), 1}};
  alloc = {sizeof alloc, 0, 7, 16, list_of(tables)};
  scheduled = {{sizeof(kvc_step_request), KVC_STEP_RESUMED, 7, 32, list_of(tables)}};
  handoffs = {{sizeof(kvc_handoff), 0, 7, 5, 48}};
  candidates = {{sizeof(kvc_candidate), 0, 6, keys.data(), 64}};
  step = {sizeof step,
          0,
          1,
          list_of(scheduled),
          preempted.data(),
          preempted.size(),
          list_of(handoffs),
          list_of(candidates)};
  end = {sizeof end, KVC_END_LENGTH, 7, 32, list_of(tables), list_of(handoffs)};
  classes = {{sizeof(kvc_class), 0, 1, 1, 128, 0}};
  ranks = {{sizeof(kvc_rank_info), 0, 8, list_of(classes), {nullptr, 0}}};
}

Form::~Form() {
  close();
  BOOST_CHECK(memory.live.empty());
  BOOST_CHECK_EQUAL(memory.bad_releases, 0U);
  BOOST_CHECK_EQUAL(script().live_roles, 0U);
}

void Form::close() {
  api.close_scheduler(s);
  api.close_rank(r);
  s = nullptr;
  r = nullptr;
}

kvc_status Form::try_open(kvc_sched*& out) {
  open.config_toml = kvc_bytes_of(toml.data(), toml.size());
  return api.open_scheduler(&host, &open, &out);
}

kvc_sched* Form::sched() {
  if (s == nullptr) {
    BOOST_REQUIRE_MESSAGE(try_open(s) == KVC_OK, (log.empty() ? "" : log.back().second));
  }
  return s;
}

kvc_rank* Form::rank() {
  if (r == nullptr) BOOST_REQUIRE_EQUAL(api.open_rank(&host, &open, &r), KVC_OK);
  return r;
}

std::string Form::last_error() const {
  std::string text(2000, ' ');
  std::uint64_t needed = 0;
  BOOST_REQUIRE_EQUAL(api.last_error_scheduler(s, text.data(), text.size(), &needed), KVC_OK);
  text.resize(needed);
  return text;
}

bool Form::logged(std::string_view part) const {
  for (const auto& [level, text] : log) {
    if (text.find(part) != std::string::npos) return true;
  }
  return false;
}

}  // namespace kvc::edge::testing
