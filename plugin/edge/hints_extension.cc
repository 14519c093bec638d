#include "plugin/edge/hints_extension.h"

#include <kvc/kvc_hints.h>
#include <kvc/kvc_util.h>

#include "plugin/core/hint.h"
#include "plugin/edge/read_in.h"
#include "plugin/edge/sched_handle.h"

namespace kvc::edge {

static_assert(KVC_PRIORITY_LEAST == priority_least && KVC_PRIORITY_MOST == priority_most);

template <>
struct Form<kvc_hint_in> {
  static constexpr std::size_t least = sizeof(kvc_hint_in);
  static constexpr std::string_view name = "kvc_hint_in";
};
template <>
struct Form<kvc_pin_in> {
  static constexpr std::size_t least = sizeof(kvc_pin_in);
  static constexpr std::string_view name = "kvc_pin_in";
};
template <>
struct Form<kvc_pin_out> {
  static constexpr std::size_t least = sizeof(kvc_pin_out);
  static constexpr std::string_view name = "kvc_pin_out";
};

namespace {

kvc_status hint(kvc_sched* s, const kvc_hint_in* in) noexcept {
  return at_edge(s, "hint", [&](Stage& stage) -> Status {
    kvc_hint_in q{};
    if (Status e = read_struct(in, q); !e.ok()) return e;
    if (Status e = refuse_bits("kvc_hint_in.flags", q.flags, KVC_HINT_PREFETCH); !e.ok()) return e;
    if (Status e = refuse_reserved("kvc_hint_in.reserved0", q.reserved0); !e.ok()) return e;
    Status answer = s->role->hint(q.request, {q.priority, q.ttl_ns, q.flags != 0});
    stage.changed = answer.ok();
    return answer;
  });
}

kvc_status pin(kvc_sched* s, const kvc_pin_in* in, kvc_pin_out* out) noexcept {
  return at_edge(s, "pin", [&](Stage& stage) -> Status {
    kvc_pin_in q{};
    if (Status e = read_struct(in, q); !e.ok()) return e;
    if (Status e = check_room(out); !e.ok()) return e;
    if (Status e = refuse_bits("kvc_pin_in.flags", q.flags, 0); !e.ok()) return e;
    const Result<PinAnswer> answer = s->role->pin(q.request, {q.tokens});
    if (!answer.ok()) return answer.error();
    stage.changed = true;
    const PinAnswer& pinned = answer.value();
    const kvc_pin_out mine{sizeof mine, 0, pinned.pin, pinned.tokens.n, pinned.blocks};
    KVC_CHECK(KVC_WRITE(out, &mine) == KVC_OK);
    return {};
  });
}

kvc_status unpin(kvc_sched* s, std::uint64_t id) noexcept {
  return at_edge(s, "unpin", [&](Stage& stage) -> Status {
    Status answer = s->role->unpin(id);
    stage.changed = answer.ok();
    return answer;
  });
}

constexpr kvc_hints_api hints_table{sizeof(kvc_hints_api), 0, hint, pin, unpin};

}  // namespace

const void* hints_extension(std::string_view id) {
  return id == KVC_HINTS_EXTENSION ? &hints_table : nullptr;
}

}  // namespace kvc::edge
