// The cost gate in the scheduler role of both connectors: what lookups answer, and what is
// measured.
#include <boost/test/data/test_case.hpp>

#include "plugin/offloading/tests/disk_rig.h"

using namespace kvc;
using namespace kvc::test;

namespace {

constexpr std::uint64_t ms = 1'000'000;

const char* const connectors[] = {"simple_cpu", "offloading"};

MakeRole maker(std::string_view name) {
  return name == "offloading" ? make_offloading : make_simple_cpu_scheduler;
}

Layout one_group() { return {{full(16)}, 16, 16, 1}; }

SimpleCpuSchedulerOptions gated(CostGateMode mode, std::uint64_t tokens_per_second) {
  SimpleCpuSchedulerOptions o;
  o.cost_gate = {mode, tokens_per_second};
  return o;
}

// Ids that are no probes, ascending.
RequestId next_id(RequestId& last) {
  do {
    ++last;
  } while (CostGate::probes(last));
  return last;
}

struct GateRig : Rig {
  explicit GateRig(MakeRole make, CostGateMode mode, std::uint64_t tokens_per_second,
                   Layout l = one_group())
      : Rig(std::move(l), 256, gated(mode, tokens_per_second), limits_of(), make) {}

  // The prompt is in the tier from now on.
  void store(const TokenIds& prompt) { serve(next_id(last), prompt, 100); }
  // A request of the prompt looks up, takes what it is offered, which takes so long, and ends.
  LookupAnswer load(const TokenIds& prompt, std::uint64_t ns) {
    const RequestId id = next_id(last);
    begin(id, prompt);
    const LookupAnswer answer = lookup(id);
    take(id, answer.external.n, ns);
    return answer;
  }
  void take(RequestId id, std::uint64_t accepted, std::uint64_t ns) {
    const JobId job = alloc(id, accepted, fresh_tables(std::max<std::uint64_t>(accepted, 1), 500));
    if (job != 0) {
      step();
      host.now += ns;
      finish(job);
    }
    end(id);
    drain();
  }
  [[nodiscard]] std::string told(RequestId id) const { return role->explain(id).value(); }

  RequestId last = 0;
};

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

BOOST_AUTO_TEST_SUITE(cost_gate_flow)

BOOST_DATA_TEST_CASE(a_hit_that_takes_longer_than_computing_is_refused_and_named,
                     boost::unit_test::data::make(connectors), name) {
  GateRig rig(maker(name), CostGateMode::on, 1000);  // 64 tokens: 64 ms
  const TokenIds prompt = tokens_of(1, 70);
  rig.store(prompt);
  for (int i = 0; i < 8; ++i) BOOST_TEST(rig.load(prompt, 100 * ms).external.n == 64U);
  BOOST_TEST(rig.stat("cost_gate_unmeasured") == 8U);
  BOOST_TEST(has(rig.told(rig.last), "\"decision\":\"unmeasured\""));
  const LookupAnswer refused = rig.load(prompt, 0);
  BOOST_TEST(refused.external.n == 0U);
  BOOST_TEST((refused.why == Why::cost_gate));
  BOOST_TEST((refused.code == Code::ok));
  BOOST_TEST(rig.stat("cost_gate_refused") == 1U);
  BOOST_TEST(rig.stat("cost_gate_refused_tokens") == 64U);
  const std::string text = rig.told(rig.last);
  BOOST_TEST(has(text, "\"why\":\"cost_gate\""));
  BOOST_TEST(has(text, "\"decision\":\"refused\",\"load_us\":100000,\"recompute_us\":64000"));
  BOOST_TEST(has(rig.role->explain(0).value(), "\"cost_gate\":{\"mode\":\"on\""));
  rig.check_quiet();
}

BOOST_DATA_TEST_CASE(report_counts_what_it_would_refuse_and_changes_nothing,
                     boost::unit_test::data::make(connectors), name) {
  GateRig rig(maker(name), CostGateMode::report, 1000);
  const TokenIds prompt = tokens_of(1, 70);
  rig.store(prompt);
  for (int i = 0; i < 12; ++i) BOOST_TEST(rig.load(prompt, 100 * ms).external.n == 64U);
  BOOST_TEST(rig.stat("cost_gate_refused") == 4U);
  BOOST_TEST(rig.stat("cost_gate_refused_tokens") == 4 * 64U);
  BOOST_TEST(has(rig.told(rig.last), "\"decision\":\"would_refuse\""));
}

BOOST_DATA_TEST_CASE(switched_off_nothing_is_measured, boost::unit_test::data::make(connectors),
                     name) {
  GateRig rig(maker(name), CostGateMode::off, 1);
  const TokenIds prompt = tokens_of(1, 70);
  rig.store(prompt);
  for (int i = 0; i < 12; ++i) BOOST_TEST(rig.load(prompt, 1).external.n == 64U);
  BOOST_TEST(rig.stat("cost_gate_decisions") == 0U);
  BOOST_TEST(rig.stat("cost_gate_host_bytes_per_second_now") == 0U);
  BOOST_TEST(!has(rig.told(rig.last), "cost_gate"));
}

// 50 ms whatever the size, and 1 ms for each block of 16 tokens, which take 6.25 ms to compute.
BOOST_DATA_TEST_CASE(short_hits_do_not_pay_for_what_every_load_takes_and_long_ones_do,
                     boost::unit_test::data::make(connectors), name) {
  GateRig rig(maker(name), CostGateMode::on, 2560);
  const TokenIds prompt = tokens_of(1, 161);
  rig.store(prompt);
  const auto ask = [&](std::uint64_t tokens) {
    TokenIds cut = prompt;
    cut.resize(tokens + 1);
    return rig.load(cut, 50 * ms + tokens / 16 * ms).external.n;
  };
  for (std::uint64_t n = 1; n <= 8; ++n) BOOST_TEST(ask(16 * n) == 16 * n);
  BOOST_TEST(ask(16 * 9) == 0U);     // 59 against 56.25
  BOOST_TEST(ask(16 * 10) == 160U);  // 60 against 62.5
  BOOST_TEST(ask(16) == 0U);
}

BOOST_DATA_TEST_CASE(a_request_is_told_the_same_until_it_is_admitted_anew,
                     boost::unit_test::data::make(connectors), name) {
  GateRig rig(maker(name), CostGateMode::on, 1000);
  const TokenIds prompt = tokens_of(1, 70);
  rig.store(prompt);
  for (int i = 0; i < 8; ++i) rig.load(prompt, 100 * ms);
  const RequestId waits = next_id(rig.last);
  rig.begin(waits, prompt);
  BOOST_TEST((rig.lookup(waits).why == Why::cost_gate));
  const std::uint64_t decided = rig.stat("cost_gate_decisions");
  // The device is quick now, as a probe tells.
  RequestId probe = 1000;
  while (!CostGate::probes(probe)) ++probe;
  rig.begin(probe, prompt);
  BOOST_TEST(rig.hit(probe) == 64U);
  BOOST_TEST(rig.stat("cost_gate_probes") == 1U);
  rig.take(probe, 64, ms);
  BOOST_TEST(rig.load(prompt, ms).external.n == 64U);
  for (int i = 0; i < 3; ++i) {
    BOOST_TEST((rig.lookup(waits).why == Why::cost_gate));
    rig.step();
  }
  BOOST_TEST(rig.stat("cost_gate_decisions") == decided + 2);
  // A shorter hit is another one.
  BOOST_TEST(rig.lookup(waits, 16).external.n == 48U);
  // It runs, is preempted and asks anew.
  const Tables tables = rig.fresh_tables(70, 700);
  rig.alloc(waits, 0, tables);
  rig.step({{waits, 70, tables}});
  rig.finish_all();
  BOOST_TEST(rig.lookup(waits).external.n == 64U);
  rig.end(waits);
  rig.drain();
  rig.check_quiet();
}

BOOST_DATA_TEST_CASE(a_request_that_took_a_hit_is_not_refused_it_later,
                     boost::unit_test::data::make(connectors), name) {
  GateRig rig(maker(name), CostGateMode::on, 1000);
  const TokenIds prompt = tokens_of(1, 70);
  rig.store(prompt);
  for (int i = 0; i < 8; ++i) rig.load(prompt, ms);
  const RequestId waits = next_id(rig.last);
  rig.begin(waits, prompt);
  BOOST_TEST(rig.hit(waits) == 64U);
  for (int i = 0; i < 32; ++i) rig.load(prompt, 100 * ms);
  BOOST_TEST(rig.load(prompt, 0).external.n == 0U);
  BOOST_TEST(rig.hit(waits) == 64U);
  rig.end(waits);
}

// A chunk of 32 tokens in every step of 10 ms; then nothing for a minute, which is no step's time.
BOOST_DATA_TEST_CASE(the_pace_of_prefill_is_that_of_steps_that_follow_each_other,
                     boost::unit_test::data::make(connectors), name) {
  GateRig rig(maker(name), CostGateMode::on, 0);
  for (std::uint32_t i = 0; i < 5; ++i) {
    const RequestId id = next_id(rig.last);
    const TokenIds prompt = tokens_of(i + 1, 96);
    rig.begin(id, prompt);
    rig.lookup(id);
    const Tables tables = rig.fresh_tables(96, 100);
    rig.alloc(id, 0, tables);
    for (std::uint64_t done = 32; done <= 96; done += 32) {
      rig.step({{id, done, tables}});
      rig.host.now += 10 * ms;
    }
    // The first token of the answer: the step before has taken 10 ms, too.
    rig.extend(id, {7});
    rig.step({{id, 97, rig.fresh_tables(97, 100)}});
    rig.finish_all();
    rig.end(id, 97, rig.fresh_tables(97, 100));
    rig.drain();
    rig.host.now += 60'000 * ms;
  }
  BOOST_TEST(rig.stat("cost_gate_prefill_tokens_per_second_now") == 3200U);
  const TokenIds again = tokens_of(1, 96);  // 80 tokens: 25 ms
  for (int i = 0; i < 8; ++i) BOOST_TEST(rig.load(again, 30 * ms).external.n == 80U);
  BOOST_TEST((rig.load(again, 0).why == Why::cost_gate));
}

// What the device had, and what was loaded, was not computed.
BOOST_DATA_TEST_CASE(loaded_tokens_are_no_prefill, boost::unit_test::data::make(connectors), name) {
  GateRig rig(maker(name), CostGateMode::on, 0);
  const TokenIds prompt = tokens_of(1, 200);
  rig.store(prompt);
  for (int i = 0; i < 10; ++i) {
    const RequestId id = next_id(rig.last);
    rig.begin(id, prompt);
    BOOST_TEST(rig.hit(id) == 192U);
    const JobId job = rig.alloc(id, 160, rig.fresh_tables(160, 100));
    rig.step();
    rig.finish(job);
    const Tables tables = rig.fresh_tables(200, 100);
    rig.step({{id, 180, tables}});
    rig.host.now += 10 * ms;
    rig.step({{id, 200, tables}});
    rig.finish_all();
    rig.end(id, 200, tables);
    rig.drain();
  }
  BOOST_TEST(rig.stat("cost_gate_prefill_tokens_per_second_now") == 2000U);
}

BOOST_DATA_TEST_CASE(a_failed_load_says_nothing_of_how_long_loads_take,
                     boost::unit_test::data::make(connectors), name) {
  GateRig rig(maker(name), CostGateMode::on, 1000);
  const TokenIds prompt = tokens_of(1, 70);
  rig.store(prompt);
  for (int i = 0; i < 12; ++i) {
    const RequestId id = next_id(rig.last);
    rig.begin(id, prompt);
    const JobId job = rig.alloc(id, rig.hit(id), rig.fresh_tables(64, 500));
    rig.step();
    rig.host.now += 100 * ms;
    rig.finish(job, Code::io);
    rig.end(id);
    rig.drain();
  }
  BOOST_TEST(rig.stat("loads_failed") == 12U);
  BOOST_TEST(rig.stat("cost_gate_unmeasured") == 12U);
}

BOOST_DATA_TEST_CASE(a_hybrid_hit_is_refused_whole, boost::unit_test::data::make(connectors),
                     name) {
  GateRig rig(maker(name), CostGateMode::on, 1000, {{full(32), state(32)}, 16, 32, 1});
  const TokenIds prompt = tokens_of(1, 70);
  const RequestId first = next_id(rig.last);
  rig.begin(first, prompt);
  const Tables tables = rig.fresh_tables(70, 100);
  rig.alloc(first, 0, tables);
  rig.step({{first, 64, {tables[0], {}}}}, {}, {{1, first, tables[1][1], Tokens{64}}});
  rig.finish_all();
  rig.end(first, 64, {tables[0], {}});
  rig.drain();
  for (int i = 0; i < 8; ++i) BOOST_TEST(rig.load(prompt, 100 * ms).external.n == 64U);
  const LookupAnswer refused = rig.load(prompt, 0);
  BOOST_TEST(refused.external.n == 0U);
  BOOST_TEST((refused.why == Why::cost_gate));
  BOOST_TEST(rig.stat("leases_open_now") == 0U);
}

// A host pool of eight slots over a disk; prompts of four blocks.
struct GateDiskRig : DiskRig {
  explicit GateDiskRig(CostGateMode mode) : DiskRig(one_group(), 8, with_disk(gated(mode, 1000))) {}
  RequestId last = 0;

  void store(std::uint32_t seed) {
    serve(next_id(last), tokens_of(seed, 70), 100);
    settle_all();
  }
  // Takes what is offered: so long from the plan to the reports.
  LookupAnswer load(const TokenIds& prompt, std::uint64_t ns) {
    const RequestId id = next_id(last);
    begin(id, prompt);
    const LookupAnswer answer = lookup(id);
    if (answer.external.n != 0) {
      const JobId job = alloc(id, answer.external.n, fresh_tables(answer.external.n, 500));
      step();
      host.now += ns;
      finish_disk();
      finish(job);
    }
    end(id);
    settle_all();
    return answer;
  }
};

BOOST_AUTO_TEST_CASE(a_hit_on_a_slow_disk_is_refused_and_one_in_host_memory_is_not) {
  GateDiskRig rig(CostGateMode::on);
  for (std::uint32_t seed = 1; seed <= 6; ++seed) rig.store(seed);
  for (int round = 0; round < 2; ++round) {
    for (std::uint32_t seed = 1; seed <= 6; ++seed) rig.load(tokens_of(seed, 70), 100 * ms);
  }
  BOOST_TEST(rig.stat("cost_gate_disk_bytes_per_second_now") > 0U);
  // Nothing was loaded from host memory alone yet: such hits are not judged.
  BOOST_TEST(rig.stat("cost_gate_host_bytes_per_second_now") == 0U);
  const std::uint64_t fills = rig.stat("disk_fills_ok");
  std::uint64_t refused = 0;
  for (std::uint32_t seed = 1; seed <= 6; ++seed) {
    refused += rig.load(tokens_of(seed, 70), 100 * ms).why == Why::cost_gate ? 1 : 0;
  }
  BOOST_TEST(refused >= 4U);
  BOOST_TEST(rig.stat("disk_fills_ok") == fills);
}

BOOST_AUTO_TEST_CASE(what_is_in_host_memory_is_offered_without_what_a_slow_disk_would_add) {
  for (const CostGateMode mode : {CostGateMode::on, CostGateMode::report}) {
    GateDiskRig rig(mode);
    for (std::uint32_t seed = 1; seed <= 6; ++seed) rig.store(seed);
    // Loads from disk take 100 ms, those from host memory 1 ms.
    for (int round = 0; round < 3; ++round) {
      for (std::uint32_t seed = 1; seed <= 4; ++seed) {
        rig.load(tokens_of(seed, 70), 100 * ms);
        for (int i = 0; i < 3; ++i) rig.load(tokens_of(seed, 70), ms);
      }
    }
    BOOST_TEST(rig.stat("cost_gate_host_bytes_per_second_now") > 0U);
    // The host tier keeps the head of a prompt whose tail went.
    rig.serve(next_id(rig.last), tokens_of(50, 33), 100);
    rig.settle_all();
    bool left = false;
    for (std::uint32_t seed = 1; seed <= 6 && !left; ++seed) {
      const RequestId id = next_id(rig.last);
      rig.begin(id, tokens_of(seed, 70));
      const LookupAnswer answer = rig.lookup(id);
      left = answer.external.n > 0 && answer.external.n < 64;
      if (left) {
        BOOST_TEST(has(rig.role->explain(id).value(), "left_on_disk_tokens"));
        BOOST_TEST(rig.lookup(id).external.n == answer.external.n);
      }
      rig.end(id);
      rig.settle_all();
    }
    BOOST_TEST(left == (mode == CostGateMode::on));
    BOOST_TEST(rig.stat("cost_gate_disk_left") > 0U);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
