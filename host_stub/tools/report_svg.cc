#include "host_stub/tools/report_svg.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "host_stub/tools/report_text.h"

namespace kvc::host {
namespace {

// Geometry of the picture in user units.
constexpr double width = 1000;
constexpr double height = 640;
constexpr double left = 84;
constexpr double right = 20;
constexpr double plot_width = width - left - right;
constexpr double bars_top = 86;
constexpr double bars_height = 280;
constexpr double pools_top = 442;
constexpr double pools_height = 130;
constexpr std::size_t bins_max = 160;

// Okabe-Ito: told apart also by people who do not see all colours.
constexpr const char* local_colour = "#009e73";
constexpr const char* external_colour = "#0072b2";
constexpr const char* computed_colour = "#b8b8b8";
constexpr const char* device_used_colour = "#d55e00";
constexpr const char* device_full_colour = "#e69f00";
constexpr const char* host_colour = "#56789a";

struct Bin {
  std::uint32_t pass = 0;
  std::uint64_t requests = 0;
  double local = 0, external = 0, computed = 0;       // mean tokens per request
  double device_used = 0, device_full = 0, host = 0;  // means, blocks
};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

// Bins of equal numbers of requests; no bin spans two passes.
std::vector<Bin> bins_of(const std::vector<RequestSample>& samples) {
  std::vector<Bin> bins;
  const std::uint64_t per_bin =
      std::max<std::uint64_t>(1, (samples.size() + bins_max - 1) / bins_max);
  for (const RequestSample& s : samples) {
    if (bins.empty() || bins.back().pass != s.pass || bins.back().requests == per_bin) {
      bins.push_back({});
      bins.back().pass = s.pass;
    }
    Bin& bin = bins.back();
    bin.requests += 1;
    bin.local += static_cast<double>(s.local_tokens);
    bin.external += static_cast<double>(s.external_tokens);
    bin.computed += static_cast<double>(s.computed_tokens);
    bin.device_used += static_cast<double>(s.device_used_blocks);
    bin.device_full += static_cast<double>(s.device_used_blocks + s.device_cached_blocks);
    bin.host += static_cast<double>(s.host_used_slots);
  }
  for (Bin& bin : bins) {
    const auto n = static_cast<double>(bin.requests);
    for (double* sum : {&bin.local, &bin.external, &bin.computed, &bin.device_used,
                        &bin.device_full, &bin.host}) {
      *sum /= n;
    }
  }
  return bins;
}

// A step of 1, 2 or 5 times a power of ten that divides `max` into at most `ticks_max` pieces.
double nice_step(double max, int ticks_max) {
  const double raw = std::max(max, 1.0) / ticks_max;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return std::max(1.0, factor * power);
  }
  return std::max(1.0, 10 * power);
}

class Picture {
 public:
  explicit Picture(const RunReport& report) : report_(report), bins_(bins_of(report.samples)) {
    std::uint64_t at = 0;
    for (const Bin& bin : bins_) {
      first_.push_back(at);
      at += bin.requests;
    }
    total_ = std::max<std::uint64_t>(1, at);
  }

  std::string draw() {
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
        "height=\"{1}\" font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\" "
        "font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
        width, height);
    titles();
    bars();
    pools();
    passes();
    return out_ + "</svg>\n";
  }

 private:
  [[nodiscard]] double x_of(std::uint64_t request) const {
    return left + plot_width * static_cast<double>(request) / static_cast<double>(total_);
  }

  void text(double x, double y, const char* more, std::string_view what) {
    out_ +=
        fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, more, escaped(what));
  }
  void line(double x1, double y1, double x2, double y2, const char* stroke) {
    out_ += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1,
        x2, y2, stroke);
  }
  void rect(double x, double y, double w, double h, const char* fill) {
    if (h <= 0) return;
    out_ += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"/>\n", x, y,
        w, h, fill);
  }

  void titles() {
    text(left, 26, "font-size=\"17\" font-weight=\"bold\"",
         fmt::format("{} on {}: prompt tokens by source, and pools", report_.model.name,
                     report_.connector_name == "none"
                         ? std::string("no connector")
                         : report_.connector_name + " " + report_.connector_version));
    std::string shares;
    for (const PassReport& p : report_.passes) {
      const double all = static_cast<double>(std::max<std::uint64_t>(1, p.prompt_tokens));
      shares += fmt::format("{}{}: {} requests, local {:.1f} %, external {:.1f} %",
                            shares.empty() ? "" : "; ", p.name, grouped(p.requests),
                            100 * static_cast<double>(p.local_hit_tokens) / all,
                            100 * static_cast<double>(p.external_hit_tokens) / all);
    }
    text(left, 46, "fill=\"#444\"", shares);
  }

  void legend(double x, double y, const char* colour, bool as_line, std::string_view what) {
    if (as_line) {
      out_ += fmt::format(
          "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
          "stroke-width=\"3\"/>\n",
          x, y - 4, x + 18, y - 4, colour);
    } else {
      rect(x, y - 10, 18, 11, colour);
    }
    text(x + 23, y, "fill=\"#222\"", what);
  }

  // Grid, frame and y labels of one panel; `step` in the unit of the axis.
  void axis(double top, double panel_height, double max, double step, const char* unit,
            std::string_view label) {
    for (double v = 0; v <= max * 1.0001; v += step) {
      const double y = top + panel_height * (1 - v / max);
      line(left, y, left + plot_width, y, v == 0 ? "#333" : "#e4e4e4");
      text(left - 8, y + 4, "text-anchor=\"end\" fill=\"#333\"",
           grouped(static_cast<std::uint64_t>(v)) + unit);
    }
    line(left, top, left, top + panel_height, "#333");
    const double middle = top + panel_height / 2;
    out_ += fmt::format(
        "<text x=\"18\" y=\"{0:.1f}\" transform=\"rotate(-90 18 {0:.1f})\" "
        "text-anchor=\"middle\" fill=\"#222\">{1}</text>\n",
        middle, escaped(label));
  }

  void requests_axis(double y) {
    const double step = nice_step(static_cast<double>(total_), 10);
    for (double v = 0; v <= static_cast<double>(total_); v += step) {
      const double x = x_of(static_cast<std::uint64_t>(v));
      line(x, y, x, y + 5, "#333");
      text(x, y + 18, "text-anchor=\"middle\" fill=\"#333\"",
           grouped(static_cast<std::uint64_t>(v)));
    }
  }

  void bars() {
    double top = 1;
    for (const Bin& b : bins_) top = std::max(top, b.local + b.external + b.computed);
    const double step = nice_step(top, 6);
    const double max = step * std::ceil(top / step);
    axis(bars_top, bars_height, max, step, "", "prompt tokens per request");
    for (std::size_t i = 0; i < bins_.size(); ++i) {
      const Bin& b = bins_[i];
      const double x = x_of(first_[i]);
      const double w = x_of(first_[i] + b.requests) - x;
      const double gap = w > 3 ? 0.6 : 0;
      double y = bars_top + bars_height;
      for (const auto& [tokens, colour] :
           {std::pair{b.local, local_colour}, std::pair{b.external, external_colour},
            std::pair{b.computed, computed_colour}}) {
        const double h = bars_height * tokens / max;
        y -= h;
        rect(x, y, w - gap, h, colour);
      }
    }
    requests_axis(bars_top + bars_height);
    const double y = bars_top - 14;
    legend(left, y, local_colour, false, "local hit (device cache)");
    legend(left + 200, y, external_colour, false, "external hit (connector)");
    legend(left + 400, y, computed_colour, false, "computed");
    const std::uint64_t per_bin = bins_.empty() ? 1 : bins_.front().requests;
    if (per_bin > 1) {
      text(left + plot_width, y, "text-anchor=\"end\" fill=\"#666\"",
           fmt::format("mean of {} requests", per_bin));
    }
  }

  void pool_line(double Bin::*field, double whole, const char* colour) {
    std::string points;
    std::uint32_t pass = bins_.empty() ? 0 : bins_.front().pass;
    const auto flush = [&] {
      if (points.empty()) return;
      out_ += fmt::format(
          "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" "
          "stroke-width=\"2\"/>\n",
          points, colour);
      points.clear();
    };
    for (std::size_t i = 0; i < bins_.size(); ++i) {
      const Bin& b = bins_[i];
      if (b.pass != pass) {
        flush();
        pass = b.pass;
      }
      const double share = std::min(1.0, b.*field / whole);
      points += fmt::format("{:.1f},{:.1f} ", x_of(first_[i] + b.requests / 2),
                            pools_top + pools_height * (1 - share));
    }
    flush();
  }

  void pools() {
    axis(pools_top, pools_height, 100, 25, " %", "pool occupancy");
    double device_peak = 1;
    double host_peak = 0;  // stays 0 for a connector that does not say how full it is
    for (const Bin& b : bins_) {
      device_peak = std::max(device_peak, b.device_full);
      host_peak = std::max(host_peak, b.host);
    }
    const auto whole = [](std::uint64_t capacity, double peak) {
      return capacity == 0 ? peak : static_cast<double>(capacity);
    };
    const auto size_text = [](std::uint64_t capacity, double peak, const char* unit) {
      return capacity == 0 ? fmt::format("100 % = its peak of {} {}",
                                         grouped(static_cast<std::uint64_t>(peak)), unit)
                           : fmt::format("of {} {}", grouped(capacity), unit);
    };
    const double device = whole(report_.model.device_blocks, device_peak);
    pool_line(&Bin::device_full, device, device_full_colour);
    pool_line(&Bin::device_used, device, device_used_colour);
    const double y = pools_top - 14;
    legend(left, y, device_used_colour, true, "device, in use");
    legend(left + 130, y, device_full_colour, true,
           "device, in use and cached, " +
               size_text(report_.model.device_blocks, device_peak, "blocks"));
    if (host_peak > 0) {
      pool_line(&Bin::host, whole(report_.host_slots, host_peak), host_colour);
      legend(left + 560, y, host_colour, true,
             "host, " + size_text(report_.host_slots, host_peak, "slots"));
    }
    requests_axis(pools_top + pools_height);
    text(left + plot_width / 2, pools_top + pools_height + 40,
         "text-anchor=\"middle\" fill=\"#222\"", "requests finished");
  }

  // Where each pass begins, with its name, over both panels.
  void passes() {
    for (std::size_t i = 0; i < bins_.size(); ++i) {
      if (i != 0 && bins_[i].pass == bins_[i - 1].pass) continue;
      const double x = x_of(first_[i]);
      if (i != 0) {
        // In two pieces: between them are the labels of the axis.
        for (const auto& [top, panel_height] :
             {std::pair{bars_top, bars_height}, std::pair{pools_top, pools_height}}) {
          out_ += fmt::format(
              "<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#333\" "
              "stroke-dasharray=\"5 4\"/>\n",
              x, top, top + panel_height);
        }
      }
      if (bins_[i].pass < report_.passes.size()) {
        text(x + 6, bars_top + 14, "font-weight=\"bold\" fill=\"#111\"",
             report_.passes[bins_[i].pass].name);
      }
    }
  }

  const RunReport& report_;
  std::vector<Bin> bins_;
  std::vector<std::uint64_t> first_;  // of each bin: requests before it
  std::uint64_t total_ = 1;
  std::string out_;
};

}  // namespace

std::string to_svg(const RunReport& report) { return Picture(report).draw(); }

}  // namespace kvc::host
