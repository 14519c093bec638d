// The life of an operation in the CUDA copy engine, without the calls that copy.
#include "cuda/cuda_copy_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace kvc {

using copy_detail::loses_source;
using copy_detail::none;
using copy_detail::Op;
using cuda::driver_success;
using cuda::DriverResult;

namespace {

using std::chrono::microseconds;

// Between two looks at the device when nobody asks: as for fences of the host backend.
constexpr microseconds backoff_min{20};
constexpr microseconds backoff_max{2000};

bool reached(const Fence& fence) {
  return __atomic_load_n(fence.counter, __ATOMIC_ACQUIRE) >= fence.value;
}

}  // namespace

CudaCopyEngine::Core::Core(const CudaCopyOptions& o)
    : options(o),
      captures(o.captures_max),
      queue(o.operations_max, o.runs_max, o.predecessors_max),
      ends(queue, o.fault) {
  gates.reserve(o.operations_max);
  const std::size_t copies = o.copies_per_piece_max;
  scratch.dst.reserve(copies);
  scratch.src.reserve(copies);
  scratch.bytes.reserve(copies);
  scratch.owner.reserve(copies);
  scratch.first.reserve(copies);
  scratch.operations.reserve(o.operations_max);
  scratch.touched.reserve(copies);
  for (Lane& l : lanes) {
    l.ring.resize(o.pieces_max);
    l.table_piece.resize(tables_max);
  }
}

void CudaCopyEngine::Core::link(std::uint32_t at, std::uint32_t before) {
  Op& o = queue.op(at);
  const Op& first = queue.op(before);
  if (first.direction == o.direction && !waits(CudaWait::same_direction)) return;
  if (!first.ended && !(first.issued && ends.may_end(first))) return queue.link(before, at);
  o.source_lost = o.source_lost || loses_source(first, o);
  if (first.ended) return;
  const auto d = static_cast<std::size_t>(first.direction);
  o.after_piece[d] = std::max(o.after_piece[d], first.piece);
}

void CudaCopyEngine::Core::commit(const CopyBatch& batch, std::uint32_t capture) {
  for (const CopyOperation& op : batch.operations) {
    const std::uint32_t at = queue.find(op.id);
    Op& o = queue.op(at);
    o.direction = op.direction;
    o.mark = op.mark;
    o.fence = batch.fence;
    queue.set_runs(at, op.copies);
    o.pieces_left = o.cursor.chunk != none;
    counters.descriptors += op.copies.size();
    for (const std::uint64_t before : op.after) {
      const std::uint32_t p = queue.find(before);
      if (p != none) link(at, p);
    }
    if (capture != none) {
      o.capture = capture;
      captures.add(capture);
    }
    o.fence_open = batch.fence.kind == FenceKind::counter && !reached(batch.fence) && !lost &&
                   waits(CudaWait::counter_fence);
    if (o.fence_open) {
      gate(at);
    } else if (o.predecessors == 0) {
      make_ready(at);
    }
  }
}

// Values mostly grow, so the place is mostly the end.
void CudaCopyEngine::Core::gate(std::uint32_t at) {
  const Fence& fence = queue.op(at).fence;
  auto it = std::find_if(gates.begin(), gates.end(),
                         [&](const Gate& g) { return g.counter == fence.counter; });
  if (it == gates.end()) it = gates.insert(gates.end(), Gate{fence.counter, {}});
  std::uint32_t place = it->operations.tail;
  while (place != none && queue.op(place).fence.value > fence.value) place = queue.op(place).prev;
  queue.insert_after(it->operations, place, at);
  ++gated;
}

void CudaCopyEngine::Core::make_ready(std::uint32_t at) {
  queue.push_back(lane(queue.op(at).direction).ready, at);
}

bool CudaCopyEngine::Core::look_at_gates() {
  bool moved = false;
  for (std::size_t i = 0; i < gates.size();) {
    Gate& g = gates[i];
    const std::uint64_t now = lost ? UINT64_MAX : __atomic_load_n(g.counter, __ATOMIC_ACQUIRE);
    ++counters.looks;
    while (g.operations.head != none && queue.op(g.operations.head).fence.value <= now) {
      const std::uint32_t at = g.operations.head;
      queue.remove(g.operations, at);
      --gated;
      queue.op(at).fence_open = false;
      if (queue.op(at).predecessors == 0) make_ready(at);
      moved = true;
    }
    if (g.operations.head == none) {
      g = gates.back();
      gates.pop_back();
    } else {
      ++i;
    }
  }
  return moved;
}

// Pieces of one stream end in their order: only the oldest is asked for, however many are open.
bool CudaCopyEngine::Core::complete(CopyDirection d) {
  Lane& l = lane(d);
  bool moved = false;
  while (l.completed != l.issued) {
    Piece& p = l.ring[(l.completed + 1) % l.ring.size()];
    DriverResult r = driver_success;
    ++counters.looks;
    if (waits(CudaWait::completion)) r = driver->event_query(p.done);
    if (r == cuda::driver_not_ready) break;
    if (r != driver_success) {
      lose(r, "a copy stream");
      return true;
    }
    ++l.completed;
    l.entries -= p.entries;
    while (p.operations.head != none) {
      const std::uint32_t at = p.operations.head;
      queue.remove(p.operations, at);
      copied(at);
    }
    moved = true;
  }
  return moved;
}

void CudaCopyEngine::Core::let_go(std::uint32_t at) {
  const Op& o = queue.op(at);
  const auto d = static_cast<std::size_t>(o.direction);
  ends.let_go(
      at, [&](Op& after) { after.after_piece[d] = std::max(after.after_piece[d], o.piece); },
      [this](std::uint32_t next) { make_ready(next); });
}

void CudaCopyEngine::Core::end(std::uint32_t at) {
  Op& o = queue.op(at);
  let_go(at);
  if (o.capture != none) captures.drop(o.capture);
  o.capture = none;
  ends.finish(at);
  changed.notify_all();
}

// Operations with one mark stand in pieces of their own, in the order of submission: behind the
// event of the last piece all of them are over.
Code CudaCopyEngine::Core::fence_of(const CopyMark& mark, std::uint64_t operations, Fence& out) {
  out = {};
  if (mark.ended_now() >= operations) return Code::ok;
  const Lane& l = lanes[static_cast<std::size_t>(CopyDirection::load)];
  // Over at the device and held by a test: its event may be that of a later piece by now.
  if (mark.issued + mark.skipped < operations || mark.piece <= l.completed) return Code::later;
  out.kind = FenceKind::cuda_event;
  out.handle = l.ring[mark.piece % l.ring.size()].done;
  return Code::ok;
}

void CudaCopyEngine::Core::lose(DriverResult result, const char* what) {
  if (!lost)
    trouble = driver->error(result, fmt::format("device {} is lost: {}", device, what)).text;
  lost = true;
  for (Lane& l : lanes) {
    // A dead device answers at once. One that is not quite dead must be through before anybody is
    // told that his copies ended.
    static_cast<void>(driver->stream_synchronize(l.stream));
    while (l.completed != l.issued) {
      Piece& p = l.ring[++l.completed % l.ring.size()];
      l.entries -= p.entries;
      while (p.operations.head != none) {
        const std::uint32_t at = p.operations.head;
        queue.remove(p.operations, at);
        if (queue.op(at).result.status == Code::ok) queue.op(at).result.status = Code::io;
        copied(at);
      }
    }
  }
}

bool CudaCopyEngine::Core::advance() {
  if (!anything_open()) return false;
  const cuda::ContextScope scope(*driver, context);
  if (scope.result() != driver_success && !lost) lose(scope.result(), "its context");
  bool moved = look_at_gates();
  for (const CopyDirection d : {CopyDirection::load, CopyDirection::store}) {
    moved = complete(d) || moved;
  }
  moved = ends.look([this](std::uint32_t at) { end(at); }, counters.looks) || moved;
  for (const CopyDirection d : {CopyDirection::load, CopyDirection::store}) {
    moved = issue(d) || moved;
  }
  return moved;
}

bool CudaCopyEngine::Core::any_open(std::span<const std::uint64_t> ops) const {
  return std::any_of(ops.begin(), ops.end(), [this](std::uint64_t id) {
    const std::uint32_t at = queue.find(id);
    return at != none && !queue.op(at).ended;
  });
}

void CudaCopyEngine::Core::watch() {
  std::unique_lock<std::mutex> lock(mutex);
  microseconds backoff = backoff_min;
  while (!stopping) {
    const bool moved = advance();
    if (options.on_ended != nullptr && ends.all() != told) {
      told = ends.all();
      lock.unlock();
      options.on_ended(options.on_ended_arg);
      lock.lock();
      continue;
    }
    if (!anything_open()) {
      changed.wait(lock);
      backoff = backoff_min;
    } else {
      changed.wait_for(lock, backoff);
      backoff = moved ? backoff_min : std::min(backoff * 2, backoff_max);
    }
  }
}

}  // namespace kvc
