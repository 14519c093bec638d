#include "cuda/copy_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace kvc::copy_detail {

namespace {

bool overlap(const std::byte* a, const std::byte* b, std::uint64_t bytes) {
  const auto x = reinterpret_cast<std::uintptr_t>(a);
  const auto y = reinterpret_cast<std::uintptr_t>(b);
  return x < y ? y - x < bytes : x - y < bytes;
}

Run run_of(const CopyDescriptor& copy, std::uint64_t index) {
  return {static_cast<std::byte*>(copy.dst), static_cast<const std::byte*>(copy.src), copy.bytes,
          index, 1};
}

Status bad_copy(const CopyOperation& op, std::size_t index, const char* what) {
  const CopyDescriptor& c = op.copies[index];
  return {Code::arg, fmt::format("copy {} of operation {}: {} (dst {}, src {}, {} bytes)", index,
                                 op.id, what, c.dst, c.src, c.bytes)};
}

// Whether each copy of the operation can be made at all. Error: arg, naming the copy.
Status check_copies(const CopyOperation& op) {
  for (std::size_t i = 0; i < op.copies.size(); ++i) {
    const CopyDescriptor& c = op.copies[i];
    if (c.bytes == 0) continue;
    if (c.dst == nullptr || c.src == nullptr) return bad_copy(op, i, "null address");
    const auto dst = reinterpret_cast<std::uintptr_t>(c.dst);
    const auto src = reinterpret_cast<std::uintptr_t>(c.src);
    if (c.bytes > UINTPTR_MAX - std::max(dst, src)) return bad_copy(op, i, "range wraps");
    if ((dst < src ? src - dst : dst - src) < c.bytes) return bad_copy(op, i, "ranges overlap");
  }
  return {};
}

// Number of runs that `copies` merge into.
std::uint64_t runs_needed(std::span<const CopyDescriptor> copies) {
  std::uint64_t runs = 0;
  Run last;
  for (const CopyDescriptor& copy : copies) {
    if (runs != 0 && joins(last, copy)) {
      last.bytes += copy.bytes;
    } else {
      last = run_of(copy, 0);
      ++runs;
    }
  }
  return runs;
}

// `taken` records are the caller's, also on an error.
Status take_records(Queue& queue, const CopyBatch& batch, std::uint64_t chunks,
                    std::uint32_t& taken) {
  if (batch.operations.size() > queue.operations_free() || chunks > queue.chunks_free()) {
    return {Code::full,
            fmt::format("{} operations of {} run chunks do not fit: {} of {} operations and {} "
                        "chunks are free",
                        batch.operations.size(), chunks, queue.operations_free(),
                        queue.operations(), queue.chunks_free())};
  }
  for (const CopyOperation& op : batch.operations) {
    if (queue.find(op.id) != none) {
      return {Code::arg, fmt::format("operation id {} is in use", op.id)};
    }
    queue.take(op.id);
    ++taken;
  }
  std::uint64_t edges = 0;
  for (const CopyOperation& op : batch.operations) {
    const std::uint64_t own = queue.op(queue.find(op.id)).sequence;
    for (const std::uint64_t before : op.after) {
      const std::uint32_t p = queue.find(before);
      if (p == none) continue;
      if (queue.op(p).sequence >= own) {
        return {Code::arg,
                fmt::format("operation {} comes after operation {}, which is not before it", op.id,
                            before)};
      }
      edges += queue.op(p).ended ? 0 : 1;
    }
  }
  if (edges > queue.edges_free()) {
    return {Code::full, fmt::format("{} predecessors do not fit: {} of {} are free", edges,
                                    queue.edges_free(), queue.edges())};
  }
  return {};
}

}  // namespace

Status reserve(Queue& queue, const CopyBatch& batch, BatchSize size) {
  std::uint32_t taken = 0;
  Status s = take_records(queue, batch, size.chunks, taken);
  if (s.ok()) return s;
  for (std::uint32_t i = 0; i < taken; ++i) queue.release(queue.find(batch.operations[i].id));
  return s;
}

bool joins(const Run& run, const CopyDescriptor& copy) {
  if (copy.bytes == 0 || run.bytes == 0) return copy.bytes == run.bytes;
  return run.dst + run.bytes == copy.dst && run.src + run.bytes == copy.src &&
         !overlap(run.dst, run.src, run.bytes + copy.bytes);
}

Result<BatchSize> size_of(const CopyBatch& batch) {
  BatchSize size;
  for (const CopyOperation& op : batch.operations) {
    if (Status s = check_copies(op); !s.ok()) return s;
    const std::uint64_t runs = runs_needed(op.copies);
    size.runs += runs;
    size.chunks += ceil_div(runs, runs_per_chunk);
  }
  return size;
}

Queue::Queue(std::uint32_t operations, std::uint64_t runs, std::uint32_t edges)
    : ops_(operations),
      // A chunk may be partly filled at the end of each operation.
      chunks_(ceil_div(runs, runs_per_chunk) + operations),
      edges_(edges),
      buckets_(std::bit_ceil(std::size_t{operations} * 2), none),
      operations_free_(operations),
      chunks_free_(static_cast<std::uint32_t>(chunks_.size())),
      edges_free_(edges) {
  for (std::uint32_t i = operations; i-- > 0;) {
    ops_[i].next = free_op_;
    free_op_ = i;
  }
  for (std::uint32_t i = chunks_free_; i-- > 0;) {
    chunks_[i].next = free_chunk_;
    free_chunk_ = i;
  }
  for (std::uint32_t i = edges; i-- > 0;) {
    edges_[i].next = free_edge_;
    free_edge_ = i;
  }
}

std::size_t Queue::bucket(std::uint64_t id) const {
  // Fibonacci hashing: ids are often consecutive or differ in high bits only.
  return static_cast<std::size_t>((id * 0x9E3779B97F4A7C15ull) >> 20) & (buckets_.size() - 1);
}

std::uint32_t Queue::find(std::uint64_t id) const {
  std::uint32_t at = buckets_[bucket(id)];
  while (at != none && ops_[at].id != id) at = ops_[at].hash_next;
  return at;
}

std::uint32_t Queue::take(std::uint64_t id) {
  KVC_CHECK(free_op_ != none);
  const std::uint32_t at = free_op_;
  free_op_ = ops_[at].next;
  --operations_free_;
  Op& o = ops_[at];
  o = Op{};
  o.id = id;
  o.sequence = ++sequence_;
  o.in_use = true;
  o.result.id = id;
  std::uint32_t& head = buckets_[bucket(id)];
  o.hash_next = head;
  head = at;
  return at;
}

void Queue::release(std::uint32_t at) {
  KVC_CHECK(ops_[at].in_use);
  drop_runs(at);
  drop_edges(at);
  std::uint32_t* link = &buckets_[bucket(ops_[at].id)];
  while (*link != at) link = &ops_[*link].hash_next;
  *link = ops_[at].hash_next;
  ops_[at] = Op{};
  ops_[at].next = free_op_;
  free_op_ = at;
  ++operations_free_;
}

void Queue::set_runs(std::uint32_t at, std::span<const CopyDescriptor> copies) {
  Op& o = ops_[at];
  Run* last = nullptr;
  for (std::uint64_t i = 0; i < copies.size(); ++i) {
    const CopyDescriptor& copy = copies[i];
    o.bytes += copy.bytes;
    if (last != nullptr && joins(*last, copy)) {
      last->bytes += copy.bytes;
      ++last->count;
      continue;
    }
    if (o.chunks_last == none || chunks_[o.chunks_last].used == runs_per_chunk) {
      KVC_CHECK(free_chunk_ != none);
      const std::uint32_t c = free_chunk_;
      free_chunk_ = chunks_[c].next;
      --chunks_free_;
      chunks_[c].used = 0;
      chunks_[c].next = none;
      (o.chunks_last == none ? o.chunks_first : chunks_[o.chunks_last].next) = c;
      o.chunks_last = c;
    }
    Chunk& chunk = chunks_[o.chunks_last];
    last = &chunk.runs[chunk.used++];
    *last = run_of(copy, i);
  }
  o.cursor = {o.chunks_first, 0, 0};
}

void Queue::drop_runs(std::uint32_t at) {
  Op& o = ops_[at];
  while (o.chunks_first != none) {
    const std::uint32_t c = o.chunks_first;
    o.chunks_first = chunks_[c].next;
    chunks_[c].next = free_chunk_;
    free_chunk_ = c;
    ++chunks_free_;
  }
  o.chunks_last = none;
  o.cursor = {};
}

void Queue::link(std::uint32_t predecessor, std::uint32_t successor) {
  KVC_CHECK(free_edge_ != none);
  const std::uint32_t e = free_edge_;
  free_edge_ = edges_[e].next;
  --edges_free_;
  edges_[e] = {successor, ops_[predecessor].successors};
  ops_[predecessor].successors = e;
  ++ops_[successor].predecessors;
}

void Queue::drop_edges(std::uint32_t predecessor) {
  std::uint32_t& head = ops_[predecessor].successors;
  while (head != none) {
    const std::uint32_t e = head;
    head = edges_[e].next;
    edges_[e].next = free_edge_;
    free_edge_ = e;
    ++edges_free_;
  }
}

void Queue::push_back(List& list, std::uint32_t at) {
  ops_[at].next = none;
  ops_[at].prev = list.tail;
  (list.tail == none ? list.head : ops_[list.tail].next) = at;
  list.tail = at;
  ++list.size;
}

void Queue::insert_after(List& list, std::uint32_t place, std::uint32_t at) {
  const std::uint32_t next = place == none ? list.head : ops_[place].next;
  ops_[at].prev = place;
  ops_[at].next = next;
  (place == none ? list.head : ops_[place].next) = at;
  (next == none ? list.tail : ops_[next].prev) = at;
  ++list.size;
}

void Queue::remove(List& list, std::uint32_t at) {
  Op& o = ops_[at];
  (o.prev == none ? list.head : ops_[o.prev].next) = o.next;
  (o.next == none ? list.tail : ops_[o.next].prev) = o.prev;
  o.next = o.prev = none;
  --list.size;
}

std::size_t Queue::report(List& ended, std::span<CopyCompletion> out) {
  std::size_t n = 0;
  while (n < out.size() && ended.head != none) {
    const std::uint32_t at = ended.head;
    out[n++] = op(at).result;
    remove(ended, at);
    release(at);
  }
  return n;
}

}  // namespace kvc::copy_detail
