#include "plugin/edge/host_adapter.h"

#include <fmt/format.h>
#include <kvc/kvc_util.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace kvc::edge {

namespace {

constexpr std::size_t ring_bytes = std::size_t{64} * 1024;
// With a log function the ring is never written: it keeps the least room that works.
constexpr std::size_t no_ring_bytes = 1;

}  // namespace

Result<kvc_host_api> read_host(const kvc_host_api* host) {
  if (host == nullptr) return Status(Code::arg, "host is NULL");
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, host, sizeof bytes);
  if (bytes < kvc_host_api_least || bytes > KVC_STRUCT_BYTES_MAX) {
    return Status(Code::arg, fmt::format("host.struct_size is {}, allowed are {} to {}", bytes,
                                         static_cast<int>(kvc_host_api_least),
                                         static_cast<int>(KVC_STRUCT_BYTES_MAX)));
  }
  kvc_host_api mine{};
  std::memcpy(&mine, host, std::min<std::size_t>(bytes, sizeof mine));
  if ((mine.alloc == nullptr) != (mine.release == nullptr)) {
    return Status(Code::arg, "host gives one of alloc and release, both or none are allowed");
  }
  if ((mine.caps & KVC_HOST_STEPPED) != 0 && mine.now_ns == nullptr) {
    return Status(Code::arg, "host.now_ns is NULL under KVC_HOST_STEPPED");
  }
  if ((mine.caps & KVC_HOST_BLOCK_QUERY) != 0 &&
      (mine.has_key == nullptr || mine.block_of == nullptr)) {
    return Status(Code::arg, "host promises KVC_HOST_BLOCK_QUERY but has_key or block_of is NULL");
  }
  return mine;
}

LogTarget log_target(const kvc_host_api* host) {
  if (host == nullptr) return {};
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, host, sizeof bytes);
  if (bytes < offsetof(kvc_host_api, now_ns) || bytes > KVC_STRUCT_BYTES_MAX) return {};
  LogTarget to;
  // NOLINTNEXTLINE(bugprone-sizeof-expression): the pointer itself is what is copied
  std::memcpy(&to.self, &host->self, sizeof to.self);
  std::memcpy(&to.log, &host->log, sizeof to.log);
  return to;
}

HostAdapter::HostAdapter(const kvc_host_api& host)
    : host_(host),
      memory_(host_),
      ring_(host.log == nullptr ? ring_bytes : no_ring_bytes, &memory_) {}

void HostAdapter::log(LogLevel level, std::string_view text) {
  if (host_.log == nullptr) {
    ring_.add(level, text);
    return;
  }
  host_.log(host_.self, static_cast<std::int32_t>(level), kvc_bytes_of(text.data(), text.size()));
}

std::uint64_t HostAdapter::now_ns() const {
  return host_.now_ns == nullptr ? steady_.now_ns() : host_.now_ns(host_.self);
}

std::uint64_t HostAdapter::now_ns() { return std::as_const(*this).now_ns(); }

bool HostAdapter::can_query_blocks() const { return (host_.caps & KVC_HOST_BLOCK_QUERY) != 0; }

bool HostAdapter::has_key(std::uint32_t group, BlockId block, const std::uint8_t* key,
                          Tokens& end) {
  std::uint64_t tokens = 0;
  if (host_.has_key(host_.self, group, block, key, &tokens) != 1) return false;
  end = {tokens};
  return true;
}

bool HostAdapter::block_of(std::uint32_t group, const std::uint8_t* key, BlockId& block) {
  std::int64_t found = 0;
  if (host_.block_of(host_.self, group, key, &found) != 1) return false;
  block = found;
  return true;
}

void HostAdapter::wake() const {
  if (host_.wake != nullptr) host_.wake(host_.self);
}

}  // namespace kvc::edge
