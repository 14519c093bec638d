// Inside of the CUDA copy engine. Internal to cuda/.
#pragma once
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cuda/copy_queue.h"
#include "cuda/cuda_captures.h"
#include "cuda/cuda_copy_engine.h"
#include "cuda/cuda_pins.h"
#include "cuda/kernel/copy_fragments.h"

namespace kvc {

// Operations travel: gate (a counter is awaited) -> ready (all it comes after is in a stream) ->
// in a piece, when its last run is issued -> held (a test holds it) -> ended -> polled. One with
// open predecessors and no gate is in no list. All of it needs the mutex.
struct CudaCopyEngine::Core {
  using List = copy_detail::List;
  using Op = copy_detail::Op;
  static constexpr std::uint32_t none = copy_detail::none;

  // All calls between two events of a stream.
  struct Piece {
    cuda::Event done = nullptr;
    List operations;  // those that are wholly issued with it
    std::uint32_t entries = 0;
  };

  // A copy stream and what is in it.
  struct Lane {
    cuda::Stream stream = nullptr;
    std::vector<Piece> ring;                 // piece n is at n % size
    std::uint64_t issued = 0;                // number of the newest piece
    std::uint64_t completed = 0;             // number of the newest that is over
    std::uint32_t entries = 0;               // in the queue of the stream, at most
    cuda::Fragment* tables = nullptr;        // page-locked: `tables_max` of them
    std::vector<std::uint64_t> table_piece;  // piece that used it last
    std::uint32_t table_next = 0;
    List ready;
  };

  // Operations that wait for one counter, smallest value first.
  struct Gate {
    const std::uint64_t* counter = nullptr;
    List operations;
  };

  // What one piece is going to be. Reserved once.
  struct Gathered {
    std::vector<cuda::DevicePointer> dst;
    std::vector<cuda::DevicePointer> src;
    std::vector<std::size_t> bytes;
    std::vector<std::uint32_t> owner;  // operation of each copy
    std::vector<std::uint64_t> first;  // its first copy, as the caller counts
    cuda::Fragment* table = nullptr;   // null: no kernel in this piece
    std::uint32_t small = 0;
    std::vector<std::uint32_t> operations;  // wholly in the piece
    std::vector<std::uint32_t> touched;     // with a copy in it
    bool in_order = true;                   // sources are read in stream order
    std::uint32_t entries = 0;
  };

  static constexpr std::uint32_t tables_max = 4;

  explicit Core(const CudaCopyOptions& o);
  Status open();
  void load_kernel();
  void close();

  [[nodiscard]] bool waits(CudaWait wait) const {
#if defined(KVC_FAULT_POINTS)
    return (options.skip_waits >> static_cast<unsigned>(wait) & 1U) == 0;
#else
    static_cast<void>(wait);
    return true;
#endif
  }
  [[nodiscard]] Lane& lane(CopyDirection d) { return lanes[static_cast<std::size_t>(d)]; }

  // Entering and leaving (cuda_copy_core.cc).
  void commit(const CopyBatch& batch, std::uint32_t capture);
  void link(std::uint32_t at, std::uint32_t before);
  void gate(std::uint32_t at);
  void make_ready(std::uint32_t at);
  bool advance();
  bool look_at_gates();
  bool complete(CopyDirection d);
  void copied(std::uint32_t at) {
    ends.copied(at, [this](std::uint32_t o) { end(o); });
  }
  void end(std::uint32_t at);
  // Those that come after `at` may go: behind its piece, or behind nothing once it ended.
  void let_go(std::uint32_t at);
  // The device is gone: everything ends with status io.
  void lose(cuda::DriverResult result, const char* what);
  [[nodiscard]] bool open_at_device() const {
    return lanes[0].issued != lanes[0].completed || lanes[1].issued != lanes[1].completed;
  }
  [[nodiscard]] bool anything_open() const {
    return open_at_device() || lanes[0].ready.size + lanes[1].ready.size + ends.held() + gated != 0;
  }
  [[nodiscard]] bool any_open(std::span<const std::uint64_t> ops) const;
  Code fence_of(const CopyMark& mark, std::uint64_t operations, Fence& out);
  void watch();

  // Handing over to the driver (cuda_issue.cc).
  bool issue(CopyDirection d);
  std::uint32_t pick(Lane& l);
  [[nodiscard]] std::uint32_t room(const Lane& l) const;
  bool wait_for_order(CopyDirection d, const Op& o, Gathered& g);
  [[nodiscard]] bool joins_piece(const Op& o) const;
  void begin_piece(CopyDirection d, Gathered& g);
  void fill_piece(CopyDirection d, std::uint32_t at, Gathered& g, std::uint32_t copies_max);
  bool gather(CopyDirection d, std::uint32_t at, Gathered& g, std::uint32_t copies_max);
  void gather_run(CopyDirection d, std::uint32_t at, Gathered& g, std::uint64_t bytes,
                  std::uint64_t first);
  bool ask_fault(Op& o, const copy_detail::Run& run);
  cuda::DriverResult call(CopyDirection d, Gathered& g, std::size_t& failed);
  cuda::DriverResult call_batch(CopyDirection d, Gathered& g, std::size_t& failed);
  cuda::DriverResult call_loop(CopyDirection d, Gathered& g, std::size_t& failed);
  cuda::DriverResult call_kernel(CopyDirection d, Gathered& g);
  void fold_small(Gathered& g);
  void call_failed(Gathered& g, std::size_t failed, cuda::DriverResult result);
  void seal(CopyDirection d, Gathered& g);
  [[nodiscard]] bool kernel_usable() const {
    return function != nullptr && same_pointer &&
           (options.path == CopyPath::automatic || options.path == CopyPath::kernel);
  }
  [[nodiscard]] bool batch_usable() const {
    return driver->copy_batch != nullptr && !batch_refused && options.path != CopyPath::loop;
  }

  CudaCopyOptions options;
  mutable std::mutex mutex;
  std::condition_variable changed;  // for wait(), and for the thread that watches
  std::shared_ptr<const cuda::Driver> driver;
  cuda::Device device = 0;
  cuda::Context context = nullptr;
  cuda::Module module = nullptr;
  cuda::Function function = nullptr;
  bool same_pointer = false;
  bool batch_refused = false;  // the driver has the entry and says that it does not serve it
  std::string device_name;
  std::string without_kernel;  // why
  cuda::CudaPins pins;
  cuda::CudaCaptures captures;
  copy_detail::Queue queue;
  Lane lanes[2];
  std::vector<Gate> gates;
  std::uint32_t gated = 0;
  copy_detail::Ends ends;
  Gathered scratch;
  bool lost = false;
  std::string trouble;
  CudaCopyCounters counters;
  std::uint64_t told = 0;
  bool stopping = false;
  std::thread watcher;
};

}  // namespace kvc
