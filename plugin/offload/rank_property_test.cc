// Random life of a rank against a model that knows only the rules: a load that ended ok has the
// bytes of the last store of its slot that ended ok, every job ends once, nothing leaks, whatever
// copies fail, however late anything is. Stepped, where a seed gives one history, and with worker
// threads.
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <random>
#include <set>

#include "plugin/offload/tests/rank_world.h"
#include "plugin/offload/wire.h"
#include "plugin/tests/seed.h"

namespace kvc {
namespace {

using rank_test::PlannedCopies;
using rank_test::Seen;
using rank_test::World;

std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// One copy in `one_in` fails; completions are held back by coin.
class RandomTrouble final : public CopyFault {
 public:
  RandomTrouble(std::uint64_t seed, std::uint64_t one_in) : seed_(seed), one_in_(one_in) {}
  Verdict on_copy(std::uint64_t, CopyDirection, std::uint64_t) override {
    const std::uint64_t z = mixed(seed_ + 0x9E3779B97F4A7C15ull * ++asked_);
    if (calm || one_in_ == 0 || z % one_in_ != 0) return {};
    return {Code::io, z >> 63 == 0 ? CopySide::source : CopySide::destination};
  }
  bool may_end(std::uint64_t) override { return calm || mixed(seed_ ^ ++asked_) % 4 != 0; }
  std::atomic<bool> calm{false};

 private:
  std::uint64_t seed_;
  std::uint64_t one_in_;
  std::atomic<std::uint64_t> asked_{0};
};

// Class 0 (groups 0 and 1) has one slot on a page, class 1 (group 2) three.
struct SlotName {
  std::uint32_t cls = 0;
  std::uint32_t number = 0;
  friend auto operator<=>(const SlotName&, const SlotName&) = default;
  [[nodiscard]] std::uint32_t page() const { return cls == 0 ? number : number / 3; }
};

SlotName name_of(std::uint32_t group, std::uint32_t slot) { return {group == 2 ? 1U : 0U, slot}; }

struct ModelSlot {
  bool good = false;
  JobId writer = 0;
  int readers = 0;
  std::vector<std::uint8_t> bytes;  // after the last store, which may be open
};

struct ModelJob {
  JobKind kind = JobKind::store;
  std::vector<PlanCopy> copies;
  std::vector<std::vector<std::uint8_t>> expected;  // of loads: what must arrive if it ends ok
  bool item = false;
};

// A scheduler that follows the rules, and a device that runs behind.
class Life {
 public:
  Life(std::uint64_t seed, std::uint32_t workers, std::uint64_t one_in)
      : trouble(seed, one_in),
        rng(seed),
        world(&trouble, options(seed, workers), copies(seed, workers)),
        workers_(workers) {}

  static RankOptions options(std::uint64_t seed, std::uint32_t workers) {
    RankOptions o = World::options();
    o.part_descriptors = 1 + static_cast<std::uint32_t>(seed % 5);
    o.report_bytes_max = 4096;
    // Threads share the machine with others: the clock of this test says little about them.
    o.load_deadline_ms = workers == 0 ? 5 : 60;
    o.store_deadline_ms = workers == 0 ? 7 : 80;
    return o;
  }
  static HostCopyOptions copies(std::uint64_t seed, std::uint32_t workers) {
    HostCopyOptions c;
    c.workers = workers;
    c.order = StepOrder::seeded;
    c.seed = seed;
    c.piece_bytes = {1 + seed % 60};
    c.operations_max = 3 + static_cast<std::uint32_t>(seed % 7);
    c.runs_max = 32;
    c.predecessors_max = 40;
    return c;
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) one_step();
    trouble.calm = true;
    __atomic_store_n(&device_step, UINT64_MAX, __ATOMIC_RELEASE);
    while (!jobs.empty()) {
      if (workers_ == 0) {
        BOOST_REQUIRE((world.rank->wait({}, 0) == Code::ok));
      } else {
        BOOST_REQUIRE((world.rank->wait({}, 60'000'000'000) == Code::ok));
      }
      look();
    }
    BOOST_REQUIRE(world.rank->open_jobs() == 0u);
    BOOST_REQUIRE(world.progress().reported.empty());
  }

  std::uint64_t loads_checked = 0;
  std::uint64_t failures = 0;
  std::uint64_t late = 0;

 private:
  std::uint64_t draw(std::uint64_t below) { return rng() % below; }

  // The fence value that covers everything scheduled so far.
  Fence fence() {
    if (draw(3) == 0) return {};
    return {FenceKind::counter, &device_step, world.step + 1, nullptr};
  }

  void one_step() {
    std::vector<PlannedCopies> loads;
    std::vector<PlannedCopies> stores;
    for (std::uint64_t i = draw(3); i-- > 0;) plan_store(stores);
    for (std::uint64_t i = draw(3); i-- > 0;) plan_load(loads);
    const Fence load_fence = fence();
    const Fence store_fence = fence();
    const auto plan = rank_test::make_plan(World::epoch, ++world.step, loads, stores);
    const bool stores_first = draw(2) == 0;
    for (int half = 0; half < 2; ++half) {
      const Status s = (half == 0) == stores_first ? world.rank->submit_stores(plan, store_fence)
                                                   : world.rank->submit_loads(plan, load_fence);
      BOOST_REQUIRE_MESSAGE(s.ok(), s.text);
      if (draw(3) == 0) static_cast<void>(world.rank->pump(static_cast<std::uint32_t>(draw(9))));
    }
    if (draw(2) == 0) __atomic_store_n(&device_step, world.step - draw(2), __ATOMIC_RELEASE);
    static_cast<void>(world.rank->pump(static_cast<std::uint32_t>(draw(30))));
    world.host.now += draw(1'000'000);
    if (draw(6) == 0) {
      __atomic_store_n(&device_step, world.step, __ATOMIC_RELEASE);
      const Code waited = world.rank->wait({}, UINT64_MAX);
      // Stepped, a held completion is not waited for.
      BOOST_REQUIRE((waited == Code::ok || (workers_ == 0 && waited == Code::later)));
    }
    look();
    if (workers_ == 0) BOOST_REQUIRE_MESSAGE(world.rank->verify().empty(), world.rank->verify());
  }

  BlockId free_block(std::uint32_t group) {
    const auto b = static_cast<BlockId>(1 + draw(World::blocks - 1));
    return used_blocks.insert({group, b}).second ? b : -1;
  }

  // As the scheduler role does: a page goes to another class when none of its slots is in use.
  bool take_page(SlotName wanted) {
    const auto foreign = [&](const auto& s) {
      return s.first.page() == wanted.page() && s.first.cls != wanted.cls;
    };
    for (const auto& s : slots) {
      if (foreign(s) && (s.second.writer != 0 || s.second.readers != 0)) return false;
    }
    std::erase_if(slots, foreign);
    return true;
  }

  void plan_store(std::vector<PlannedCopies>& out) {
    ModelJob job;
    const JobId id = next_job++;
    for (std::uint64_t i = 1 + draw(3); i-- > 0;) {
      const auto group = static_cast<std::uint32_t>(draw(3));
      const auto slot = static_cast<std::uint32_t>(draw(group == 2 ? 24 : 8));
      if (!take_page(name_of(group, slot))) continue;
      ModelSlot& s = slots[name_of(group, slot)];
      if (s.writer != 0 || s.readers != 0) continue;
      const BlockId b = free_block(group);
      if (b < 0) continue;
      world.fill(group, b, static_cast<std::uint8_t>(rng()));
      s.writer = id;
      s.good = false;
      s.bytes = world.block(group, b);
      job.copies.push_back({group, slot, b, i});
    }
    out.push_back({id, job.copies});
    jobs[id] = job;
  }

  void plan_load(std::vector<PlannedCopies>& out) {
    ModelJob job;
    job.kind = JobKind::load;
    const JobId id = next_job++;
    for (std::uint64_t i = 1 + draw(3); i-- > 0;) {
      const auto group = static_cast<std::uint32_t>(draw(3));
      const auto slot = static_cast<std::uint32_t>(draw(group == 2 ? 24 : 8));
      const auto found = slots.find(name_of(group, slot));
      if (found == slots.end() || (!found->second.good && found->second.writer == 0)) continue;
      ModelSlot& s = found->second;
      const BlockId b = free_block(group);
      if (b < 0) continue;
      ++s.readers;
      job.copies.push_back({group, slot, b, i});
      job.expected.push_back(s.bytes);
    }
    out.push_back({id, job.copies});
    jobs[id] = job;
  }

  void look() {
    const Seen seen = world.progress();
    for (const auto& [id, status] : seen.items) {
      BOOST_REQUIRE(jobs.count(id) == 1u);
      ModelJob& job = jobs[id];
      BOOST_REQUIRE(job.kind == JobKind::load);
      BOOST_REQUIRE(!job.item);
      job.item = true;
      if (status != Code::ok) continue;
      for (std::size_t i = 0; i < job.copies.size(); ++i) {
        BOOST_REQUIRE((world.block(job.copies[i].group, job.copies[i].block) == job.expected[i]));
        ++loads_checked;
      }
    }
    for (const ReportJob& r : seen.reported) {
      BOOST_REQUIRE_MESSAGE(jobs.count(r.job) == 1u, "job " << r.job << " ended twice");
      if (r.phase == ReportPhase::deadline) {
        ++late;
        BOOST_REQUIRE(late_jobs.insert(r.job).second);
        continue;
      }
      end(r);
    }
  }

  void end(const ReportJob& r) {
    const ModelJob job = jobs[r.job];
    BOOST_REQUIRE((r.status == Code::deadline) == (late_jobs.count(r.job) == 1));
    BOOST_REQUIRE(job.kind == JobKind::store || job.item);
    if (r.status != Code::ok) ++failures;
    for (const PlanCopy& copy : job.copies) {
      ModelSlot& s = slots[name_of(copy.group, copy.slot)];
      used_blocks.erase({copy.group, copy.block});
      if (job.kind == JobKind::load) {
        --s.readers;
      } else {
        // Nothing chained to it may still run: it could only have ended after it.
        BOOST_REQUIRE(s.writer == r.job);
        s.writer = 0;
        s.good = r.status == Code::ok;
      }
    }
    jobs.erase(r.job);
  }

  RandomTrouble trouble;
  std::mt19937_64 rng;
  std::uint64_t device_step = 0;
  World world;
  std::uint32_t workers_;
  std::map<SlotName, ModelSlot> slots;  // of pages as they are used now
  std::map<JobId, ModelJob> jobs;
  std::set<JobId> late_jobs;
  std::set<std::pair<std::uint32_t, BlockId>> used_blocks;
  JobId next_job = 1;
};

void many_lives(std::uint64_t seeds, int steps, std::uint32_t workers, std::uint64_t one_in) {
  std::uint64_t checked = 0;
  std::uint64_t failures = 0;
  std::uint64_t late = 0;
  const std::optional<std::uint64_t> only = test::only_seed();
  const std::uint64_t from = only.value_or(1);
  if (only) seeds = 1;
  for (std::uint64_t seed = from; seed < from + seeds; ++seed) {
    BOOST_TEST_CONTEXT(test::repeat_command(seed)) {
      Life life(seed, workers, one_in);
      life.run(steps);
      checked += life.loads_checked;
      failures += life.failures;
      late += life.late;
    }
  }
  if (only) return;  // the lives of all seeds together must do much; one alone may not
  BOOST_TEST(checked > seeds * 5);
  BOOST_TEST((one_in == 0 || failures > 0));
  BOOST_TEST((workers != 0 || late > 0));
}

BOOST_AUTO_TEST_SUITE(rank_property)

BOOST_AUTO_TEST_CASE(any_stepped_life_keeps_bytes_and_jobs) { many_lives(300, 120, 0, 0); }

BOOST_AUTO_TEST_CASE(any_stepped_life_with_failing_copies_keeps_bytes_and_jobs) {
  many_lives(300, 120, 0, 30);
}

BOOST_AUTO_TEST_CASE(any_life_with_worker_threads_keeps_bytes_and_jobs) {
  many_lives(20, 150, 2, 40);
}

// Damaged plans whose checksum is right: the rank judges ids by itself.
BOOST_AUTO_TEST_CASE(no_damaged_plan_moves_a_byte_outside) {
  const std::uint64_t seed = test::seed_or(99);
  std::mt19937_64 rng(seed);
  World w;
  std::uint64_t accepted = 0;
  for (std::uint64_t round = 1; round <= 5'000; ++round) {
    BOOST_TEST_CONTEXT("round " << round << "; " << test::repeat_command(seed)) {
      auto plan =
          rank_test::make_plan(World::epoch, round, {{round * 4, {{0, 1, 2, 0}, {2, 2, 3, 1}}}},
                               {{round * 4 + 1, {{2, 1, 4, 0}, {0, 3, 5, 1}}}});
      for (std::uint64_t edits = 1 + rng() % 3; edits-- > 0;) {
        const std::size_t at = plan_header_bytes + rng() % (plan.size() - plan_header_bytes);
        plan[at] = static_cast<std::uint8_t>(rng() % 3 == 0 ? 0xff : rng());
      }
      wire::put(plan.data() + 48, wire::checksum(plan, 48));
      accepted += w.rank->submit_loads(plan, {}).ok();
      accepted += w.rank->submit_stores(plan, {}).ok();
      w.run();
      BOOST_REQUIRE(w.rank->verify().empty());
    }
  }
  BOOST_TEST(accepted > 1000u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
