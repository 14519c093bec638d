// How ready operations become calls of the driver: pieces of copies with an event behind them.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cuda/cuda_copy_core.h"

namespace kvc {

using copy_detail::none;
using copy_detail::Op;
using copy_detail::Run;
using cuda::driver_success;
using cuda::DriverResult;

namespace {

constexpr DriverResult driver_not_supported = 801;
// Beside its copies a piece has two waits, perhaps one launch, and the event.
constexpr std::uint32_t entries_beside = 4;

std::size_t index_of(CopyDirection d) { return static_cast<std::size_t>(d); }

CopyDirection other(CopyDirection d) {
  return d == CopyDirection::load ? CopyDirection::store : CopyDirection::load;
}

cuda::DevicePointer address(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

}  // namespace

// Entries that the queue of the stream has left; 0: no piece can begin.
std::uint32_t CudaCopyEngine::Core::room(const Lane& l) const {
  const bool ring = l.issued - l.completed < l.ring.size();
  const std::uint32_t left = options.stream_entries_max - l.entries;
  return ring && left > entries_beside ? left - entries_beside : 0;
}

std::uint32_t CudaCopyEngine::Core::pick(Lane& l) {
  for (std::uint32_t at = l.ready.head; at != none; at = queue.op(at).next) {
    ++counters.looks;
    if (queue.op(at).begun || options.fault == nullptr ||
        options.fault->may_begin(queue.op(at).id)) {
      return at;
    }
  }
  return none;
}

// Puts the waits of an operation into its stream. Whatever it comes after in the other stream, or
// reads in this one, must not be read before the stream gets there: such a piece reads in order.
bool CudaCopyEngine::Core::wait_for_order(CopyDirection d, const Op& o, Gathered& g) {
  Lane& l = lane(d);
  if (o.capture != none && !captures.waited(o.capture, d) &&
      waits(d == CopyDirection::load ? CudaWait::load_fence : CudaWait::store_fence)) {
    const DriverResult r = driver->stream_wait_event(l.stream, captures.event(o.capture), 0);
    if (r != driver_success) {
      lose(r, "waiting for a fence");
      return false;
    }
    ++g.entries;
  }
  const CopyDirection far = other(d);
  const std::uint64_t after = o.after_piece[index_of(far)];
  if (after > lane(far).completed) {
    if (waits(d == CopyDirection::load ? CudaWait::load_after_store : CudaWait::store_after_load)) {
      const Lane& f = lane(far);
      const DriverResult r =
          driver->stream_wait_event(l.stream, f.ring[after % f.ring.size()].done, 0);
      if (r != driver_success) {
        lose(r, "waiting for another stream");
        return false;
      }
      ++g.entries;
    }
  }
  // Also what stands before it in its own stream may come after who writes its sources.
  const bool chained = after > lane(far).completed || o.after_piece[index_of(d)] > l.completed;
  g.in_order = g.in_order || (chained && waits(CudaWait::chained_source_order));
  return true;
}

// Whether the operation can join the piece that is being gathered: it has nothing to wait for. What
// it comes after in its own stream is in an earlier piece: until then it is not ready.
bool CudaCopyEngine::Core::joins_piece(const Op& o) const {
  return o.after_piece[0] <= lanes[0].completed && o.after_piece[1] <= lanes[1].completed;
}

bool CudaCopyEngine::Core::ask_fault(Op& o, const Run& run) {
  for (std::uint64_t i = 0; options.fault != nullptr && i < run.count; ++i) {
    const CopyFault::Verdict v = options.fault->on_copy(o.id, o.direction, run.first + i);
    if (v.status == Code::ok) continue;
    o.result.status = v.status;
    o.result.first_failed = run.first + i;
    o.result.side = v.side;
    return false;
  }
  return true;
}

// One fragment: what is left of a run, up to the end of the registration that holds its host end.
void CudaCopyEngine::Core::gather_run(CopyDirection d, std::uint32_t at, Gathered& g,
                                      std::uint64_t bytes, std::uint64_t first) {
  Op& o = queue.op(at);
  const Run& run = queue.chunk(o.cursor.chunk).runs[o.cursor.run];
  const std::byte* dst = run.dst + o.cursor.offset;
  const std::byte* src = run.src + o.cursor.offset;
  const auto pin = pins.find(d == CopyDirection::load ? src : dst);
  const Bytes below =
      d == CopyDirection::load ? options.kernel_below_load : options.kernel_below_store;
  const bool small = options.path == CopyPath::kernel || bytes < below.n;
  if (g.table != nullptr && small && pin && g.small < options.copies_per_piece_max) {
    g.table[g.small++] = {address(dst), address(src), bytes};
  } else {
    g.dst.push_back(address(dst));
    g.src.push_back(address(src));
    g.bytes.push_back(bytes);
    g.owner.push_back(at);
    g.first.push_back(first);
  }
  if (g.touched.empty() || g.touched.back() != at) g.touched.push_back(at);
  (d == CopyDirection::load ? counters.bytes_loaded : counters.bytes_stored) += bytes;
}

// Takes what fits of an operation into the piece; true: all of it is in.
bool CudaCopyEngine::Core::gather(CopyDirection d, std::uint32_t at, Gathered& g,
                                  std::uint32_t copies_max) {
  Op& o = queue.op(at);
  o.begun = true;
  if (o.source_lost && o.result.status == Code::ok) {
    o.result.status = Code::io;
    o.result.side = CopySide::source;
  }
  while (o.result.status == Code::ok && o.cursor.chunk != none) {
    if (g.dst.size() >= copies_max || g.dst.size() + g.small >= options.copies_per_piece_max) {
      return false;
    }
    const copy_detail::Chunk& chunk = queue.chunk(o.cursor.chunk);
    const Run& run = chunk.runs[o.cursor.run];
    if (o.cursor.offset == 0 && !ask_fault(o, run)) break;
    if (run.bytes != 0) {
      const std::byte* host = (d == CopyDirection::load ? run.src : run.dst) + o.cursor.offset;
      std::uint64_t bytes = run.bytes - o.cursor.offset;
      if (const auto pin = pins.find(host)) {
        bytes = std::min<std::uint64_t>(bytes, pin->end - reinterpret_cast<std::uintptr_t>(host));
      }
      gather_run(d, at, g, bytes, run.first);
      o.cursor.offset += bytes;
      if (o.cursor.offset < run.bytes) continue;
    }
    o.cursor.offset = 0;
    if (++o.cursor.run == chunk.used) o.cursor = {chunk.next, 0, 0};
  }
  g.operations.push_back(at);
  return true;
}

DriverResult CudaCopyEngine::Core::call_batch(CopyDirection d, Gathered& g, std::size_t& failed) {
  cuda::BatchAttributes attributes;
  const bool in_order =
      d == CopyDirection::store ? waits(CudaWait::store_source_order) : g.in_order;
  attributes.source_order = in_order ? cuda::SourceOrder::stream : cuda::SourceOrder::any;
  std::size_t from = 0;
  ++counters.batch_calls;
  ++g.entries;
  return driver->copy_batch(g.dst.data(), g.src.data(), g.bytes.data(), g.dst.size(), &attributes,
                            &from, 1, &failed, lane(d).stream);
}

DriverResult CudaCopyEngine::Core::call_loop(CopyDirection d, Gathered& g, std::size_t& failed) {
  for (std::size_t i = 0; i < g.dst.size(); ++i) {
    // NOLINTBEGIN(performance-no-int-to-ptr): the driver names host ends by pointer
    const DriverResult r =
        d == CopyDirection::load
            ? driver->copy_to_device(g.dst[i], reinterpret_cast<const void*>(g.src[i]), g.bytes[i],
                                     lane(d).stream)
            : driver->copy_to_host(reinterpret_cast<void*>(g.dst[i]), g.src[i], g.bytes[i],
                                   lane(d).stream);
    // NOLINTEND(performance-no-int-to-ptr)
    ++counters.single_calls;
    ++g.entries;
    if (r != driver_success) {
      failed = i;
      return r;
    }
  }
  return driver_success;
}

DriverResult CudaCopyEngine::Core::call_kernel(CopyDirection d, Gathered& g) {
  constexpr unsigned per_block = cuda::fragment_block / cuda::fragment_lanes;
  const unsigned groups = std::min(g.small, cuda::fragment_groups_max);
  const unsigned blocks = (groups + per_block - 1) / per_block;
  std::array<void*, 2> parameters{static_cast<void*>(&g.table), static_cast<void*>(&g.small)};
  ++counters.launches;
  counters.kernel_fragments += g.small;
  ++g.entries;
  return driver->launch(function, blocks, 1, 1, cuda::fragment_block, 1, 1, 0, lane(d).stream,
                        parameters.data(), nullptr);
}

// A launch is not worth it: its fragments go with the others.
void CudaCopyEngine::Core::fold_small(Gathered& g) {
  if (g.small >= options.kernel_fragments_min || options.path == CopyPath::kernel) return;
  for (std::uint32_t i = 0; i < g.small; ++i) {
    g.dst.push_back(g.table[i].dst);
    g.src.push_back(g.table[i].src);
    g.bytes.push_back(g.table[i].bytes);
    g.owner.push_back(none);
    g.first.push_back(no_failed_copy);
  }
  g.small = 0;
}

DriverResult CudaCopyEngine::Core::call(CopyDirection d, Gathered& g, std::size_t& failed) {
  failed = SIZE_MAX;
  DriverResult r = driver_success;
  if (g.small != 0) r = call_kernel(d, g);
  if (r != driver_success || g.dst.empty()) return r;
  if (batch_usable()) {
    r = call_batch(d, g, failed);
    if (r != driver_not_supported) return r;
    // Said once, for this device: one call per copy from now on.
    batch_refused = true;
    failed = SIZE_MAX;
  }
  return call_loop(d, g, failed);
}

// Nobody can say how much of the piece the driver has taken: all that have a copy in it fail.
void CudaCopyEngine::Core::call_failed(Gathered& g, std::size_t failed, DriverResult result) {
  trouble = driver->error(result, "a copy is refused").text;
  for (const std::uint32_t at : g.touched) {
    CopyCompletion& c = queue.op(at).result;
    if (c.status != Code::ok) continue;
    c.status = Code::io;
    if (failed < g.owner.size() && g.owner[failed] == at) c.first_failed = g.first[failed];
    if (std::find(g.operations.begin(), g.operations.end(), at) == g.operations.end()) {
      g.operations.push_back(at);  // the rest of it would be thrown away
    }
  }
}

// Puts the event behind the piece and its operations into it.
void CudaCopyEngine::Core::seal(CopyDirection d, Gathered& g) {
  Lane& l = lane(d);
  const std::uint64_t number = ++l.issued;
  Piece& p = l.ring[number % l.ring.size()];
  p.entries = ++g.entries;
  l.entries += p.entries;
  ++counters.pieces;
  if (g.small != 0) l.table_piece[l.table_next++ % tables_max] = number;
  for (const std::uint32_t at : g.operations) {
    Op& o = queue.op(at);
    queue.remove(l.ready, at);
    queue.push_back(p.operations, at);
    o.issued = true;
    o.piece = number;
    if (o.mark == nullptr) continue;
    ++o.mark->issued;
    o.mark->piece = number;
  }
  const DriverResult r = driver->event_record(p.done, l.stream);
  if (r != driver_success) {
    lose(r, "recording an event");
    return;
  }
  for (const std::uint32_t at : g.operations) {
    if (ends.may_end(queue.op(at))) let_go(at);
  }
}

// What a piece of this direction can take now.
void CudaCopyEngine::Core::begin_piece(CopyDirection d, Gathered& g) {
  Lane& l = lane(d);
  g.dst.clear();
  g.src.clear();
  g.bytes.clear();
  g.owner.clear();
  g.first.clear();
  g.operations.clear();
  g.touched.clear();
  g.small = 0;
  g.entries = 0;
  g.in_order = d == CopyDirection::store;
  const std::uint32_t table = l.table_next % tables_max;
  const bool free = l.table_piece[table] <= l.completed || !waits(CudaWait::table_reuse);
  g.table = kernel_usable() && free ? l.tables + std::size_t{table} * options.copies_per_piece_max
                                    : nullptr;
}

// Gathers from `at` on: the operations that follow come along as long as they wait for nothing
// else.
void CudaCopyEngine::Core::fill_piece(CopyDirection d, std::uint32_t at, Gathered& g,
                                      std::uint32_t copies_max) {
  const std::uint32_t capture = queue.op(at).capture;
  // Who waits for a mark is not to wait for what stands behind it.
  const CopyMark* const mark = queue.op(at).mark;
  while (gather(d, at, g, copies_max)) {
    std::uint32_t next = queue.op(at).next;
    while (next != none && options.fault != nullptr &&
           !options.fault->may_begin(queue.op(next).id)) {
      next = queue.op(next).next;
    }
    if (next == none || queue.op(next).capture != capture || queue.op(next).mark != mark ||
        !joins_piece(queue.op(next))) {
      return;
    }
    at = next;
  }
}

bool CudaCopyEngine::Core::issue(CopyDirection d) {
  Lane& l = lane(d);
  Gathered& g = scratch;
  for (bool moved = false;; moved = true) {
    const std::uint32_t at = pick(l);
    if (at == none) return moved;
    if (lost) {
      queue.remove(l.ready, at);
      if (queue.op(at).result.status == Code::ok) queue.op(at).result.status = Code::io;
      copied(at);
      continue;
    }
    const std::uint32_t entries = room(l);
    if (entries == 0) return moved;
    begin_piece(d, g);
    if (!wait_for_order(d, queue.op(at), g)) continue;
    fill_piece(d, at, g,
               batch_usable() ? options.copies_per_piece_max
                              : std::min(entries, options.copies_per_piece_max));
    fold_small(g);
    std::size_t failed = 0;
    const DriverResult r = call(d, g, failed);
    if (r != driver_success) call_failed(g, failed, r);
    seal(d, g);
  }
}

}  // namespace kvc
