// Opens a scheduler through the layer that KVC_LAYER_NEXT has a connector for, and leaves it open.
#include <kvc/kvc.h>
#include <kvc/kvc_util.h>

#include "host_stub/loader/loader.h"

// What is left open is not freed: in builds with a leak checker that is what is asked for here.
// NOLINTNEXTLINE(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
extern "C" KVC_EXPORT const char* __asan_default_options() { return "detect_leaks=0"; }

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto layer = kvc::host::load_connector(argv[1]);
  if (!layer.ok()) return 3;
  const kvc_group group{sizeof group,
                        KVC_GROUP_FULL,
                        KVC_GROUP_CAP_CACHEABLE | KVC_GROUP_CAP_POSITION_STABLE,
                        KVC_GROUP_CAPS_ALL,
                        16,
                        0,
                        0};
  kvc_open open{};
  open.struct_size = sizeof open;
  open.groups = kvc_list_of(&group, 1, sizeof group);
  open.hash_unit_tokens = open.scheduler_block_tokens = 16;
  open.context_parallel = open.ranks = 1;
  open.cp_interleave_tokens = 1;
  open.device_blocks = 16;
  open.key_bytes = 16;
  open.max_prompt_tokens = open.max_total_tokens = open.max_batch_tokens = 256;
  open.max_live_requests = open.max_running = 4;
  open.max_request_bytes = 1 << 20;
  open.max_steps_in_flight = 1;
  open.retention_tokens = -1;
  kvc_host_api host{};
  host.struct_size = sizeof host;
  kvc_sched* sched = nullptr;
  return layer.value().api.open_scheduler(&host, &open, &sched) == KVC_OK ? 0 : 4;
}
