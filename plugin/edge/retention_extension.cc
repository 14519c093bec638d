#include "plugin/edge/retention_extension.h"

#include <kvc/kvc_retention.h>
#include <kvc/kvc_util.h>

#include "plugin/edge/read_in.h"
#include "plugin/edge/sched_handle.h"

namespace kvc::edge {

template <>
struct Form<kvc_retention_in> {
  static constexpr std::size_t least = sizeof(kvc_retention_in);
  static constexpr std::string_view name = "kvc_retention_in";
};
template <>
struct Form<kvc_retention_out> {
  static constexpr std::size_t least = sizeof(kvc_retention_out);
  static constexpr std::string_view name = "kvc_retention_out";
};

namespace {

kvc_status boundaries(kvc_sched* s, const kvc_retention_in* in, kvc_retention_out* out) noexcept {
  return at_edge(s, "boundaries", [&](Stage& stage) -> Status {
    kvc_retention_in q{};
    if (Status e = read_struct(in, q); !e.ok()) return e;
    if (Status e = check_room(out); !e.ok()) return e;
    if (Status e = refuse_bits("kvc_retention_in.flags", q.flags, 0); !e.ok()) return e;
    const auto answer = s->role->retained(q.request, {q.begin_tokens});
    if (!answer.ok()) return answer.error();
    stage.changed = true;
    const kvc_retention_out mine = s->out.retention(answer.value());
    KVC_CHECK(KVC_WRITE(out, &mine) == KVC_OK);
    return {};
  });
}

constexpr kvc_retention_api retention_table{sizeof(kvc_retention_api), 0, boundaries};

}  // namespace

const void* retention_extension(std::string_view id) {
  return id == KVC_RETENTION_EXTENSION ? &retention_table : nullptr;
}

}  // namespace kvc::edge
