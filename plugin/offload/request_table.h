// The requests that the scheduler role knows: keys, tables, cursors.
#pragma once
#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plugin/coordinator/geometry.h"
#include "plugin/coordinator/keys.h"
#include "plugin/coordinator/tier_index.h"
#include "plugin/core/hint.h"
#include "plugin/core/prefetch.h"
#include "plugin/core/zeroed.h"
#include "plugin/offload/cost_gate.h"
#include "plugin/offload/explain_ring.h"
#include "plugin/offload/hold_book.h"
#include "plugin/offload/id_history.h"
#include "plugin/offload/job_table.h"
#include "plugin/offload/offer_ledger.h"
#include "plugin/offload/scheduler_role.h"
#include "plugin/offload/zeroed_array.h"

namespace kvc {

inline constexpr std::uint32_t no_lease = UINT32_MAX;

// One group of a request within its admission. Only groups that are stored by position have cells.
// Positions are those of the tier, of chunks where it has chunks; cells and `length` those of the
// engine's table.
struct GroupProgress {
  std::uint64_t cursor = 0;   // positions below it were offered
  std::uint64_t counted = 0;  // positions below it have been counted in this admission (reset)
  std::uint64_t again = 0;    // below it the cursor was before it went back to a missing position
  std::uint64_t length = 0;   // of the table
  bool refused = false;       // position `cursor` was refused when it was offered last
  std::uint64_t pending_at = 0;  // position + 1 of the refused one whose offer is pending
  Outcome refusal = Outcome::dropped_pool_full;
  std::uint64_t keys_offered = 0;  // positions below it have been counted by the OfferCounter
  bool cut = false;  // a chain's block was below the store threshold: none behind it is offered
  bool tail_done = false;     // the attention tail was offered
  bool tail_counted = false;  // and counted, in this admission
  // Offered positions that wait for another request's open copy, all in [wait_low, wait_high).
  std::uint64_t waiting = 0;
  std::uint64_t wait_low = 0;
  std::uint64_t wait_high = 0;
  bool wait_retry = false;  // one of them was refused for another reason: try again next step
  std::uint32_t blocks_per_chunk = 1;  // cells of one position of the tier
  ZeroedArray<BlockId> cells;
};

// What the cost gate said of the hit that ends at `end`, of which `disk` tokens are on disk: asked
// again it says the same. Until the request is admitted or preempted, and until a reset.
struct GateMemo {
  Tokens start;
  Tokens end;
  Tokens disk;
  GateAnswer answer;  // none: nothing was asked
  [[nodiscard]] bool of(Tokens hit_start, Tokens hit_end, Tokens on_disk) const {
    return answer.decision != GateDecision::none && start == hit_start && end == hit_end &&
           disk == on_disk;
  }
};

// The same of a hit that ends at `with_disk`, beside one that the host tier alone serves up to
// `without`.
struct DiskMemo {
  Tokens start;
  Tokens without;
  Tokens with_disk;
  Tokens disk;
  DiskAnswer answer;
  [[nodiscard]] bool of(const DiskMemo& other) const {
    return start == other.start && without == other.without && with_disk == other.with_disk &&
           disk == other.disk;
  }
};

// Threads: scheduler role only. A live request is in the table of ids; one that is over stays as a
// shell (keys, run) until its last open copy has ended and is published or dropped.
struct alignas(64) Request {
  // What a step looks at for every scheduled request, in one cache line.
  RequestId id = 0;
  std::uint64_t scheduled_step = 0;
  Tokens confirmed;  // of this admission
  // Nothing is new below so many confirmed tokens: what makes an unchanged request O(1).
  Tokens next_due;
  JobId load = 0;  // the load job without verdict
  std::uint64_t explain_ticket = 0;
  RunId run = no_run;
  bool live = false;
  bool admitted = false;  // owns blocks: since alloc_update or its first scheduled step
  bool no_write = false;
  bool stale = false;             // INVALIDATE: no-write until admitted again from token 0
  bool load_failed = false;       // until admitted once (design 2.4 "Failures")
  bool unsettled = false;         // a group may have a refused or waiting position
  bool dirty = false;             // explain changed since it was put into the ring
  bool preemption_known = false;  // a lookup told of it before the record does (design 2.3)
  bool in_step = false;           // `load` is one in step (kvc.layerwise/1)

  bool states_listed = false;  // the engine asked which states are wanted (kvc.retention/1)
  bool shared_known = false;   // and the next two say what the prompt shares with earlier ones
  bool shared_at_end = false;  // which is all of one of them
  Tokens shared;

  bool no_read = false;
  bool keys_frozen = false;  // an extension was refused with Code::full
  bool reset_noted = false;  // its lease or attachment ended by a reset; until a hit or admitted
  bool keys_broken = false;  // they are of no one path: searches trust no promise of the index
  std::uint32_t lease = no_lease;
  Hint hint;  // of its run
  bool prefetched = false;
  Tokens prompt;
  Tokens load_limit = no_token_limit;
  Tokens store_limit = no_token_limit;
  Tokens device;                     // of the last lookup
  Tokens offered;                    // by the last lookup, beyond device
  std::uint64_t attach_answers = 0;  // of this admission
  // Copies ended in all when the waiting positions were tried last.
  std::uint64_t waits_checked = 0;
  std::uint32_t open_copies = 0;  // of loads and stores that have not ended
  OpenParts open_parts;           // where they are
  std::uint32_t landed = 0;       // entries that wait for an ancestor's copy (design 3.1 c)
  std::uint32_t owned_handoffs = 0;
  std::uint32_t fills = 0;  // from disk, that have not ended
  RunId disk_run = no_run;  // of the disk tier's index; open from its first use on
  bool host_only = false;   // its hit on disk could not be served: until admitted
  GateMemo gate;
  DiskMemo gate_disk;
  Tokens computed_from;              // of this admission: what the device had and what was loaded
  std::uint64_t prefilled_step = 0;  // the last one that computed a part of its prompt
  PagedVector<std::byte> keys;
  std::vector<GroupProgress> groups;
  ExplainRecord explain;
};

struct RequestLimits {
  std::uint64_t live_max = UINT64_MAX;
  std::uint64_t key_bytes_max = UINT64_MAX;  // of all live requests
  std::uint32_t key_bytes = 16;
  Tokens max_total;  // UINT64_MAX: tables grow
};

// Positions [first, behind) of a table whose blocks the hold book counts as named already.
struct NamedRange {
  std::uint64_t first = 0;
  std::uint64_t behind = 0;
};

// Threads:    scheduler role only.
// Owns:       requests and their keys; table cells; the memory of ids.
// Invariants: live() <= live_max; key bytes of live requests <= key_bytes_max; table references in
//             the hold book are those of the cells. begin and extend may allocate, nothing else
//             does while max_total is bounded.
class RequestTable {
 public:
  // `tier`: the layout of the tier, which says how many blocks make one of its positions.
  RequestTable(const Geometry& geometry, const Geometry& tier, RequestLimits limits,
               HoldBook& holds);

  enum class Known { unknown, live, untracked };
  // Requires nothing of id.
  [[nodiscard]] Known find(RequestId id, RequestIndex& index) const;
  // As find, where `guess` is probably right: lists of requests are much the same step after step.
  [[nodiscard]] Known find(RequestId id, RequestIndex guess, RequestIndex& index) const {
    if (guess >= made_ || at(guess).id != id || !at(guess).live) return find(id, index);
    index = guess;
    return Known::live;
  }
  // What a step looks at will be looked at soon.
  void prefetch(RequestIndex guess) const {
    if (guess < made_) prefetch_write(&at(guess));
  }
  // The id was used before, or is in use.
  [[nodiscard]] bool used(RequestId id) const { return history_.contains(id); }

  // A new live request with a copy of the keys. no_request: full, or memory is out; the id is
  // untracked from now on.
  // Requires: !used(id).
  RequestIndex begin(const RequestBegin& in);
  // The id is untracked from now on, for want of something else than memory here.
  void refuse(RequestId id);
  // False: full, or memory is out; nothing was appended.
  [[nodiscard]] bool extend(RequestIndex index, const std::uint8_t* keys, std::uint64_t count);
  // An untracked id is over.
  void forget(RequestId id) { untracked_.erase(id); }
  // The request is over: its id is unknown from now on. The shell stays until release().
  void end(RequestIndex index);
  // Frees the shell. Requires: ended, no open copies.
  void release(RequestIndex index);

  [[nodiscard]] Request& operator[](RequestIndex index) { return at(index); }
  [[nodiscard]] const Request& operator[](RequestIndex index) const { return at(index); }

  [[nodiscard]] KeyView keys(const Request& r) const {
    return KeyView{r.keys.data(), limits_.key_bytes, r.keys.size() / limits_.key_bytes};
  }

  // Takes over a table: entries from first_changed on are new, the rest is as before. Foreign ids
  // count as null and are reported by the number of them. Requires: the group has cells,
  // first_changed <= count; with `named` no table yet.
  std::uint64_t set_table(Request& r, GroupId group, const TableView& table, NamedRange named = {});
  void clear_tables(Request& r);
  [[nodiscard]] bool has_cells(GroupId group) const { return stored_by_position_[group]; }

  // A cell's block, or null_cell, or foreign_cell for an id outside the device pool; the waiting
  // mark beside it.
  static constexpr BlockId null_cell = -1;
  static constexpr BlockId foreign_cell = -2;
  [[nodiscard]] static BlockId block_at(const GroupProgress& g, std::uint64_t position) {
    return decode(g.cells[position]);
  }
  // Of positions of the tier; the mark stands in the first cell. Requires a cell for waits.
  [[nodiscard]] static bool has_mark(const GroupProgress& g, std::uint64_t position) {
    return position * g.blocks_per_chunk < g.cells.size();
  }
  [[nodiscard]] static bool waits(const GroupProgress& g, std::uint64_t position) {
    return (g.cells[position * g.blocks_per_chunk] & waiting_bit) != 0;
  }
  static void mark_waiting(GroupProgress& g, std::uint64_t position);
  static void clear_waiting(GroupProgress& g, std::uint64_t position);

  // A lookup told of the request's preemption; forget_notices forgets all of them.
  void note_preemption(RequestIndex index);
  void forget_notices();

  [[nodiscard]] std::uint64_t live() const { return ids_.size(); }
  [[nodiscard]] std::uint64_t shells() const { return shells_; }
  [[nodiscard]] std::uint64_t key_bytes_used() const { return key_bytes_used_; }
  [[nodiscard]] std::uint64_t untracked() const { return untracked_.size(); }
  // All indices that were ever used are below it.
  [[nodiscard]] RequestIndex capacity() const { return made_; }

  // Slow check for tests; empty text: all invariants hold.
  [[nodiscard]] std::string verify() const;

 private:
  static constexpr RequestIndex per_piece = 64;
  [[nodiscard]] Request& at(RequestIndex index) const {
    return pool_[index / per_piece][index % per_piece];
  }
  RequestIndex room_for(std::uint64_t key_bytes);
  // Cells hold block + 1, so that untouched memory is null.
  static constexpr BlockId waiting_bit = BlockId{1} << 62;
  static constexpr BlockId foreign_bit = BlockId{1} << 61;
  static BlockId decode(BlockId cell) {
    return (cell & foreign_bit) != 0 ? foreign_cell : (cell & ~waiting_bit) - 1;
  }
  std::uint64_t fill_table(GroupProgress& g, GroupId group, const TableView& table,
                           NamedRange named);
  std::uint64_t fill_cells(BlockId* cells, GroupId group, const TableView& table, NamedRange range);
  void set_cell(GroupProgress& g, GroupId group, std::uint64_t position, BlockId cell);

  const Geometry& geometry_;
  const Geometry& tier_;
  RequestLimits limits_;
  HoldBook& holds_;
  std::vector<bool> stored_by_position_;
  // In pieces: few pages for what every step looks at.
  std::vector<std::unique_ptr<Request[]>> pool_;
  RequestIndex made_ = 0;  // requests that were ever used
  std::vector<RequestIndex> free_;
  boost::unordered_flat_map<RequestId, RequestIndex> ids_;
  boost::unordered_flat_set<RequestId> untracked_;
  IdHistory history_;
  std::vector<RequestIndex> noticed_;
  std::uint64_t key_bytes_used_ = 0;
  std::uint64_t shells_ = 0;
};

}  // namespace kvc
