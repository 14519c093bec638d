#include "host_stub/tools/run_options.h"

#include <fmt/format.h>
#include <algorithm>
#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string_view>

#include "host_stub/tools/command_line.h"
#include "host_stub/tools/program_files.h"
#include "host_stub/traces/trace.h"
#include "plugin/core/program.h"

namespace kvc::host {
namespace {

constexpr std::uint64_t blocks_max = std::uint64_t{1} << 40U;
constexpr std::uint64_t count_max = std::uint64_t{1} << 31U;

void add_output(CLI::App& app, const std::string& name, const char* help, const char* type,
                std::string& path) {
  app.add_option_function<std::string>(
         name,
         [name, &path](const std::string& text) {
           if (text.empty()) throw CLI::ValidationError(name, "the path is empty");
           path = text;
         },
         help)
      ->type_name(type);
}

std::vector<std::string> passes_from(const std::string& text) {
  std::vector<std::string> out;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (word != "cold" && word != "replay") {
      throw CLI::ValidationError(
          "--passes", fmt::format("\"{}\" is not allowed; cold, replay or a comma separated list "
                                  "of them is, such as cold,replay",
                                  word));
    }
    out.push_back(word);
    begin = end + 1;
  }
  return out;
}

// on or off, on unless given.
void add_switch(CLI::App& app, const char* name, const std::string& help, bool& out) {
  app.add_option_function<std::string>(
         name,
         [name, &out](const std::string& text) {
           if (text != "on" && text != "off") {
             throw CLI::ValidationError(name,
                                        fmt::format("\"{}\" is not allowed; on or off is", text));
           }
           out = text == "on";
         },
         help + " [on]")
      ->type_name("on|off");
}

std::string footer() {
  return "Exit codes: 0 all is right; 1 the run found wrong bytes, different outputs or leaks, or "
         "could not go on; 2 wrong input, nothing was run.\n\n"
         "Generated traces (--trace gen:NAME?key=value&...):\n" +
         Trace::generator_help() +
         "\nExamples:\n"
         "  kvc-run --connector build/dev/lib/libkvc_simple_cpu.so \\\n"
         "      --connector-config config/examples/simple_cpu.toml \\\n"
         "      --model config/examples/models/qwen3.5-4b.toml \\\n"
         "      --trace conformance/corpus/traces/mooncake_conversation.jsonl --limit 1000 \\\n"
         "      --json run.json --plot run.svg\n"
         "  kvc-run --connector none --model config/examples/models/llama.toml \\\n"
         "      --trace 'gen:chat' --passes cold --device-blocks 0\n";
}

void add_turns(CLI::App& app, RunOptions& o) {
  app.add_option_function<std::string>(
         "--turns",
         [&o](const std::string& text) {
           if (text != "apart" && text != "continued") {
             throw CLI::ValidationError(
                 "--turns", fmt::format("\"{}\" is not allowed; apart or continued is", text));
           }
           o.turns = text == "continued" ? Turns::continued : Turns::apart;
         },
         "Of a Mooncake file: whether the next turn of a conversation shares the incomplete last "
         "block of the one before, too [apart]")
      ->type_name("apart|continued");
}

void add_device(CLI::App& app, RunOptions& o) {
  app.add_option("--fake-device", o.fake_device,
                 "Library of the fake CUDA device: blocks lie in its memory, the connector copies "
                 "through it ([cuda] driver of its options is replaced), and whatever it finds "
                 "unordered is an error")
      ->type_name("LIB.so");
  add_number(app, "--device-seed",
             fmt::format("In which order the fake device works [{}]", o.device_seed), {},
             [&o](std::uint64_t v) { o.device_seed = v; });
}

void add_hints(CLI::App& app, RunOptions& o) {
  app.add_option_function<std::string>(
         "--hint-priority",
         [&o](const std::string& text) {
           const bool negative = text.size() == 2 && text[0] == '-';
           const char digit = text.empty() ? 'x' : text.back();
           if ((text.size() != 1 && !negative) || digit < '0' || digit > '2') {
             throw CLI::ValidationError("--hint-priority",
                                        fmt::format("\"{}\" is not allowed; -2 to 2 is", text));
           }
           o.hint_priority = (digit - '0') * (negative ? -1 : 1);
         },
         "Priority of hinted requests' blocks: lower ones leave the host pool first "
         "(kvc.hints/1) [0]")
      ->type_name("-2..2");
  add_number(app, "--hint-ttl",
             "Milliseconds after their last use from which blocks of hinted requests leave the "
             "host pool before all others",
             {1, 1'000'000'000}, [&o](std::uint64_t v) { o.hint_ttl_ms = v; });
  add_number(app, "--hint-pin-tokens",
             "Pin the first N tokens of hinted requests once they are stored: they do not leave",
             {1, count_max}, [&o](std::uint64_t v) { o.hint_pin_tokens = v; });
  add_number(app, "--hint-every", "Requests 1, N + 1, 2 N + 1, ... are hinted ones [1]",
             {1, count_max}, [&o](std::uint64_t v) { o.hint_every = v; });
}

void add_reports(CLI::App& app, RunOptions& o) {
  add_output(app, "--json", "Write the report, schema kvc.run/1", "OUT.json", o.json);
  add_output(app, "--plot", "Write a picture of tokens by source and pool occupancy", "OUT.svg",
             o.plot);
  add_number(app, "--metrics-port",
             "Serve /metrics (Prometheus) and /explain (JSON) on this port of 127.0.0.1 while it "
             "runs; 0: a free one, which stderr names",
             {0, 65'535},
             [&o](std::uint64_t v) { o.metrics_port = static_cast<std::uint16_t>(v); });
  add_number(app, "--metrics-linger", "Go on serving for so many seconds after the run [0]",
             {0, 86'400}, [&o](std::uint64_t v) { o.metrics_linger_s = v; });
}

void add_options(CLI::App& app, RunOptions& o) {
  app.add_option("--connector", o.connector, "The connector's library, or none (required)")
      ->type_name("LIB.so|none");
  app.add_option("--connector-config", o.connector_config,
                 "The connector's options; without it, its defaults")
      ->type_name("C.toml");
  app.add_option("--model", o.model, "Cache geometry of the model (required)")->type_name("M.toml");
  app.add_option(
         "--trace", o.trace,
         "Requests: a JSONL file, or gen:... (below) (required, but not with --print-config)")
      ->type_name("T.jsonl");
  add_number(app, "--limit", "Read only the first N rows of the trace", {1, count_max},
             [&o](std::uint64_t v) { o.limit = v; });
  add_turns(app, o);
  app.add_option_function<std::string>(
         "--passes", [&o](const std::string& text) { o.passes = passes_from(text); },
         "Passes over the trace, in order: cold, replay. Before a pass the device cache is "
         "emptied; the connector's content stays [cold,replay]")
      ->type_name("LIST");
  add_number(app, "--device-blocks",
             "Blocks of the device pool; 0: unlimited [twice what the longest request needs]",
             {0, blocks_max, ", 0 is unlimited"}, [&o](std::uint64_t v) { o.device_blocks = v; });
  add_number(app, "--host-blocks",
             "Size of the connector's host pool in blocks of the largest group; replaces the size "
             "in [host] of its options",
             {2, blocks_max}, [&o](std::uint64_t v) { o.host_blocks = v; });
  add_switch(app, "--device-cache", "off: the engine's own lookup answers 0 and registers nothing",
             o.device_cache);
  add_number(app, "--max-running", fmt::format("Requests that run at once [{}]", o.max_running),
             {1, 65'536}, [&o](std::uint64_t v) { o.max_running = v; });
  add_number(app, "--token-budget", fmt::format("Tokens of one step [{}]", o.token_budget),
             {1, count_max}, [&o](std::uint64_t v) { o.token_budget = v; });
  add_switch(app, "--reserve",
             "off: a request starts as soon as its first chunk fits, whatever those that run will "
             "still take; more of them are preempted",
             o.reserve);
  add_switch(app, "--retention",
             "off: hand off states without asking the connector which ones it wants "
             "(kvc.retention/1)",
             o.ask_retention);
  add_number(app, "--layerwise",
             "The model has N layers, each with sim_bytes_per_token of a token, and a request runs "
             "in the step of its load, layer by layer as it comes (kvc.layerwise/1); from 1 to 64",
             {1, 64}, [&o](std::uint64_t v) { o.layerwise = v; });
  add_number(app, "--ranks",
             "Workers; a multiple of the model's context parallel size, which is "
             "the default",
             {1, 1'024}, [&o](std::uint64_t v) { o.ranks = v; });
  add_number(app, "--steps-in-flight",
             fmt::format("Steps planned before the first one is processed [{}]", o.steps_in_flight),
             {1, 16}, [&o](std::uint64_t v) { o.steps_in_flight = v; });
  add_number(app, "--seed", fmt::format("Seed of the model and of its keys [{}]", o.seed), {},
             [&o](std::uint64_t v) { o.seed = v; });
  add_number(app, "--patience",
             fmt::format("Seconds without any progress after which the connector is given up [{}]",
                         o.patience_s),
             {1, 86'400}, [&o](std::uint64_t v) { o.patience_s = v; });
  add_hints(app, o);
  add_device(app, o);
  add_reports(app, o);
  app.add_flag(
      "--print-config", o.print_config,
      "Print the model with all defaults and the connector's options, of simple_cpu with all "
      "defaults too; run nothing");
}

// Why an option would be ignored without a word: what it is about is not there.
std::optional<std::string> unused_option(const CLI::App& app, const RunOptions& o) {
  if (app.count("--metrics-linger") != 0 && !o.metrics_port)
    return "--metrics-linger needs --metrics-port: nothing is served";
  if (app.count("--device-seed") != 0 && o.fake_device.empty())
    return "--device-seed needs --fake-device: there is no such device";
  if (o.layerwise != 0 && o.connector == "none")
    return "--layerwise needs a connector: --connector none loads nothing";
  if (o.turns == Turns::continued && o.trace.starts_with("gen:"))
    return "--turns continued is about Mooncake files: " + first_line(o.trace) + " is generated";
  return std::nullopt;
}

}  // namespace

Result<CommandLine> parse_command_line(int argc, const char* const* argv) {
  CommandLine line;
  RunOptions& o = line.options;
  CLI::App app(
      "Replays a trace of requests through a small engine and a KV-cache connector, "
      "checks every loaded byte and reports where the prompt tokens came from.",
      "kvc-run");
  app.set_version_flag("--version", version_line("kvc-run"));
  app.footer(footer());
  app.allow_extras();
  app.get_formatter()->column_width(34);
  add_options(app, o);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    line.print = app.help();
    return line;
  } catch (const CLI::CallForVersion& version) {
    line.print = std::string(version.what()) + "\n";
    return line;
  } catch (const CLI::ParseError& error) {
    // A value that does not fit may be that of the option before it.
    const auto unknown = unknown_argument(app);
    return Status{Code::arg, unknown.value_or(first_line(error.what())) + " (see kvc-run --help)"};
  }
  const auto refuse = [](const std::string& why) {
    return Status{Code::arg, why + " (see kvc-run --help)"};
  };
  if (const auto unknown = unknown_argument(app)) return refuse(*unknown);
  if (o.connector.empty()) return refuse("--connector is required: a library, or none");
  if (o.model.empty()) return refuse("--model is required");
  if (o.trace.empty() && !o.print_config) return refuse("--trace is required");
  if (o.passes.empty()) o.passes = {"cold", "replay"};
  if (!o.fake_device.empty() && o.device_blocks == std::uint64_t{0}) {
    return refuse("--device-blocks 0: memory of a device does not grow");
  }
  if (const auto why = unused_option(app, o)) return refuse(*why);
  const auto twice = file_named_twice({{"--json", o.json}, {"--plot", o.plot}},
                                      {{"--trace", o.trace},
                                       {"--connector-config", o.connector_config},
                                       {"--model", o.model},
                                       {"--connector", o.connector},
                                       {"--fake-device", o.fake_device}});
  if (twice) return Status{Code::arg, *twice};
  return line;
}

}  // namespace kvc::host
