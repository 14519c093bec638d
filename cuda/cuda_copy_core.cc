// The life of an operation in the CUDA copy engine, without the calls that copy.
#include "cuda/cuda_copy_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace kvc {

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
      queue(o.operations_max, o.runs_max, o.predecessors_max) {
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
  if (first.ended) {
    if (first.direction == CopyDirection::store && first.result.status != Code::ok &&
        o.direction == CopyDirection::load) {
      o.source_lost = true;
    }
    return;
  }
  if (first.issued && (options.fault == nullptr || options.fault->may_end(first.id))) {
    const auto d = static_cast<std::size_t>(first.direction);
    o.after_piece[d] = std::max(o.after_piece[d], first.piece);
    if (first.direction == CopyDirection::store && first.result.status != Code::ok &&
        o.direction == CopyDirection::load) {
      o.source_lost = true;
    }
    return;
  }
  queue.link(before, at);
}

void CudaCopyEngine::Core::commit(const CopyBatch& batch, std::uint32_t capture) {
  for (const CopyOperation& op : batch.operations) {
    const std::uint32_t at = queue.find(op.id);
    Op& o = queue.op(at);
    o.direction = op.direction;
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

bool CudaCopyEngine::Core::look_at_held() {
  bool moved = false;
  for (std::uint32_t at = held.head; at != none;) {
    const std::uint32_t next = queue.op(at).next;
    ++counters.looks;
    if (options.fault->may_end(queue.op(at).id)) {
      queue.remove(held, at);
      end(at);
      moved = true;
    }
    at = next;
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

void CudaCopyEngine::Core::copied(std::uint32_t at) {
  if (options.fault != nullptr && !options.fault->may_end(queue.op(at).id)) {
    queue.push_back(held, at);
  } else {
    end(at);
  }
}

void CudaCopyEngine::Core::let_go(std::uint32_t at) {
  Op& o = queue.op(at);
  const auto d = static_cast<std::size_t>(o.direction);
  const bool failed_store = o.direction == CopyDirection::store && o.result.status != Code::ok;
  for (std::uint32_t e = o.successors; e != none; e = queue.edge(e).next) {
    const std::uint32_t s = queue.edge(e).successor;
    Op& after = queue.op(s);
    after.after_piece[d] = std::max(after.after_piece[d], o.piece);
    if (failed_store && after.direction == CopyDirection::load) after.source_lost = true;
    if (--after.predecessors == 0 && !after.fence_open) make_ready(s);
  }
  queue.drop_edges(at);
}

void CudaCopyEngine::Core::end(std::uint32_t at) {
  Op& o = queue.op(at);
  o.ended = true;
  ++(o.result.status == Code::ok ? counters.operations_ok : counters.operations_failed);
  let_go(at);
  if (o.capture != none) captures.drop(o.capture);
  o.capture = none;
  queue.drop_runs(at);
  queue.push_back(ended, at);
  changed.notify_all();
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
  moved = look_at_held() || moved;
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
    const std::uint64_t ended_by_now = counters.operations_ok + counters.operations_failed;
    if (options.on_ended != nullptr && ended_by_now != told) {
      told = ended_by_now;
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
