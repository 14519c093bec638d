#include "host_stub/size/size_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

namespace kvc::host {

namespace {

double share_of(std::uint64_t tokens, const SizeReport& report) {
  return report.prompt_tokens == 0
             ? 0
             : static_cast<double>(tokens) / static_cast<double>(report.prompt_tokens);
}

// "auto", or with a state rule "auto/dense".
std::string label_of(const SizeCell& cell, const SizeReport& report) {
  std::string out(name_of(cell.eviction));
  if (report.has_states) out += fmt::format("/{}", name_of(cell.states));
  return out;
}

// Six digits are what a trace can say.
double rounded(double x) { return std::round(x * 1e6) / 1e6; }

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

}  // namespace

std::string to_text(const SizeReport& report) {
  std::string out = fmt::format(
      "{} requests, {} prompt tokens; {} on {}\n{} distinct entries; all that repeats: {:.4f}\n\n",
      report.requests, report.prompt_tokens, report.trace, report.model, report.entries,
      share_of(report.unlimited_tokens, report));
  out += fmt::format("{:>10} {:>8}", "slots", "share");
  if (!report.rows.empty())
    for (const SizeCell& cell : report.rows.front().cells)
      out += fmt::format(" {:>{}}", label_of(cell, report), report.has_states ? 10 : 8);
  out += fmt::format(" {:>8}\n", report.bound_is_exact ? "optimal" : "bound");
  for (const SizeRow& row : report.rows) {
    out += fmt::format("{:>10} {:>7.2f}%", row.slots, row.share * 100);
    for (const SizeCell& cell : row.cells)
      out += fmt::format(" {:>{}.4f}", cell.counts.ratio(), report.has_states ? 10 : 8);
    out += fmt::format(" {:>8.4f}\n", share_of(row.optimal_tokens, report));
  }
  return out;
}

std::string to_json(const SizeReport& report) {
  nlohmann::ordered_json out;
  out["schema"] = "kvc.size/1";
  out["trace"] = report.trace;
  out["model"] = report.model;
  out["requests"] = report.requests;
  out["prompt_tokens"] = report.prompt_tokens;
  out["entries"] = report.entries;
  out["unlimited_hit_ratio"] = rounded(share_of(report.unlimited_tokens, report));
  out["bound_is_exact"] = report.bound_is_exact;
  out["capacities"] = nlohmann::ordered_json::array();
  for (const SizeRow& row : report.rows) {
    nlohmann::ordered_json r;
    r["slots"] = row.slots;
    r["share"] = rounded(row.share);
    r["bound_hit_ratio"] = rounded(share_of(row.optimal_tokens, report));
    r["policies"] = nlohmann::ordered_json::array();
    for (const SizeCell& cell : row.cells) {
      const SizeCounts& c = cell.counts;
      r["policies"].push_back({{"eviction", name_of(cell.eviction)},
                               {"states", report.has_states ? name_of(cell.states) : ""},
                               {"hit_ratio", rounded(c.ratio())},
                               {"hit_tokens", c.hit_tokens},
                               {"stored", c.stored},
                               {"evicted", c.evicted},
                               {"declined", c.declined},
                               {"events", c.events},
                               {"index_bytes", c.index_bytes},
                               {"policy_bytes", c.policy_bytes}});
    }
    out["capacities"].push_back(std::move(r));
  }
  return out.dump(2) + "\n";
}

namespace {

constexpr double width = 900;
constexpr double height = 520;
constexpr double left = 70;
constexpr double right = 130;
constexpr double top = 60;
constexpr double bottom = 60;

// Okabe-Ito, as in the picture of a run.
constexpr std::array<const char*, 4> colours{"#0072b2", "#e69f00", "#009e73", "#d55e00"};

// Threads: one. Owns: nothing of the report.
class Curves {
 public:
  explicit Curves(const SizeReport& report) : report_(report) {
    for (const SizeRow& row : report.rows) {
      low_ = std::min(low_, static_cast<double>(row.slots));
      high_ = std::max(high_, static_cast<double>(row.slots));
      most_ = std::max(most_, share_of(row.optimal_tokens, report));
      for (const SizeCell& cell : row.cells) most_ = std::max(most_, cell.counts.ratio());
    }
    most_ = std::max(0.05, std::ceil(most_ * 20) / 20);
  }

  std::string draw() {
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
        "height=\"{1}\" font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\" "
        "font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
        "<text x=\"{2}\" y=\"28\" font-size=\"16\">Hit rate against host capacity</text>\n"
        "<text x=\"{2}\" y=\"46\" fill=\"#555\">{3}, {4}, {5} requests</text>\n",
        width, height, left, escaped(report_.trace), escaped(report_.model), report_.requests);
    axes();
    if (report_.rows.empty()) return out_ + "</svg>\n";
    line(report_.bound_is_exact ? "optimal" : "bound", "#555555", "6 4",
         [&](const SizeRow& row) { return share_of(row.optimal_tokens, report_); });
    for (std::size_t i = 0; i < report_.rows.front().cells.size(); ++i) {
      line(label_of(report_.rows.front().cells[i], report_), colours[i % colours.size()], "none",
           [&](const SizeRow& row) { return row.cells[i].counts.ratio(); });
    }
    return out_ + "</svg>\n";
  }

 private:
  [[nodiscard]] double x(double slots) const {
    const double span = std::log(high_ / low_);
    const double part = span > 0 ? std::log(slots / low_) / span : 0.5;
    return left + part * (width - left - right);
  }
  [[nodiscard]] double y(double ratio) const {
    return height - bottom - ratio / most_ * (height - top - bottom);
  }
  void axes() {
    for (int i = 0; i <= 5; ++i) {
      const double ratio = most_ * i / 5;
      out_ += fmt::format(
          "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#ddd\"/>\n"
          "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:.2f}</text>\n",
          left, width - right, y(ratio), left - 6, y(ratio) + 4, ratio);
    }
    for (const SizeRow& row : report_.rows) {
      out_ += fmt::format(
          "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n"
          "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">{:.1f} %</text>\n",
          x(static_cast<double>(row.slots)), height - bottom + 18, row.slots,
          x(static_cast<double>(row.slots)), height - bottom + 34, row.share * 100);
    }
    out_ += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">slots, and share of the "
        "{} distinct entries</text>\n",
        (left + width - right) / 2, height - 8, report_.entries);
  }
  template <class Value>
  void line(const std::string& name, const char* colour, const char* dashes, Value value) {
    std::string points;
    for (const SizeRow& row : report_.rows)
      points += fmt::format("{:.1f},{:.1f} ", x(static_cast<double>(row.slots)), y(value(row)));
    out_ += fmt::format(
        "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\" "
        "stroke-dasharray=\"{}\" points=\"{}\"/>\n",
        colour, dashes, points);
    out_ += fmt::format(
        "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\" stroke=\"{3}\" stroke-width=\"2\" "
        "stroke-dasharray=\"{4}\"/>\n<text x=\"{5}\" y=\"{6}\">{7}</text>\n",
        width - right + 14, width - right + 40, legend_, colour, dashes, width - right + 46,
        legend_ + 4, name);
    legend_ += 20;
  }

  const SizeReport& report_;
  std::string out_;
  double low_ = 1e18;
  double high_ = 1;
  double most_ = 0;
  double legend_ = top + 10;
};

}  // namespace

std::string to_svg(const SizeReport& report) { return Curves(report).draw(); }

}  // namespace kvc::host
