// Joining the ranks: set_ranks and register_regions.
#include <kvc/kvc_util.h>

#include <algorithm>

#include "conformance/cases/families.h"
#include "conformance/cases/support.h"
#include "host_stub/loader/status_text.h"

namespace kvc::conform {

namespace {

// set_ranks of a fresh scheduler with these infos.
kvc_status join(Context& c, const Setup& s, const std::vector<kvc_rank_info>& infos,
                std::vector<kvc_class>* usable = nullptr) {
  World w(c, s);
  const kvc_list list = kvc_list_of(infos.data(), infos.size(), sizeof(kvc_rank_info));
  kvc_list out{};
  const kvc_status status = w.api().set_ranks(w.sched(), &list, &out);
  for (std::uint64_t i = 0; status == KVC_OK && usable != nullptr && i < out.count; ++i) {
    kvc_class k{};
    c.need(KVC_READ_AT(kvc_class, &k, &out, i) == KVC_OK, "KVC-P-040", "class {} is unreadable", i);
    usable->push_back(k);
  }
  return status;
}

void usable_slots(Context& c) {
  Setup s = two_ranks(c);
  s.join = false;
  const World source(c, s);
  std::vector<kvc_rank_info> infos = source.rank_infos();
  if (infos[0].classes.count == 0) Context::skip("stores: the ranks have no slots");
  std::vector<kvc_class> whole;
  c.need(join(c, s, infos, &whole) == KVC_OK, "KVC-P-041", "set_ranks of two equal ranks failed");
  std::uint64_t groups = 0;
  for (const kvc_class& k : whole) {
    groups |= k.group_mask;
    c.expect(k.usable_slots >= 2, "KVC-P-040", "class {}: {} usable slots", k.class_id,
             k.usable_slots);
  }
  c.expect(groups == 1, "KVC-P-040", "the classes have the groups {:#x}, of 0x1", groups);
  // A rank with half the pages halves what can be used.
  const std::uint64_t pages = infos[1].pages;
  if (pages == KVC_NO_LIMIT || pages < 8) Context::skip("limited pages: the rank has no number");
  infos[1].pages = pages / 2;
  std::vector<kvc_class> half;
  c.need(join(c, s, infos, &half) == KVC_OK, "KVC-P-041", "set_ranks of two ranks failed");
  for (std::size_t i = 0; i < half.size(); ++i) {
    c.expect(half[i].usable_slots <= pages / 2 * half[i].slots_per_page, "KVC-P-040",
             "class {}: {} usable slots, a rank has {} pages of {}", half[i].class_id,
             half[i].usable_slots, pages / 2, half[i].slots_per_page);
  }
}

void bad_ranks(Context& c) {
  Setup s = two_ranks(c);
  s.join = false;
  const World source(c, s);
  const std::vector<kvc_rank_info> good = source.rank_infos();
  const auto refused = [&](std::vector<kvc_rank_info> infos, std::string_view what) {
    const kvc_status status = join(c, s, infos);
    c.expect(status == KVC_E_ARG, "KVC-P-041", "{} answered {}", what, host::Said{status});
  };
  refused({}, "no rank of two");
  refused({good[0]}, "one rank of two");
  refused({good[0], good[0]}, "rank 0 twice");
  refused({good[0], good[1], good[1]}, "three ranks of two");
  kvc_rank_info far = good[1];
  far.rank = 2;
  refused({good[0], far}, "rank 2 of two");
  if (good[1].classes.count == 0) return;
  kvc_class k{};
  KVC_READ_AT(kvc_class, &k, &good[1].classes, 0);
  const auto with_class = [&](const kvc_class& one, std::string_view what) {
    kvc_rank_info info = good[1];
    info.classes = kvc_list_of(&one, 1, sizeof one);
    refused({good[0], info}, what);
  };
  kvc_rank_info poor = good[1];
  poor.pages = 1;
  if (k.slots_per_page == 1) refused({good[0], poor}, "a class of 1 slot");
  poor.pages = 0;
  refused({good[0], poor}, "a rank without pages");
  kvc_class other = k;
  other.slots_per_page += 1;
  with_class(other, "ranks that disagree on slots per page");
  other = k;
  other.group_mask = 2;
  with_class(other, "ranks that disagree on groups");
  kvc_rank_info none = good[1];
  none.classes = {};
  refused({good[0], none}, "a rank without classes");
}

void ranks_once(Context& c) {
  Setup s = c.plain();
  s.join = false;
  World w(c, s);
  const auto& infos = w.rank_infos();
  const kvc_list list = kvc_list_of(infos.data(), infos.size(), sizeof(kvc_rank_info));
  kvc_list usable{};
  c.need(w.api().set_ranks(w.sched(), &list, &usable) == KVC_OK, "KVC-P-041", "set_ranks: {}",
         w.last_error());
  const kvc_status again = w.api().set_ranks(w.sched(), &list, &usable);
  c.expect(again == KVC_E_STATE, "KVC-P-041", "a second set_ranks answered {}", host::Said{again});
}

void bad_regions(Context& c) {
  World w(c, c.plain());
  kvc_open o = w.open_struct();
  kvc_rank* r = nullptr;
  c.need(w.api().open_rank(&w.host(), &o, &r) == KVC_OK, "KVC-P-030", "open_rank failed");
  const std::vector<kvc_region> good = w.memory(0).regions();
  using Regions = std::vector<kvc_region>;
  const auto with = [&](kvc_status wanted, std::string_view what, auto change) {
    Regions bad = good;
    change(bad);
    const kvc_list list = kvc_list_of(bad.data(), bad.size(), sizeof(kvc_region));
    auto info = sized<kvc_rank_info>();
    const kvc_status s = w.api().register_regions(r, &list, &info);
    c.expect(s == wanted, "KVC-P-043", "{} answered {}, wanted {}", what, host::Said{s},
             host::Said{wanted});
  };
  with(KVC_E_ARG, "no base", [](Regions& b) { b[0].base = nullptr; });
  with(KVC_E_ARG, "blocks of 0 bytes", [](Regions& b) { b[0].block_bytes = 0; });
  with(KVC_E_ARG, "blocks of 2^64 - 1 bytes", [](Regions& b) { b[0].block_bytes = UINT64_MAX; });
  with(KVC_E_ARG, "a stride of 1 byte", [](Regions& b) { b[0].block_stride_bytes = 1; });
  with(KVC_E_ARG, "a stride that overflows",
       [](Regions& b) { b[0].block_stride_bytes = UINT64_MAX / 2; });
  with(KVC_E_ARG, "a region of 1 byte", [](Regions& b) { b[0].size_bytes = 1; });
  with(KVC_E_ARG, "a region beyond the address space",
       [](Regions& b) { b[0].size_bytes = UINT64_MAX; });
  with(KVC_E_ARG, "a cacheable group without region", [](Regions& b) { b.clear(); });
  with(KVC_E_UNSUPPORTED, "an unknown device", [](Regions& b) { b[0].device_kind = 77; });
  with(KVC_OK, "the right regions, after all those", [](Regions&) {});
  with(KVC_E_STATE, "a second call", [](Regions&) {});
  w.api().close_rank(r);
}

constexpr Case cases[] = {
    {"ranks.usable_slots_are_the_least", "KVC-P-040", usable_slots},
    {"ranks.bad_ranks", "KVC-P-041", bad_ranks},
    {"ranks.set_ranks_once", "KVC-P-041", ranks_once},
    {"ranks.bad_regions", "KVC-P-043", bad_regions},
};

}  // namespace

std::span<const Case> rank_join_cases() { return cases; }

}  // namespace kvc::conform
