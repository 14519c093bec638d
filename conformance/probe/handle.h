// The handles of the probe: the next connector's, the script, the judge; and lists whose elements
// are those of a newer minor.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <kvc/kvc.h>

#include "conformance/probe/judge.h"
#include "conformance/probe/script.h"
#include "host_stub/loader/loader.h"

namespace kvc::probe {

// What both roles have.
//
// Threads:    those of the role; the queries take the mutex.
// Owns:       the next connector's handle.
// Invariants: after a fatal answer nothing but close and queries reaches the next connector.
struct Role {
  Role(Script s, host::LoadedConnector c, const kvc_host_api& host, const kvc_open& open)
      : script(std::move(s)), next(std::move(c)), judge(host, open) {}

  Script script;
  host::LoadedConnector next;
  Judge judge;
  std::map<std::string, std::uint64_t> calls;
  kvc_status dead = KVC_OK;  // the fatal answer
  std::string error;

  // The scripted answer of this call, if it has one. Counts the call and judges it (KVC-H-005).
  bool answers(const char* slot, kvc_status& status);
};

// Elements of a newer minor: longer than the host knows, with bytes behind that it must step over.
template <class T>
struct Newer {
  T known{};
  std::uint64_t unknown[2] = {0xA5A5A5A5A5A5A5A5U, 0x5A5A5A5A5A5A5A5AU};
};

// Lists that an answer puts out; valid until clear().
template <class T>
class NewerLists {
 public:
  void clear() { lists_.clear(); }
  kvc_list put(const std::vector<T>& elements) {
    std::vector<Newer<T>>& list = lists_.emplace_back();
    for (const T& e : elements) {
      list.push_back({});
      list.back().known = e;
      list.back().known.struct_size = sizeof(Newer<T>);
    }
    return {list.data(), list.size(), sizeof(Newer<T>), 0};
  }

 private:
  std::deque<std::vector<Newer<T>>> lists_;
};

struct SchedHandle : Role {
  SchedHandle(Script s, host::LoadedConnector c, const kvc_host_api& host, const kvc_open& open)
      : Role(std::move(s), std::move(c), host, open) {
    if (script.ranks_refuse()) judge.may_be_given_up();
  }

  mutable std::mutex mutex;
  kvc_sched* inner = nullptr;
  std::set<std::uint64_t> untracked;  // the probe refused them, not the next connector
  std::set<std::uint64_t> cut;        // their keys end: an extension was answered with nothing done
  std::map<std::uint64_t, std::uint64_t> later_left;
  std::uint64_t begins = 0;
  std::uint64_t hits = 0;  // lookups that found something
  std::map<kvc_job, std::vector<HeldBlock>> held;
  kvc_pending kept_back{};  // what has_pending has beside the next connector's
  struct Outputs {          // per slot: valid until the next call of that slot
    NewerLists<kvc_class> usable;
    NewerLists<kvc_block> alloc_held;
    NewerLists<kvc_medium_tokens> media;
    NewerLists<kvc_plan_job> jobs;
    NewerLists<kvc_block> job_held;
    NewerLists<kvc_ended_job> ended;
    NewerLists<kvc_block> released;
    NewerLists<kvc_failed_block> failed;
    NewerLists<kvc_verdict> verdicts;
    NewerLists<kvc_rejected> rejected;
    NewerLists<kvc_block> end_held;
  } out;
};

struct RankHandle : Role {
  RankHandle(Script s, host::LoadedConnector c, const kvc_host_api& host, const kvc_open& open)
      : Role(std::move(s), std::move(c), host, open), number(open.rank) {}

  std::uint32_t number;
  kvc_rank* inner = nullptr;
  std::uint64_t progresses = 0;
  NewerLists<kvc_load_done> loads;
  NewerLists<kvc_failed_block> failed;
};

// Copies of the elements of a list, of any stride.
template <class T>
std::vector<T> elements_of(const kvc_list& list) {
  std::vector<T> out(list.count);
  for (std::uint64_t i = 0; i < list.count; ++i) {
    const std::size_t n = list.stride < sizeof(T) ? list.stride : sizeof(T);
    __builtin_memcpy(&out[i], static_cast<const std::uint8_t*>(list.data) + i * list.stride, n);
  }
  return out;
}

// Slots of the table, by source file.
void fill_openings(kvc_plugin_api& table);
void fill_scheduler(kvc_plugin_api& table);
void fill_queries(kvc_plugin_api& table);
void fill_rank(kvc_plugin_api& table);

}  // namespace kvc::probe
