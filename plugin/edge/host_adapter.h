// kvc_host_api as the services that the roles know.
#pragma once
#include <kvc/kvc.h>

#include <cstdint>
#include <string_view>

#include "plugin/core/clock.h"
#include "plugin/core/result.h"
#include "plugin/edge/host_memory.h"
#include "plugin/edge/log_ring.h"
#include "plugin/offload/scheduler_role.h"

namespace kvc::edge {

// Reads the host's table: a newer host may have more slots, which are ignored (a table is no
// request). Errors: arg for a table that is too short, alloc without release, no clock under
// KVC_HOST_STEPPED, a promised slot that is NULL.
Result<kvc_host_api> read_host(const kvc_host_api* host);

// Whom to tell that read_host refused the table: log and self if it is long enough to have them,
// else both NULL.
struct LogTarget {
  void (*log)(kvc_host* h, std::int32_t level, kvc_bytes text) KVC_NOTHROW = nullptr;
  kvc_host* self = nullptr;
};
[[nodiscard]] LogTarget log_target(const kvc_host_api* host);

// Threads:    log and now_ns any; block queries only inside scheduler-role calls.
// Owns:       a copy of the table (the host keeps what it points to until close) and the ring of
// log lines, which exists
//             only if the host has no log.
class HostAdapter final : public HostServices, public Clock {
 public:
  explicit HostAdapter(const kvc_host_api& host);
  HostAdapter(const HostAdapter&) = delete;
  HostAdapter& operator=(const HostAdapter&) = delete;

  void log(LogLevel level, std::string_view text) override;
  [[nodiscard]] std::uint64_t now_ns() override;
  [[nodiscard]] std::uint64_t now_ns() const override;
  [[nodiscard]] bool can_query_blocks() const override;
  [[nodiscard]] bool has_key(std::uint32_t group, BlockId block, const std::uint8_t* key,
                             Tokens& end) override;
  [[nodiscard]] bool block_of(std::uint32_t group, const std::uint8_t* key,
                              BlockId& block) override;

  // Tells the host that progress has news, if it wants to know.
  void wake() const;
  [[nodiscard]] bool wants_wake() const { return host_.wake != nullptr; }
  [[nodiscard]] bool stepped() const { return (host_.caps & KVC_HOST_STEPPED) != 0; }
  [[nodiscard]] std::uint64_t caps() const { return host_.caps; }
  [[nodiscard]] std::pmr::memory_resource* memory() { return &memory_; }
  [[nodiscard]] LogRing& ring() { return ring_; }

 private:
  const kvc_host_api host_;
  HostMemory memory_;
  LogRing ring_;
  SteadyClock steady_;
};

}  // namespace kvc::edge
