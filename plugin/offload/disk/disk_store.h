// The blocks of one rank in one folder, which outlive the process (design 3.2, OW-10).
//
// A store moves blocks between memory of the caller and files; which blocks are worth it, and which
// go when there is no room, is the caller's choice. Bytes: docs/formats/disk.md.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plugin/core/result.h"
#include "plugin/core/units.h"
#include "plugin/offload/disk/disk_task.h"
#include "plugin/offload/disk/files.h"
#include "plugin/offload/disk/health.h"
#include "plugin/offload/disk/places.h"

namespace kvc::disk {

enum class EngineChoice : std::uint8_t { best, uring, threads, stepped };

struct DiskStoreOptions {
  std::string folder;  // `rank-<n>` is made in it
  std::vector<std::uint8_t> namespace_id;
  std::uint64_t hash_id = 0;
  std::uint32_t rank = 0;
  std::uint32_t key_bytes = 16;                 // 8 .. 32
  Bytes budget;                                 // of all files of the folder; over a restart too
  std::vector<std::uint64_t> payload_of_group;  // bytes of a block by group; 0: not stored here
  std::uint64_t read_deadline_ns = 10'000'000'000;
  std::uint64_t write_deadline_ns = 30'000'000'000;
  std::uint64_t close_patience_ns = 5'000'000'000;  // for operations that are at work
  bool sync = false;     // blocks survive a loss of power; costs two waits for the device a block
  bool direct = true;    // O_DIRECT where the file system takes it
  bool checksum = true;  // false: payloads are not verified; to measure what that costs
  EngineChoice engine = EngineChoice::best;
  std::uint64_t stepped_seed = 0;
  std::uint32_t bad_places_max = 64;  // kept aside; older ones are used again
  IoEngineOptions io;
  HealthOptions health;
};

enum class DiskOp : std::uint8_t { write, read, reset };

struct DiskWrite {
  std::uint64_t id = 0;  // the caller's; stands in DiskDone
  Identity what;
  const std::byte* memory = nullptr;  // payload of the group
  std::uint64_t valid_bytes = 0;      // leading bytes of it that mean something
};

struct DiskRead {
  std::uint64_t id = 0;
  std::uint32_t group = 0;
  std::uint64_t end_tokens = 0;
  Key key{};
  std::byte* memory = nullptr;
};

// From then on the memory of the operation is not touched any more, whatever the status.
struct DiskDone {
  std::uint64_t id = 0;
  DiskOp op = DiskOp::write;
  Code status = Code::ok;         // io: failed; full: no room; deadline; cancelled: a reset came
  bool gone = false;              // read: the block was not good and is in the store no more
  std::uint64_t valid_bytes = 0;  // read that is ok: what the write named
};

struct DiskCounters {
  std::uint64_t writes_ok = 0;
  std::uint64_t writes_failed = 0;
  std::uint64_t reads_ok = 0;
  std::uint64_t reads_failed = 0;
  std::uint64_t written_bytes = 0;  // payload
  std::uint64_t read_bytes = 0;
  std::uint64_t corrupt = 0;   // blocks that failed verification, short ones too
  std::uint64_t no_space = 0;  // writes that the file system had no room for
  std::uint64_t late = 0;      // operations past their deadline
  std::uint64_t erased = 0;
  std::uint64_t switched_off = 0;
  std::uint64_t probes = 0;
  std::uint64_t lost_places = 0;
  // What the open found.
  std::uint64_t found = 0;            // blocks that were taken over
  std::uint64_t dropped_foreign = 0;  // of another generation or namespace, or group
  std::uint64_t dropped_torn = 0;     // records that were not whole
  std::uint64_t dropped_twice = 0;    // the same key in two places
  std::uint64_t dropped_short = 0;    // the data file ends before them
  std::uint64_t dropped_budget = 0;   // the oldest, when there were too many

  void add(const DiskCounters& other);
};

// Threads:    one caller at a time; the I/O engine has its own threads.
// Owns:       the folder (its lock), the files, the staging buffers, the engine. `files` outlives
//             the store, and for ever if something hung when it was closed (close says so).
// Invariants: a block is read only as it was written, under its key, whole, or not at all; every
//             accepted operation is reported by poll once; the files have no more bytes than the
//             budget; after a kill at any moment the next open finds whole blocks only; no heap
//             and no call to the system in write, read, erase, reset and poll but on errors.
class DiskStore {
 public:
  // Errors: state (another process has the folder: named), arg (an option, with the numbers),
  // unsupported (a newer format; a chosen engine), io, full (memory).
  static Result<std::unique_ptr<DiskStore>> open(const DiskStoreOptions& options, Files& files);
  ~DiskStore();
  DiskStore(const DiskStore&) = delete;
  DiskStore& operator=(const DiskStore&) = delete;

  // ok: accepted, poll reports it. state: the key is there, or on its way. full: no room for its
  // class, erase something. later: too many operations are open. io: the device is switched off.
  // arg: the group is not stored here, or more valid bytes than a block has.
  // memory is read until poll has reported the write.
  Code write(const DiskWrite& op, std::uint64_t now_ns);
  // ok: accepted. arg: no such block. later, io: as above.
  Code read(const DiskRead& op, std::uint64_t now_ns);
  // The block is found no more; its room can be used soon. False: there is none.
  bool erase(std::uint32_t group, const Key& key);
  // Nothing that was written before is found from now on; when poll reports it that holds for the
  // next open too. Open writes and reads end cancelled. later: a reset is open.
  Code reset(std::uint64_t id, std::uint64_t now_ns);

  // What ended, from the front of `out`; how many. Checks deadlines and probes a sick device.
  std::size_t poll(std::span<DiskDone> out, std::uint64_t now_ns);
  // Waits until poll has something to do, for at most so long; stepped: not at all.
  void wait(std::uint64_t timeout_ns);
  // Stepped: up to `budget` calls to the system; how many. Otherwise 0.
  std::uint64_t pump(std::uint64_t budget) { return engine_->pump(budget); }
  [[nodiscard]] bool stepped() const { return engine_->stepped(); }

  // Ends all operations without reporting them. False: some hang; what they use stays for ever.
  bool close();

  [[nodiscard]] bool contains(std::uint32_t group, const Key& key) const;
  [[nodiscard]] std::uint64_t blocks() const;
  [[nodiscard]] std::uint64_t blocks_of(std::uint32_t group) const;  // of its class
  struct Oldest {
    std::uint32_t group = 0;
    Key key{};
    std::uint64_t sequence = 0;
  };
  // The block that was written first, of all or of the class of a group.
  [[nodiscard]] std::optional<Oldest> oldest() const;
  [[nodiscard]] std::optional<Oldest> oldest_like(std::uint32_t group) const;
  // Whether a write of the group would be accepted now as far as room goes: there is some, or it
  // is on its way.
  [[nodiscard]] bool may_write(std::uint32_t group) const;
  [[nodiscard]] bool being_written(std::uint32_t group, const Key& key) const;
  // Drops blocks that the other store has too. At an open.
  void forget_those_of(const DiskStore& other);
  // Bytes of the files, as the budget counts them.
  [[nodiscard]] Bytes used() const;
  // Operations that are accepted and not reported.
  [[nodiscard]] std::size_t open_operations() const { return unreported_; }
  // Reported ones that the system has not let go of.
  [[nodiscard]] std::size_t hung_operations() const { return hung_; }

  // One piece of the inventory that the open found, the oldest first; empty: there is no more.
  // `room` >= inventory_bytes(1). The memory of it is given back after the last piece.
  std::vector<std::uint8_t> next_inventory(std::size_t room);
  [[nodiscard]] bool inventory_left() const { return !inventory_.empty(); }
  [[nodiscard]] std::size_t inventory_size() const { return inventory_.size(); }  // told or not

  [[nodiscard]] bool on() const { return health_.on(); }
  [[nodiscard]] const std::string& off_reason() const { return health_.reason(); }
  [[nodiscard]] const DiskCounters& counters() const { return counters_; }
  [[nodiscard]] std::uint64_t generation() const { return generation_; }
  [[nodiscard]] const char* engine_name() const { return engine_->name(); }
  [[nodiscard]] bool direct() const { return direct_; }
  // Lines for the log, taken once: why a feature is off, what was dropped.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

  // Slow check for tests; empty text: all invariants hold.
  [[nodiscard]] std::string verify() const;

 private:
  static constexpr std::uint32_t none = UINT32_MAX;
  struct Class {
    Places places;
    int data_fd = -1;
    int index_fd = -1;
    std::string name;
  };
  struct Op {
    DiskTask task;
    std::uint64_t id = 0;
    std::uint64_t deadline_ns = UINT64_MAX;
    DiskOp op = DiskOp::write;
    IoLane lane = IoLane::write;
    std::uint32_t cls = 0;
    std::uint32_t place = no_place;
    std::uint32_t next = none;  // of its list
    std::uint32_t previous = none;
    bool used = false;
    bool internal = false;   // nobody waits for it
    bool submitted = false;  // the engine has it
    bool reported = false;
    bool late = false;  // past its deadline
    bool hung = false;  // given up, and the engine knows
  };
  struct OpList {
    std::uint32_t first = none;
    std::uint32_t last = none;
  };
  struct Found {
    std::uint32_t cls = 0;
    std::uint32_t place = 0;
    InventoryEntry entry;
  };
  // What a task may touch: leaked if one hangs at close.
  struct Body {
    TaskShared shared;
    std::deque<Op> ops;
  };

  DiskStore(const DiskStoreOptions& options, Files& files);

  // Opening (disk_open.cc).
  Status check_options() const;
  Status open_folder();
  Status take_lock();
  Status open_superblock();
  Status check_generation(std::vector<Found>& found);
  Status write_generations(std::uint64_t first);
  Status write_generation(std::uint64_t generation);
  Status remove_blocks(bool unknown_only);
  void probe_direct();
  Status make_classes();
  Status open_class(Class& cls);
  Status await_calm(int fd, const std::string& path);
  Status read_index(std::uint32_t cls, std::vector<Found>& found);
  Status drop_tail(Class& cls);
  void take_record(std::uint32_t cls, std::uint32_t place, const Record& record,
                   std::uint64_t data_bytes, std::vector<Found>& found);
  void publish_found(std::vector<Found>& found);
  void trim_holes(Class& cls);
  void fit_budget();
  static void sort_by_leaving(std::vector<const Found*>& live);
  bool vacate(Class& cls, std::uint32_t place);
  Status record_now(const Class& cls, const Record& record);
  Status start_engine();

  // Operations (disk_store.cc).
  [[nodiscard]] std::uint32_t class_of(std::uint32_t group) const;
  [[nodiscard]] std::uint32_t take_op(IoLane lane, bool internal);
  void give_back(std::uint32_t at);
  void submit(std::uint32_t at);
  [[nodiscard]] bool has_room(std::uint32_t cls) const;
  [[nodiscard]] bool room_for_hole(const Class& cls) const;
  [[nodiscard]] bool room_coming(std::uint32_t cls) const;
  void begin_write(std::uint32_t at);
  void start_waiting(std::uint64_t now_ns);
  void make_room(std::uint32_t cls);
  void start_records();
  void settle(std::uint32_t cls, std::uint32_t place);
  void leave(std::uint32_t cls, std::uint32_t place, bool condemned);
  void report(std::uint32_t at, Code status, bool gone, std::uint64_t valid_bytes = 0);

  void finish(std::uint32_t at, std::uint64_t now_ns);
  void finish_write(Op& op, std::uint32_t at);
  void finish_read(Op& op, std::uint32_t at);
  void finish_record(Op& op);
  void finish_punch(Op& op);
  void finish_superblock(Op& op, std::uint64_t now_ns);
  void save_generation();
  void report_reset(Code status);
  void finish_probe(Op& op, std::uint64_t now_ns);
  void note(const Op& op, std::uint64_t now_ns);
  void went_off();
  void unsaved(std::uint64_t now_ns, Code status);
  void check_deadlines(std::uint64_t now_ns);
  bool give_up(std::uint32_t at, std::uint64_t now_ns);
  void probe(std::uint64_t now_ns);
  void link(OpList& list, std::uint32_t at);
  void unlink(OpList& list, std::uint32_t at);
  void say(std::string line);

  const DiskStoreOptions options_;
  Files& files_;
  std::string path_;
  std::unique_ptr<Body> body_;
  std::unique_ptr<IoEngine> engine_;
  std::vector<Class> classes_;
  std::array<std::uint32_t, 64> class_of_group_{};  // class + 1
  int lock_fd_ = -1;
  bool direct_ = false;
  bool closed_ = false;
  bool punch_refused_ = false;
  std::uint64_t fixed_bytes_ = 0;
  std::uint64_t generation_ = 0;
  std::uint64_t newest_generation_ = 0;  // of the records that the open read
  std::uint64_t sequence_ = 0;
  bool generation_open_ = false;  // a superblock task is at work
  bool generation_unsaved_ =
      false;  // .. or has to be: nothing is written before, nor the device switched on
  std::optional<std::uint64_t> reset_id_;  // a reset that is not reported
  std::uint32_t probe_op_ = none;

  std::vector<std::uint32_t> free_ops_;
  std::array<std::uint32_t, io_lanes> lane_ops_{};
  std::array<OpList, io_lanes> due_;  // submitted ones, in that order
  std::uint64_t earliest_due_ns_ = UINT64_MAX;
  std::uint64_t now_ns_ = 0;      // of the last call
  OpList waiting_;                // writes that wait for room
  std::uint32_t frees_open_ = 0;  // records and punches that will make room
  std::size_t unreported_ = 0;
  std::size_t hung_ = 0;
  std::vector<DiskDone> done_;  // room for all operations
  std::vector<Found> inventory_;
  std::size_t inventory_first_ = 0;
  Health health_;
  DiskCounters counters_;
  std::vector<std::string> notes_;
};

}  // namespace kvc::disk
