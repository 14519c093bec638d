// KVC_CHECK states an invariant of our own code. It stays on in release builds.
//
// Bad input is never an invariant: it gets a Status. A broken invariant throws BrokenInvariant; the
// edge catches it, poisons the handle and answers KVC_E_INTERNAL, so that the engine's process
// lives on (design 2.5.5). With KVC_ABORT_ON_CHECK (tests, simulation) it aborts at once, where a
// debugger can see it.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace kvc {

class BrokenInvariant : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] inline void check_failed(const char* what, const char* file, int line) {
  char text[512];
  std::snprintf(text, sizeof text, "%s:%d: invariant broken: %s", file, line, what);
#if defined(KVC_ABORT_ON_CHECK)
  std::fprintf(stderr, "%s\n", text);
  std::abort();
#else
  throw BrokenInvariant(text);
#endif
}

}  // namespace kvc

#define KVC_CHECK(c) ((c) ? static_cast<void>(0) : ::kvc::check_failed(#c, __FILE__, __LINE__))
