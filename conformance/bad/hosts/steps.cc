// Step records.
#include <kvc/kvc_retention.h>

#include "conformance/bad/hosts/host.h"

namespace kvc::bad {
namespace {

// f changes a copy of the step; its lists are the host's own members, which f may change, too.
template <class F>
void change_step(Host& h, F f) {
  instead(h.call.build_store_jobs,
          [f](auto& right, kvc_sched* s, const kvc_step* in, kvc_plan* out) {
            kvc_step mine = *in;
            f(mine);
            return right(s, &mine, out);
          });
}

// Changes the records of request 2 once it was confirmed so far.
template <class F>
void change_records(Host& h, std::uint64_t confirmed, F f) {
  change_step(h, [&h, confirmed, f](kvc_step&) {
    for (kvc_step_request& r : h.records) {
      if (r.request == 2 && r.confirmed_tokens >= confirmed) f(r);
    }
  });
}

}  // namespace

void leaves_a_step_out(Host& h) {
  change_step(h, [](kvc_step& in) {
    if (in.step >= 4) in.step += 1;
  });
}

void plans_a_step_twice(Host& h) {
  instead(h.call.build_store_jobs,
          [](auto& right, kvc_sched* s, const kvc_step* in, kvc_plan* out) {
            const kvc_status status = right(s, in, out);
            kvc_plan again{};
            again.struct_size = sizeof again;
            if (in->step == 3) right(s, in, &again);
            return status;
          });
}

void takes_tokens_back(Host& h) {
  change_records(h, 3 * unit, [](kvc_step_request& r) { r.confirmed_tokens = unit; });
}

void confirms_more_than_the_table_holds(Host& h) {
  change_records(h, unit, [](kvc_step_request& r) { r.confirmed_tokens += unit; });
}

// The forward of a request uses another block than before, and the record does not say so.
void moves_a_block_in_silence(Host& h) {
  change_records(h, 2 * unit, [](kvc_step_request& r) {
    auto& table = *const_cast<kvc_table*>(static_cast<const kvc_table*>(r.tables.data));
    static std::vector<std::int64_t> moved;
    moved.assign(table.blocks, table.blocks + table.count);
    moved[0] = blocks - 1;
    table.blocks = moved.data();
  });
}

void puts_a_block_at_two_positions(Host& h) {
  change_records(h, 2 * unit, [](kvc_step_request& r) {
    auto& table = *const_cast<kvc_table*>(static_cast<const kvc_table*>(r.tables.data));
    static std::vector<std::int64_t> same;
    same.assign(table.count, table.blocks[0]);
    table.blocks = same.data();
    table.first_changed = 0;
  });
}

// The pool gives a block that another request has.
void gives_a_block_to_two_requests(Host& h) {
  instead(h.take_block, [&h](auto& right, const Request& r) {
    const bool second = r.id == 2 && r.table.empty() && h.requests.count(1) != 0;
    return second ? h.requests.at(1).table[0] : right(r);
  });
}

void hands_off_for_an_ended_request(Host& h) {
  change_step(h, [&h](kvc_step&) {
    for (kvc_handoff& handoff : h.handoffs) {
      if (handoff.request == 2 && h.steps > 7) handoff.request = 1;
    }
  });
}

void hands_off_what_is_not_confirmed(Host& h) {
  change_step(h, [&h](kvc_step&) {
    for (kvc_handoff& handoff : h.handoffs) handoff.boundary_tokens += unit;
  });
}

void hands_off_a_group_without_state(Host& h) {
  change_step(h, [&h](kvc_step&) {
    for (kvc_handoff& handoff : h.handoffs) handoff.group = 0;
  });
}

void resumes_without_a_word(Host& h) {
  change_step(h, [&h](kvc_step&) {
    for (kvc_step_request& r : h.records) r.flags = 0;
  });
}

void runs_while_it_loads(Host& h) {
  h.wait_for_load = [](Request&) {};
}

// What comes of a load in step counts before its verdict.
void confirms_a_load_in_step(Host& h) {
  change_records(h, 0, [](kvc_step_request& r) {
    if (r.confirmed_tokens == 0) r.confirmed_tokens = unit;
  });
}

// Asks which states are wanted, the prompt's tail alone, and hands off all.
void hands_off_what_no_list_has(Host& h) {
  h.toml = "[connector]\nstates = \"tail\"\n" + h.toml;
  instead(h.call.alloc_update, [&h](auto& right, kvc_sched* s, const kvc_alloc_in* in, auto* out) {
    const kvc_status status = right(s, in, out);
    const auto* const states = static_cast<const kvc_retention_api*>(
        h.call.extension(kvc_text_of(KVC_RETENTION_EXTENSION)));
    const kvc_retention_in ask{sizeof ask, 0, in->request, in->accepted_tokens};
    kvc_retention_out wanted{};
    wanted.struct_size = sizeof wanted;
    if (states != nullptr && status == KVC_OK) states->boundaries(s, &ask, &wanted);
    return status;
  });
}

// The pool gives what open jobs hold.
void gives_held_blocks_away(Host& h) {
  instead(h.take_block, [&h](auto& right, const Request& r) {
    for (std::int64_t b = 1; b < blocks; ++b) {
      if (h.is_held(b) && !h.in_use(b)) return b;
    }
    return right(r);
  });
}

void evicts_a_block_in_use(Host& h) {
  change_step(h, [&h](kvc_step& in) {
    if (h.requests.count(2) == 0 || h.requests.at(2).table.empty()) return;
    static const std::vector<std::uint8_t> key = keys_of(2, 0, 1);
    h.candidates = {{sizeof(kvc_candidate), 0, h.requests.at(2).table[0], key.data(), unit}};
    in.candidates = kvc_list_of(h.candidates.data(), 1, sizeof(kvc_candidate));
  });
}

void preempts_an_ended_request(Host& h) {
  change_step(h, [&h](kvc_step& in) {
    if (h.requests.count(1) != 0) return;
    h.preempted = {1};
    in.preempted = h.preempted.data();
    in.n_preempted = 1;
  });
}

}  // namespace kvc::bad
