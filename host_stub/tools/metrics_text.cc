#include "host_stub/tools/metrics_text.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace kvc::host {
namespace {

struct Family {
  bool gauge = false;
  std::string help;
  std::vector<std::pair<std::string, std::uint64_t>> samples;  // labels with braces, value
};
using Families = std::map<std::string, Family>;

enum class Kind : std::uint8_t { count, level };
struct Statistic {
  std::string_view name;
  Kind kind;
  std::string_view text;
};
constexpr Statistic statistics[] = {
#define KVC_STATISTIC(name, kind, text) {name, Kind::kind, text},
#include "host_stub/tools/statistics.def"
#undef KVC_STATISTIC
};

// As kvc_vllm's metrics.py has them, so that one dashboard serves both.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> names_of_vllm{{
    {"load_blocks", "vllm:simple_kv_offload_load_blocks"},
    {"loaded_bytes", "vllm:kv_offload_load_bytes"},
    {"stored_bytes", "vllm:kv_offload_store_bytes"},
    {"host_slots_pinned_now", "vllm:simple_kv_offload_used_blocks"},
    {"host_slots_reserved_now", "vllm:simple_kv_offload_pending_store_blocks"},
    {"handoffs", "vllm:simple_kv_offload_save_outcomes"},
}};

std::string cut_end(std::string_view text, std::string_view end) {
  return std::string(text.ends_with(end) ? text.substr(0, text.size() - end.size()) : text);
}

bool name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// A name of a foreign connector may have any bytes.
std::string clean_name(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !name_char(c); }, '_');
  if (name.empty() || (name.front() >= '0' && name.front() <= '9')) name.insert(0, 1, '_');
  return name;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

// "a=1,b=2" to {a="1",b="2"}. Of a name that comes twice the first counts.
std::string braces(std::string_view labels) {
  std::string out;
  std::set<std::string> names;
  while (!labels.empty()) {
    const std::size_t end = std::min(labels.find(','), labels.size());
    const std::string_view pair = labels.substr(0, end);
    labels.remove_prefix(std::min(end + 1, labels.size()));
    const std::size_t equals = pair.find('=');
    if (equals == std::string_view::npos) continue;
    const auto [name, fresh] = names.insert(clean_name(std::string(pair.substr(0, equals))));
    if (!fresh) continue;
    out +=
        fmt::format("{}{}=\"{}\"", out.empty() ? "" : ",", *name, escaped(pair.substr(equals + 1)));
  }
  return out.empty() ? out : "{" + out + "}";
}

void add(Families& families, const StatValue& stat) {
  const auto* const entry = std::find_if(std::begin(statistics), std::end(statistics),
                                         [&](const Statistic& s) { return s.name == stat.name; });
  const bool described = entry != std::end(statistics);
  const bool level = described ? entry->kind == Kind::level : stat.name.ends_with("_now");
  const auto* const known = std::find_if(names_of_vllm.begin(), names_of_vllm.end(),
                                         [&](const auto& n) { return n.first == stat.name; });
  std::string name = known != names_of_vllm.end()
                         ? std::string(known->second)
                         : "kvc:" + clean_name(cut_end(cut_end(stat.name, "_now"), "_total"));
  if (!level) name += "_total";
  Family& family = families[name];
  family.gauge = level;
  family.help = described ? fmt::format("{}: {}.", stat.name, entry->text)
                          : fmt::format("Statistic {} of the connector.", clean_name(stat.name));
  family.samples.emplace_back(braces(stat.labels), stat.value);
}

void add_engine(Families& families, const MetricsSnapshot& s) {
  const auto one = [&](const char* name, bool gauge, const char* help,
                       std::vector<std::pair<std::string, std::uint64_t>> samples) {
    families[name] = {gauge, help, std::move(samples)};
  };
  one("kvc:run_prompt_tokens", true, "Prompt tokens of this pass by where they came from.",
      {{"{source=\"device\"}", s.pass.local_hit_tokens},
       {"{source=\"connector\"}", s.pass.external_hit_tokens},
       {"{source=\"computed\"}", s.pass.computed_tokens}});
  one("kvc:run_requests", true, "Requests of this pass that are over.", {{"", s.pass.requests}});
  one("kvc:run_output_tokens", true, "Output tokens of this pass.", {{"", s.pass.output_tokens}});
  one("kvc:run_preemptions", true, "Preemptions of this pass.", {{"", s.pass.preemptions}});
  one("kvc:run_passes_total", false, "Passes that are over.", {{"", s.passes}});
  one("kvc:run_device_blocks", true, "Blocks of the device pool.",
      {{"{use=\"referenced\"}", s.device.used},
       {"{use=\"cached\"}", s.device.cached},
       {"{use=\"all\"}", s.device.total}});
}

}  // namespace

std::string metrics_text(const MetricsSnapshot& snapshot) {
  Families families;
  for (const StatValue& stat : snapshot.connector) add(families, stat);
  add_engine(families, snapshot);
  std::string out;
  for (auto& [name, family] : families) {
    out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, family.help, name,
                       family.gauge ? "gauge" : "counter");
    std::sort(family.samples.begin(), family.samples.end());
    for (std::size_t i = 0; i < family.samples.size(); ++i) {
      const auto& [labels, value] = family.samples[i];
      // A series stands there once: of a foreign connector's doubles the largest.
      const bool again = i + 1 < family.samples.size() && family.samples[i + 1].first == labels;
      if (!again) out += fmt::format("{}{} {}\n", name, labels, value);
    }
  }
  return out;
}

}  // namespace kvc::host
