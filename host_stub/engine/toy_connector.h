// A connector for the engine's own tests: it keeps every block that it is offered, without limit,
// and breaks the contract on request. It judges the engine: whatever the engine does against kvc.h
// is a complaint.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "host_stub/loader/loader.h"

namespace kvc::host::testing {

struct ToySettings {
  std::uint64_t later_answers = 0;       // lookups of every request that answer KVC_LATER first
  std::uint64_t fail_every_load = 0;     // every n-th load ends KVC_E_IO; 0: none
  std::uint64_t spoil_every_load = 0;    // every n-th load delivers a wrong byte and says ok
  std::uint64_t refuse_alloc_every = 0;  // every n-th alloc_update with tokens answers KVC_E_ARG
  std::uint64_t full_every_begin = 0;    // every n-th request_begin answers KVC_E_FULL
  std::string internal_slot;             // this slot answers KVC_E_INTERNAL ..
  std::uint64_t internal_call = 0;       // .. at its n-th call and from then on
  bool ignore_fences = false;            // copies run as soon as they are submitted
  bool release_foreign = false;          // complete releases a block that no job holds
  std::uint64_t copies_per_pump = 0;     // 0: no limit
  bool shuffle_copies = false;
};

struct ToyCounts {
  std::uint64_t loads = 0;
  std::uint64_t load_blocks = 0;
  std::uint64_t stores = 0;
  std::uint64_t store_blocks = 0;
  std::uint64_t lookups = 0;
  std::uint64_t later = 0;
  std::uint64_t handoffs = 0;
  std::uint64_t end_handoffs = 0;
};

// The table, with settings for the next handles that are opened. Counts and complaints are of the
// newest handles.
LoadedConnector toy_connector(const ToySettings& settings = {});
ToyCounts toy_counts();
const std::vector<std::string>& toy_complaints();

}  // namespace kvc::host::testing
