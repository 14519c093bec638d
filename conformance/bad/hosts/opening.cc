// Handles, opening, and what holds for every call.
#include <thread>

#include "conformance/bad/hosts/host.h"

namespace kvc::bad {
namespace {

Host* asked_from_its_clock = nullptr;
bool asking = false;  // the clock is read in that call, too

}  // namespace

// Another thread asks for the text of an error while a rank waits.
void overlaps_its_calls(Host& h) {
  asked_from_its_clock = &h;
  instead(h.call.wait, [](auto& right, auto... a) {
    asking = true;
    const kvc_status status = right(a...);
    asking = false;
    return status;
  });
  h.table.now_ns = [](kvc_host*) noexcept -> std::uint64_t {
    if (!std::exchange(asking, false)) return 0;
    std::thread([] {
      char text[64];
      std::uint64_t n = 0;
      const Host& host = *asked_from_its_clock;
      host.call.last_error_rank(host.rank[0], text, sizeof text, &n);
      host.call.last_error_rank(host.rank[1], text, sizeof text, &n);
    }).join();
    return 0;
  };
}

void asks_a_closed_rank(Host& h) {
  instead(h.call.close_rank, [&h](auto& right, kvc_rank* r) {
    right(r);
    kvc_progress moved{};
    moved.struct_size = sizeof moved;
    h.call.progress(r, &moved);
  });
}

void counts_after_the_close(Host& h) {
  instead(h.call.close_scheduler, [&h](auto& right, kvc_sched* s) {
    right(s);
    kvc_pending left{};
    left.struct_size = sizeof left;
    h.call.has_pending(s, &left);
  });
}

void waits_on_the_scheduler(Host& h) {
  instead(h.call.wait, [&h](auto& right, kvc_rank*, auto... a) {
    return right(reinterpret_cast<kvc_rank*>(h.sched), a...);
  });
}

void sets_an_unknown_flag(Host& h) {
  instead(h.call.lookup, [](auto& right, kvc_sched* s, const kvc_lookup_in* in, auto* out) {
    kvc_lookup_in mine = *in;
    mine.flags = 4;
    return right(s, &mine, out);
  });
}

void resets_with_an_unknown_flag(Host& h) {
  instead(h.call.reset, [](auto& right, kvc_sched* s, std::uint64_t) { return right(s, 8); });
}

void passes_a_list_without_stride(Host& h) {
  instead(h.call.build_store_jobs, [](auto& right, kvc_sched* s, const kvc_step* in, auto* out) {
    kvc_step mine = *in;
    mine.scheduled.stride = 0;
    return right(s, &mine, out);
  });
}

void has_no_room_for_an_answer(Host& h) {
  instead(h.call.lookup, [](auto& right, kvc_sched* s, auto* in, kvc_lookup_out* out) {
    out->struct_size = sizeof out->struct_size;
    return right(s, in, out);
  });
}

void has_half_the_room_for_a_plan(Host& h) {
  instead(h.call.build_store_jobs, [](auto& right, kvc_sched* s, auto* in, kvc_plan* out) {
    out->struct_size = 8;
    return right(s, in, out);
  });
}

void counts_into_nothing(Host& h) {
  instead(h.call.has_pending,
          [](auto& right, const kvc_sched* s, kvc_pending*) { return right(s, nullptr); });
}

// The clock of the host asks the connector.
void calls_from_its_clock(Host& h) {
  asked_from_its_clock = &h;
  h.table.now_ns = [](kvc_host*) noexcept -> std::uint64_t {
    const Host& host = *asked_from_its_clock;
    if (host.steps < 3 || asking) return 0;
    asking = true;
    kvc_pending left{};
    left.struct_size = sizeof left;
    host.call.has_pending(host.sched, &left);
    asking = false;
    return 0;
  };
}

void has_keys_behind_every_request(Host& h) {
  h.table.has_key = [](kvc_host*, std::uint32_t, std::int64_t, const std::uint8_t*,
                       std::uint64_t* end) noexcept -> kvc_status {
    *end = 17 * unit;
    return 1;
  };
}

void leaves_a_rank_open(Host& h) {
  static kvc_rank* volatile left = nullptr;  // still known: no leak
  instead(h.call.close_rank, [](auto& right, kvc_rank* r) {
    if (left == nullptr) {
      left = r;
    } else {
      right(r);
    }
  });
}

void opens_a_smaller_rank(Host& h) {
  instead(h.call.open_rank, [](auto& right, auto* host, const kvc_open* open, kvc_rank** out) {
    kvc_open mine = *open;
    if (open->rank == 1) mine.device_blocks = blocks / 2;
    return right(host, &mine, out);
  });
}

void opens_rank_0_twice(Host& h) {
  instead(h.call.open_rank, [](auto& right, auto* host, const kvc_open* open, kvc_rank** out) {
    kvc_open mine = *open;
    mine.rank = 0;
    return right(host, &mine, out);
  });
}

void joins_fewer_ranks(Host& h) {
  instead(h.call.set_ranks, [](auto& right, kvc_sched* s, const kvc_list* all, auto* usable) {
    const kvc_list mine = kvc_list_of(all->data, all->count - 1, all->stride);
    return right(s, &mine, usable);
  });
}

void never_joins_its_ranks(Host& h) {
  instead(h.call.set_ranks, [](auto&, auto*, auto*, auto*) { return kvc_status{KVC_OK}; });
}

void joins_ranks_without_regions(Host& h) {
  h.call.register_regions = [&h](kvc_rank* r, const kvc_list*, kvc_rank_info* info) {
    info->rank = r == h.rank[0] ? 0 : 1;
    return kvc_status{KVC_OK};
  };
}

// What the ranks have is not what the scheduler is told.
void doubles_the_pages_of_a_rank(Host& h) {
  instead(h.call.register_regions, [](auto& right, auto* r, auto* regions, kvc_rank_info* info) {
    const kvc_status status = right(r, regions, info);
    info->pages *= 2;
    return status;
  });
}

void registers_too_small_a_region(Host& h) {
  instead(h.call.register_regions, [](auto& right, auto* r, const kvc_list* all, auto* info) {
    kvc_region mine = *static_cast<const kvc_region*>(all->data);
    mine.size_bytes -= block_bytes;
    const kvc_list regions = kvc_list_of(&mine, 1, sizeof mine);
    return right(r, &regions, info);
  });
}

void registers_twice(Host& h) {
  instead(h.call.register_regions, [](auto& right, auto* r, auto* regions, kvc_rank_info* info) {
    right(r, regions, info);
    return right(r, regions, info);
  });
}

}  // namespace kvc::bad
