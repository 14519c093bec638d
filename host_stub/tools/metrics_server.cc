#include "host_stub/tools/metrics_server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

namespace kvc::host {
namespace {

// Ends every connection of the port that is open here. The library waits for its workers when it
// stops, and a worker for its client: one that sends a byte now and then would keep it for ever.
void cut_connections(std::uint16_t port) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  const int most = static_cast<int>(std::min<rlim_t>(files.rlim_cur, 1 << 20));
  for (int fd = 0; fd < most; ++fd) {
    sockaddr_in own{};
    socklen_t bytes = sizeof own;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &bytes) != 0) continue;
    if (own.sin_family == AF_INET && ntohs(own.sin_port) == port) ::shutdown(fd, SHUT_RDWR);
  }
}

}  // namespace

struct MetricsServer::Body {
  httplib::Server server;
  std::thread thread;
  std::atomic<bool> ended{false};
  std::uint16_t port = 0;
  std::mutex mutex;
  std::shared_ptr<const MetricsSnapshot> last = std::make_shared<MetricsSnapshot>();

  std::shared_ptr<const MetricsSnapshot> snapshot() {
    const std::lock_guard lock(mutex);
    return last;
  }
};

Result<std::unique_ptr<MetricsServer>> MetricsServer::open(std::uint16_t port,
                                                           std::chrono::seconds patience) {
  auto body = std::make_unique<Body>();
  Body* const b = body.get();
  b->server.Get("/metrics", [b](const httplib::Request&, httplib::Response& out) {
    out.set_content(metrics_text(*b->snapshot()), "text/plain; version=0.0.4; charset=utf-8");
  });
  b->server.Get("/explain", [b](const httplib::Request&, httplib::Response& out) {
    const auto snapshot = b->snapshot();
    out.set_content(snapshot->explain.empty() ? "{}" : snapshot->explain, "application/json");
  });
  b->server.set_read_timeout(patience);
  // Without SO_REUSEPORT, the library's default, by which two runs would share a port.
  b->server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  const char* const here = "127.0.0.1";
  const int bound = port == 0                            ? b->server.bind_to_any_port(here)
                    : b->server.bind_to_port(here, port) ? port
                                                         : -1;
  if (bound <= 0) {
    return Status{Code::arg, fmt::format("--metrics-port: {} cannot be bound on {}", port, here)};
  }
  b->port = static_cast<std::uint16_t>(bound);
  b->thread = std::thread([b] {
    b->server.listen_after_bind();
    b->ended = true;
  });
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(body)));
}

MetricsServer::MetricsServer(std::unique_ptr<Body> body) : body_(std::move(body)) {}

MetricsServer::~MetricsServer() {
  // stop() before the loop began would be forgotten by it.
  while (!body_->server.is_running() && !body_->ended) std::this_thread::yield();
  body_->server.stop();
  // A connection that was accepted just before comes to a worker a little later.
  while (!body_->ended) {
    cut_connections(body_->port);
    std::this_thread::yield();
  }
  body_->thread.join();
}

std::uint16_t MetricsServer::port() const { return body_->port; }

void MetricsServer::publish(MetricsSnapshot snapshot) {
  auto next = std::make_shared<const MetricsSnapshot>(std::move(snapshot));
  const std::lock_guard lock(body_->mutex);
  body_->last.swap(next);
}

}  // namespace kvc::host
