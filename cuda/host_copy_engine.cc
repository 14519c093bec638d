#include "cuda/host_copy_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <system_error>

#include "cuda/copy_queue.h"
#include "cuda/host_copy_bytes.h"

namespace kvc {

using copy_detail::Cursor;
using copy_detail::List;
using copy_detail::none;
using copy_detail::Op;
using copy_detail::Run;

namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

// Between two looks at open fences when nothing else wakes a worker: short against a device step (>
// 1 ms), long enough to cost no core.
constexpr microseconds backoff_min{20};
constexpr microseconds backoff_max{2000};
// A piece also ends after this many runs, so that tiny copies are shared among workers.
constexpr std::uint32_t runs_per_piece_max = 4096;

Status check_fence(const Fence& fence) {
  switch (fence.kind) {
    case FenceKind::none:
      return {};
    case FenceKind::counter:
      if (fence.counter == nullptr || reinterpret_cast<std::uintptr_t>(fence.counter) % 8 != 0) {
        return {Code::arg, fmt::format("fence counter {} is null or not aligned to 8 bytes",
                                       static_cast<const void*>(fence.counter))};
      }
      return {};
    case FenceKind::cuda_event:
    case FenceKind::cuda_stream:
    case FenceKind::captured:
      break;
  }
  return {Code::unsupported, fmt::format("the host copy engine has no fences of kind {}",
                                         static_cast<unsigned>(fence.kind))};
}

// The only read of memory that another thread writes while we look: acquire, so that everything
// written before the counter is seen by the copies behind it.
bool reached(const Fence& fence) {
  return fence.kind != FenceKind::counter ||
         __atomic_load_n(fence.counter, __ATOMIC_ACQUIRE) >= fence.value;
}

// What one thread does without the lock.
struct Piece {
  std::uint32_t op = none;
  std::uint64_t id = 0;
  CopyDirection direction = CopyDirection::load;
  bool source_lost = false;
  bool streams = false;
  Cursor from;
  Cursor to;
  // Results.
  CopyFault::Verdict verdict;
  std::uint64_t failed = no_failed_copy;
  std::uint64_t bytes = 0;
  std::uint64_t calls = 0;
};

}  // namespace

struct HostCopyEngine::Core {
  explicit Core(const HostCopyOptions& o)
      : options(o),
        streaming_bytes(o.streaming_bytes.n != 0 ? o.streaming_bytes.n
                                                 : copy_detail::streaming_bytes_default()),
        queue(o.operations_max, o.runs_max, o.predecessors_max),
        ends(queue, o.fault),
        rng(o.seed) {
    if (o.workers == 0 && o.order == StepOrder::seeded) candidates.reserve(o.operations_max);
  }

  const HostCopyOptions options;
  const std::uint64_t streaming_bytes;
  mutable std::mutex mutex;
  std::condition_variable work;  // for workers
  std::condition_variable done;  // for wait()
  copy_detail::Queue queue;
  List fenced;
  List ready[2];  // by direction
  copy_detail::Ends ends;
  bool stopping = false;
  bool refused = false;  // CopyFault::may_begin said no since the last look
  bool watched = false;  // a worker is in a timed sleep
  std::uint32_t loads_in_a_row = 0;
  microseconds backoff = backoff_min;
  std::uint64_t rng;
  HostCopyCounters counters;
  std::vector<std::uint32_t> candidates;
  std::vector<std::thread> threads;

  // All of these need the mutex.
  void commit(const CopyBatch& batch);
  bool advance();
  void make_ready(std::uint32_t at);
  void end(std::uint32_t at);
  bool may_begin(const Op& o);
  std::uint32_t pick_fifo();
  std::uint32_t pick_seeded();
  bool take(Piece& piece);
  void finish(const Piece& piece);
  [[nodiscard]] bool open(std::span<const std::uint64_t> ops) const;
  [[nodiscard]] bool must_watch() const { return fenced.size + ends.held() != 0 || refused; }
  std::uint64_t pump_locked(std::unique_lock<std::mutex>& lock, std::uint64_t budget);

  // Without the mutex.
  void run(Piece& piece);
  void work_loop();
};

// Records for all operations of the batch, and everything checked that can be refused.
void HostCopyEngine::Core::commit(const CopyBatch& batch) {
  const bool fence_open = !reached(batch.fence);
  for (const CopyOperation& op : batch.operations) {
    const std::uint32_t at = queue.find(op.id);
    Op& o = queue.op(at);
    o.direction = op.direction;
    o.mark = op.mark;
    o.fence = batch.fence;
    o.fence_open = fence_open;
    queue.set_runs(at, op.copies);
    counters.descriptors += op.copies.size();
    for (const std::uint64_t before : op.after) {
      const std::uint32_t p = queue.find(before);
      if (p == none) continue;
      const Op& first = queue.op(p);
      if (!first.ended) {
        queue.link(p, at);
      } else {
        o.source_lost = o.source_lost || copy_detail::loses_source(first, o);
      }
    }
    if (fence_open) {
      queue.push_back(fenced, at);
    } else if (o.predecessors == 0) {
      make_ready(at);
    }
  }
}

// Looks at open fences and held completions; true if anything moved.
bool HostCopyEngine::Core::advance() {
  bool moved = false;
  const std::uint64_t* counter = nullptr;
  std::uint64_t value = 0;
  bool last = false;
  for (std::uint32_t at = fenced.head; at != none;) {
    Op& o = queue.op(at);
    const std::uint32_t next = o.next;
    // Operations of one batch share a fence and stand side by side: one look for all of them.
    if (o.fence.counter != counter || o.fence.value != value) {
      counter = o.fence.counter;
      value = o.fence.value;
      last = reached(o.fence);
    }
    if (last) {
      queue.remove(fenced, at);
      o.fence_open = false;
      if (o.predecessors == 0) make_ready(at);
      moved = true;
    }
    at = next;
  }
  std::uint64_t looks = 0;
  return ends.look([this](std::uint32_t at) { end(at); }, looks) || moved;
}

void HostCopyEngine::Core::make_ready(std::uint32_t at) {
  queue.push_back(ready[static_cast<std::size_t>(queue.op(at).direction)], at);
}

void HostCopyEngine::Core::end(std::uint32_t at) {
  ends.let_go(
      at, [](Op&) {}, [this](std::uint32_t next) { make_ready(next); });
  ends.finish(at);
  done.notify_all();
}

bool HostCopyEngine::Core::may_begin(const Op& o) {
  if (o.begun || options.fault == nullptr || options.fault->may_begin(o.id)) return true;
  refused = true;
  return false;
}

std::uint32_t HostCopyEngine::Core::pick_fifo() {
  constexpr auto load = static_cast<std::size_t>(CopyDirection::load);
  const bool store_first = loads_in_a_row >= options.loads_in_a_row_max;
  for (const std::size_t list : {store_first ? 1 - load : load, store_first ? load : 1 - load}) {
    for (std::uint32_t at = ready[list].head; at != none; at = queue.op(at).next) {
      if (!may_begin(queue.op(at))) continue;
      loads_in_a_row = list == load ? loads_in_a_row + 1 : 0;
      return at;
    }
  }
  return none;
}

std::uint32_t HostCopyEngine::Core::pick_seeded() {
  candidates.clear();
  for (const List& list : ready) {
    for (std::uint32_t at = list.head; at != none; at = queue.op(at).next) {
      if (may_begin(queue.op(at))) candidates.push_back(at);
    }
  }
  if (candidates.empty()) return none;
  // splitmix64: the same numbers on every platform.
  std::uint64_t z = (rng += 0x9E3779B97F4A7C15ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return candidates[(z ^ (z >> 31)) % candidates.size()];
}

bool HostCopyEngine::Core::take(Piece& piece) {
  refused = false;
  const bool seeded = options.workers == 0 && options.order == StepOrder::seeded;
  const std::uint32_t at = seeded ? pick_seeded() : pick_fifo();
  if (at == none) return false;
  Op& o = queue.op(at);
  o.begun = true;
  piece = Piece{};
  piece.op = at;
  piece.id = o.id;
  piece.direction = o.direction;
  piece.source_lost = o.source_lost;
  piece.streams = o.bytes >= streaming_bytes;
  piece.from = o.cursor;
  std::uint64_t room = options.piece_bytes.n;
  std::uint32_t runs = 0;
  Cursor& c = o.cursor;
  while (c.chunk != none && runs < runs_per_piece_max && !o.source_lost) {
    const copy_detail::Chunk& chunk = queue.chunk(c.chunk);
    const std::uint64_t left = chunk.runs[c.run].bytes - c.offset;
    if (left > room) {
      if (runs != 0 && left <= options.piece_bytes.n) break;
      c.offset += room;
      break;
    }
    room -= left;
    ++runs;
    c.offset = 0;
    if (++c.run == chunk.used) c = {chunk.next, 0, 0};
  }
  piece.to = o.source_lost ? o.cursor : c;
  o.pieces_left = !o.source_lost && c.chunk != none;
  ++o.pieces_out;
  if (!o.pieces_left) queue.remove(ready[static_cast<std::size_t>(o.direction)], at);
  return true;
}

void HostCopyEngine::Core::run(Piece& piece) {
  if (piece.source_lost) {
    piece.verdict = {Code::io, CopySide::source};
    return;
  }
  Cursor at = piece.from;
  while (at.chunk != none &&
         !(at.chunk == piece.to.chunk && at.run == piece.to.run && at.offset == piece.to.offset)) {
    const copy_detail::Chunk& chunk = queue.chunk(at.chunk);
    const Run& r = chunk.runs[at.run];
    const bool last = at.chunk == piece.to.chunk && at.run == piece.to.run;
    const std::uint64_t bytes = (last ? piece.to.offset : r.bytes) - at.offset;
    // Whoever has the front of a run asks for all copies in it.
    for (std::uint64_t i = 0; options.fault != nullptr && at.offset == 0 && i < r.count; ++i) {
      piece.verdict = options.fault->on_copy(piece.id, piece.direction, r.first + i);
      if (piece.verdict.status != Code::ok) {
        piece.failed = r.first + i;
        return;
      }
    }
    if (bytes != 0) {
      if (piece.streams) {
        copy_detail::copy_streaming(r.dst + at.offset, r.src + at.offset, bytes);
      } else {
        std::memcpy(r.dst + at.offset, r.src + at.offset, bytes);
      }
      piece.bytes += bytes;
      ++piece.calls;
    }
    if (last) return;
    at = at.run + 1 == chunk.used ? Cursor{chunk.next, 0, 0} : Cursor{at.chunk, at.run + 1, 0};
  }
}

void HostCopyEngine::Core::finish(const Piece& piece) {
  Op& o = queue.op(piece.op);
  --o.pieces_out;
  (o.direction == CopyDirection::load ? counters.bytes_loaded : counters.bytes_stored) +=
      piece.bytes;
  counters.memcpy_calls += piece.calls;
  if (piece.streams) counters.bytes_streamed += piece.bytes;
  if (piece.verdict.status != Code::ok) {
    // no_failed_copy is the largest number: any failed copy comes before it.
    if (o.result.status == Code::ok || piece.failed < o.result.first_failed) {
      o.result.status = piece.verdict.status;
      o.result.first_failed = piece.failed;
      o.result.side = piece.verdict.side;
    }
    if (o.pieces_left) {
      o.pieces_left = false;
      queue.remove(ready[static_cast<std::size_t>(o.direction)], piece.op);
    }
  }
  if (o.pieces_out != 0 || o.pieces_left) return;
  ends.copied(piece.op, [this](std::uint32_t at) { end(at); });
}

bool HostCopyEngine::Core::open(std::span<const std::uint64_t> ops) const {
  return std::any_of(ops.begin(), ops.end(), [this](std::uint64_t id) {
    const std::uint32_t at = queue.find(id);
    return at != none && !queue.op(at).ended;
  });
}

std::uint64_t HostCopyEngine::Core::pump_locked(std::unique_lock<std::mutex>& lock,
                                                std::uint64_t budget) {
  std::uint64_t did = 0;
  Piece piece;
  while (did < budget) {
    advance();
    if (!take(piece)) break;
    lock.unlock();
    run(piece);
    lock.lock();
    finish(piece);
    ++did;
  }
  return did;
}

void HostCopyEngine::Core::work_loop() {
  std::unique_lock<std::mutex> lock(mutex);
  Piece piece;
  std::uint64_t told = ends.all();
  while (!stopping) {
    if (advance()) backoff = backoff_min;
    if (options.on_ended != nullptr && ends.all() != told) {
      told = ends.all();
      lock.unlock();
      options.on_ended(options.on_ended_arg);
      lock.lock();
      continue;
    }
    if (take(piece)) {
      // One worker wakes the next while there is something to do or to watch.
      if (ready[0].size + ready[1].size != 0 || (must_watch() && !watched)) work.notify_one();
      lock.unlock();
      run(piece);
      lock.lock();
      finish(piece);
      backoff = backoff_min;
    } else if (must_watch() && !watched) {
      watched = true;
      work.wait_for(lock, backoff);
      watched = false;
      backoff = std::min(backoff * 2, backoff_max);
    } else {
      work.wait(lock);
    }
  }
}

HostCopyEngine::HostCopyEngine() = default;

Result<std::unique_ptr<HostCopyEngine>> HostCopyEngine::create(const HostCopyOptions& options) {
  if (options.operations_max == 0 || options.runs_max == 0 || options.piece_bytes.n == 0 ||
      options.loads_in_a_row_max == 0) {
    return {Code::arg,
            fmt::format("copy engine with {} operations, {} runs, pieces of {} bytes and {} loads "
                        "in a row: all must be above 0",
                        options.operations_max, options.runs_max, options.piece_bytes.n,
                        options.loads_in_a_row_max)};
  }
  // Indices are 32 bits and the largest one is reserved.
  if (options.runs_max > (std::uint64_t{1} << 36) || options.operations_max > (1u << 30)) {
    return {Code::arg, fmt::format("copy engine with {} operations and {} runs: at most {} and {}",
                                   options.operations_max, options.runs_max, 1u << 30,
                                   std::uint64_t{1} << 36)};
  }
  try {
    std::unique_ptr<HostCopyEngine> engine(new HostCopyEngine());
    engine->core_ = std::make_unique<Core>(options);
    Core& core = *engine->core_;
    core.threads.reserve(options.workers);
    for (std::uint32_t i = 0; i < options.workers; ++i) {
      core.threads.emplace_back([&core] { core.work_loop(); });
    }
    return engine;
  } catch (const std::bad_alloc&) {
    return {Code::full, fmt::format("no memory for a copy engine of {} operations and {} runs",
                                    options.operations_max, options.runs_max)};
  } catch (const std::system_error& e) {
    return {Code::full,
            fmt::format("copy engine: cannot start {} threads: {}", options.workers, e.what())};
  }
}

HostCopyEngine::~HostCopyEngine() {
  if (core_ == nullptr) return;
  {
    const std::lock_guard<std::mutex> lock(core_->mutex);
    core_->stopping = true;
  }
  core_->work.notify_all();
  for (std::thread& t : core_->threads) t.join();
}

std::string HostCopyEngine::describe() const {
  return stepped() ? "copies by memcpy in the calling thread"
                   : fmt::format("copies by memcpy, {} threads", core_->options.workers);
}

bool HostCopyEngine::stepped() const { return core_->options.workers == 0; }

Status HostCopyEngine::submit(const CopyBatch& batch) {
  if (Status s = check_fence(batch.fence); !s.ok()) return s;
  const Result<copy_detail::BatchSize> size = copy_detail::size_of(batch);
  if (!size.ok()) return size.error();
  Core& c = *core_;
  const std::lock_guard<std::mutex> lock(c.mutex);
  if (Status s = copy_detail::reserve(c.queue, batch, size.value()); !s.ok()) return s;
  c.commit(batch);
  c.counters.runs += size.value().runs;
  c.advance();
  c.backoff = backoff_min;
  c.work.notify_one();
  return {};
}

std::size_t HostCopyEngine::poll(std::span<CopyCompletion> out) {
  Core& c = *core_;
  const std::lock_guard<std::mutex> lock(c.mutex);
  if (c.advance() || c.refused) c.work.notify_one();
  return c.ends.report(out);
}

Code HostCopyEngine::wait(std::span<const std::uint64_t> ops, nanoseconds timeout) {
  Core& c = *core_;
  std::unique_lock<std::mutex> lock(c.mutex);
  if (c.options.workers == 0) {
    while (c.open(ops)) {
      if (c.pump_locked(lock, 1) == 0) return c.open(ops) ? Code::deadline : Code::ok;
    }
    return Code::ok;
  }
  if (c.advance()) c.work.notify_one();
  const auto ended = [&] { return !c.open(ops); };
  // Anything beyond a year is no limit: adding it to the clock would wrap.
  if (timeout > std::chrono::hours(24 * 365)) {
    c.done.wait(lock, ended);
    return Code::ok;
  }
  return c.done.wait_for(lock, std::max(timeout, nanoseconds{0}), ended) ? Code::ok
                                                                         : Code::deadline;
}

std::uint64_t HostCopyEngine::pump(std::uint64_t budget) {
  Core& c = *core_;
  if (c.options.workers != 0) return 0;
  std::unique_lock<std::mutex> lock(c.mutex);
  return c.pump_locked(lock, budget);
}

HostCopyCounters HostCopyEngine::counters() const {
  const std::lock_guard<std::mutex> lock(core_->mutex);
  HostCopyCounters out = core_->counters;
  out.operations_ok = core_->ends.ok();
  out.operations_failed = core_->ends.failed();
  return out;
}

}  // namespace kvc
