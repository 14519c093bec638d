// The rank handle: the rank engine, the host, and the lists between them.
#pragma once
#include <kvc/kvc.h>

#include <memory>
#include <span>

#include "plugin/edge/arena.h"
#include "plugin/edge/at_edge.h"
#include "plugin/edge/bounds.h"
#include "plugin/edge/open_config.h"
#include "plugin/offload/rank_engine.h"

namespace kvc::edge {

// Out-lists of a rank in C types: each is valid until the next call of its slot.
//
// Threads: [rank]. Owns: arenas of the host's memory.
class RankOutputs {
 public:
  RankOutputs(const Reserved& reserved, std::pmr::memory_resource* memory);

  kvc_rank_info info(const RankInfo& info);
  kvc_progress progress(const RankProgress& progress, std::uint32_t rank);

 private:
  Arena<kvc_class> classes_;
  Arena<kvc_load_done> loads_;
  Arena<kvc_failed_block> failed_;
};

}  // namespace kvc::edge

// Threads:    as the slots say.
// Owns:       the rank engine, which is gone before the host's table is.
struct kvc_rank : kvc::edge::HandleBase {
  kvc_rank(const kvc_host_api& table, kvc::edge::OpenConfig opened);

  kvc::edge::OpenConfig config;
  kvc::edge::Reserved reserved;
  kvc::edge::RankOutputs out;
  std::unique_ptr<kvc::RankEngine> role;
};
