// The calls of a step use no heap once set_ranks has sized the tier (design 2.5.3): this program
// counts operator new inside them.
#include <cstdlib>
#include <new>

#include "plugin/simple_cpu/tests/byte_world.h"

namespace {

thread_local bool watched = false;
thread_local std::uint64_t allocations = 0;

}  // namespace

// Not inlined: gcc would take the pair of malloc and free for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (watched) ++allocations;
  void* p = std::malloc(size == 0 ? 1 : size);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

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

void run(const Layout& layout, std::uint64_t seed) {
  WorldOptions o;
  o.layout = layout;
  o.slots = 24;
  o.device_blocks = 96;
  o.ranks = 2;
  o.failures = false;
  ByteWorld world(o, seed);
  world.wrap_role([](std::unique_ptr<SchedulerRole> role) -> std::unique_ptr<SchedulerRole> {
    return std::make_unique<WatchedRole>(std::move(role));
  });
  for (int i = 0; i < 400; ++i) world.act();
  world.settle();
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
  allocations = 0;
}

BOOST_AUTO_TEST_CASE(calls_of_a_step_allocate_nothing) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    run({{full(16)}, 16, 16, 1}, seed);
    run({{full(16), sliding(16, 48)}, 16, 16, 1}, seed);
    run({{full(64), state(64)}, 16, 64, 1}, seed);
  }
  BOOST_TEST(allocations == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
