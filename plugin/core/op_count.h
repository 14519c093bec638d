// Counts of what calls visit, so that tests can state what a call costs without a clock: a step in
// which nothing changed visits as much for long requests as for short ones. Compiled in with the
// fault points (the presets for tests and simulation); the release preset leaves no trace of it.
//
// KVC_OP(cell, n) counts n visits of kind Op::cell in the calling thread.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvc {

enum class Op : std::uint8_t {
  request,   // a request of a step record
  cell,      // an entry of a request's table
  position,  // a position that is offered, tried again or ended
  copy,      // a copy of an open job
  job,       // an open job that is looked at for the sake of something else
  entry,     // an entry of the tier
  block,     // a device block in the hold book
  record,    // a request's record that is published for explain
};
inline constexpr std::array<std::string_view, 8> op_names{"request", "cell",  "position", "copy",
                                                          "job",     "entry", "block",    "record"};

// Threads: each has its own. Owns: the counts since the last clear.
struct OpCounts {
  std::array<std::uint64_t, op_names.size()> of{};

  void add(Op op, std::uint64_t n) { of[static_cast<std::size_t>(op)] += n; }
  [[nodiscard]] std::uint64_t operator[](Op op) const { return of[static_cast<std::size_t>(op)]; }
  [[nodiscard]] std::uint64_t all() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t n : of) sum += n;
    return sum;
  }
  void clear() { of = {}; }
};

inline OpCounts& op_counts() {
  thread_local OpCounts counts;
  return counts;
}

}  // namespace kvc

#if defined(KVC_FAULT_POINTS)
#define KVC_OP(kind, n) (::kvc::op_counts().add(::kvc::Op::kind, (n)))
#else
#define KVC_OP(kind, n) (static_cast<void>(0))
#endif
