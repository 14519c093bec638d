// The slots of the scheduler role, for the table.
#pragma once
#include <kvc/kvc.h>

namespace kvc::edge {

void fill_sched_slots(kvc_plugin_api& api);
void fill_query_slots(kvc_plugin_api& api);
void fill_rank_slots(kvc_plugin_api& api);
void fill_open_slots(kvc_plugin_api& api);
void fill_fixed_slots(kvc_plugin_api& api);

}  // namespace kvc::edge
