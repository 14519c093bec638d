// Every prefix length of every struct, larger strides, flags and reserved fields: what lets either
// side be newer than the other.
#include <kvc/kvc_util.h>

#include <algorithm>

#include "conformance/cases/families.h"
#include "conformance/cases/support.h"
#include "host_stub/loader/status_text.h"

namespace kvc::conform {

namespace {

// What becomes of a struct whose writer knew more: a wish that is not known is refused; an element
// of a step record may also be skipped; functions that a newer host offers are not used.
enum class Tail { refused, refused_or_skipped, ignored };

// `call` with every size of the struct that `good` makes: shorter ones end at a page that cannot be
// read. What answers KVC_OK may have changed something; `good` makes a struct for the next call.
template <class T>
void every_size(Context& c, std::string_view what, std::size_t least,
                const std::function<T()>& good, const std::function<kvc_status(const T*)>& call,
                Tail tail = Tail::refused) {
  for (std::uint32_t n = 0; n <= sizeof(T) + 24; ++n) {
    const std::size_t bytes = std::max<std::size_t>(n, 4);
    GuardedBytes in(bytes);
    const T whole = good();
    std::memset(in.data(), 0, bytes);
    std::memcpy(in.data(), &whole, std::min(bytes, sizeof(T)));
    std::memcpy(in.data(), &n, sizeof n);
    const kvc_status s = call(reinterpret_cast<const T*>(in.data()));
    if (n >= least) {
      c.expect(s == KVC_OK, "KVC-P-005", "{} of {} bytes ({} in 1.0) answered {}", what, n, least,
               host::Said{s});
    } else {
      c.expect(s == KVC_E_ARG || (tail == Tail::refused_or_skipped && s == KVC_OK), "KVC-P-005",
               "{} of {} bytes, {} in 1.0, answered {}", what, n, least, host::Said{s});
    }
    if (n <= sizeof(T)) continue;
    const T next = good();
    std::memcpy(in.data(), &next, sizeof(T));
    std::memcpy(in.data(), &n, sizeof n);
    in.data()[n - 1] = 1;
    const kvc_status unknown = call(reinterpret_cast<const T*>(in.data()));
    const bool fine = tail == Tail::ignored   ? unknown == KVC_OK
                      : tail == Tail::refused ? unknown == KVC_E_UNSUPPORTED
                                              : unknown == KVC_E_UNSUPPORTED || unknown == KVC_OK;
    c.expect(fine, "KVC-P-005", "{} with an unknown byte {} that is not 0 answered {}", what, n - 1,
             unknown);
  }
}

// `call` with every room of an out-struct in front of a page that cannot be written; `least`: what
// a call that changes something may ask for.
template <class T>
void every_room(Context& c, std::string_view what, std::size_t least,
                const std::function<kvc_status(T*)>& call) {
  for (std::uint32_t n = 0; n <= sizeof(T) + 24; ++n) {
    const std::size_t bytes = std::max<std::size_t>(n, 4);
    GuardedBytes room(bytes);
    std::memset(room.data(), 0xEE, bytes);
    std::memcpy(room.data(), &n, sizeof n);
    const kvc_status s = call(reinterpret_cast<T*>(room.data()));
    std::uint32_t filled = 0;
    std::memcpy(&filled, room.data(), sizeof filled);
    if (n < 4) {
      c.expect(s == KVC_E_ARG, "KVC-P-004", "{} with a room of {} bytes answered {}", what, n,
               host::Said{s});
      continue;
    }
    c.expect(s == KVC_OK || (n < least && s == KVC_E_ARG), "KVC-P-004",
             "{} with a room of {} bytes answered {}", what, n, host::Said{s});
    if (s != KVC_OK) continue;
    c.expect(filled >= std::min<std::uint32_t>(n, static_cast<std::uint32_t>(least)) && filled <= n,
             "KVC-P-004", "{} with a room of {} bytes says that {} were filled", what, n, filled);
    for (std::size_t i = std::max<std::size_t>(filled, 4); i < bytes; ++i) {
      c.need(room.data()[i] == 0xEE, "KVC-P-004",
             "{} with a room of {} bytes wrote byte {}, struct_size says {}", what, n, i, filled);
    }
  }
}

void requests(Context& c) {
  World w(c, c.plain());
  std::uint64_t id = 100;
  const std::vector<std::uint8_t> keys(256, 7);
  const auto fresh = [&] {
    if (id > 100) {
      const kvc_end_in end{sizeof end, KVC_END_ABORT, id, 0, {}, {}};
      auto out = sized<kvc_end_out>();
      w.api().request_end(w.sched(), &end, &out);
    }
    return kvc_request{sizeof(kvc_request), 0, ++id,         33,
                       keys.data(),         2, KVC_NO_LIMIT, KVC_NO_LIMIT};
  };
  every_size<kvc_request>(c, "kvc_request", kvc_request_least, fresh, [&](const kvc_request* r) {
    return w.api().request_begin(w.sched(), r);
  });
  w.begin(1, tokens_of(1, 16));
  const auto extend = [&] { return kvc_extend{sizeof(kvc_extend), 0, 1, 1, keys.data(), 0}; };
  every_size<kvc_extend>(c, "kvc_extend", kvc_extend_least, extend,
                         [&](const kvc_extend* x) { return w.api().request_extend(w.sched(), x); });
}

void lookups_and_allocations(Context& c) {
  World w(c, c.plain());
  w.begin(1, prompt(1, 2));
  const auto in = [] { return kvc_lookup_in{sizeof(kvc_lookup_in), 0, 1, 33, 0, KVC_NO_LIMIT}; };
  auto found = sized<kvc_lookup_out>();
  every_size<kvc_lookup_in>(
      c, "kvc_lookup_in", kvc_lookup_in_least, in,
      [&](const kvc_lookup_in* p) { return w.api().lookup(w.sched(), p, &found); });
  const kvc_lookup_in good = in();
  every_room<kvc_lookup_out>(c, "kvc_lookup_out", kvc_lookup_out_least, [&](kvc_lookup_out* out) {
    return w.api().lookup(w.sched(), &good, out);
  });
  w.allocate_for_compute(1, 32);
  const kvc_table table{sizeof(kvc_table), 0, w.request(1).tables[0].data(),
                        w.request(1).tables[0].size(), 0};
  const auto alloc = [&] {
    return kvc_alloc_in{sizeof(kvc_alloc_in), 0, 1, 0, kvc_list_of(&table, 1, sizeof table)};
  };
  auto allocated = sized<kvc_alloc_out>();
  every_size<kvc_alloc_in>(
      c, "kvc_alloc_in", kvc_alloc_in_least, alloc,
      [&](const kvc_alloc_in* p) { return w.api().alloc_update(w.sched(), p, &allocated); });
  const kvc_alloc_in plain = alloc();
  every_room<kvc_alloc_out>(c, "kvc_alloc_out", kvc_alloc_out_least, [&](kvc_alloc_out* out) {
    return w.api().alloc_update(w.sched(), &plain, out);
  });
  every_size<kvc_table>(
      c, "an element of kvc_alloc_in.tables", kvc_table_least, [&] { return table; },
      [&](const kvc_table* t) {
        kvc_alloc_in a = alloc();
        a.tables = kvc_list_of(t, 1, sizeof(kvc_table) + 64);
        return w.api().alloc_update(w.sched(), &a, &allocated);
      });
}

// Steps that were accepted count on; the number of the next one is what the plan says.
struct Steps {
  explicit Steps(World& world) : w(world) {}
  kvc_step next() {
    auto step = sized<kvc_step>();
    step.step = last + 1;
    return step;
  }
  kvc_status build(const kvc_step* step, kvc_plan* out) {
    const kvc_status s = w.api().build_store_jobs(w.sched(), step, out);
    if (s == KVC_OK) ++last;
    return s;
  }
  World& w;
  std::uint64_t last = 0;
};

void steps(Context& c) {
  World w(c, c.plain());
  w.begin(1, prompt(1, 2));
  w.take(1, 0);
  Steps steps(w);
  auto plan = sized<kvc_plan>();
  every_size<kvc_step>(
      c, "kvc_step", kvc_step_least, [&] { return steps.next(); },
      [&](const kvc_step* p) { return steps.build(p, &plan); });
  every_room<kvc_plan>(c, "kvc_plan", kvc_plan_least, [&](kvc_plan* out) {
    const kvc_step step = steps.next();
    return steps.build(&step, out);
  });
  every_room<kvc_complete_out>(
      c, "kvc_complete_out", kvc_complete_out_least,
      [&](kvc_complete_out* out) { return w.api().complete(w.sched(), nullptr, 0, out); });
  const kvc_step_request record{sizeof record, 0, 1, 0, {}};
  // A malformed element may end the call, or be skipped as a bad element.
  every_size<kvc_step_request>(
      c, "an element of kvc_step.scheduled", kvc_step_request_least, [&] { return record; },
      [&](const kvc_step_request* r) {
        kvc_step step = steps.next();
        step.scheduled = kvc_list_of(r, 1, sizeof record + 64);
        return steps.build(&step, &plan);
      },
      Tail::refused_or_skipped);
  const kvc_handoff handoff{sizeof handoff, 0, 1, 3, 16};
  every_size<kvc_handoff>(
      c, "an element of kvc_step.handoffs", kvc_handoff_least, [&] { return handoff; },
      [&](const kvc_handoff* h) {
        kvc_step step = steps.next();
        step.handoffs = kvc_list_of(h, 1, sizeof handoff + 64);
        return steps.build(&step, &plan);
      },
      Tail::refused_or_skipped);
  const std::vector<std::uint8_t> key(32, 9);
  const kvc_candidate candidate{sizeof candidate, 0, 3, key.data(), 16};
  every_size<kvc_candidate>(
      c, "an element of kvc_step.candidates", kvc_candidate_least, [&] { return candidate; },
      [&](const kvc_candidate* k) {
        kvc_step step = steps.next();
        step.candidates = kvc_list_of(k, 1, sizeof candidate + 64);
        return steps.build(&step, &plan);
      },
      Tail::refused_or_skipped);
}

void ends(Context& c) {
  World w(c, c.plain());
  std::uint64_t id = 0;
  // A live request: the last one, unless it was ended.
  const auto fresh = [&] {
    if (id != 0 && w.lookup(id).status != KVC_E_ARG) return id;
    ++id;
    w.begin(id, prompt(id, 1));
    return id;
  };
  auto ended = sized<kvc_end_out>();
  every_size<kvc_end_in>(
      c, "kvc_end_in", kvc_end_in_least,
      [&] { return kvc_end_in{sizeof(kvc_end_in), KVC_END_STOP, fresh(), 0, {}, {}}; },
      [&](const kvc_end_in* p) { return w.api().request_end(w.sched(), p, &ended); });
  every_room<kvc_end_out>(c, "kvc_end_out", kvc_end_out_least, [&](kvc_end_out* out) {
    const kvc_end_in end{sizeof end, KVC_END_STOP, fresh(), 0, {}, {}};
    return w.api().request_end(w.sched(), &end, out);
  });
}

void opens(Context& c) {
  World w(c, c.plain());
  const auto host = [&] { return w.host(); };
  const auto open = [&] { return w.open_struct(0); };
  const auto close_both = [&](kvc_status s, kvc_sched* sched, kvc_rank* rank) {
    c.api().close_scheduler(sched);
    c.api().close_rank(rank);
    return s;
  };
  const kvc_open good_open = open();
  const kvc_host_api good_host = host();
  every_size<kvc_open>(c, "kvc_open", kvc_open_least, open, [&](const kvc_open* o) {
    kvc_sched* sched = nullptr;
    return close_both(c.api().open_scheduler(&good_host, o, &sched), sched, nullptr);
  });
  every_size<kvc_open>(c, "kvc_open of a rank", kvc_open_least, open, [&](const kvc_open* o) {
    kvc_rank* rank = nullptr;
    return close_both(c.api().open_rank(&good_host, o, &rank), nullptr, rank);
  });
  every_size<kvc_host_api>(
      c, "kvc_host_api", kvc_host_api_least, host,
      [&](const kvc_host_api* h) {
        kvc_sched* sched = nullptr;
        return close_both(c.api().open_scheduler(h, &good_open, &sched), sched, nullptr);
      },
      Tail::ignored);
  kvc_group group{};
  std::memcpy(&group, good_open.groups.data, sizeof group);
  every_size<kvc_group>(
      c, "an element of kvc_open.groups", kvc_group_least, [&] { return group; },
      [&](const kvc_group* g) {
        kvc_open o = open();
        o.groups = kvc_list_of(g, 1, sizeof group + 64);
        kvc_sched* sched = nullptr;
        return close_both(c.api().open_scheduler(&good_host, &o, &sched), sched, nullptr);
      });
}

void ranks(Context& c) {
  World w(c, c.plain());
  const kvc_open open = w.open_struct(0);
  const kvc_region region = w.memory(0).regions()[0];
  std::vector<kvc_region> regions = w.memory(0).regions();
  const auto with_rank = [&](const std::function<kvc_status(kvc_rank*)>& call) {
    kvc_rank* rank = nullptr;
    c.need(c.api().open_rank(&w.host(), &open, &rank) == KVC_OK, "KVC-P-030", "open_rank failed");
    const kvc_status s = call(rank);
    c.api().close_rank(rank);
    return s;
  };
  const auto regs = [&](kvc_rank* rank, const kvc_list& list, kvc_rank_info* info) {
    return c.api().register_regions(rank, &list, info);
  };
  every_size<kvc_region>(
      c, "an element of regions", kvc_region_least, [&] { return region; },
      [&](const kvc_region* r) {
        auto info = sized<kvc_rank_info>();
        return with_rank([&](kvc_rank* rank) {
          return regs(rank, kvc_list_of(r, 1, sizeof region + 64), &info);
        });
      });
  const kvc_list all = kvc_list_of(regions.data(), regions.size(), sizeof(kvc_region));
  every_room<kvc_rank_info>(c, "kvc_rank_info", kvc_rank_info_least, [&](kvc_rank_info* info) {
    return with_rank([&](kvc_rank* rank) { return regs(rank, all, info); });
  });
  every_room<kvc_progress>(c, "kvc_progress", kvc_progress_least,
                           [&](kvc_progress* p) { return c.api().progress(w.rank(0), p); });
  every_size<kvc_fence>(
      c, "kvc_fence", kvc_fence_least, [] { return sized<kvc_fence>(); },
      [&](const kvc_fence* f) {
        const Planned p = w.plan();
        const kvc_bytes bytes = kvc_bytes_of(p.bytes.data(), p.bytes.size());
        const kvc_status s = c.api().submit_loads(w.rank(0), bytes, f);
        const auto none = sized<kvc_fence>();
        if (s != KVC_OK) c.api().submit_loads(w.rank(0), bytes, &none);
        c.api().submit_stores(w.rank(0), bytes, &none);
        return s;
      });
}

void rank_infos(Context& c) {
  Setup s = c.plain();
  s.join = false;
  World w(c, s);
  const kvc_rank_info info = w.rank_infos()[0];
  const auto set = [&](const kvc_rank_info* i, std::size_t stride) {
    World other(c, s);
    const kvc_list list = kvc_list_of(i, 1, stride);
    kvc_list usable{};
    return other.api().set_ranks(other.sched(), &list, &usable);
  };
  every_size<kvc_rank_info>(
      c, "an element of ranks", kvc_rank_info_least, [&] { return info; },
      [&](const kvc_rank_info* i) { return set(i, sizeof info + 64); });
  if (info.classes.count == 0) return;
  kvc_class first{};
  KVC_READ_AT(kvc_class, &first, &info.classes, 0);
  every_size<kvc_class>(
      c, "an element of kvc_rank_info.classes", kvc_class_least, [&] { return first; },
      [&](const kvc_class* k) {
        kvc_rank_info one = info;
        one.classes = kvc_list_of(k, 1, sizeof first + 64);
        return set(&one, sizeof one);
      });
}

void queries(Context& c) {
  World w(c, c.plain());
  every_room<kvc_boundary_stats>(c, "kvc_boundary_stats", 0, [&](kvc_boundary_stats* out) {
    return w.api().boundary_stats(w.sched(), out);
  });
  every_room<kvc_pending>(c, "kvc_pending", 0,
                          [&](kvc_pending* out) { return w.api().has_pending(w.sched(), out); });
  every_room<kvc_description>(c, "kvc_description", 0,
                              [&](kvc_description* out) { return w.api().describe(out); });
  std::uint64_t rows = 0;
  w.api().stats(w.sched(), nullptr, sizeof(kvc_stat), 0, &rows);
  for (const std::uint32_t stride : {8U, 40U, 47U, 48U, 49U, 64U, 200U}) {
    std::vector<unsigned char> out(stride * rows + 16, 0xEE);
    std::uint64_t needed = 0;
    const kvc_status s = w.api().stats(w.sched(), out.data(), stride, rows, &needed);
    c.expect(s == (stride < kvc_stat_least ? KVC_E_ARG : KVC_OK), "KVC-P-004",
             "stats with rows of {} bytes answered {}", stride, host::Said{s});
    for (std::size_t i = stride * rows; i < out.size(); ++i) {
      c.need(out[i] == 0xEE, "KVC-P-004", "stats wrote behind {} rows of {} bytes", rows, stride);
    }
  }
  if (!c.can(KVC_CAP_EVENTS)) return;
  w.store(1, prompt(1, 2), 32);
  for (const std::uint32_t stride : {8U, 111U, 112U, 113U, 200U}) {
    std::vector<unsigned char> out(stride + 16, 0xEE);
    std::uint64_t count = 0;
    const kvc_status s = w.api().take_events(w.sched(), out.data(), stride, 1, &count);
    const bool right = stride < kvc_event_least ? s == KVC_E_ARG : s == KVC_OK || s == KVC_MORE;
    c.expect(right, "KVC-P-004", "take_events with rows of {} bytes answered {}", stride,
             host::Said{s});
    for (std::size_t i = stride; i < out.size(); ++i) {
      c.need(out[i] == 0xEE, "KVC-P-004", "take_events wrote behind a row of {} bytes", stride);
    }
  }
}

void flags_and_reserved_fields(Context& c) {
  World w(c, c.plain());
  w.begin(1, prompt(1, 2));
  const auto refused = [&](kvc_status s, std::string_view what) {
    c.expect(s == KVC_E_UNSUPPORTED, "KVC-P-006", "{} answered {}", what, host::Said{s});
  };
  const std::vector<std::uint8_t> keys(64, 1);
  for (const std::uint32_t bit : {2U, 5U, 31U}) {
    const std::uint32_t flags = 1U << bit;
    const kvc_request r{sizeof r, flags, 9, 33, keys.data(), 2, KVC_NO_LIMIT, KVC_NO_LIMIT};
    refused(w.api().request_begin(w.sched(), &r), "kvc_request with an unknown flag");
    const kvc_lookup_in in{sizeof in, flags, 1, 33, 0, KVC_NO_LIMIT};
    auto found = sized<kvc_lookup_out>();
    refused(w.api().lookup(w.sched(), &in, &found), "kvc_lookup_in with an unknown flag");
    const kvc_alloc_in a{sizeof a, flags, 1, 0, {}};
    auto out = sized<kvc_alloc_out>();
    refused(w.api().alloc_update(w.sched(), &a, &out), "kvc_alloc_in with an unknown flag");
    refused(w.api().reset(w.sched(), std::uint64_t{flags}), "reset with an unknown flag");
    kvc_open o = w.open_struct();
    o.flags = std::uint64_t{flags} << 8U;
    kvc_sched* s = nullptr;
    refused(w.api().open_scheduler(&w.host(), &o, &s), "kvc_open with an unknown flag");
  }
  const kvc_extend x{sizeof x, 3, 1, 2, keys.data(), 0};
  refused(w.api().request_extend(w.sched(), &x), "kvc_extend.reserved0 = 3");
  auto step = sized<kvc_step>();
  step.step = 1;
  step.reserved0 = 1;
  auto plan = sized<kvc_plan>();
  refused(w.api().build_store_jobs(w.sched(), &step, &plan), "kvc_step.reserved0 = 1");
  kvc_alloc_in a{sizeof a, 0, 1, 0, {}};
  a.tables.reserved0 = 1;
  auto out = sized<kvc_alloc_out>();
  refused(w.api().alloc_update(w.sched(), &a, &out), "kvc_alloc_in.tables.reserved0 = 1");
  w.check_quiet();
}

// Lists of several elements: of one, the stride does not matter.
void stepped_by_stride(Context& c, Setup s, std::uint64_t extra) {
  s.stride_extra = extra;
  World w(c, s);
  w.store(1, prompt(1, 3), 48);
  w.begin(2, prompt(1, 3));
  w.load(2);
  w.begin(3, prompt(2, 3));
  w.take(3, 0);
  w.compute(2, 49);
  w.compute(3, 48);
  rig::Planned plan;
  const kvc_status status = w.try_plan(plan);
  c.need(status == KVC_OK, "KVC-P-007", "{} bytes between elements: build_store_jobs answered {}",
         extra, host::Said{status});
  w.submit(plan);
  const kvc_boundary_stats counts = w.counts();
  c.expect(counts.all_offers.dropped_bad_offer == 0, "KVC-P-007",
           "{} bytes between elements: {} offers of right elements were bad", extra,
           counts.all_offers.dropped_bad_offer);
  c.expect(!w.logged(KVC_LOG_PEER_FAULT, "KVC-H"), "KVC-P-007",
           "{} bytes between elements: right elements are called wrong", extra);
  w.end(2);
  w.end(3);
  w.drain();
  w.check_quiet();
}

void larger_strides(Context& c) {
  constexpr std::uint64_t extras[] = {8, 24, 200};
  for (const std::uint64_t extra : extras) stepped_by_stride(c, c.plain(), extra);
  for (const std::uint64_t extra : extras) {
    stepped_by_stride(c, c.layout({rig::full(16), rig::sliding(16, 40)}), extra);
  }
}

void lists_that_cannot_be_read(Context& c) {
  World w(c, c.plain());
  w.begin(1, prompt(1, 2));
  w.allocate_for_compute(1, 32);
  const kvc_table table{sizeof(kvc_table), 0, w.request(1).tables[0].data(), 2, 0};
  const auto alloc = [&](const kvc_list& tables) {
    const kvc_alloc_in a{sizeof a, 0, 1, 0, tables};
    auto out = sized<kvc_alloc_out>();
    return w.api().alloc_update(w.sched(), &a, &out);
  };
  const auto refused = [&](kvc_status s, std::string_view what) {
    c.expect(s == KVC_E_ARG, "KVC-P-007", "{} answered {}", what, host::Said{s});
  };
  refused(alloc({nullptr, 1, sizeof table, 0}), "a list of 1 without data");
  refused(alloc({&table, 1, sizeof table - 8, 0}), "a stride below the element of 1.0");
  refused(alloc({&table, 1, 0, 0}), "a stride of 0");
  refused(alloc({&table, std::uint64_t{1} << 63U, sizeof table, 0}), "2^63 tables");
  refused(alloc({&table, UINT64_MAX / 8, sizeof table, 0}), "a list beyond the address space");
  const auto step = [&](kvc_list kvc_step::*list, const kvc_list& value, std::string_view what) {
    auto in = sized<kvc_step>();
    in.step = w.next_step;
    in.*list = value;
    auto plan = sized<kvc_plan>();
    refused(w.api().build_store_jobs(w.sched(), &in, &plan), what);
  };
  const kvc_list no_data{nullptr, 3, 64, 0};
  step(&kvc_step::scheduled, no_data, "scheduled without data");
  step(&kvc_step::handoffs, no_data, "hand-offs without data");
  step(&kvc_step::candidates, no_data, "candidates without data");
  w.step();
  w.check_quiet();
}

constexpr Case cases[] = {
    {"growth.requests_in_every_size", "KVC-P-005", requests},
    {"growth.lookups_and_allocations_in_every_size", "KVC-P-005", lookups_and_allocations},
    {"growth.steps_in_every_size", "KVC-P-005", steps},
    {"growth.ends_in_every_size", "KVC-P-005", ends},
    {"growth.opens_in_every_size", "KVC-P-005", opens, 120},
    {"growth.ranks_in_every_size", "KVC-P-005", ranks, 120},
    {"growth.rank_infos_in_every_size", "KVC-P-005", rank_infos, 120},
    {"growth.queries_in_every_room", "KVC-P-004", queries},
    {"growth.unknown_flags_and_reserved_fields", "KVC-P-006", flags_and_reserved_fields},
    {"growth.larger_strides", "KVC-P-007", larger_strides},
    {"growth.lists_that_cannot_be_read", "KVC-P-007", lists_that_cannot_be_read},
};

}  // namespace

std::span<const Case> growth_cases() { return cases; }

}  // namespace kvc::conform
