#include "host_stub/tools/progress.h"

#include <fmt/format.h>
#include <unistd.h>
#include <chrono>
#include <cstdio>

#include "host_stub/tools/report_text.h"

namespace kvc::host {

bool Progress::stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

void Progress::show(const std::string& label, std::uint64_t done, std::uint64_t total) {
  if (!enabled_) return;
  const double now_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  if (drawn_ && now_s < next_s_) return;
  next_s_ = now_s + 0.1;
  drawn_ = true;
  constexpr std::uint64_t cells = 30;
  const std::uint64_t full = total == 0 ? cells : cells * done / total;
  const std::string bar = std::string(full, '#') + std::string(cells - full, '.');
  const std::string text =
      fmt::format("\r{} [{}] {} of {} requests\x1b[K", label, bar, grouped(done), grouped(total));
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

void Progress::finish() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace kvc::host
