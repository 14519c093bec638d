// The operations of a DiskStore as tasks of an I/O engine.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>

#include "plugin/offload/disk/format.h"
#include "plugin/offload/disk/io_engine.h"
#include "plugin/offload/disk/staging.h"

namespace kvc::disk {

enum class TaskKind : std::uint8_t {
  write,       // a block to its place, then its record
  read,        // a place into staging, checked, then into the caller's memory
  record,      // a record only: a place becomes free, or bad
  punch,       // a place gives its bytes back, then its record becomes zeroes
  superblock,  // a new generation, on the device
  probe,       // the probe file is written and read
};

// What all tasks of a store share, unchanged while any is open.
struct TaskShared {
  Owner owner;
  bool sync = false;                    // wait for the device after data and after records
  wire::Sum summed = wire::Sum::whole;  // none: for measuring what it costs
  int superblock_fd = -1;
  int probe_fd = -1;
  Staging staging;
};

// Threads:    set up and read by the caller's thread outside of submit .. ended; step by the
//             engine's; give_up and phase by the caller's at any time.
// Owns:       its record and, while at work, one staging buffer.
// Invariants: the caller's memory is touched only in phases working and delivering; after give_up
//             said true it is touched no more.
class DiskTask final : public IoTask {
 public:
  // Set by the caller before submit.
  std::uint32_t number = 0;  // the caller's, for the life of the task
  TaskShared* shared = nullptr;
  TaskKind kind = TaskKind::read;
  int data_fd = -1;
  int index_fd = -1;
  BlockHeader header;  // write: as it will be; read: as it must be but for parent and valid bytes
  Record record;       // write, record, punch: what is recorded
  std::byte* memory = nullptr;  // payload_bytes of the caller's
  Superblock superblock;

  // Results, after the engine reported it.
  Code status = Code::ok;
  std::int32_t error = 0;       // errno of the system; 0: none
  bool corrupt = false;         // read: the bytes are not those of the block
  bool record_touched = false;  // the record may be the old or the new one, or torn
  Status detail;                // corrupt: what was wrong

  void prepare();
  IoCall step(IoResult result) override;
  // True: the caller's memory is not touched from now on, whatever else goes on. False: it is just
  // being copied, or the task is about to be reported; ask again.
  [[nodiscard]] bool give_up();
  // True: it had not begun, and will end without having done anything.
  [[nodiscard]] bool drop() { return advance(Phase::waiting, Phase::gone); }
  [[nodiscard]] bool given_up() const { return phase_.load() == Phase::gone; }

 private:
  enum class Phase : std::uint8_t { waiting, working, quiet, delivering, gone, done };
  // In order for a write; the others use some of them.
  enum class Stage : std::uint8_t { begin, first, synced, recorded, second, last };

  bool advance(Phase from, Phase to) { return phase_.compare_exchange_strong(from, to); }
  IoCall guarded_step(IoResult result);
  IoCall begin();
  IoCall after(IoResult result);
  IoCall after_data();
  IoCall write_record_call();
  IoCall finish_read();
  IoCall check_probe();
  IoCall fail(Code code, std::int32_t why);
  IoCall end();
  bool take_buffer();
  [[nodiscard]] std::span<std::uint8_t> buffer() const;

  std::atomic<Phase> phase_{Phase::waiting};
  Stage stage_ = Stage::begin;
  IoCall call_;              // the one that is out
  std::uint64_t moved_ = 0;  // of it, in earlier transfers
  std::uint32_t buffer_ = no_buffer;
  std::uint64_t buffer_bytes_ = 0;
  alignas(64) std::array<std::uint8_t, record_bytes> record_bytes_{};
};

}  // namespace kvc::disk
