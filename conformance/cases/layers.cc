// kvc.layerwise/1: loads that the forward of their step reads layer by layer.
#include <kvc/kvc_layerwise.h>
#include <kvc/kvc_util.h>

#include <algorithm>
#include <cstring>

#include "conformance/cases/families.h"
#include "conformance/cases/support.h"
#include "host_stub/loader/status_text.h"

namespace kvc::conform {

namespace {

const kvc_layerwise_api& layerwise(Context& c) {
  const auto* const table = static_cast<const kvc_layerwise_api*>(
      c.api().extension(kvc_text_of(KVC_LAYERWISE_EXTENSION)));
  if (table == nullptr) Context::skip("the connector has no kvc.layerwise/1");
  c.need(KVC_CAN(table, kvc_layerwise_api, load_in_step) &&
             KVC_CAN(table, kvc_layerwise_api, layer_fence),
         "KVC-P-141", "the table has not both functions");
  return *table;
}

kvc_status in_step(World& w, const kvc_layerwise_api& t, std::uint64_t request, kvc_job job,
                   std::uint32_t flags = 0) {
  const kvc_load_in_step in{sizeof in, flags, request, job};
  return t.load_in_step(w.sched(), &in);
}

enum class Layer { there, coming, bad };

Layer look(Context& c, World& w, const kvc_layerwise_api& t, std::uint32_t rank, std::uint64_t step,
           std::uint32_t layer) {
  auto f = sized<kvc_fence>();
  const kvc_status s = t.layer_fence(w.rank(rank), step, layer, &f);
  if (s == KVC_LATER) return Layer::coming;
  c.expect(s == KVC_OK, "KVC-P-141", "layer_fence of step {} and layer {} answered {}", step, layer,
           host::Said{s});
  if (s != KVC_OK) return Layer::bad;
  switch (f.kind) {
    case KVC_FENCE_NONE:
      return Layer::there;
    case KVC_FENCE_CUDA_EVENT:
      return Layer::coming;
    case KVC_FENCE_COUNTER:
      c.need(f.counter != nullptr, "KVC-P-141", "layer {} waits for a counter at no address",
             layer);
      return __atomic_load_n(f.counter, __ATOMIC_ACQUIRE) >= f.value ? Layer::there : Layer::coming;
    default:
      c.expect(false, "KVC-P-141", "layer {} waits for a fence of kind {}", layer, f.kind);
      return Layer::bad;
  }
}

// The next plan, which has the load that was taken in step.
Planned plan_with(Context& c, World& w, kvc_job load) {
  Planned p = w.plan();
  c.expect(std::find(p.loads.begin(), p.loads.end(), load) != p.loads.end(), "KVC-P-141",
           "the load in step, job {}, is not in the plan of step {}", load, p.step);
  return p;
}

// A little work of a connector that is stepped; others work by themselves.
void go_on(World& w) {
  for (std::uint32_t r = 0; r < w.setup().ranks; ++r) {
    if (w.stepped()) static_cast<void>(w.api().pump_rank(w.rank(r), 1));
  }
}

// The first block of group 0 that differs in this layer from what request 1 has there; -1: none.
std::int64_t wrong_block(World& w, std::uint32_t rank, std::uint32_t layer, std::uint64_t request,
                         std::uint64_t tokens) {
  const auto& from = w.request(1).tables[0];
  const auto& to = w.request(request).tables[0];
  for (std::uint64_t p = 0; p < tokens / w.block_tokens(0); ++p) {
    if (std::memcmp(w.memory(rank).block(0, layer, from[p]), w.memory(rank).block(0, layer, to[p]),
                    w.memory(rank).block_bytes(0)) != 0) {
      return to[p];
    }
  }
  return -1;
}

// Request 1 runs and is stored, request 2 has accepted its hit of so many tokens as a load in step.
struct Started {
  kvc_job job = 0;
  std::uint64_t hit = 0;
};
Started start(Context& c, World& w, const kvc_layerwise_api& t) {
  const Tokens tokens = prompt(1, 4);
  w.run(1, tokens);
  Started s;
  s.hit = stored_hit(c, w, tokens, 64);
  w.begin(2, tokens);
  w.lookup(2);
  s.job = w.take(2, s.hit);
  const kvc_status status = in_step(w, t, 2, s.job);
  if (status == KVC_LATER) Context::skip("the only load of a plan is not taken in step");
  c.need(status == KVC_OK, "KVC-P-141", "load_in_step of the open load answered {}: {}",
         host::Said{status}, w.last_error());
  return s;
}

void finish(World& w) {
  w.end(1);
  w.end(2, KVC_END_ABORT, 0);
  w.drain();
  w.check_quiet();
}

void form(Context& c) {
  const kvc_layerwise_api& t = layerwise(c);
  World w(c, c.plain());
  c.expect(in_step(w, t, 7, 1) == KVC_E_ARG, "KVC-P-141", "an unknown request is no KVC_E_ARG");
  const Started s = start(c, w, t);
  c.expect(in_step(w, t, 2, s.job) == KVC_OK, "KVC-P-141", "the same question again is no KVC_OK");
  c.expect(in_step(w, t, 2, s.job + 1) == KVC_E_ARG, "KVC-P-141", "another job is no KVC_E_ARG");
  c.expect(in_step(w, t, 1, s.job) == KVC_E_ARG, "KVC-P-141",
           "the load of another request is no KVC_E_ARG");
  c.expect(in_step(w, t, 2, s.job, 1U << 31U) == KVC_E_UNSUPPORTED, "KVC-P-141",
           "an unknown flag is no KVC_E_UNSUPPORTED");
  kvc_load_in_step small{sizeof small - 8, 0, 2, s.job};
  c.expect(t.load_in_step(w.sched(), &small) == KVC_E_ARG, "KVC-P-141",
           "half a struct is no KVC_E_ARG");
  const Planned p = plan_with(c, w, s.job);
  c.expect(in_step(w, t, 2, s.job) == KVC_E_STATE, "KVC-P-141",
           "a load that was planned is no KVC_E_STATE");
  auto f = sized<kvc_fence>();
  c.expect(t.layer_fence(w.rank(0), p.step, 0, &f) == KVC_E_STATE, "KVC-P-141",
           "a plan that was not submitted is no KVC_E_STATE");
  c.expect(t.layer_fence(w.rank(0), p.step, 0, nullptr) == KVC_E_ARG, "KVC-P-141",
           "no room is no KVC_E_ARG");
  w.submit(p);
  w.pump();
  w.complete(w.reports());
  for (std::uint32_t layer = 0; layer < w.setup().layers + 1; ++layer) {
    c.expect(look(c, w, t, 0, p.step, layer) == Layer::there, "KVC-P-141",
             "layer {} of a load that is over is not there", layer);
  }
  finish(w);
}

// Behind its fence a layer's bytes are there, and they come behind the fence of the loads.
void layers_land_one_by_one(Context& c) {
  const kvc_layerwise_api& t = layerwise(c);
  Setup setup = two_ranks(c);
  setup.layers = 5;
  World w(c, setup);
  const Started s = start(c, w, t);
  w.allocate_for_compute(2, 65);
  w.schedule(2, 0);
  const Planned p = plan_with(c, w, s.job);
  for (std::uint32_t r = 0; r < 2; ++r) w.submit_to(r, p, 5);
  for (int i = 0; i < 5; ++i) go_on(w);
  for (std::uint32_t layer = 0; layer < 5; ++layer) {
    c.expect(look(c, w, t, 0, p.step, layer) == Layer::coming, "KVC-P-141",
             "layer {} is there, the fence of its load is not reached", layer);
  }
  w.reach(5);
  const std::uint64_t looks_max = w.stepped() ? 1'000'000 : 100'000'000;
  for (std::uint32_t layer = 0; layer < 5; ++layer) {
    for (std::uint32_t r = 0; r < 2; ++r) {
      std::uint64_t looks = 0;
      while (look(c, w, t, r, p.step, layer) == Layer::coming) {
        go_on(w);
        c.need(++looks < looks_max, "KVC-P-141", "layer {} never comes", layer);
      }
      const std::int64_t wrong = wrong_block(w, r, layer, 2, s.hit);
      c.expect(wrong < 0, "KVC-P-141", "block {} of layer {} on rank {} is not there", wrong, layer,
               r);
    }
  }
  w.pump();
  const Completed done = w.complete(w.reports());
  c.expect(done.verdicts.size() == 1 && done.verdicts[0].status == KVC_OK, "KVC-P-091",
           "the load in step has {} verdicts", done.verdicts.size());
  finish(w);
}

// Whatever the record says, what comes of the load waits for its verdict.
void stores_wait_for_the_verdict(Context& c) {
  const kvc_layerwise_api& t = layerwise(c);
  for (const bool confirms : {false, true}) {
    World w(c, c.plain());
    const Started s = start(c, w, t);
    w.extend(2, tokens_of(9, 31));
    w.allocate_for_compute(2, 96);
    w.schedule(2, confirms ? 96 : 0);
    const Planned p = plan_with(c, w, s.job);
    c.expect(p.stores.empty(), "KVC-P-142", "{} stores in the plan of a load in step",
             p.stores.size());
    w.submit(p);
    w.pump();
    w.write(w.request(2), s.hit, 96);
    w.request(2).computed = 96;
    w.complete(w.reports());
    w.schedule(2, 96);
    w.step();
    w.drain();
    w.end(1);
    w.end(2, KVC_END_STOP, 96);
    w.drain();
    // A good load behind it: what was stored under the keys is right.
    w.begin(3, prompt(1, 4) + tokens_of(9, 31));
    w.load(3);
    w.end(3, KVC_END_ABORT, 0);
    w.drain();
    w.check_quiet();
  }
}

void failed_loads_reach_every_fence(Context& c) {
  const kvc_layerwise_api& t = layerwise(c);
  for (std::uint64_t countdown = 0; countdown < 6; ++countdown) {
    World w(c, c.plain());
    const Started s = start(c, w, t);
    w.allocate_for_compute(2, 65);
    w.schedule(2, 0);
    const Planned p = plan_with(c, w, s.job);
    const Fault fault(c, "copy.load", countdown);
    if (!fault.there()) Context::skip("fault points: the connector was built without");
    w.submit(p);
    w.pump();
    const bool failed = fault.tripped();
    for (std::uint32_t layer = 0; layer < w.setup().layers; ++layer) {
      c.expect(look(c, w, t, 0, p.step, layer) == Layer::there, "KVC-P-141",
               "layer {} of a load that is over never comes", layer);
    }
    const Completed done = w.complete(w.reports());
    c.need(done.verdicts.size() == 1, "KVC-P-091", "{} verdicts on one load", done.verdicts.size());
    c.expect((done.verdicts[0].status < 0) == failed, "KVC-P-095", "a load ended {}, a copy {}",
             host::Said{done.verdicts[0].status}, failed ? "failed" : "did not fail");
    if (failed) w.preempt(2);
    w.step();
    finish(w);
  }
}

constexpr Case cases[] = {
    {"layers.the_table_has_its_form", "KVC-P-141", form},
    {"layers.land_one_by_one", "KVC-P-141", layers_land_one_by_one},
    {"layers.stores_wait_for_the_verdict", "KVC-P-142", stores_wait_for_the_verdict},
    {"layers.failed_loads_reach_every_fence", "KVC-P-141", failed_loads_reach_every_fence},
};

}  // namespace

std::span<const Case> layer_cases() { return cases; }

}  // namespace kvc::conform
