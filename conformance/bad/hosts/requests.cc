// Requests, their keys, hits and loads.
#include <cstring>

#include "conformance/bad/hosts/host.h"

namespace kvc::bad {
namespace {

template <class F>
void change_begin(Host& h, F f) {
  instead(h.call.request_begin, [f](auto& right, kvc_sched* s, const kvc_request* in) {
    kvc_request mine = *in;
    f(mine);
    return right(s, &mine);
  });
}

template <class F>
void change_alloc(Host& h, F f) {
  instead(h.call.alloc_update, [f](auto& right, kvc_sched* s, const kvc_alloc_in* in, auto* out) {
    kvc_alloc_in mine = *in;
    if (in->accepted_tokens != 0) f(mine);
    return right(s, &mine, out);
  });
}

}  // namespace

void uses_an_id_again(Host& h) {
  change_begin(h, [](kvc_request& r) {
    if (r.request == 7) r.request = 1;
  });
}

void begins_request_0(Host& h) {
  change_begin(h, [](kvc_request& r) { r.request -= 1; });
}

void counts_an_unfinished_unit(Host& h) {
  change_begin(h, [](kvc_request& r) { r.prompt_tokens -= 1; });
}

void leaves_a_key_out(Host& h) {
  instead(h.call.request_extend, [](auto& right, kvc_sched* s, const kvc_extend* in) {
    kvc_extend mine = *in;
    mine.first_key += 1;
    return right(s, &mine);
  });
}

// Every key is that of the unit's own tokens, whatever stands before them.
void forgets_the_prefix_in_keys(Host& h) {
  change_begin(h, [](kvc_request& r) {
    static std::vector<std::uint8_t> mine;
    mine.assign(r.keys, r.keys + r.n_keys * key_bytes);
    if (r.request == 2) std::memcpy(&mine[key_bytes], keys_of(1, 1, 1).data(), key_bytes);
    r.keys = mine.data();
  });
}

void asks_for_another_request(Host& h) {
  instead(h.call.lookup, [](auto& right, kvc_sched* s, const kvc_lookup_in* in, auto* out) {
    kvc_lookup_in mine = *in;
    mine.request += 100;
    return right(s, &mine, out);
  });
}

void cancels_after_the_end(Host& h) {
  instead(h.call.request_end, [&h](auto& right, kvc_sched* s, const kvc_end_in* in, auto* out) {
    const kvc_status status = right(s, in, out);
    h.call.lookup_cancel(s, in->request);
    return status;
  });
}

void ends_a_request_twice(Host& h) {
  instead(h.call.request_end, [](auto& right, kvc_sched* s, const kvc_end_in* in, auto* out) {
    const kvc_status status = right(s, in, out);
    kvc_end_out again{};
    again.struct_size = sizeof again;
    right(s, in, &again);
    return status;
  });
}

void never_ends_a_request(Host& h) {
  instead(h.call.request_end, [](auto& right, kvc_sched* s, const kvc_end_in* in, auto* out) {
    return in->request == 6 ? kvc_status{KVC_OK} : right(s, in, out);
  });
  instead(h.call.close_rank, [&h, first = true](auto& right, kvc_rank* r) mutable {
    if (std::exchange(first, false)) {
      h.rank[0] = r;
      for (int i = 0; i < 1000; ++i) h.step({});
      h.rank[0] = nullptr;
    }
    right(r);
  });
}

void has_half_a_block_on_the_device(Host& h) {
  instead(h.call.lookup, [](auto& right, kvc_sched* s, const kvc_lookup_in* in, auto* out) {
    kvc_lookup_in mine = *in;
    mine.device_tokens = unit / 2;
    return right(s, &mine, out);
  });
}

void accepts_more_than_was_offered(Host& h) {
  change_alloc(h, [](kvc_alloc_in& in) { in.accepted_tokens += unit; });
}

void accepts_half_a_unit_less(Host& h) {
  change_alloc(h, [](kvc_alloc_in& in) { in.accepted_tokens -= unit / 2; });
}

namespace {

// Loads into this block at the first position.
void load_to(Host& h, const std::function<std::int64_t()>& block) {
  change_alloc(h, [block](kvc_alloc_in& in) {
    static std::vector<kvc_table> tables;
    static std::vector<std::int64_t> full;
    const auto* const first = static_cast<const kvc_table*>(in.tables.data);
    tables.assign(first, first + in.tables.count);
    full.assign(first->blocks, first->blocks + first->count);
    full[0] = block();
    tables[0].blocks = full.data();
    in.tables = kvc_list_of(tables.data(), tables.size(), sizeof(kvc_table));
  });
}

}  // namespace

void loads_into_the_null_block(Host& h) {
  load_to(h, [] { return std::int64_t{0}; });
}

void loads_behind_the_device(Host& h) {
  load_to(h, [] { return blocks; });
}

void loads_two_positions_into_one_block(Host& h) {
  change_alloc(h, [](kvc_alloc_in& in) {
    static std::vector<kvc_table> tables;
    static std::vector<std::int64_t> full;
    const auto* const first = static_cast<const kvc_table*>(in.tables.data);
    tables.assign(first, first + in.tables.count);
    full.assign(first->count, first->blocks[0]);
    tables[0].blocks = full.data();
    in.tables = kvc_list_of(tables.data(), tables.size(), sizeof(kvc_table));
  });
}

void begins_again_after_full(Host& h) {
  instead(h.call.request_begin, [](auto& right, kvc_sched* s, const kvc_request* in) {
    const kvc_status status = right(s, in);
    return status == KVC_E_FULL ? right(s, in) : status;
  });
}

}  // namespace kvc::bad
