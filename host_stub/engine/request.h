// One live request inside the engine, and the work of one step.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include <kvc/kvc.h>

#include "host_stub/engine/key_chain.h"
#include "host_stub/engine/options.h"
#include "plugin/coordinator/block_pool.h"

namespace kvc::host {

// The block table of one group. Entry i covers tokens [i * B_g, (i + 1) * B_g).
struct GroupTable {
  std::vector<BlockId> blocks;
  std::vector<std::int64_t> wide;  // the same, as kvc.h wants it
  std::uint64_t live_from = 0;     // entries below are null for good
  std::uint64_t changed_from = 0;  // first entry that the next step record must show as changed
  std::uint64_t cursor = 0;        // of register_blocks
  std::uint64_t producer_tail =
      0;  // boundary of a state that must not be overwritten; 0: none
  std::vector<std::uint64_t> boundaries;  // states to hand off once their keys are known

  void push(BlockId block) {
    blocks.push_back(block);
    wide.push_back(block);
  }
  void set(std::uint64_t position, BlockId block) {
    blocks[position] = block;
    wide[position] = block;
    if (position < changed_from) changed_from = position;
  }
  void clear() {
    blocks.clear();
    wide.clear();
    boundaries.clear();
    live_from = changed_from = cursor = producer_tail = 0;
  }
};

enum class Phase : std::uint8_t { waiting, loading, running, over };

struct LoadState {
  kvc_job job = 0;  // 0: none
  std::uint64_t local_tokens = 0;
  std::uint64_t external_tokens = 0;
  std::uint64_t blocks = 0;
  std::uint32_t ranks_ended = 0;
  bool rank_failed = false;
  // In step (kvc.layerwise/1): its request runs in the step of the plan that has it.
  bool in_step = false;
  bool samples = false;              // that chunk makes an output token ..
  bool output_waits = false;         // .. which was made, and is given out with the verdict
  std::uint64_t blocks_checked = 0;  // by the forward; they count if the load ends well
  std::uint64_t blocks_wrong = 0;
  std::string first_wrong;
};

struct Request {
  Request(RequestId own_id, std::size_t own_index, RequestSpec what, std::uint64_t unit,
          std::uint64_t seed)
      : id(own_id), index(own_index), spec(std::move(what)), keys(unit, seed, spec.salt) {}

  RequestId id;
  std::size_t index;
  RequestSpec spec;
  Phase phase = Phase::waiting;

  std::vector<TokenId> tokens;        // prompt and outputs as far as forwards made them
  std::vector<std::uint64_t> prefix;  // H_t per token (model.h)
  KeyChain keys;
  std::uint64_t known = 0;  // tokens whose ids the scheduler has seen: prompt and processed outputs
  std::uint64_t computed = 0;   // tokens whose forward was launched in this admission
  std::uint64_t sampled = 0;    // outputs whose forward was launched, ever
  std::uint64_t in_flight = 0;  // launched steps that were not processed
  std::vector<GroupTable> tables;
  std::uint64_t junction = 0;
  // kvc.retention/1: only the states at these boundaries are handed off; ascending.
  std::uint64_t asked_begin = UINT64_MAX;  // for which begin of this admission; UINT64_MAX: not yet
  bool states_listed = false;
  std::vector<std::uint64_t> states;

  [[nodiscard]] bool wants_state(std::uint64_t boundary) const {
    return !states_listed || std::binary_search(states.begin(), states.end(), boundary);
  }

  bool tracked = false;            // the connector knows it
  bool admitted = false;           // once, ever
  bool resumed = false;            // the next record says so
  bool no_load = false;            // the connector refused an alloc_update: no further lookups
  bool record_whole = true;        // the next record passes whole tables
  std::uint64_t failed_loads = 0;  // since it ran last
  std::uint64_t later_since =
      0;                      // ns or steps: the connector says "later" since then; 0: it does not
  bool just_loaded = false;   // scheduled for the first time after its load
  bool verified = false;      // prefill of this admission was compared
  bool must_preempt = false;  // a simulation asked for it
  // Chunks of a load in step that failed are dead: those of an earlier life are not looked at.
  std::uint64_t life = 0;
  bool tell_preempted = false;  // by the failure of its load in step: the next record says so
  bool unregistered = false;    // what it computed in the step of its load has no keys yet
  bool stale =
      false;  // KVC_RESET_INVALIDATE: nothing of it is stored before it starts from token 0
  LoadState load;

  // Accounting (PassCounters).
  std::uint64_t attributed = 0;  // prompt tokens whose first source is counted
  std::uint64_t reached = 0;     // tokens that were in place before, or should have been loaded
  std::uint64_t local = 0;
  std::uint64_t external = 0;
  std::uint64_t computed_first = 0;

  [[nodiscard]] std::uint64_t prompt() const { return spec.prompt_tokens; }
  // Tokens that have ids for a forward: prompt and outputs of launched forwards.
  [[nodiscard]] std::uint64_t available() const { return prompt() + sampled; }
};

// A block copy that runs before the step's forward.
struct BlockCopy {
  BlockId from = 0;
  BlockId to = 0;
};

struct WorkItem {
  std::shared_ptr<Request> request;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool samples = false;
  // Of a load in step, else both 0: the forward waits for these tokens, layer by layer.
  std::uint64_t loads_from = 0;
  std::uint64_t loads_to = 0;
  std::uint64_t life = 0;             // of the request when this was planned
  std::vector<std::uint64_t> hashes;  // of what was read so far, layer by layer
  bool own_tables = false;  // `tables` is a copy; else the request's are still those of this step
  std::vector<std::vector<BlockId>> tables;  // with several steps in flight
};

struct Step {
  std::uint64_t number = 0;
  std::vector<BlockCopy> copies;
  std::vector<BlockId> copy_references;  // freed when the copies have run
  std::vector<WorkItem> work;
  std::uint64_t tokens = 0;
  bool loads_in_step = false;
  std::vector<std::vector<kvc_fence>> layer_fences;  // of them, by layer; empty: none
  bool copied = false;                               // the block copies have run
};

}  // namespace kvc::host
