// /metrics and /explain of a run, for Prometheus and for people.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>

#include "host_stub/tools/metrics_text.h"
#include "plugin/core/result.h"

namespace kvc::host {

// Serves the last snapshot on 127.0.0.1, in threads of its own. GET /metrics: Prometheus text;
// GET /explain: JSON; anything else: 404.
//
// Threads:    publish from one; requests come on the server's own.
// Owns:       the socket and the threads, until it is destroyed.
// Invariants: a request never waits for the engine, and the engine never for a request, and a
//             request for another client only where 512 are connected; what clients have not got
//             when the server is destroyed is cut off.
class MetricsServer {
 public:
  // `port` 0: any free one. `patience`: how long a client may send nothing. Code::arg naming the
  // port that cannot be bound.
  static Result<std::unique_ptr<MetricsServer>> open(
      std::uint16_t port, std::chrono::seconds patience = std::chrono::seconds(5));
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;
  ~MetricsServer();

  [[nodiscard]] std::uint16_t port() const;
  void publish(MetricsSnapshot snapshot);

 private:
  struct Body;
  explicit MetricsServer(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
};

}  // namespace kvc::host
