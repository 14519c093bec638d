// An engine reduced to what a scheduler role sees of it: it makes keys and tables, runs requests in
// chunks, and reports every job as done at once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "plugin/simple_cpu/scheduler.h"

namespace kvc::bench {

inline constexpr std::uint32_t key_bytes = 32;

// What a request is made of: its keys are a function of it. The first `shared_units` keys are those
// of another stream, as of a request with the same beginning.
struct Content {
  std::uint64_t stream = 0;
  Tokens prompt;
  std::uint64_t shared_stream = 0;
  std::uint64_t shared_units = 0;
};

// The key of one hash unit: 32 bytes without structure.
void make_key(std::uint64_t stream, std::uint64_t unit, std::byte* out);
std::vector<std::byte> all_keys(const Content& content, Tokens hash_unit);

struct EngineOptions {
  std::vector<GroupSpec> groups;
  Tokens hash_unit;
  Tokens scheduler_block;
  std::uint64_t slots = 0;
  std::uint64_t device_blocks = 0;
  Tokens max_tokens;             // of a request
  Tokens chunk;                  // tokens of a request in one step; a multiple of every block
  std::uint64_t lanes = 16;      // requests that run side by side
  std::uint64_t live_max = 512;  // requests that are known at once
};

// Threads:    one. Owns: the role. Invariants: every job of a plan is reported before the next
//             call. Anything unexpected ends the program: a figure of a broken run is none.
class Engine {
 public:
  explicit Engine(const EngineOptions& options);

  [[nodiscard]] SchedulerRole& role() { return *role_; }
  [[nodiscard]] const SchedulerCore& core() const { return role_->core(); }
  [[nodiscard]] const EngineOptions& options() const { return options_; }

  // Runs the requests side by side from nothing to their ends, and stores all they offer.
  void serve(std::span<const Content> contents);

  // Parts of it, for what is measured. begin makes all keys; `lane` says which device blocks the
  // tables name: distinct lanes share none.
  RequestId begin(const Content& content);
  std::uint64_t lookup(RequestId id, Tokens total);  // external tokens
  [[nodiscard]] std::span<const TableView> tables(std::uint64_t lane, Tokens tokens);
  // One step; its jobs are reported as done.
  void step(std::span<const ScheduledRequest> scheduled, std::span<const Handoff> handoffs = {});
  void end(RequestId id, Tokens confirmed);

  // The step number that the next record must have, for callers that build it themselves.
  [[nodiscard]] std::uint64_t next_step() const { return steps_ + 1; }
  void stepped(const PlanResult& plan);

 private:
  class Host final : public HostServices {
   public:
    void log(LogLevel level, std::string_view text) override;
    std::uint64_t now_ns() override { return 1; }
    [[nodiscard]] bool can_query_blocks() const override { return false; }
    bool has_key(std::uint32_t, BlockId, const std::uint8_t*, Tokens&) override { return false; }
    bool block_of(std::uint32_t, const std::uint8_t*, BlockId&) override { return false; }
  };
  struct Lane {
    RequestId id = 0;
    Tokens prompt;
    Tokens done;
    std::vector<TableView> tables;
  };

  RequestId begin(const Content& content, std::span<const std::byte> keys);
  [[nodiscard]] std::vector<std::byte> used_keys(const Content& content) const;
  void advance(std::span<Lane> lanes);
  void hand_off(const Lane& lane);

  EngineOptions options_;
  Host host_;
  std::unique_ptr<TierScheduler> role_;
  std::vector<BlockId> blocks_;  // all of the device in random order; a lane has a range of it
  std::uint64_t lane_blocks_ = 0;
  std::vector<TableView> views_;
  std::vector<ScheduledRequest> scheduled_;
  std::vector<Handoff> handoffs_;
  std::vector<std::uint8_t> report_;
  RequestId last_id_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t reports_ = 0;
};

}  // namespace kvc::bench
