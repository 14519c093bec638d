#include "conformance/validate/c_structs.h"

#include <cstring>

#include <kvc/kvc_util.h>

namespace kvc::validate {
namespace {

template <class T>
T* array_of(Arena& a, std::size_t count) {
  return static_cast<T*>(a.take(count * sizeof(T)));
}

template <class T>
T* one(Arena& a) {
  T* const t = array_of<T>(a, 1);
  if (t != nullptr) t->struct_size = sizeof(T);
  return t;
}

const void* raw(Arena& a, const void* data, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* const to = a.take(bytes);
  if (to != nullptr) std::memcpy(to, data, bytes);
  return to;
}

// An array of C from values, `fill(T&, value)` each; false: no room.
template <class T, class V, class Fill>
bool list_of(Arena& a, const std::vector<V>& values, kvc_list& out, const Fill& fill) {
  out = kvc_list_of(nullptr, values.size(), sizeof(T));
  if (values.empty()) return true;
  T* const elements = array_of<T>(a, values.size());
  if (elements == nullptr) return false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    elements[i].struct_size = sizeof(T);
    if (!fill(elements[i], values[i])) return false;
  }
  out.data = elements;
  return true;
}

bool tables_of(Arena& a, const std::vector<Table>& tables, kvc_list& out) {
  return list_of<kvc_table>(a, tables, out, [&](kvc_table& t, const Table& in) {
    t.group = in.group;
    t.count = in.blocks.size();
    t.first_changed = in.first_changed;
    t.blocks = static_cast<const std::int64_t*>(
        raw(a, in.blocks.data(), in.blocks.size() * sizeof(std::int64_t)));
    return t.blocks != nullptr || t.count == 0;
  });
}

bool handoffs_of(Arena& a, const std::vector<Handoff>& handoffs, kvc_list& out) {
  return list_of<kvc_handoff>(a, handoffs, out, [](kvc_handoff& h, const Handoff& in) {
    h.group = in.group;
    h.request = in.request;
    h.block = in.block;
    h.boundary_tokens = in.boundary;
    return true;
  });
}

bool candidates_of(Arena& a, const std::vector<Candidate>& candidates, kvc_list& out) {
  return list_of<kvc_candidate>(a, candidates, out, [&](kvc_candidate& c, const Candidate& in) {
    c.group = in.group;
    c.block = in.block;
    c.end_tokens = in.end;
    c.key = static_cast<const std::uint8_t*>(raw(a, in.key.data(), in.key.size()));
    return c.key != nullptr;
  });
}

bool classes_of(Arena& a, const std::vector<ClassInfo>& classes, kvc_list& out) {
  return list_of<kvc_class>(a, classes, out, [](kvc_class& c, const ClassInfo& in) {
    c.class_id = in.class_id;
    c.group_mask = in.group_mask;
    c.slots_per_page = in.slots_per_page;
    c.bytes_per_block = in.bytes_per_block;
    c.usable_slots = in.usable_slots;
    return true;
  });
}

kvc_list* list_at(Arena& a) { return array_of<kvc_list>(a, 1); }

}  // namespace

void* HeapArena::take(std::size_t bytes) {
  const std::size_t units = bytes / sizeof(std::max_align_t) + 1;
  pieces_.push_back(std::make_unique<std::max_align_t[]>(units));
  std::memset(pieces_.back().get(), 0, units * sizeof(std::max_align_t));
  return pieces_.back().get();
}

bool c_bytes(Arena& a, const ByteString& bytes, kvc_bytes& out) {
  out = kvc_bytes_of(raw(a, bytes.data(), bytes.size()), bytes.size());
  return out.data != nullptr || out.size == 0;
}

const kvc_open* c_open(Arena& a, const OpenIn& in) {
  kvc_open* const o = one<kvc_open>(a);
  if (o == nullptr) return nullptr;
  const bool groups =
      list_of<kvc_group>(a, in.groups, o->groups, [](kvc_group& g, const GroupInfo& info) {
        g.kind = info.kind;
        g.caps = info.caps;
        g.caps_known = info.caps_known;
        g.tokens_per_block = info.tokens_per_block;
        g.window_tokens = info.window;
        g.extra_retained_tokens = info.extra_retained;
        return true;
      });
  o->rank = in.rank;
  o->flags = in.flags;
  o->hash_unit_tokens = in.hash_unit;
  o->scheduler_block_tokens = in.scheduler_block;
  o->context_parallel = in.context_parallel;
  o->ranks = in.ranks;
  o->cp_interleave_tokens = in.cp_interleave;
  o->device_blocks = in.device_blocks;
  o->null_block = in.null_block;
  o->key_bytes = in.key_bytes;
  o->lookahead_tokens = in.lookahead;
  o->max_prompt_tokens = in.max_prompt;
  o->max_total_tokens = in.max_total;
  o->max_batch_tokens = in.max_batch;
  o->max_live_requests = in.max_live;
  o->max_running = in.max_running;
  o->max_request_bytes = in.max_request_bytes;
  o->max_steps_in_flight = in.max_steps_in_flight;
  o->retention_tokens = in.retention;
  return groups && c_bytes(a, in.name_space, o->namespace_id) && c_bytes(a, in.toml, o->config_toml)
             ? o
             : nullptr;
}

const kvc_list* c_ranks(Arena& a, const SetRanksIn& in) {
  kvc_list* const list = list_at(a);
  if (list == nullptr) return nullptr;
  const bool done =
      list_of<kvc_rank_info>(a, in.ranks, *list, [&](kvc_rank_info& r, const RankInfo& info) {
        r.rank = info.rank;
        r.pages = info.pages;
        return classes_of(a, info.classes, r.classes) && c_bytes(a, info.inventory, r.inventory);
      });
  return done ? list : nullptr;
}

const kvc_request* c_begin(Arena& a, const BeginIn& in) {
  kvc_request* const r = one<kvc_request>(a);
  if (r == nullptr) return nullptr;
  r->flags = in.flags;
  r->request = in.request;
  r->prompt_tokens = in.prompt;
  r->keys = static_cast<const std::uint8_t*>(raw(a, in.keys.data(), in.keys.size()));
  r->n_keys = in.n_keys;
  r->load_limit_tokens = in.load_limit;
  r->store_limit_tokens = in.store_limit;
  return r->keys != nullptr || in.keys.empty() ? r : nullptr;
}

const kvc_extend* c_extend(Arena& a, const ExtendIn& in) {
  kvc_extend* const x = one<kvc_extend>(a);
  if (x == nullptr) return nullptr;
  x->request = in.request;
  x->first_key = in.first_key;
  x->keys = static_cast<const std::uint8_t*>(raw(a, in.keys.data(), in.keys.size()));
  x->n_keys = in.n_keys;
  return x->keys != nullptr || in.keys.empty() ? x : nullptr;
}

const kvc_lookup_in* c_lookup(Arena& a, const LookupIn& in) {
  kvc_lookup_in* const q = one<kvc_lookup_in>(a);
  if (q == nullptr) return nullptr;
  q->flags = in.flags;
  q->request = in.request;
  q->total_tokens = in.total;
  q->device_tokens = in.device;
  q->external_cap_tokens = in.cap;
  return q;
}

const kvc_retention_in* c_retention(Arena& a, const RetentionIn& in) {
  kvc_retention_in* const q = one<kvc_retention_in>(a);
  if (q == nullptr) return nullptr;
  q->flags = in.flags;
  q->request = in.request;
  q->begin_tokens = in.begin;
  return q;
}

const kvc_load_in_step* c_in_step(Arena& a, const InStepIn& in) {
  kvc_load_in_step* const q = one<kvc_load_in_step>(a);
  if (q == nullptr) return nullptr;
  q->flags = in.flags;
  q->request = in.request;
  q->job = in.job;
  return q;
}

const kvc_alloc_in* c_alloc(Arena& a, const AllocIn& in) {
  kvc_alloc_in* const x = one<kvc_alloc_in>(a);
  if (x == nullptr) return nullptr;
  x->flags = in.flags;
  x->request = in.request;
  x->accepted_tokens = in.accepted;
  return tables_of(a, in.tables, x->tables) ? x : nullptr;
}

const kvc_step* c_step(Arena& a, const StepIn& in) {
  kvc_step* const s = one<kvc_step>(a);
  if (s == nullptr) return nullptr;
  s->step = in.step;
  const bool scheduled = list_of<kvc_step_request>(a, in.scheduled, s->scheduled,
                                                   [&](kvc_step_request& r, const Scheduled& mine) {
                                                     r.flags = mine.flags;
                                                     r.request = mine.request;
                                                     r.confirmed_tokens = mine.confirmed;
                                                     return tables_of(a, mine.tables, r.tables);
                                                   });
  s->preempted = static_cast<const std::uint64_t*>(
      raw(a, in.preempted.data(), in.preempted.size() * sizeof(std::uint64_t)));
  s->n_preempted = in.preempted.size();
  const bool preempted = s->preempted != nullptr || in.preempted.empty();
  return scheduled && preempted && handoffs_of(a, in.handoffs, s->handoffs) &&
                 candidates_of(a, in.candidates, s->candidates)
             ? s
             : nullptr;
}

const kvc_bytes* c_reports(Arena& a, const std::vector<ByteString>& reports) {
  kvc_bytes* const all = array_of<kvc_bytes>(a, reports.size() + 1);
  if (all == nullptr) return nullptr;
  for (std::size_t i = 0; i < reports.size(); ++i) {
    if (!c_bytes(a, reports[i], all[i])) return nullptr;
  }
  return all;
}

const kvc_end_in* c_end(Arena& a, const EndIn& in) {
  kvc_end_in* const e = one<kvc_end_in>(a);
  if (e == nullptr) return nullptr;
  e->reason = in.reason;
  e->request = in.request;
  e->confirmed_tokens = in.confirmed;
  return tables_of(a, in.tables, e->tables) && handoffs_of(a, in.handoffs, e->handoffs) ? e
                                                                                        : nullptr;
}

const kvc_list* c_regions(Arena& a, const RegionsIn& in) {
  kvc_list* const list = list_at(a);
  if (list == nullptr) return nullptr;
  const bool done =
      list_of<kvc_region>(a, in.regions, *list, [](kvc_region& r, const Region& mine) {
        r.device_kind = mine.device_kind;
        r.device_ordinal = mine.device_ordinal;
        r.layer = mine.layer;
        r.base = reinterpret_cast<std::uint8_t*>(static_cast<std::uintptr_t>(mine.base));
        r.size_bytes = mine.size;
        r.block_stride_bytes = mine.stride;
        r.block_bytes = mine.block_bytes;
        r.group_mask = mine.group_mask;
        return true;
      });
  return done ? list : nullptr;
}

}  // namespace kvc::validate
