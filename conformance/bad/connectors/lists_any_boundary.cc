// Asked for states, lists boundaries inside a hash unit and in no order.
#include <kvc/kvc_retention.h>

#include "conformance/bad/wrapped.h"

namespace {

kvc_status boundaries(kvc_sched* s, const kvc_retention_in* in, kvc_retention_out* out) noexcept {
  static const uint64_t list[] = {40, 24};
  kvc_retention_out mine{};
  mine.struct_size = sizeof mine;
  const kvc_status status = kvc::bad::right_extension<kvc_retention_api>(KVC_RETENTION_EXTENSION)
                                .boundaries(s, in, &mine);
  if (status != KVC_OK) return status;
  mine.mode = KVC_RETENTION_LISTED;
  mine.boundaries = list;
  mine.n_boundaries = 2;
  return KVC_WRITE(out, &mine);
}

const kvc_retention_api table_of_lists{sizeof table_of_lists, 0, boundaries};

}  // namespace

void kvc::bad::spoil(kvc_plugin_api& table) {
  kvc::bad::replace_extension(table, KVC_RETENTION_EXTENSION, &table_of_lists);
}
