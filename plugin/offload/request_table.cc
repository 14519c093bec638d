#include "plugin/offload/request_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "plugin/core/op_count.h"

namespace kvc {

RequestTable::RequestTable(const Geometry& geometry, const Geometry& tier, RequestLimits limits,
                           HoldBook& holds)
    : geometry_(geometry),
      tier_(tier),
      limits_(limits),
      holds_(holds),
      stored_by_position_(geometry.groups()) {
  for (const GroupId g : geometry.cacheable()) {
    stored_by_position_[g] = geometry.group(g).position_stable;
  }
}

RequestTable::Known RequestTable::find(RequestId id, RequestIndex& index) const {
  const auto it = ids_.find(id);
  if (it != ids_.end()) {
    index = it->second;
    return Known::live;
  }
  index = no_request;
  return untracked_.contains(id) ? Known::untracked : Known::unknown;
}

RequestIndex RequestTable::begin(const RequestBegin& in) {
  KVC_CHECK(!used(in.request));
  const std::uint64_t bytes = in.key_count * limits_.key_bytes;
  RequestIndex index = no_request;
  if (ids_.size() < limits_.live_max && bytes <= limits_.key_bytes_max - key_bytes_used_) {
    index = room_for(bytes);
  }
  if (index == no_request) {
    refuse(in.request);
    return no_request;
  }
  history_.insert(in.request);
  ids_.emplace(in.request, index);
  free_.pop_back();
  Request& r = at(index);
  if (bytes != 0) std::memcpy(r.keys.data(), in.keys, bytes);
  key_bytes_used_ += bytes;
  r.id = in.request;
  r.live = true;
  r.no_read = in.no_read;
  r.no_write = in.no_write;
  r.prompt = in.prompt;
  r.load_limit = in.load_limit;
  r.store_limit = in.store_limit;
  return index;
}

// The next free place, with room for so many bytes of keys and for whole tables; no_request if
// memory is out.
RequestIndex RequestTable::room_for(std::uint64_t key_bytes) try {
  if (free_.empty()) {
    free_.reserve(made_ + 1);
    noticed_.reserve(made_ + 1);
    if (made_ == pool_.size() * per_piece) pool_.push_back(std::make_unique<Request[]>(per_piece));
    at(made_).groups.resize(geometry_.groups());
    for (GroupId g = 0; g < geometry_.groups(); ++g) {
      at(made_).groups[g].blocks_per_chunk = tier_.blocks_per_chunk(g);
    }
    free_.push_back(made_++);
  }
  const RequestIndex index = free_.back();
  Request& r = at(index);
  r.keys.resize(key_bytes);
  if (limits_.max_total != no_token_limit) {
    for (const GroupId g : geometry_.cacheable()) {
      if (!stored_by_position_[g]) continue;
      r.groups[g].cells.ensure(ceil_div(limits_.max_total.n, geometry_.block_tokens(g).n));
    }
  }
  return index;
} catch (const std::bad_alloc&) {
  return no_request;
}

void RequestTable::refuse(RequestId id) {
  KVC_CHECK(!used(id));
  history_.insert(id);
  untracked_.insert(id);
}

bool RequestTable::extend(RequestIndex index, const std::uint8_t* keys, std::uint64_t count) try {
  Request& r = at(index);
  const std::uint64_t bytes = count * limits_.key_bytes;
  if (bytes > limits_.key_bytes_max - key_bytes_used_) return false;
  const std::size_t old = r.keys.size();
  if (r.keys.capacity() < old + bytes) r.keys.reserve((old + bytes) * 3 / 2);
  r.keys.resize(old + bytes);
  if (bytes != 0) std::memcpy(r.keys.data() + old, keys, bytes);
  key_bytes_used_ += bytes;
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

void RequestTable::end(RequestIndex index) {
  Request& r = at(index);
  KVC_CHECK(r.live);
  clear_tables(r);
  r.live = false;
  ids_.erase(r.id);
  key_bytes_used_ -= r.keys.size();
  ++shells_;
}

void RequestTable::release(RequestIndex index) {
  Request& r = at(index);
  KVC_CHECK(!r.live && r.open_copies == 0 && r.fills == 0 && r.disk_run == no_run);
  Request fresh;
  fresh.keys.swap(r.keys);
  fresh.keys.clear();
  fresh.groups.swap(r.groups);
  for (GroupProgress& g : fresh.groups) {
    ZeroedArray<BlockId> cells = std::move(g.cells);
    const std::uint32_t blocks_per_chunk = g.blocks_per_chunk;
    g = GroupProgress{};
    g.cells = std::move(cells);
    g.blocks_per_chunk = blocks_per_chunk;
  }
  r = std::move(fresh);
  free_.push_back(index);
  --shells_;
}

void RequestTable::set_cell(GroupProgress& g, GroupId group, std::uint64_t position, BlockId cell) {
  KVC_OP(cell, 1);
  BlockId& at = g.cells[position];
  const BlockId old = decode(at);
  const BlockId fresh = decode(cell);
  const BlockId mark = at & waiting_bit;
  at = cell | mark;
  if (old == fresh) return;
  if (fresh >= 0) holds_.table_add(group, fresh, position);
  if (old >= 0) holds_.table_remove(group, old);
}

std::uint64_t RequestTable::set_table(Request& r, GroupId group, const TableView& table,
                                      NamedRange named) {
  GroupProgress& g = r.groups[group];
  KVC_CHECK(stored_by_position_[group] && table.first_changed <= table.count);
  g.cells.ensure(table.count);
  if (g.length == 0) return fill_table(g, group, table, named);
  KVC_CHECK(named.first == named.behind);
  std::uint64_t foreign = 0;
  for (std::uint64_t i = std::min(table.first_changed, g.length); i < table.count; ++i) {
    const BlockId block = table.blocks[i];
    BlockId cell = 0;
    if (holds_.real(block)) {
      cell = block + 1;
    } else if (!holds_.null(block)) {
      cell = foreign_bit;
      ++foreign;
    }
    set_cell(g, group, i, cell);
  }
  for (std::uint64_t i = table.count; i < g.length; ++i) set_cell(g, group, i, 0);
  g.length = table.count;
  return foreign;
}

// set_table where there was none: all cells are zero.
std::uint64_t RequestTable::fill_table(GroupProgress& g, GroupId group, const TableView& table,
                                       NamedRange named) {
  KVC_OP(cell, table.count);
  KVC_CHECK(named.first <= named.behind && named.behind <= table.count);
  BlockId* cells = g.cells.data();
  const std::uint64_t foreign = fill_cells(cells, group, table, {0, named.first}) +
                                fill_cells(cells, group, table, {named.behind, table.count});
  for (std::uint64_t i = named.first; i < named.behind; ++i) cells[i] = table.blocks[i] + 1;
  g.length = table.count;
  return foreign;
}

// The part of fill_table that names blocks.
std::uint64_t RequestTable::fill_cells(BlockId* cells, GroupId group, const TableView& table,
                                       NamedRange range) {
  std::uint64_t foreign = 0;
  for (std::uint64_t i = range.first; i < range.behind; ++i) {
    if (i + HoldBook::ahead < range.behind)
      holds_.prefetch(group, table.blocks[i + HoldBook::ahead]);
    const BlockId block = table.blocks[i];
    if (holds_.real(block)) {
      cells[i] = block + 1;
      holds_.table_add(group, block, i);
    } else if (!holds_.null(block)) {
      cells[i] = foreign_bit;
      ++foreign;
    }
  }
  return foreign;
}

void RequestTable::clear_tables(Request& r) {
  for (const GroupId group : geometry_.cacheable()) {
    GroupProgress& g = r.groups[group];
    for (std::uint64_t i = 0; i < g.length; ++i) {
      set_cell(g, group, i, 0);
      g.cells[i] = 0;
    }
    g.length = 0;
    g.waiting = 0;
  }
}

void RequestTable::mark_waiting(GroupProgress& g, std::uint64_t position) {
  KVC_CHECK(!waits(g, position));
  g.cells[position * g.blocks_per_chunk] |= waiting_bit;
  g.wait_low = g.waiting == 0 ? position : std::min(g.wait_low, position);
  g.wait_high = g.waiting == 0 ? position + 1 : std::max(g.wait_high, position + 1);
  ++g.waiting;
}

void RequestTable::clear_waiting(GroupProgress& g, std::uint64_t position) {
  KVC_CHECK(waits(g, position) && g.waiting > 0);
  g.cells[position * g.blocks_per_chunk] &= ~waiting_bit;
  --g.waiting;
}

void RequestTable::note_preemption(RequestIndex index) {
  Request& r = at(index);
  if (r.preemption_known) return;
  r.preemption_known = true;
  noticed_.push_back(index);
}

void RequestTable::forget_notices() {
  for (const RequestIndex index : noticed_) at(index).preemption_known = false;
  noticed_.clear();
}

std::string RequestTable::verify() const {
  std::uint64_t references = 0;
  std::uint64_t bytes = 0;
  std::uint64_t live = 0;
  std::uint64_t shells = 0;
  for (RequestIndex i = 0; i < capacity(); ++i) {
    const Request& r = at(i);
    if (r.id == 0) continue;
    live += r.live;
    shells += !r.live;
    if (r.live) bytes += r.keys.size();
    for (const GroupId group : geometry_.cacheable()) {
      const GroupProgress& g = r.groups[group];
      std::uint64_t waiting = 0;
      for (std::uint64_t c = 0; c < g.cells.size(); ++c) references += block_at(g, c) >= 0;
      for (std::uint64_t p = 0; has_mark(g, p); ++p) {
        if (!waits(g, p)) continue;
        ++waiting;
        if (p < g.wait_low || p >= g.wait_high || p >= std::max(g.cursor, g.again)) {
          return fmt::format("request {} group {} waits for position {} outside its range", r.id,
                             group, p);
        }
      }
      if (!r.unsettled && (g.waiting > 0 || g.refused || g.wait_retry)) {
        return fmt::format("request {} counts as settled, group {} has open positions", r.id,
                           group);
      }
      if (waiting != g.waiting) {
        return fmt::format("request {} group {} counts {} waiting positions, {} are", r.id, group,
                           g.waiting, waiting);
      }
    }
  }
  if (live != ids_.size() || shells != shells_) return "the request table lost a request";
  if (bytes != key_bytes_used_) {
    return fmt::format("{} key bytes are counted, {} are used", key_bytes_used_, bytes);
  }
  if (references > holds_.table_references()) return "table references are missing";
  return {};
}

}  // namespace kvc
