// What a connector's options come to on a model: bytes, blocks, tokens, and what cannot work.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "host_stub/loader/loader.h"
#include "plugin/core/result.h"

namespace kvc::host {

struct CapacityQuestion {
  config::ModelConfig model;
  std::uint64_t ranks = 0;          // 0: the model's context parallel size
  std::uint64_t prompt_tokens = 0;  // the longest prompt, >= 1
  std::uint64_t device_blocks = 0;  // of the engine; 0: what one longest request needs
  std::string connector_toml;
  std::uint32_t blocks_per_chunk = 1;  // as the options have it
  std::uint64_t disk_bytes = 0;        // [disk] bytes, per rank; counts if there are paths
  std::uint64_t disk_paths = 0;        // 0: there is no disk tier
};

// What the disk tier of the options would hold, as its format says it: nothing was opened.
struct DiskCapacity {
  std::uint64_t paths = 0;         // 0: there is none
  std::uint64_t bytes = 0;         // on each rank, of all paths together
  std::uint64_t entry_bytes = 0;   // of the largest slot with what stands around it
  std::uint64_t blocks = 0;        // where all slots are the largest
  std::uint64_t prompt_bytes = 0;  // of what one longest prompt needs there to be a hit
};

struct GroupCapacity {
  std::string name;
  std::string kind;
  std::uint64_t block_tokens = 0;   // B_g
  std::uint64_t prompt_blocks = 0;  // that one longest prompt needs in the tier to be a hit
  std::uint64_t chunk_blocks = 1;   // that share a slot of the tier
  std::uint64_t prompt_room = 0;    // blocks of the slots that prompt_blocks lie in
};

struct Capacity {
  std::vector<GroupCapacity> groups;  // the cacheable ones
  std::uint64_t ranks = 0;
  std::uint64_t block_bytes = 0;    // one block of one group on one rank
  std::uint64_t chunk_blocks = 1;   // that share a slot, of the group with the most
  std::uint64_t slots = 0;          // that the tier has, of chunk_blocks blocks each
  std::uint64_t blocks = 0;         // that the tier holds, of all groups together
  std::uint64_t host_bytes = 0;     // blocks x block_bytes, per rank
  std::uint64_t prompt_blocks = 0;  // of one longest prompt, with what its slots leave unused
  std::uint64_t index_bytes = 0;    // of the scheduler role, when it is empty
  bool grows = false;               // an unlimited pool
  DiskCapacity disk;
  std::vector<std::string> warnings;  // one line each: what cannot work, or not well
};

// Opens the connector on the model with little device memory and asks it what it has: the answer is
// the connector's own. Its disk tier is counted and never opened: the folders may be those of an
// engine that runs, and no file is made or read. Errors: whatever refuses, as Engine::make; a text
// that begins with "connector " is the connector's refusal of the options, or what it would say of
// a disk tier that is too small.
Result<Capacity> capacity_of(const LoadedConnector& connector, const CapacityQuestion& question);

// A table for people; every line ends in a newline.
[[nodiscard]] std::string capacity_text(const Capacity& capacity, std::uint64_t prompt_tokens);

}  // namespace kvc::host
