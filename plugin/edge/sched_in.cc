#include <fmt/format.h>

#include "plugin/edge/read_in.h"
#include "plugin/edge/sched_handle.h"

namespace kvc::edge {

namespace {

constexpr std::uint64_t report_bytes_max = std::uint64_t{1} << 40U;

Status check_bytes(std::string_view field, const kvc_bytes& bytes) {
  return check_array(field, bytes.data, bytes.size, 1, report_bytes_max);
}

}  // namespace

SchedInputs::SchedInputs(const InBounds& bounds, const Reserved& reserved,
                         std::pmr::memory_resource* memory)
    : bounds_(bounds),
      tables_(reserved.tables + bounds.groups, memory),
      scheduled_(std::min<std::uint64_t>(reserved.tables, bounds.scheduled), memory),
      handoffs_(reserved.handoffs, memory),
      candidates_(std::min<std::uint64_t>(bounds.candidates, 1024), memory),
      ranks_(bounds.ranks, memory),
      classes_(bounds.groups, memory),
      reports_(std::min<std::uint64_t>(bounds.reports, 1U << 16U), memory) {}

Status SchedInputs::check_tables(std::string_view field, const kvc_list& list) const {
  if (Status s = check_list<kvc_table>(field, list, bounds_.groups); !s.ok()) return s;
  if (list.count != 0 && list.count != bounds_.groups) {
    return {Code::arg, fmt::format("{} has {} tables, allowed are 0 and {} (one per group)", field,
                                   list.count, bounds_.groups)};
  }
  return {};
}

Status SchedInputs::add_tables(std::string_view field, const kvc_list& list) {
  for (std::uint64_t g = 0; g < list.count; ++g) {
    kvc_table t{};
    if (Status s = read_element(field, list, g, t); !s.ok()) return s;
    if (t.group != g) {
      return {Code::arg,
              fmt::format("{}[{}].group is {}, tables stand in group order", field, g, t.group)};
    }
    // Checked by count first: the name is only built for an error.
    if (t.count > bounds_.table_entries[g] || (t.count != 0 && t.blocks == nullptr) ||
        reinterpret_cast<std::uintptr_t>(t.blocks) % alignof(std::int64_t) != 0) {
      Status s = check_array(fmt::format("{}[{}].blocks", field, g), t.blocks, t.count,
                             sizeof(std::int64_t), bounds_.table_entries[g], alignof(std::int64_t));
      if (!s.ok()) return s;
    }
    if (t.first_changed > t.count) {
      return {Code::arg, fmt::format("{}[{}].first_changed is {}, count is {}", field, g,
                                     t.first_changed, t.count)};
    }
    tables_.add({t.blocks, t.count, t.first_changed});
  }
  return {};
}

Result<std::span<const TableView>> SchedInputs::tables(const kvc_list& list) {
  if (Status s = check_tables("tables", list); !s.ok()) return s;
  tables_.begin(list.count);
  if (Status s = add_tables("tables", list); !s.ok()) return s;
  return tables_.all();
}

Status SchedInputs::read_scheduled(const kvc_list& list) {
  if (Status s = check_list<kvc_step_request>("kvc_step.scheduled", list, bounds_.scheduled);
      !s.ok()) {
    return s;
  }
  scheduled_.begin(list.count);
  tables_.begin(list.count * bounds_.groups);
  for (std::uint64_t i = 0; i < list.count; ++i) {
    kvc_step_request r{};
    if (Status s = read_element("kvc_step.scheduled", list, i, r); !s.ok()) return s;
    if (Status s = refuse_bits("kvc_step_request.flags", r.flags, KVC_STEP_FLAGS_ALL); !s.ok()) {
      return s;
    }
    const std::uint64_t first = tables_.size();
    if (Status s = check_tables("kvc_step_request.tables", r.tables); !s.ok()) return s;
    if (Status s = add_tables("kvc_step_request.tables", r.tables); !s.ok()) return s;
    scheduled_.add(
        {r.request, (r.flags & KVC_STEP_RESUMED) != 0, {r.confirmed_tokens}, tables_.from(first)});
  }
  return {};
}

Result<std::span<const Handoff>> SchedInputs::handoffs(const kvc_list& list) {
  if (Status s = check_list<kvc_handoff>("handoffs", list, bounds_.handoffs); !s.ok()) return s;
  handoffs_.begin(list.count);
  for (std::uint64_t i = 0; i < list.count; ++i) {
    kvc_handoff h{};
    if (Status s = read_element("handoffs", list, i, h); !s.ok()) return s;
    handoffs_.add({h.group, h.request, h.block, {h.boundary_tokens}});
  }
  return handoffs_.all();
}

Status SchedInputs::read_candidates(const kvc_list& list) {
  if (Status s = check_list<kvc_candidate>("kvc_step.candidates", list, bounds_.candidates);
      !s.ok()) {
    return s;
  }
  candidates_.begin(list.count);
  for (std::uint64_t i = 0; i < list.count; ++i) {
    kvc_candidate c{};
    if (Status s = read_element("kvc_step.candidates", list, i, c); !s.ok()) return s;
    if (c.key == nullptr) {
      return {Code::arg, fmt::format("kvc_step.candidates[{}].key is NULL", i)};
    }
    candidates_.add({c.group, c.block, c.key, {c.end_tokens}});
  }
  return {};
}

Result<StepRecord> SchedInputs::step(const kvc_step& step) {
  if (Status s = refuse_reserved("kvc_step.reserved0", step.reserved0); !s.ok()) return s;
  if (Status s = check_array("kvc_step.preempted", step.preempted, step.n_preempted,
                             sizeof(std::uint64_t), bounds_.preempted, alignof(std::uint64_t));
      !s.ok()) {
    return s;
  }
  if (Status s = read_scheduled(step.scheduled); !s.ok()) return s;
  if (Status s = read_candidates(step.candidates); !s.ok()) return s;
  Result<std::span<const Handoff>> given = handoffs(step.handoffs);
  if (!given.ok()) return given.error();
  StepRecord record;
  record.step = step.step;
  record.scheduled = scheduled_.all();
  if (step.n_preempted != 0) record.preempted = {step.preempted, step.n_preempted};
  record.handoffs = given.value();
  record.candidates = candidates_.all();
  return record;
}

Result<std::span<const RankInfo>> SchedInputs::ranks(const kvc_list& list) {
  if (Status s = check_list<kvc_rank_info>("ranks", list, bounds_.ranks); !s.ok()) return s;
  ranks_.begin(list.count);
  // One pass to count the classes, so that spans into them stay where they are.
  std::uint64_t classes = 0;
  for (std::uint64_t i = 0; i < list.count; ++i) {
    kvc_rank_info r{};
    if (Status s = read_element("ranks", list, i, r); !s.ok()) return s;
    if (Status s = check_list<kvc_class>("kvc_rank_info.classes", r.classes, KVC_GROUPS_MAX);
        !s.ok()) {
      return s;
    }
    if (Status s = check_bytes("kvc_rank_info.inventory", r.inventory); !s.ok()) return s;
    classes += r.classes.count;
  }
  classes_.begin(classes);
  for (std::uint64_t i = 0; i < list.count; ++i) {
    kvc_rank_info r{};
    if (Status s = read_element("ranks", list, i, r); !s.ok()) return s;
    const std::uint64_t first = classes_.size();
    for (std::uint64_t k = 0; k < r.classes.count; ++k) {
      kvc_class c{};
      if (Status s = read_element("kvc_rank_info.classes", r.classes, k, c); !s.ok()) return s;
      classes_.add(
          {c.class_id, c.group_mask, c.slots_per_page, {c.bytes_per_block}, c.usable_slots});
    }
    ranks_.add({r.rank, r.pages, classes_.from(first), {r.inventory.data, r.inventory.size}});
  }
  return ranks_.all();
}

Result<std::span<const std::span<const std::uint8_t>>> SchedInputs::reports(
    const kvc_bytes* reports, std::uint64_t count) {
  if (Status s = check_array("reports", reports, count, sizeof(kvc_bytes), bounds_.reports,
                             alignof(kvc_bytes));
      !s.ok()) {
    return s;
  }
  reports_.begin(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (reports[i].size != 0 && reports[i].data == nullptr) {
      return Status(Code::arg,
                    fmt::format("reports[{}].data is NULL with {} bytes", i, reports[i].size));
    }
    if (reports[i].size > report_bytes_max) {
      return Status(Code::arg, fmt::format("reports[{}] has {} bytes, at most {} are allowed", i,
                                           reports[i].size, report_bytes_max));
    }
    reports_.add({reports[i].data, reports[i].size});
  }
  return reports_.all();
}

}  // namespace kvc::edge
