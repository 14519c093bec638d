// Replays a recording against a connector and finds the first answer that differs.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <kvc/kvc.h>

#include "conformance/validate/c_structs.h"
#include "conformance/validate/model.h"
#include "conformance/validate/recording.h"
#include "plugin/core/result.h"

namespace kvc::validate {

// An answer that is not the recorded one.
struct Difference {
  std::uint64_t call = 0;
  std::string slot;
  std::string field;
  std::string recorded;
  std::string present;
};

struct ReplayOptions {
  std::optional<std::string> config;  // in place of the recorded TOML
};

// The engine of a recording, played again: the same calls in the same order, with the connector's
// own plans, reports and job ids carried where the recorded ones were. Jobs end when they ended in
// the recording: fences of their plans open then, and not before.
//
// Threads:    one.
// Owns:       handles, device memory, what is carried. Invariants: what was opened is closed.
class Replay {
 public:
  Replay(const Recording& recording, const kvc_plugin_api& api, ReplayOptions options);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  // nullopt: all answers are the same. Errors: arg: the recording asks for what cannot be, naming
  // the call; or has no scheduler.
  Result<std::optional<Difference>> run();
  [[nodiscard]] std::uint64_t calls_replayed() const { return replayed_; }
  // Block queries that the recorded connector did not ask in the same call; they got "no". A later
  // difference may come from that alone.
  [[nodiscard]] std::uint64_t queries_not_recorded() const { return new_queries_; }
  // The first of them; empty: there was none.
  [[nodiscard]] const std::string& first_new_query() const { return first_new_query_; }

 private:
  struct Gate {  // the fence of one plan and kind
    alignas(8) std::uint64_t counter = 0;
  };
  struct Plan {
    ByteString bytes;
    KeyId recorded;
    Gate loads, stores;
  };
  struct JobAt {
    std::uint64_t mine = 0;  // the present id
    std::uint64_t plan = 0;  // index + 1; 0: not planned
    std::int32_t kind = 0;
  };
  struct Rank {
    kvc_rank* handle = nullptr;
    std::deque<ByteString> reports;             // not yet carried
    std::map<std::uint64_t, kvc_status> loads;  // by present job
    RankInfo info;
  };
  struct Ended {
    kvc_status status = 0;
    std::vector<Block> released;
  };
  void not_recorded(const char* query, std::uint32_t group);
  struct HostSide;  // the functions of the host's table

  void one(const RecordedCall& call);
  void open(const RecordedCall& call, bool sched);
  void set_ranks(const RecordedCall& call);
  void begin(const RecordedCall& call);
  void extend(const RecordedCall& call);
  void lookup(const RecordedCall& call);
  void number(const RecordedCall& call);
  void alloc(const RecordedCall& call);
  void build(const RecordedCall& call);
  void complete(const RecordedCall& call);
  void end(const RecordedCall& call);
  void query(const RecordedCall& call);
  void register_regions(const RecordedCall& call);
  void submit(const RecordedCall& call, bool loads);
  void progress(const RecordedCall& call);
  // replay_extensions.cc
  void boundaries(const RecordedCall& call);
  void load_in_step(const RecordedCall& call);
  void layer_fence(const RecordedCall& call);
  // The connector's table of the extension, which has the function; NULL: it has not, and that is
  // the difference.
  template <class Table, class Function>
  const Table* extension(const RecordedCall& call, const char* id, Function Table::*function);

  // Reads in, the block queries and out of a call.
  template <class In, class Out>
  void read(const RecordedCall& call, In& in, Out& out);
  void wrong(const RecordedCall& call, const std::string& why);
  template <class T>
  bool same(const RecordedCall& call, const char* field, const T& recorded, const T& present);
  bool same_blocks(const RecordedCall& call, const std::string& field,
                   const std::vector<Block>& recorded, const std::vector<Block>& present);
  void differ(const RecordedCall& call, std::string field, std::string recorded,
              std::string present);
  [[nodiscard]] bool over() const { return difference_.has_value() || !problem_.ok(); }
  bool need_sched(const RecordedCall& call);
  Rank* rank_of(const RecordedCall& call);
  bool keys_fit(const RecordedCall& call, std::uint64_t n, const ByteString& keys);
  bool tables_fit(const RecordedCall& call, const std::vector<Table>& tables);
  void pump_scheduler();
  // Moves copies on until done() or nothing moves any more.
  template <class Done>
  bool advance(bool carry, const Done& done);
  bool move_rank(Rank& rank);
  bool carry_one(Rank& rank);
  void take_complete(const kvc_complete_out& out);
  void open_gate(std::uint64_t recorded_job);
  bool open_oldest_gate();
  [[nodiscard]] std::uint64_t mine(std::uint64_t recorded_job) const;
  void* memory_at(std::uint64_t base);
  bool map_memory(const RecordedCall& call, const std::vector<Region>& regions);

  const Recording& recording_;
  const kvc_plugin_api& api_;
  ReplayOptions options_;
  bool stepped_ = false;
  std::uint64_t new_queries_ = 0;
  std::string first_new_query_;
  std::uint64_t call_ = 0;  // in work
  kvc_host_api host_{};
  kvc_sched* sched_ = nullptr;
  std::map<std::uint32_t, Rank> ranks_;
  std::uint64_t key_bytes_ = 0;
  std::uint64_t groups_ = 0;
  std::deque<Plan> plans_;
  std::unordered_map<std::uint64_t, JobAt> jobs_;  // by recorded id
  std::map<std::uint64_t, Ended> ended_;           // by present id
  std::map<std::uint64_t, kvc_status> verdicts_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> known_reports_;
  struct Memory {
    std::uint64_t begin = 0;  // recorded addresses
    std::uint64_t bytes = 0;
    void* place = nullptr;
  };
  std::vector<Memory> memory_;
  std::vector<QueryAnswer> answers_;
  std::uint64_t now_ns_ = 0;
  std::uint64_t next_ns_ = 0;  // when the call after the present one began
  std::string last_log_;
  std::uint64_t replayed_ = 0;
  std::optional<Difference> difference_;
  Status problem_;
  HeapArena arena_;
};

}  // namespace kvc::validate
