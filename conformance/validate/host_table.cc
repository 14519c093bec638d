// The host's table between host and connector: KVC-H-006, 007, KVC-P-014, 018, 019, 022, 033.
#include <fmt/format.h>

#include "conformance/validate/call.h"

namespace kvc::validate {
namespace {

HostTable& table_of(kvc_host* h) { return *reinterpret_cast<HostTable*>(h); }

// A finding from inside a function of the table: it goes with the call that runs on this thread, or
// at once if there is none.
void found(HostTable& t, rules::RuleId rule, const char* function, std::string text) {
  if (Call* const call = Call::current(); call != nullptr && call->host() == &t) {
    call->find(rule, std::move(text));
    return;
  }
  const std::shared_ptr<Engine> engine = t.engine.lock();
  publish(engine.get(), &t, rule, function, engine == nullptr ? 0 : engine->calls.load(), text);
}

// False: the handle was closed, and the host's function must not be called.
bool still_open(HostTable& t, const char* function) {
  if (!t.closed.load()) return true;
  found(t, "KVC-P-033", function,
        fmt::format("{} of the host is called after close returned", function));
  return false;
}

void on_log(kvc_host* h, std::int32_t level, kvc_bytes text) noexcept {
  HostTable& t = table_of(h);
  ++t.log_lines;
  if (!still_open(t, "log")) return;
  const InsideHost inside;
  const ByteString line = text.data == nullptr
                              ? ByteString()
                              : ByteString(reinterpret_cast<const char*>(text.data),
                                           std::min<std::uint64_t>(text.size, 1U << 20U));
  if (level < KVC_LOG_DEBUG || level > KVC_LOG_PEER_FAULT) {
    found(t, "KVC-P-019", "log", fmt::format("a line of level {}: {}", level, line));
  } else if (line.empty() || !is_utf8(line) || line.find('\0') != ByteString::npos) {
    found(t, "KVC-P-019", "log", fmt::format("a line of {} bytes that is no text", text.size));
  } else if (level == KVC_LOG_PEER_FAULT && line.find("rule ") == ByteString::npos &&
             line.find("KVC-H-") == ByteString::npos) {
    found(t, "KVC-P-019", "log", "a PEER_FAULT that names no rule: " + line);
  }
  t.theirs.log(t.theirs.self, level, text);
}

std::uint64_t on_now(kvc_host* h) noexcept {
  HostTable& t = table_of(h);
  if (!still_open(t, "now_ns")) return 0;
  const InsideHost inside;
  return t.theirs.now_ns(t.theirs.self);
}

void* on_alloc(kvc_host* h, std::uint64_t size, std::uint64_t align) noexcept {
  HostTable& t = table_of(h);
  if (!still_open(t, "alloc")) return nullptr;
  if (Call* const call = Call::current(); call != nullptr && call->host() == &t) {
    call->note_allocation();
  }
  void* p = nullptr;
  {
    const InsideHost inside;
    p = t.theirs.alloc(t.theirs.self, size, align);
  }
  if (p == nullptr) return nullptr;
  if (align != 0 && reinterpret_cast<std::uintptr_t>(p) % align != 0) {
    found(t, "KVC-H-006", "alloc",
          fmt::format("{} bytes at {}, aligned to {} was asked", size, fmt::ptr(p), align));
  }
  const std::lock_guard lock(t.mutex);
  t.allocated[p] = {size, align};
  return p;
}

void on_release(kvc_host* h, void* p, std::uint64_t size, std::uint64_t align) noexcept {
  HostTable& t = table_of(h);
  if (!still_open(t, "release")) return;
  std::string why;
  {
    const std::lock_guard lock(t.mutex);
    const auto it = t.allocated.find(p);
    if (it == t.allocated.end()) {
      if (p != nullptr) why = fmt::format("{} bytes at {} that it did not get", size, fmt::ptr(p));
    } else {
      if (it->second != std::pair(size, align)) {
        why = fmt::format("{} bytes aligned to {}; it got {} aligned to {}", size, align,
                          it->second.first, it->second.second);
      }
      t.allocated.erase(it);
    }
  }
  if (!why.empty()) found(t, "KVC-P-022", "release", "release of " + why);
  const InsideHost inside;
  t.theirs.release(t.theirs.self, p, size, align);
}

void on_wake(kvc_host* h) noexcept {
  HostTable& t = table_of(h);
  if (!still_open(t, "wake")) return;
  const InsideHost inside;
  t.theirs.wake(t.theirs.self);
}

// The call that a block query is part of; NULL and a finding if it is part of none.
Call* asking(HostTable& t, const char* function) {
  Call* const call = Call::current();
  const bool inside =
      call != nullptr && call->host() == &t && info(call->slot()).has(KVC_ATTR_CALLS_HOST);
  if (inside && (t.theirs.caps & KVC_HOST_BLOCK_QUERY) != 0) return call;
  found(t, "KVC-P-018", function,
        inside ? fmt::format("{} is called without KVC_HOST_BLOCK_QUERY", function)
               : fmt::format("{} is called outside of a scheduler call that may", function));
  return nullptr;
}

ByteString key_of(const Call& call, const std::uint8_t* key) {
  if (key == nullptr) return {};
  return {reinterpret_cast<const char*>(key), call.layout().key_bytes};
}

kvc_status on_has_key(kvc_host* h, std::uint32_t group, std::int64_t block, const std::uint8_t* key,
                      std::uint64_t* end) noexcept {
  HostTable& t = table_of(h);
  if (!still_open(t, "has_key")) return 0;
  Call* const call = asking(t, "has_key");
  std::uint64_t answer = 0;
  kvc_status status = 0;
  {
    const InsideHost inside;
    status = t.theirs.has_key(t.theirs.self, group, block, key, &answer);
  }
  if (end != nullptr) *end = answer;
  if (call == nullptr) return status;
  if (status > 1 || (status == 1 && (answer == 0 || answer > call->layout().max_total))) {
    call->find("KVC-H-007", fmt::format("has_key of group {} block {} answered {}, end {}", group,
                                        block, status, answer));
  }
  call->note_query({false, group, key_of(*call, key), block, answer, status});
  return status;
}

kvc_status on_block_of(kvc_host* h, std::uint32_t group, const std::uint8_t* key,
                       std::int64_t* block) noexcept {
  HostTable& t = table_of(h);
  if (!still_open(t, "block_of")) return 0;
  Call* const call = asking(t, "block_of");
  std::int64_t answer = 0;
  kvc_status status = 0;
  {
    const InsideHost inside;
    status = t.theirs.block_of(t.theirs.self, group, key, &answer);
  }
  if (status == 1 && block != nullptr) *block = answer;
  if (call == nullptr) return status;
  if (status > 1 || (status == 1 && !call->layout().real(answer))) {
    call->find("KVC-H-007",
               fmt::format("block_of of group {} answered {}, block {}", group, status, answer));
  }
  call->note_query({true, group, key_of(*call, key), answer, 0, status});
  return status;
}

}  // namespace

HostTable::HostTable(const kvc_host_api& host, const std::shared_ptr<Engine>& of)
    : theirs(host), engine(of) {
  shown = theirs;
  shown.struct_size = sizeof shown;
  shown.self = reinterpret_cast<kvc_host*>(this);
  // A slot that the host does not have stays empty: the connector does without it.
  if (theirs.log != nullptr) shown.log = on_log;
  if (theirs.now_ns != nullptr) shown.now_ns = on_now;
  if (theirs.alloc != nullptr) shown.alloc = on_alloc;
  if (theirs.release != nullptr) shown.release = on_release;
  if (theirs.wake != nullptr) shown.wake = on_wake;
  if (theirs.has_key != nullptr) shown.has_key = on_has_key;
  if (theirs.block_of != nullptr) shown.block_of = on_block_of;
}

std::pair<std::uint64_t, std::uint64_t> HostTable::outstanding() {
  const std::lock_guard lock(mutex);
  std::uint64_t bytes = 0;
  for (const auto& [p, what] : allocated) bytes += what.first;
  return {allocated.size(), bytes};
}

}  // namespace kvc::validate
