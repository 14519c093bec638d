// Asked for states, lists boundaries inside a hash unit and in no order.
#include <kvc/kvc_retention.h>

#include "conformance/bad/wrapped.h"

namespace {

const kvc_retention_api& right_table() {
  return *static_cast<const kvc_retention_api*>(
      kvc::bad::right().extension(kvc_text_of(KVC_RETENTION_EXTENSION)));
}

kvc_status boundaries(kvc_sched* s, const kvc_retention_in* in, kvc_retention_out* out) noexcept {
  static const uint64_t list[] = {40, 24};
  kvc_retention_out mine{};
  mine.struct_size = sizeof mine;
  const kvc_status status = right_table().boundaries(s, in, &mine);
  if (status != KVC_OK) return status;
  mine.mode = KVC_RETENTION_LISTED;
  mine.boundaries = list;
  mine.n_boundaries = 2;
  return KVC_WRITE(out, &mine);
}

const kvc_retention_api table_of_lists{sizeof table_of_lists, 0, boundaries};

}  // namespace

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.extension = [](kvc_bytes id) noexcept -> const void* {
    const void* const known = kvc::bad::right().extension(id);
    return known != nullptr && known == &right_table() ? &table_of_lists : known;
  };
}
