// kvc-size: how large must the host pool be? Hit rate against capacity on a recorded trace.
// docs/policies.md, docs/formats/size.md.
//
// Exit codes: 0 it was simulated; 2 wrong input, or a file that cannot be written.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>

#include "host_stub/engine/layout.h"
#include "host_stub/size/optimum.h"
#include "host_stub/size/size_report.h"
#include "host_stub/tools/command_line.h"
#include "host_stub/tools/output_file.h"
#include "host_stub/tools/program_files.h"
#include "plugin/core/program.h"

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

constexpr std::uint64_t slots_max = 1'000'000'000;

// As --capacities has it: a number of slots, or a share of the distinct entries.
struct Amount {
  std::uint64_t slots = 0;
  double percent = 0;  // 0: slots

  friend bool operator==(const Amount&, const Amount&) = default;

  // At least 1.
  [[nodiscard]] std::uint64_t of(std::uint64_t whole) const {
    const double share = static_cast<double>(whole) * percent / 100;
    return percent == 0 ? slots : std::max<std::uint64_t>(1, static_cast<std::uint64_t>(share));
  }
};

Result<Amount> amount_of(const std::string& text) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  Amount amount;
  std::from_chars_result read{};
  if (text.ends_with('%')) {
    read = std::from_chars(begin, end - 1, amount.percent);
    if (read.ec == std::errc{} && read.ptr == end - 1 && amount.percent > 0 &&
        amount.percent <= 100) {
      return amount;
    }
  } else {
    read = std::from_chars(begin, end, amount.slots);
    if (read.ec == std::errc{} && read.ptr == end && amount.slots >= 1 &&
        amount.slots <= slots_max) {
      return amount;
    }
  }
  return {Code::arg,
          fmt::format("--capacities: \"{}\" is not allowed; a whole number of slots from "
                      "1 to {} is, or a share such as 0.5% up to 100%",
                      text, slots_max)};
}

Result<config::ModelConfig> read_model(const std::string& path) {
  const auto text = config::read_text_file(path);
  if (!text.ok()) return {Code::arg, text.error().text};
  config::Parsed<config::ModelConfig> parsed = config::parse_model(text.value(), path);
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

Result<SizeReport> measure(const Arguments& args, const std::vector<Amount>& amounts) {
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
  for (const Amount& amount : amounts) {
    SizeRow row;
    row.slots = amount.of(report.entries);
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

Result<std::vector<Amount>> amounts_of(const std::vector<std::string>& texts) {
  std::vector<Amount> amounts;
  for (const std::string& text : texts) {
    const Result<Amount> amount = amount_of(text);
    if (!amount.ok()) return amount.error();
    const auto same = std::find(amounts.begin(), amounts.end(), amount.value());
    if (same != amounts.end()) {
      const std::string& before = texts[static_cast<std::size_t>(same - amounts.begin())];
      return {Code::arg,
              before == text
                  ? fmt::format("--capacities: \"{}\" is given twice", text)
                  : fmt::format("--capacities: \"{}\" and \"{}\" are the same", before, text)};
    }
    amounts.push_back(amount.value());
  }
  return amounts;
}

// What a list has more than once would be simulated, and shown, more than once.
std::optional<std::string> word_given_twice(const Arguments& args) {
  for (const auto& [option, words] :
       {std::pair("--policies", &args.policies), std::pair("--states", &args.states)}) {
    for (const std::string& word : *words) {
      if (std::count(words->begin(), words->end(), word) != 1)
        return fmt::format("{}: \"{}\" is given twice", option, word);
    }
  }
  return std::nullopt;
}

int refuse(const std::string& why) {
  std::fputs(("kvc-size: " + first_line(why) + "\n").c_str(), stderr);
  return 2;
}

void add_options(CLI::App& app, Arguments& args) {
  app.add_option("--trace", args.trace, "a Mooncake or token JSONL file, or gen:NAME?key=value");
  app.add_option("--model", args.model, "a model file (config/examples/models)");
  app.add_option("--capacities", args.capacities,
                 "slots, or shares of the distinct entries, such as 5% [1%,2%,5%,10%,20%,40%]")
      ->delimiter(',');
  app.add_option("--policies", args.policies, "of lru, arc, gdsf, auto [all]")
      ->delimiter(',')
      ->check(CLI::IsMember({"lru", "arc", "gdsf", "auto"}));
  app.add_option("--states", args.states, "of dense, tail, auto: where states are kept [dense]")
      ->delimiter(',')
      ->check(CLI::IsMember({"dense", "tail", "auto"}));
  app.add_option("--turns", args.turns,
                 "of a Mooncake file: apart, or continued: a next turn shares the incomplete last "
                 "block, too [apart]")
      ->check(CLI::IsMember({"apart", "continued"}));
  add_number(app, "--limit", "read only so many requests", {.min = 1},
             [&args](std::uint64_t v) { args.limit = v; });
  app.add_option("--json", args.json, "write all numbers there, schema kvc.size/1");
  app.add_option("--svg", args.svg, "write a picture there");
  app.footer("Exit codes: 0 it was simulated; 2 wrong input, or a file that cannot be written.");
  app.set_version_flag("--version", version_line("kvc-size"));
  app.allow_extras();
}

// What ends the program before anything is read.
std::optional<int> parse(Arguments& args, int argc, char** argv) {
  CLI::App app(usage, "kvc-size");
  add_options(app, args);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // help and version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    return refuse(e.what());
  }
  if (const auto why = unknown_argument(app)) return refuse(*why);
  if (args.trace.empty()) return refuse("which requests? --trace FILE");
  if (args.model.empty()) return refuse("of which model? --model FILE");
  if (args.turns == "continued" && args.trace.starts_with("gen:"))
    return refuse("--turns continued is about Mooncake files: " + args.trace + " is generated");
  if (const auto why = word_given_twice(args)) return refuse(*why);
  if (const auto why = file_named_twice({{"--json", args.json}, {"--svg", args.svg}},
                                        {{"--trace", args.trace}, {"--model", args.model}})) {
    return refuse(*why);
  }
  return std::nullopt;
}

int run(const Arguments& args) {
  const Result<std::vector<Amount>> amounts = amounts_of(args.capacities);
  if (!amounts.ok()) return refuse(amounts.error().text);
  // Before minutes of work: whether there is room for its result.
  std::optional<OutputFile> json;
  std::optional<OutputFile> svg;
  for (const auto& [path, file] : {std::pair(&args.json, &json), std::pair(&args.svg, &svg)}) {
    if (path->empty()) continue;
    Result<OutputFile> created = OutputFile::create(*path);
    if (!created.ok()) return refuse(created.error().text);
    file->emplace(std::move(created).value());
  }
  const Result<SizeReport> report = measure(args, amounts.value());
  if (!report.ok()) return refuse(report.error().text);
  std::fputs(to_text(report.value()).c_str(), stdout);
  if (json) {
    if (Status s = json->commit(to_json(report.value())); !s.ok()) return refuse(s.text);
  }
  if (svg) {
    if (Status s = svg->commit(to_svg(report.value())); !s.ok()) return refuse(s.text);
  }
  return 0;
}

}  // namespace
}  // namespace kvc::host

int main(int argc, char** argv) {
  try {
    kvc::host::Arguments args;
    const auto parsed = kvc::host::parse(args, argc, argv);
    const int code = parsed ? *parsed : kvc::host::run(args);
    return kvc::with_stdout_written("kvc-size", code, 2);
  } catch (const std::exception& e) {
    return kvc::host::refuse(e.what());
  }
}
