#include "host_stub/tools/metrics_server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace kvc::host {
namespace {

// Those beyond wait for one to end: of a client that says nothing, as long as the patience lasts.
constexpr std::size_t connections_most = 512;

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

// Threads as connections need them. A connection has its thread until it ends, also while its
// client is idle: with a fixed few, as many idle clients would keep a scrape waiting until the
// patience with one of them is over.
//
// Threads:    any.
// Owns:       its threads, until shutdown().
// Invariants: at most `most` threads; only then, or if the system gives none, a connection waits.
class Workers final : public httplib::TaskQueue {
 public:
  explicit Workers(std::size_t most) : most_(most) {}
  void enqueue(std::function<void()> job) override {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    if (jobs_.size() > idle_ && threads_.size() < most_) start();
    some_.notify_one();
  }
  void shutdown() override {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    some_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void start() {
    try {
      threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      // A thread that is there takes the job, or one that the next connection gets.
    }
  }
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      some_.wait(lock, [this] { return over_ || !jobs_.empty(); });
      --idle_;
      if (jobs_.empty()) return;
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
  }

  const std::size_t most_;
  std::mutex mutex_;
  std::condition_variable some_;
  std::deque<std::function<void()>> jobs_;
  std::vector<std::thread> threads_;
  std::size_t idle_ = 0;  // threads that wait for a job
  bool over_ = false;
};

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

namespace {

struct Explained {
  int status = 200;
  std::string body;
};

// All that is known, or of one request: ?request=ID.
Explained explained(const std::string& all, const std::multimap<std::string, std::string>& params) {
  if (params.empty()) return {200, all.empty() ? "{}" : all};
  const auto& [name, value] = *params.begin();
  std::uint64_t id = 0;
  const auto [at, error] = std::from_chars(value.data(), value.data() + value.size(), id);
  const bool number = error == std::errc{} && at == value.data() + value.size();
  if (params.size() != 1 || name != "request" || !number) {
    return {400, "one parameter is allowed: request=ID, a whole number\n"};
  }
  const auto document = nlohmann::json::parse(all, nullptr, false);
  const auto requests = document.is_object() ? document.find("requests") : document.end();
  if (document.is_object() && requests != document.end() && requests->is_array()) {
    for (const auto& r : *requests) {
      if (r.is_object() && r.contains("request") && r["request"] == id) return {200, r.dump()};
    }
  }
  return {400, fmt::format("request {} is not among those that explain knows\n", id)};
}

}  // namespace

Result<std::unique_ptr<MetricsServer>> MetricsServer::open(std::uint16_t port,
                                                           std::chrono::seconds patience) {
  auto body = std::make_unique<Body>();
  Body* const b = body.get();
  b->server.Get("/metrics", [b](const httplib::Request&, httplib::Response& out) {
    out.set_content(metrics_text(*b->snapshot()), "text/plain; version=0.0.4; charset=utf-8");
  });
  b->server.Get("/explain", [b](const httplib::Request& in, httplib::Response& out) {
    const auto snapshot = b->snapshot();
    const Explained answer = explained(snapshot->explain, {in.params.begin(), in.params.end()});
    out.status = answer.status;
    out.set_content(answer.body, answer.status == 200 ? "application/json" : "text/plain");
  });
  b->server.set_read_timeout(patience);
  b->server.new_task_queue = [] { return new Workers(connections_most); };
  // Without SO_REUSEPORT, the library's default, by which two runs would share a port.
  int listening = -1;
  b->server.set_socket_options([&listening](socket_t socket) {
    listening = socket;
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
  // The library's queue of 5 makes a burst of clients wait for the next try of their systems, which
  // is a second later.
  static_cast<void>(::listen(listening, connections_most));
  b->server.set_socket_options(nullptr);
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
