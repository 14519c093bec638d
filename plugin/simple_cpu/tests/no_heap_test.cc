// The calls of a step use no heap and take no lock once set_ranks has sized the tier
// (design 2.5.3): this program counts operator new, malloc and its kin, and pthread_mutex_lock
// inside them.
#include <dlfcn.h>
#include <pthread.h>

#include <cstdlib>
#include <mutex>
#include <new>
#include <shared_mutex>

#include "plugin/offloading/tests/disk_rig.h"

namespace {

thread_local bool watched = false;
thread_local std::uint64_t allocations = 0;
thread_local std::uint64_t locks = 0;

}  // namespace

#if defined(KVC_SANITIZED)

// The sanitizer has malloc and the locks for itself. Not inlined: gcc would take the pair of malloc
// and free for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (watched) ++allocations;
  void* p = std::malloc(size == 0 ? 1 : size);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

#else

// operator new of libstdc++ calls malloc: these see everything that the C++ code allocates too.
extern "C" {

// Of glibc, under the names that stay when malloc is replaced.
void* __libc_malloc(std::size_t);                 // NOLINT(bugprone-reserved-identifier)
void* __libc_calloc(std::size_t, std::size_t);    // NOLINT(bugprone-reserved-identifier)
void* __libc_realloc(void*, std::size_t);         // NOLINT(bugprone-reserved-identifier)
void* __libc_memalign(std::size_t, std::size_t);  // NOLINT(bugprone-reserved-identifier)

[[gnu::visibility("default")]] void* malloc(std::size_t size) {
  if (watched) ++allocations;
  return __libc_malloc(size);
}
[[gnu::visibility("default")]] void* calloc(std::size_t count, std::size_t size) {
  if (watched) ++allocations;
  return __libc_calloc(count, size);
}
[[gnu::visibility("default")]] void* realloc(void* p, std::size_t size) {
  if (watched) ++allocations;
  return __libc_realloc(p, size);
}
[[gnu::visibility("default")]] void* aligned_alloc(std::size_t align, std::size_t size) {
  if (watched) ++allocations;
  return __libc_memalign(align, size);
}

[[gnu::visibility("default")]] int pthread_mutex_lock(pthread_mutex_t* mutex) {
  using Lock = int (*)(pthread_mutex_t*);
  static const auto real = reinterpret_cast<Lock>(::dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  if (watched) ++locks;
  return real(mutex);
}
[[gnu::visibility("default")]] int pthread_rwlock_wrlock(pthread_rwlock_t* lock) {
  using Lock = int (*)(pthread_rwlock_t*);
  static const auto real = reinterpret_cast<Lock>(::dlsym(RTLD_NEXT, "pthread_rwlock_wrlock"));
  if (watched) ++locks;
  return real(lock);
}
[[gnu::visibility("default")]] int pthread_rwlock_rdlock(pthread_rwlock_t* lock) {
  using Lock = int (*)(pthread_rwlock_t*);
  static const auto real = reinterpret_cast<Lock>(::dlsym(RTLD_NEXT, "pthread_rwlock_rdlock"));
  if (watched) ++locks;
  return real(lock);
}

}  // extern "C"

#endif

using namespace kvc;
using namespace kvc::test;

namespace {

class Watch {
 public:
  Watch() { watched = true; }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() { watched = false; }
};

// Passes every call on and watches those that must not allocate.
class WatchedRole final : public SchedulerRole {
 public:
  explicit WatchedRole(std::unique_ptr<SchedulerRole> role) : role_(std::move(role)) {}

  Result<std::span<const SlotClass>> set_ranks(std::span<const RankInfo> ranks) override {
    return role_->set_ranks(ranks);
  }
  Status request_begin(const RequestBegin& begin) override { return role_->request_begin(begin); }
  Status request_extend(RequestId request, std::uint64_t first_key, const std::uint8_t* keys,
                        std::uint64_t key_count) override {
    return role_->request_extend(request, first_key, keys, key_count);
  }
  Result<LookupAnswer> lookup(const LookupQuery& query) override {
    const Watch watch;
    return role_->lookup(query);
  }
  Status lookup_cancel(RequestId request) override {
    const Watch watch;
    return role_->lookup_cancel(request);
  }
  Result<AllocResult> alloc_update(RequestId request, Tokens accepted,
                                   std::span<const TableView> tables) override {
    const Watch watch;
    return role_->alloc_update(request, accepted, tables);
  }
  Result<PlanResult> build_store_jobs(const StepRecord& step) override {
    const Watch watch;
    return role_->build_store_jobs(step);
  }
  Result<CompleteResult> complete(std::span<const std::span<const std::uint8_t>> reports) override {
    const Watch watch;
    return role_->complete(reports);
  }
  Result<EndResult> request_end(const RequestEnd& end) override {
    const Watch watch;
    return role_->request_end(end);
  }
  Result<RetentionAnswer> retained(RequestId request, Tokens begin) override {
    const Watch watch;
    return role_->retained(request, begin);
  }
  Status hint(RequestId request, const Hint& hint) override {
    const Watch watch;
    return role_->hint(request, hint);
  }
  // A pin that is refused has a text with numbers: it is no call of a step.
  Result<PinAnswer> pin(RequestId request, Tokens most) override {
    const std::uint64_t before = allocations;
    Result<PinAnswer> answer = [&] {
      const Watch watch;
      return role_->pin(request, most);
    }();
    if (!answer.ok()) allocations = before;
    return answer;
  }
  Status unpin(std::uint64_t pin) override {
    const Watch watch;
    return role_->unpin(pin);
  }
  bool take_events(std::span<CacheEvent> out, std::size_t& count) override {
    const Watch watch;
    return role_->take_events(out, count);
  }
  Status reset(bool invalidate) override { return role_->reset(invalidate); }
  Status pump(std::uint32_t budget) override { return role_->pump(budget); }
  [[nodiscard]] BoundaryStats counts() const override {
    const Watch watch;
    return role_->counts();
  }
  [[nodiscard]] PendingWork pending() const override {
    const Watch watch;
    return role_->pending();
  }
  [[nodiscard]] std::size_t stat_count() const override { return role_->stat_count(); }
  void stats(std::span<Stat> out) const override { role_->stats(out); }
  [[nodiscard]] Result<std::string> explain(RequestId request) const override {
    return role_->explain(request);
  }
  [[nodiscard]] std::string verify() const override { return role_->verify(); }

 private:
  std::unique_ptr<SchedulerRole> role_;
};

void run(const Layout& layout, std::uint64_t seed, bool lazy = false) {
  WorldOptions o;
  o.layout = layout;
  o.slots = 24;
  o.device_blocks = 96;
  o.ranks = 2;
  o.failures = false;
  o.lazy = lazy;
  o.hints = seed % 2 == 0;
  ByteWorld world(o, seed);
  world.wrap_role([](std::unique_ptr<SchedulerRole> role) -> std::unique_ptr<SchedulerRole> {
    return std::make_unique<WatchedRole>(std::move(role));
  });
  for (int i = 0; i < 400; ++i) world.act();
  world.settle();
}

// Prompts that come back after the host pool has forgotten them, over two ranks.
void run_with_disk(const Layout& layout, std::uint64_t disk_blocks, bool on_eviction) {
  // And the folder's own 64 KiB.
  SimpleCpuSchedulerOptions o =
      with_disk({}, (std::uint64_t{64} << 10U) + disk_blocks * (4096 + 128));
  o.disk.on_eviction = on_eviction;
  DiskRig rig(layout, 16, o, {{}, {}});
  rig.role = std::make_unique<WatchedRole>(std::move(rig.role));
  const bool states = layout.groups.size() > 1;
  for (RequestId id = 1; id <= 300; ++id) {
    rig.begin(id, tokens_of(static_cast<std::uint32_t>(id * id % 23), 200));
    const LookupAnswer answer = rig.lookup(id);
    const std::uint64_t hit = answer.code == Code::ok ? answer.external.n : 0;
    const Tables tables = rig.fresh_tables(200, 100);
    rig.alloc(id, hit, tables);
    rig.step();
    rig.finish_disk();
    rig.finish_all();
    std::vector<Handoff> handoffs;
    if (states) handoffs.push_back({1, id, tables[1].back(), Tokens{192}});
    rig.step({{id, 199, tables}}, {}, handoffs);
    rig.finish_all();
    rig.end(id, 199, tables);
    if (id % 3 == 0) rig.settle_all();
  }
  rig.settle_all();
  for (const char* name : {"disk_spills_ok", "disk_fills_ok", "disk_evictions", "disk_drops"}) {
    BOOST_TEST(rig.stat(name) > 10u, name);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(simple_cpu_no_heap)

BOOST_AUTO_TEST_CASE(the_watch_sees_an_allocation) {
  const std::uint64_t before = allocations;
  std::unique_ptr<int> p;
  {
    const Watch watch;
    p = std::make_unique<int>(7);
  }
  BOOST_TEST(*p == 7);
  BOOST_TEST(allocations == before + 1);
#if !defined(KVC_SANITIZED)
  // Through a volatile pointer: the compiler may not know that the memory is not used.
  void* volatile raw = nullptr;
  {
    const Watch watch;
    raw = std::calloc(3, 5);
    raw = std::realloc(raw, 100);
  }
  std::free(raw);
  BOOST_TEST(allocations == before + 3);
#endif
  allocations = 0;
}

#if !defined(KVC_SANITIZED)
BOOST_AUTO_TEST_CASE(the_watch_sees_a_lock) {
  std::mutex mutex;
  std::shared_mutex shared;
  {
    const Watch watch;
    const std::lock_guard one(mutex);
    const std::lock_guard two(shared);
  }
  {
    const Watch watch;
    const std::shared_lock three(shared);
  }
  BOOST_TEST(locks == 3u);
  locks = 0;
}
#endif

BOOST_AUTO_TEST_CASE(calls_of_a_step_allocate_nothing_and_take_no_lock) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    run({{full(16)}, 16, 16, 1}, seed);
    run({{full(16), sliding(16, 48)}, 16, 16, 1}, seed);
    run({{full(64), state(64)}, 16, 64, 1}, seed);
    run({{full(16), sliding(16, 48)}, 16, 16, 1}, seed, true);
  }
  BOOST_TEST(allocations == 0u);
  BOOST_TEST(locks == 0u);
}

// Jobs come and go for as long as an engine runs: nothing may fill up.
BOOST_AUTO_TEST_CASE(many_jobs_allocate_nothing) {
  const Layout layout{{full(16)}, 16, 16, 1};
  Rig rig(layout, 600);
  rig.role = std::make_unique<WatchedRole>(std::move(rig.role));
  rig.checks = false;
  const Tables tables = rig.fresh_tables(8'000, 1);
  for (RequestId id = 1; id <= 40; ++id) {
    BOOST_REQUIRE(rig.begin(id, tokens_of(static_cast<std::uint32_t>(id), 8'000)) == Code::ok);
    for (std::uint64_t confirmed = 16; confirmed <= 8'000; confirmed += 16) {
      rig.step({{id, confirmed, confirmed == 16 ? tables : Tables{}}});
      rig.finish_all();
    }
    rig.end(id, 8'000);
  }
  BOOST_TEST(rig.stat("store_blocks") >= 19'000u);
  BOOST_TEST(allocations == 0u);
  BOOST_TEST(locks == 0u);
}

BOOST_AUTO_TEST_CASE(calls_with_a_disk_tier_allocate_nothing_and_take_no_lock) {
  for (const bool on_eviction : {false, true}) {
    run_with_disk({{full(16)}, 16, 16, 1}, 60, on_eviction);
    run_with_disk({{full(64), state(64)}, 16, 64, 1}, 25, on_eviction);
  }
  BOOST_TEST(allocations == 0u);
  BOOST_TEST(locks == 0u);
}

BOOST_AUTO_TEST_CASE(questions_for_states_allocate_nothing) {
  SimpleCpuSchedulerOptions options;
  options.states = StateRule::automatic;
  options.eviction = Eviction::hazard;
  Rig rig({{full(64), state(64)}, 16, 64, 1}, 100, options);
  rig.role = std::make_unique<WatchedRole>(std::move(rig.role));
  std::uint64_t listed = 0;
  for (RequestId id = 1; id <= 40; ++id) {
    BOOST_REQUIRE(rig.begin(id, tokens_of(static_cast<std::uint32_t>(id % 7), 4'000)) == Code::ok);
    for (const std::uint64_t begin : {0U, 0U, 640U}) {
      const Result<RetentionAnswer> answer = rig.role->retained(id, Tokens{begin});
      BOOST_REQUIRE(answer.ok());
      BOOST_TEST(answer.value().listed);
      listed += answer.value().boundaries.size();
    }
  }
  BOOST_TEST(listed > 40u * 3u);
  BOOST_TEST(allocations == 0u);
  BOOST_TEST(locks == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
