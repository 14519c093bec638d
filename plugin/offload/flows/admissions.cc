#include "plugin/offload/flows/admissions.h"

#include <algorithm>

#include "plugin/core/prefetch.h"

namespace kvc {

void Admissions::ask(RequestIndex index) {
  const Request& r = core_.requests[index];
  core_.tier.begin_request(r.run, core_.requests.keys(r), r.prompt);
}

void Admissions::admit(RequestIndex index) {
  Request& r = core_.requests[index];
  ask(index);
  if (!r.admitted) {
    r.admitted = true;
    r.attach_answers = 0;
    r.reset_noted = false;
    r.host_only = false;
    forget_gate(r);
    r.next_due = Tokens{};
    ++r.explain.admissions;
  }
  if (r.load == 0) r.load_failed = false;
  r.explain.phase = r.load != 0 ? RequestPhase::loading : RequestPhase::running;
  core_.touch_explain(index);
}

void Admissions::disown_handoffs(RequestIndex index) {
  Request& r = core_.requests[index];
  if (r.owned_handoffs == 0) return;
  core_.jobs.for_each_copy(r.open_parts, [&](CopyRecord& copy) {
    if (!copy.owned) return;
    copy.owned = false;
    core_.holds.table_remove(copy.group, copy.block);
  });
  r.owned_handoffs = 0;
}

std::uint64_t Admissions::future_orphans(RequestIndex index) {
  std::uint64_t count = 0;
  core_.jobs.for_each_copy(core_.requests[index].open_parts, [&](const CopyRecord& copy) {
    count += core_.holds.only_table(copy.group, copy.block);
  });
  return count;
}

void Admissions::preempt(RequestIndex index) {
  Request& r = core_.requests[index];
  const bool ran = r.confirmed > Tokens{};
  planner_.settle(index, Settle::departing);
  disown_handoffs(index);
  core_.tier.release_path(r.run);
  core_.disk.release_path(r);
  core_.requests.clear_tables(r);
  for (GroupProgress& g : r.groups) {
    g.cursor = 0;
    g.counted = 0;
    g.again = 0;
    g.keys_offered = 0;
    g.cut = false;
    g.tail_done = g.tail_counted = false;
  }
  r.admitted = false;
  r.confirmed = Tokens{};
  r.next_due = Tokens{};
  r.attach_answers = 0;
  r.computed_from = Tokens{};
  forget_gate(r);
  r.explain.preemptions += ran;
  r.explain.phase = RequestPhase::waiting;
  core_.counters.preemptions += ran;
  core_.touch_explain(index);
}

bool Admissions::size_fits(GroupId group, const TableView& table) const {
  const Tokens limit = core_.limits.max_total_tokens;
  // Room for the look-ahead of a step beyond the longest request.
  return table.first_changed <= table.count &&
         (limit == no_token_limit ||
          table.count <= ceil_div(limit.n, core_.geometry.block_tokens(group).n) * 2 + 64);
}

bool Admissions::fills_table(const Request& r, GroupId group, const TableView& table) const {
  return core_.requests.has_cells(group) && r.groups[group].length == 0 && table.count != 0 &&
         size_fits(group, table);
}

void Admissions::expect_tables(RequestIndex index, std::span<const TableView> tables,
                               std::size_t calls_left) const {
  if (tables.empty()) return;
  const Request& r = core_.requests[index];
  if (calls_left == 3) return prefetch(&r.groups);
  const std::size_t count = std::min<std::size_t>(tables.size(), core_.geometry.groups());
  for (GroupId g = 0; g < count; ++g) {
    const TableView& table = tables[g];
    if (table.first_changed >= table.count || !core_.requests.has_cells(g)) continue;
    if (calls_left == 2) {
      prefetch_write(&r.groups[g]);
      prefetch(&r.groups[g].cells);
      continue;
    }
    prefetch_write(r.groups[g].cells.where(table.first_changed));
    core_.holds.prefetch(g, table.blocks[table.first_changed]);
  }
}

void Admissions::set_tables(RequestIndex index, std::span<const TableView> tables,
                            std::span<const NamedRange> named) {
  Request& r = core_.requests[index];
  const std::size_t count = std::min<std::size_t>(tables.size(), core_.geometry.groups());
  for (GroupId g = 0; g < count; ++g) {
    const TableView& table = tables[g];
    if (table.count == 0 || !core_.requests.has_cells(g)) continue;
    if (!size_fits(g, table)) {
      core_.faults.report("KVC-H-042, table-size",
                          "request {} group {}: a table of {} entries, changed from {}, for at "
                          "most {} tokens",
                          r.id, g, table.count, table.first_changed,
                          core_.limits.max_total_tokens.n);
      continue;
    }
    const std::uint64_t foreign =
        core_.requests.set_table(r, g, table, named.empty() ? NamedRange{} : named[g]);
    if (foreign != 0) {
      core_.faults.report("KVC-H-042, foreign-block",
                          "request {} group {}: {} table entries are no blocks of "
                          "the pool",
                          r.id, g, foreign);
    }
  }
}

}  // namespace kvc
