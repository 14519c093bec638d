#include "host_stub/tools/report_text.h"

#include <fmt/format.h>
#include <algorithm>
#include <functional>
#include <vector>

namespace kvc::host {
namespace {

using Cell = std::function<std::string(const PassReport&)>;

std::string percent_of(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "-";
  return fmt::format("{:.2f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

// A table with a column of labels and one column per pass.
class PassTable {
 public:
  explicit PassTable(const std::vector<PassReport>& passes) : passes_(passes) {
    row("", [](const PassReport& p) { return p.name; });
  }
  void row(const std::string& label, const Cell& cell) {
    Row r{label, {}};
    for (const PassReport& pass : passes_) r.cells.push_back(cell(pass));
    rows_.push_back(std::move(r));
  }
  void count(const std::string& label, std::uint64_t PassReport::*field) {
    row(label, [field](const PassReport& p) { return grouped(p.*field); });
  }
  void share(const std::string& label, std::uint64_t PassReport::*field) {
    row(label, [field](const PassReport& p) {
      return fmt::format("{} {:>9}", grouped(p.*field), percent_of(p.*field, p.prompt_tokens));
    });
  }
  [[nodiscard]] std::string text() const {
    std::vector<std::size_t> width(passes_.size() + 1, 0);
    for (const Row& r : rows_) {
      width[0] = std::max(width[0], r.label.size());
      for (std::size_t i = 0; i < r.cells.size(); ++i) {
        width[i + 1] = std::max(width[i + 1], r.cells[i].size());
      }
    }
    std::string out;
    for (const Row& r : rows_) {
      out += fmt::format("  {:<{}}", r.label, width[0]);
      for (std::size_t i = 0; i < r.cells.size(); ++i) {
        out += fmt::format("   {:>{}}", r.cells[i], width[i + 1]);
      }
      out += '\n';
    }
    return out;
  }

 private:
  struct Row {
    std::string label;
    std::vector<std::string> cells;
  };
  const std::vector<PassReport>& passes_;
  std::vector<Row> rows_;
};

std::string offers_text(const char* label, const OfferRow& row) {
  if (row.counts[0] == 0) return fmt::format("  {:<10} none\n", label);
  std::string out = fmt::format("  {:<10}", label);
  const char* gap = " ";
  for (std::size_t i = 0; i < OfferRow::outcomes; ++i) {
    if (row.counts[i] == 0) continue;
    out += fmt::format("{}{} {}", gap, OfferRow::names[i], grouped(row.counts[i]));
    gap = i == 0 ? " = " : " + ";
  }
  return out + '\n';
}

}  // namespace

std::string grouped(std::uint64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(digits.begin() + at, ',');
  }
  return digits;
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 7> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  const int digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, digits, units[unit]);
}

std::string geometry_text(const ModelReport& m) {
  std::string out = fmt::format(
      "model {}: hash unit {} tokens, scheduler block {} tokens, context parallel {}, ranks {}, "
      "sim_bytes_per_token {}\n",
      m.name, m.hash_unit_tokens, m.scheduler_block_tokens, m.context_parallel, m.ranks,
      m.sim_bytes_per_token);
  if (!m.origin.empty()) out += fmt::format("  {}\n", m.origin);
  for (std::size_t i = 0; i < m.groups.size(); ++i) {
    const GroupReport& g = m.groups[i];
    out += fmt::format("  group {} {}: {}, {} tokens per block", i, g.name, g.kind,
                       g.tokens_per_block);
    if (g.block_span_tokens != g.tokens_per_block) {
      out += fmt::format(" and rank ({} over all ranks)", g.block_span_tokens);
    }
    if (g.window_tokens != 0) out += fmt::format(", window {} tokens", g.window_tokens);
    out += '\n';
  }
  return out;
}

std::string report_text(const RunReport& report) {
  PassTable table(report.passes);
  table.count("requests", &PassReport::requests);
  table.count("prompt tokens", &PassReport::prompt_tokens);
  table.share("  local hit", &PassReport::local_hit_tokens);
  table.share("  external hit", &PassReport::external_hit_tokens);
  table.share("  computed", &PassReport::computed_tokens);
  table.count("recomputed tokens", &PassReport::recomputed_tokens);
  table.count("output tokens", &PassReport::output_tokens);
  table.row("stored device blocks", [](const PassReport& p) {
    return fmt::format("{} ({})", grouped(p.stored_blocks), bytes_text(p.stored_bytes));
  });
  table.row("loaded device blocks", [](const PassReport& p) {
    return fmt::format("{} ({})", grouped(p.loaded_blocks), bytes_text(p.loaded_bytes));
  });
  table.count("verified blocks", &PassReport::verified_blocks);
  table.count("mismatched blocks", &PassReport::mismatched_blocks);
  table.count("failed loads", &PassReport::failed_loads);
  table.count("preemptions", &PassReport::preemptions);
  table.row("output digest",
            [](const PassReport& p) { return fmt::format("{:016x}", p.output_digest); });
  table.row("time", [](const PassReport& p) { return fmt::format("{:.1f} s", p.wall_s); });

  std::string out = table.text();
  out += "offers to the connector, each of a block, chunk, tail or state\n";
  out += offers_text("all", report.all_offers);
  out += offers_text("hand-offs", report.handoffs);
  out += fmt::format("leaks: slots {}, holds {}, leases {}, device blocks {}\n", report.leaks.slots,
                     report.leaks.holds, report.leaks.leases, report.leaks.device_blocks);
  return out;
}

}  // namespace kvc::host
