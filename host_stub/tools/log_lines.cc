#include "host_stub/tools/log_lines.h"

#include <kvc/kvc.h>
#include <cstdio>

#include "host_stub/tools/progress.h"

namespace kvc::host {

void LogLines::add(std::int32_t level, std::string_view text) {
  if (level < KVC_LOG_WARN) return;
  const char* kind = level == KVC_LOG_WARN         ? "warning"
                     : level == KVC_LOG_PEER_FAULT ? "the engine broke a rule"
                                                   : "error";
  std::string line = std::string("kvc-run: ") + kind + ": " + std::string(text);
  if (line.back() != '\n') line += '\n';
  const std::scoped_lock lock(mutex_);
  if (released_) {
    write(line);
  } else {
    kept_.push_back(std::move(line));
  }
}

void LogLines::release() {
  const std::scoped_lock lock(mutex_);
  for (const std::string& line : kept_) write(line);
  kept_.clear();
  released_ = true;
}

void LogLines::write(const std::string& line) const {
  // The progress bar may stand in this line of the terminal.
  if (Progress::stderr_is_terminal()) std::fputs("\r\x1b[K", stderr);
  std::fputs(line.c_str(), stderr);
}

}  // namespace kvc::host
