// The model runs: block copies, writes, sampled tokens, and what the scheduler learns from them
//
#include <algorithm>
#include <cstring>

#include <xxhash.h>

#include "host_stub/engine/engine_body.h"

namespace kvc::host {
namespace {

constexpr std::uint64_t digest_seed = 0x6B76632E72756E31U;  // "kvc.run1"

// A job keeps the bytes of the tokens that it names; the owner may write later tokens of the same
// block meanwhile, although the copy takes the whole block (design 2.3, Holds). Nobody reads what
// that copy got behind the named tokens, but neither TSan nor the fake
// device can know: there the owner waits for the copy.
#if defined(__SANITIZE_THREAD__)
constexpr bool orders_shared_blocks = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr bool orders_shared_blocks = true;
#else
constexpr bool orders_shared_blocks = false;
#endif
#else
constexpr bool orders_shared_blocks = false;
#endif
constexpr std::uint64_t order_wait_ns = 10'000'000'000;

}  // namespace

const std::vector<BlockId>& Engine::Body::table_of(const WorkItem& item, GroupId group) const {
  return item.own_tables ? item.tables[group] : item.request->tables[group].blocks;
}

void Engine::Body::run_oldest(StepResult& result) {
  std::unique_ptr<Step> step = std::move(in_flight.front());
  in_flight.erase(in_flight.begin());
  forward(*step);
  process_outputs(*step, result);
  step->copies.clear();
  step->copy_references.clear();
  step->work.clear();
  step->tokens = 0;
  step->loads_in_step = step->copied = false;
  step->layer_fences.clear();
  spare_steps.push_back(std::move(step));
}

void Engine::Body::run_copies(Step& step) {
  if (step.copied) return;
  step.copied = true;
  in_stream([&] {
    for (const BlockCopy& copy : step.copies) {
      for (const auto& rank : memory) {
        const std::uint64_t bytes = rank->block_bytes().n;
        rank->touched(rank->block(copy.from), bytes, false);
        rank->touched(rank->block(copy.to), bytes, true);
        std::memcpy(rank->block(copy.to), rank->block(copy.from), bytes);
      }
    }
  });
  if (link) link->copies_done(step.number);
}

void Engine::Body::forward(Step& step) {
  run_copies(step);
  const bool ordered = (orders_shared_blocks && !options.stepped) || compute_device != nullptr;
  for (const WorkItem& item : step.work) {
    if (ordered) wait_for_copies_of_opened_blocks(item, step);
  }
  for (std::uint64_t layer = 0; layer < model->layers(); ++layer) {
    wait_for_layer(step, layer);
    in_stream([&] {
      for (WorkItem& item : step.work) compute(item, layer);
    });
  }
  if (link) link->forward_done(step.number);
  KVC_CHECK(device->pool().free(step.copy_references) == Code::ok);
}

// Does `work` where the model runs: as the oldest turn of the device's stream, or here.
void Engine::Body::in_stream(const std::function<void()>& work) {
  if (compute_device != nullptr) {
    compute_device->take_turn(work);
  } else {
    work();
  }
}

// Jobs of earlier plans that name a block in whose middle this chunk begins.
void Engine::Body::wait_for_copies_of_opened_blocks(const WorkItem& item, const Step& step) {
  if (!link_alive()) return;
  std::vector<kvc_job> jobs;
  for (const GroupId g : geometry.cacheable()) {
    const std::uint64_t span = geometry.block_tokens(g).n;
    if (item.begin % span == 0 || geometry.group(g).kind == GroupKind::state) continue;
    device->jobs_on(table_of(item, g)[item.begin / span], step.number, jobs);
  }
  // Of its own load in step each layer is waited for.
  if (item.loads_to != 0) std::erase(jobs, item.request->load.job);
  if (!jobs.empty()) link->wait(jobs, order_wait_ns);
}

void Engine::Body::compute(WorkItem& item, std::uint64_t layer) {
  Request& r = *item.request;
  const bool dead = item.life != r.life;
  if (item.loads_to != 0 && !dead && options.verify) verify_layer(item, layer);
  for (const GroupId g : geometry.cacheable()) {
    if (geometry.group(g).kind == GroupKind::state) {
      compute_state(item, g, layer);
    } else {
      model->write_tokens(g, table_of(item, g), r.prefix, item.begin, item.end, layer);
    }
  }
  if (layer + 1 == model->layers() && !dead && options.verify && item.end >= r.prompt() &&
      !r.verified && !r.load.in_step) {
    verify_prefix(item);
  }
  if (!item.samples) return;
  read_layer(item, layer);
  if (layer + 1 == model->layers() && !dead) sample(item);
}

// The state before the chunk is read from its block; what follows is folded from it, so a stale
// state spreads.
void Engine::Body::compute_state(WorkItem& item, GroupId group, std::uint64_t layer) {
  const Request& r = *item.request;
  const std::vector<BlockId>& table = table_of(item, group);
  const std::uint64_t span = geometry.block_tokens(group).n;
  const bool everywhere = geometry.is_state_all(group);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    std::uint64_t at = item.begin;
    std::uint64_t state = model->root(r.spec.salt);
    if (at > 0) state = model->load_state(group, table[(at - 1) / span], rank, layer);
    while (at < item.end) {
      const std::uint64_t to = everywhere ? std::min(item.end, (at / span + 1) * span) : item.end;
      const std::uint64_t expected = at == 0 ? model->root(r.spec.salt) : r.prefix[at - 1];
      if (state == expected) {
        state = r.prefix[to - 1];  // the fold of a right state is known
      } else {
        for (std::uint64_t t = at; t < to; ++t) state = Model::fold(state, r.tokens[t]);
      }
      const BlockId block = table[(to - 1) / span];
      KVC_CHECK(block != null_block);
      model->store_state(group, block, rank, state, layer);
      at = to;
    }
  }
}

void Engine::Body::read_layer(WorkItem& item, std::uint64_t layer) {
  const std::uint64_t end = item.end;
  for (const GroupId g : geometry.cacheable()) {
    const GroupSpec& group = geometry.group(g);
    const std::vector<BlockId>& table = table_of(item, g);
    std::uint64_t begin = 0;
    switch (group.kind) {
      case GroupKind::state:
        item.hashes.push_back(
            model->read_state(g, table[(end - 1) / geometry.block_tokens(g).n], layer));
        continue;
      case GroupKind::sliding:
        begin = end - std::min(end, group.window.n);
        break;
      case GroupKind::chunked:
        begin = (end - 1) / group.window.n * group.window.n;
        break;
      case GroupKind::full:
      case GroupKind::other:
        break;
    }
    item.hashes.push_back(model->read_tokens(g, table, begin, end, layer));
  }
}

void Engine::Body::sample(const WorkItem& item) {
  Request& r = *item.request;
  const TokenId token = model->sample(item.hashes, item.end);
  r.tokens.push_back(token);
  r.prefix.push_back(Model::fold(r.prefix.back(), token));
}

void Engine::Body::check(const std::optional<Mismatch>& wrong) {
  ++counters.verified_blocks;
  if (!wrong) return;
  ++counters.mismatched_blocks;
  if (!first_mismatch.empty()) return;
  first_mismatch = wrong->text();
  log(KVC_LOG_ERROR, "first wrong block: " + first_mismatch);
}

// Every block that the request holds below what is computed now.
void Engine::Body::verify_prefix(const WorkItem& item) {
  Request& r = *item.request;
  r.verified = true;
  for (const GroupId g : geometry.cacheable()) {
    const std::vector<BlockId>& table = table_of(item, g);
    const std::uint64_t span = geometry.block_tokens(g).n;
    const bool state = geometry.group(g).kind == GroupKind::state;
    const std::uint64_t positions = ceil_div(item.end, span);
    for (std::uint64_t p = geometry.first_needed_position(g, {item.end}); p < positions; ++p) {
      if (table[p] == null_block) continue;
      const std::uint64_t end = std::min(item.end, (p + 1) * span);
      for (std::uint64_t layer = 0; layer < model->layers(); ++layer) {
        check(state ? model->verify_state(g, p, table[p], r.prefix, end, layer)
                    : model->verify_tokens(g, p, table[p], r.prefix, end, layer));
      }
    }
  }
}

void Engine::Body::process_outputs(Step& step, StepResult& result) {
  for (WorkItem& item : step.work) {
    Request& r = *item.request;
    --r.in_flight;
    if (r.phase == Phase::over || !item.samples || item.life != r.life) continue;
    if (item.loads_to != 0 && r.load.in_step) {
      r.load.output_waits = true;
    } else {
      give_output(item.request, result);
    }
  }
  result.progressed |= !step.work.empty();
}

void Engine::Body::give_output(const RequestPtr& request, StepResult& result) {
  Request& r = *request;
  ++r.known;
  const std::uint64_t first = r.keys.count();
  if (r.keys.extend(std::span(r.tokens).first(r.known)) > 0) tell_new_keys(r, first);
  if (r.known - r.prompt() == r.spec.output_tokens) finish(request, KVC_END_LENGTH, &result);
}

void Engine::Body::finish(const RequestPtr& request, std::int32_t reason, StepResult* result) {
  Request& r = *request;
  tell_end(r, reason);
  free_tables(r);
  switch (r.phase) {
    case Phase::waiting:
      remove_from(waiting, r);
      break;
    case Phase::loading:
      remove_from(loading, r);
      break;
    case Phase::running:
      remove_from(running, r);
      break;
    case Phase::over:
      break;
  }
  r.phase = Phase::over;
  live.erase(r.id);
  FinishedRequest done;
  done.id = r.id;
  done.index = r.index;
  done.reason = reason;
  done.prompt_tokens = r.prompt();
  done.local_tokens = r.local;
  done.external_tokens = r.external;
  done.computed_tokens = r.computed_first;
  done.outputs = std::span(r.tokens).subspan(r.prompt(), r.known - r.prompt());
  done.output_digest =
      XXH3_64bits_withSeed(done.outputs.data(), done.outputs.size_bytes(), digest_seed);
  if (reason == KVC_END_LENGTH) {
    ++counters.requests;
    counters.prompt_tokens += r.prompt();
    counters.output_tokens += done.outputs.size();
    counters.local_hit_tokens += r.local;
    counters.external_hit_tokens += r.external;
    counters.computed_tokens += r.computed_first;
    digests[r.index] = done.output_digest;
  }
  if (result != nullptr) ++result->finished;
  if (finished_callback) finished_callback(done);
}

}  // namespace kvc::host
