// Requests that run in the step of their load, whose forward waits for each layer (kvc.layerwise/1,
// docs/layerwise.md).
#include <algorithm>
#include <span>
#include <thread>
#include <utility>

#include "host_stub/engine/engine_body.h"

namespace kvc::host {
namespace {

// At a stepped connector that gets nowhere.
constexpr std::uint64_t looks_max = 1'000'000;

}  // namespace

// The load is in the coming plan, so the request may be computed behind it. If not it is one that
// waits for its load, as without the extension.
void Engine::Body::run_in_step(const RequestPtr& request, Step& step, std::uint64_t& budget) {
  if (!options.loads_in_step || !link_alive()) return;
  Request& r = *request;
  const std::uint64_t chunk = clip(r, r.computed, std::min(r.available() - r.computed, budget));
  if (chunk == 0 || !link->in_step(r.id, r.load.job)) return;
  if (!grow(r, r.computed + chunk, step)) return;
  r.load.in_step = true;
  ++counters.loads_in_step;
  budget -= chunk;
  add_work(step, request, r.computed + chunk);
}

// What each layer of this step's forward waits for. While that is not with the device nothing can
// be launched, and whatever stands before it has to go on. On a device each layer is a turn.
void Engine::Body::launch_layers(Step& step, StepResult& result) {
  if (compute_device == nullptr && !step.loads_in_step) return;
  step.layer_fences.resize(step.loads_in_step ? model->layers() : 0);
  std::uint64_t looks = 0;
  const std::uint64_t since = now();
  for (std::uint64_t layer = 0; layer < model->layers(); ++layer) {
    std::span<const kvc_fence> fences;
    if (step.loads_in_step && layer != options.layer_without_wait) {
      while (!link->layer_fences(layer, step.layer_fences[layer])) {
        if (!in_flight.empty()) {
          run_oldest(result);
        } else if (!step.copied) {
          run_copies(step);
        } else {
          let_copies_go_on();
        }
        if (tired(++looks, since)) link->fail("a layer of a load in step does not come");
      }
      fences = step.layer_fences[layer];
    }
    if (compute_device != nullptr) link->launch_layer(fences);
  }
}

bool Engine::Body::tired(std::uint64_t looks, std::uint64_t since) const {
  return options.stepped ? looks >= looks_max : now() - since > patience();
}

void Engine::Body::let_copies_go_on() {
  if (!options.stepped) return std::this_thread::yield();
  for (std::uint32_t rank = 0; rank < ranks; ++rank) link->pump_rank(rank, 1);
}

// Without a device: the forward has come to the layer, and waits as a kernel would. Also with a
// connector that was given up: until it is closed its threads go on.
void Engine::Body::wait_for_layer(const Step& step, std::uint64_t layer) {
  if (!step.loads_in_step || compute_device != nullptr || layer >= step.layer_fences.size()) return;
  std::uint64_t looks = 0;
  const std::uint64_t since = now();
  for (const kvc_fence& fence : step.layer_fences[layer]) {
    if (fence.kind != KVC_FENCE_COUNTER) continue;
    while (__atomic_load_n(fence.counter, __ATOMIC_ACQUIRE) < fence.value) {
      if (options.stepped && !link_alive()) return;
      let_copies_go_on();
      if (!tired(++looks, since)) continue;
      link->fail("a layer of a load in step does not come");
      return;
    }
  }
}

template <class Tables, class Check>
void Engine::Body::for_each_loaded(const Request& r, Tables tables, std::uint64_t from,
                                   std::uint64_t to, std::uint64_t layer, Check checked) const {
  for_each_needed(geometry, Tokens{from}, Tokens{to}, [&](GroupId g, std::uint64_t p) {
    const BlockId block = tables(g)[p];
    const std::uint64_t end = std::min(to, (p + 1) * geometry.block_tokens(g).n);
    checked(geometry.group(g).kind == GroupKind::state
                ? model->verify_state(g, p, block, r.prefix, end, layer)
                : model->verify_tokens(g, p, block, r.prefix, end, layer));
  });
}

void Engine::Body::verify_load(const Request& r) {
  const auto tables = [&](GroupId g) -> const std::vector<BlockId>& { return r.tables[g].blocks; };
  for (std::uint64_t layer = 0; layer < model->layers(); ++layer) {
    for_each_loaded(r, tables, r.load.local_tokens, r.load.local_tokens + r.load.external_tokens,
                    layer, [&](const std::optional<Mismatch>& wrong) { check(wrong); });
  }
}

// What came is compared before the forward writes behind it. A load that fails may bring anything.
void Engine::Body::verify_layer(const WorkItem& item, std::uint64_t layer) {
  Request& r = *item.request;
  const auto tables = [&](GroupId g) -> const std::vector<BlockId>& { return table_of(item, g); };
  for_each_loaded(r, tables, item.loads_from, item.loads_to, layer,
                  [&](const std::optional<Mismatch>& wrong) {
                    if (!r.load.in_step) return check(wrong);
                    ++r.load.blocks_checked;
                    if (wrong && ++r.load.blocks_wrong == 1) r.load.first_wrong = wrong->text();
                  });
}

void Engine::Body::landed_in_step(const RequestPtr& request, StepResult& result) {
  Request& r = *request;
  const LoadState load = std::move(r.load);
  const std::uint64_t end = load.local_tokens + load.external_tokens;
  counters.verified_blocks += load.blocks_checked;
  counters.mismatched_blocks += load.blocks_wrong;
  if (first_mismatch.empty() && load.blocks_wrong != 0) {
    first_mismatch = load.first_wrong;
    log(KVC_LOG_ERROR, "first wrong block: " + first_mismatch);
  }
  count_hits(r, load.local_tokens, end);
  count_computed(r, end, r.computed);
  r.load = {};
  r.failed_loads = 0;
  r.unregistered = true;
  r.phase = Phase::running;
  remove_from(loading, r);
  insert_by_arrival(running, request);
  if (load.output_waits) give_output(request, result);
}

// What was computed of it, and the token that came of that, never were. To the connector it is a
// preemption.
void Engine::Body::failed_in_step(Request& r) {
  ++r.life;
  r.reached = std::max(r.reached, r.computed);
  if (r.load.samples) {
    --r.sampled;
    const std::size_t tokens = std::min<std::size_t>(r.tokens.size(), r.available());
    r.tokens.resize(tokens);
    r.prefix.resize(tokens);
  }
  r.tell_preempted = true;
  r.resumed = true;
  r.asked_begin = UINT64_MAX;
}

void Engine::Body::register_landed(Request& r) {
  if (!std::exchange(r.unregistered, false)) return;
  register_chunk(r, r.computed);
}

}  // namespace kvc::host
