// A scheduler role that records what it was called with and answers what a test prepared: for tests
// of the edge alone.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "plugin/edge/connector.h"
#include "plugin/offload/scheduler_role.h"

namespace kvc::edge::testing {

// What the next scheduler open gets, and what was asked of it. One per process, reset by each test.
struct Script {
  // Called at the begin of every state-changing call with its name; may throw.
  std::function<void(std::string_view)> on_call;
  Status answer;  // of every call that is not ok by it
  std::vector<std::string> calls;
  std::string open_error;  // not empty: make_scheduler fails with it

  // Answers.
  std::vector<SlotClass> classes;
  LookupAnswer found;
  AllocResult alloc;
  PlanResult plan;
  CompleteResult complete;
  EndResult end;
  std::vector<CacheEvent> events;
  std::vector<Stat> stats;
  BoundaryStats counts;
  PendingWork pending;
  bool pending_breaks = false;  // that query finds a broken invariant
  std::string explain;
  Code reset = Code::ok;

  // What came in, copied.
  RequestBegin begin;
  std::vector<std::uint8_t> keys;
  LookupQuery query;
  RequestId request = 0;
  Tokens accepted;
  std::vector<std::vector<BlockId>> tables;
  std::vector<std::uint64_t> first_changed;
  StepRecord step;
  std::vector<ScheduledRequest> scheduled;
  std::vector<RequestId> preempted;
  std::vector<Handoff> handoffs;
  std::vector<Candidate> candidates;
  std::vector<std::vector<std::uint8_t>> reports;
  std::vector<RankInfo> ranks;
  std::vector<SlotClass> rank_classes;
  bool invalidate = false;
  OpenLimits limits;
  std::uint64_t live_roles = 0;
  HostServices* host = nullptr;
};

Script& script();

}  // namespace kvc::edge::testing
