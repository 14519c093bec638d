// kvc-size: how large must the host pool be? Hit rate against capacity on a recorded trace.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>

#include "host_stub/engine/layout.h"
#include "host_stub/size/optimum.h"
#include "host_stub/size/size_report.h"
#include "host_stub/tools/output_file.h"

namespace kvc::host {
namespace {

constexpr const char* usage =
    "Simulates requests one after the other, without device cache, on the real index and policies; "
    "prints hit rate against capacity beside the optimum (docs/policies.md).";

struct Arguments {
  std::string trace;
  std::string model;
  std::vector<std::string> capacities{"1%", "2%", "5%", "10%", "20%", "40%"};
  std::vector<std::string> policies{"lru", "arc", "gdsf", "auto"};
  std::vector<std::string> states{"dense"};
  std::size_t limit = Trace::no_limit;
  std::string turns = "apart";
  std::string json;
  std::string svg;
};

std::optional<Eviction> eviction_of(const std::string& name) {
  for (const Eviction e : {Eviction::lru, Eviction::arc, Eviction::gdsf, Eviction::hazard})
    if (name_of(e) == name) return e;
  return std::nullopt;
}

StateRule rule_of(const std::string& name) {
  if (name == "tail") return StateRule::tail;
  return name == "auto" ? StateRule::automatic : StateRule::dense;
}

// "5%" of `whole`, or a number; at least 1.
Result<std::uint64_t> slots_of(const std::string& text, std::uint64_t whole) {
  const bool percent = text.ends_with('%');
  const char* end = text.data() + text.size() - (percent ? 1 : 0);
  double value = 0;
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || at != end || !(value > 0) || value > 1e9 ||
      (percent && value > 100)) {
    return {Code::arg, fmt::format("--capacities: \"{}\" is not allowed; a number of slots up to "
                                   "1000000000, or a share such as 5%",
                                   text)};
  }
  const double slots = percent ? static_cast<double>(whole) * value / 100 : value;
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(slots));
}

Result<config::ModelConfig> read_model(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return {Code::arg, fmt::format("{}: cannot be read", path)};
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  config::Parsed<config::ModelConfig> parsed = config::parse_model(text, path);
  if (!parsed.ok()) return {Code::arg, parsed.error().text};
  return parsed.value();
}

Result<SizeCounts> simulate(const Geometry& geometry, const SizeTrace& trace,
                            const SizeSetup& setup) {
  auto simulator = SizeSimulator::make(geometry, trace, setup);
  if (!simulator.ok()) return simulator.error();
  return simulator.value()->run();
}

// Distinct entries of prompts; with several groups those of a tier that keeps all, answers too.
Result<std::uint64_t> entries_of(const Geometry& geometry, const SizeTrace& trace) {
  const Tokens h = geometry.hash_unit();
  if (!geometry.hybrid()) return whole_blocks(h, h, trace).blocks;
  const Result<SizeCounts> counts = simulate(geometry, trace, {});
  if (!counts.ok()) return counts.error();
  return counts.value().entries;
}

bool has_states(const Geometry& geometry) {
  return std::any_of(geometry.cacheable().begin(), geometry.cacheable().end(),
                     [&](GroupId g) { return geometry.is_state_align(g); });
}

// Every policy, with every rule for states where there are any.
Status fill(SizeRow& row, const Arguments& args, const Geometry& geometry, const SizeTrace& trace,
            bool states) {
  for (const std::string& rule : args.states) {
    for (const std::string& name : args.policies) {
      const SizeSetup setup{*eviction_of(name), row.slots, rule_of(rule)};
      const Result<SizeCounts> counts = simulate(geometry, trace, setup);
      if (!counts.ok()) return counts.error();
      row.cells.push_back({setup.eviction, setup.states, counts.value()});
    }
    if (!states) break;
  }
  return {};
}

Result<SizeReport> measure(const Arguments& args) {
  const Result<config::ModelConfig> model = read_model(args.model);
  if (!model.ok()) return model.error();
  const Result<Geometry> geometry = geometry_of(model.value());
  if (!geometry.ok()) return geometry.error();
  if (!geometry.value().chain())
    return {Code::arg, fmt::format("{}: no full-attention group, so no chain to rank", args.model)};
  const config::Parsed<Trace> read = Trace::open(
      args.trace, args.limit, args.turns == "continued" ? Turns::continued : Turns::apart);
  if (!read.ok()) return {Code::arg, read.error().text};
  const SizeTrace trace(read.value(), geometry.value().hash_unit());
  const Result<std::uint64_t> entries = entries_of(geometry.value(), trace);
  if (!entries.ok()) return entries.error();
  const Tokens h = geometry.value().hash_unit();
  SizeReport report;
  report.trace = args.trace;
  report.model = model.value().name;
  report.requests = trace.requests().size();
  report.prompt_tokens = trace.prompt_tokens().n;
  report.entries = entries.value();
  report.unlimited_tokens = whole_blocks(h, h, trace).hit_tokens;
  report.has_states = has_states(geometry.value());
  report.bound_is_exact = !geometry.value().hybrid();
  for (const std::string& text : args.capacities) {
    const Result<std::uint64_t> slots = slots_of(text, report.entries);
    if (!slots.ok()) return slots.error();
    SizeRow row;
    row.slots = slots.value();
    row.share = static_cast<double>(row.slots) /
                static_cast<double>(std::max<std::uint64_t>(1, report.entries));
    row.optimal_tokens = report.bound_is_exact ? optimal_hit_tokens(h, h, trace, row.slots)
                                               : report.unlimited_tokens;
    if (Status s = fill(row, args, geometry.value(), trace, report.has_states); !s.ok()) return s;
    report.rows.push_back(std::move(row));
  }
  std::stable_sort(report.rows.begin(), report.rows.end(),
                   [](const SizeRow& a, const SizeRow& b) { return a.slots < b.slots; });
  return report;
}

Status write(const std::string& path, const std::string& content) {
  if (path.empty()) return {};
  Result<OutputFile> file = OutputFile::create(path);
  if (!file.ok()) return file.error();
  return file.value().commit(content);
}

int run(int argc, char** argv) {
  Arguments args;
  CLI::App app(usage, "kvc-size");
  app.add_option("--trace", args.trace, "a Mooncake or token JSONL file, or gen:NAME?key=value")
      ->required();
  app.add_option("--model", args.model, "a model file (config/examples/models)")->required();
  app.add_option("--capacities", args.capacities,
                 "slots, or shares of the distinct entries, such as 5%")
      ->delimiter(',');
  app.add_option("--policies", args.policies, "of lru, arc, gdsf, auto")
      ->delimiter(',')
      ->check(CLI::IsMember({"lru", "arc", "gdsf", "auto"}));
  app.add_option("--states", args.states, "of dense, tail, auto: where states are kept")
      ->delimiter(',')
      ->check(CLI::IsMember({"dense", "tail", "auto"}));
  app.add_option("--turns", args.turns,
                 "of a Mooncake file: apart, or continued: a next turn shares the incomplete last "
                 "block, too [apart]")
      ->check(CLI::IsMember({"apart", "continued"}));
  app.add_option("--limit", args.limit, "read only so many requests");
  app.add_option("--json", args.json, "write all numbers there");
  app.add_option("--svg", args.svg, "write a picture there");
  CLI11_PARSE(app, argc, argv);
  const Result<SizeReport> report = measure(args);
  Status status = report.ok() ? Status{} : report.error();
  if (report.ok()) {
    std::fputs(to_text(report.value()).c_str(), stdout);
    status = write(args.json, to_json(report.value()));
    if (status.ok()) status = write(args.svg, to_svg(report.value()));
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "kvc-size: %s\n", status.text.c_str());
  return 2;
}

}  // namespace
}  // namespace kvc::host

int main(int argc, char** argv) {
  try {
    return kvc::host::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "kvc-size: %s\n", e.what());
    return 2;
  }
}
