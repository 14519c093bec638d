// Generated traces: multi-turn chat, shared system prompt, agent loop.
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "host_stub/traces/trace.h"

namespace kvc::host {
namespace {

struct Parameter {
  std::string_view name;
  std::uint64_t value;  // default, then what the spec says
  std::uint64_t min, max;
  std::string_view what;
};

using Parameters = std::span<Parameter>;

std::uint64_t get(Parameters parameters, std::string_view name) {
  for (const auto& p : parameters) {
    if (p.name == name) return p.value;
  }
  return 0;  // not reached: names are literals of this file
}

// Draws that are equal on every platform; the distributions of the standard library are not.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : rng_(seed) {}
  std::uint64_t below(std::uint64_t n) { return rng_() % n; }
  // About `mean`, evenly from half of it to one and a half; at least 1.
  std::uint64_t about(std::uint64_t mean) {
    return std::max<std::uint64_t>(1, mean / 2 + below(mean + 1));
  }
  std::uint64_t origin() { return rng_(); }  // of a new piece of text

 private:
  std::mt19937_64 rng_;
};

struct Piece {
  std::uint64_t origin, tokens;
};

// A conversation that only grows; every request repeats all of it.
struct Conversation {
  std::vector<Piece> pieces;
  std::uint64_t turns = 0;
  std::uint64_t tokens = 0;

  void add(Piece piece) {
    pieces.push_back(piece);
    tokens += piece.tokens;
  }
};

void ask(TraceBuilder& builder, const Conversation& c, std::uint64_t at_ms, std::uint64_t output) {
  for (const auto& piece : c.pieces) builder.add_run(piece.origin, piece.tokens);
  builder.end_row(at_ms, output);
}

// Several conversations at a time below shared heads. Each turn appends what the user (or a tool)
// says, asks, and appends an answer. A conversation that had its turns is replaced by a new one.
Trace conversations(Parameters p, std::uint64_t open, std::uint64_t turns, std::uint64_t heads,
                    std::uint64_t head_tokens, std::uint64_t message_tokens, std::size_t limit) {
  Dice dice(get(p, "seed"));
  const std::uint64_t output_tokens = get(p, "output_tokens");
  std::vector<Piece> shared;
  for (std::uint64_t i = 0; i < heads; ++i)
    shared.push_back({dice.origin(), dice.about(head_tokens)});
  std::vector<Conversation> running(static_cast<std::size_t>(open));
  TraceBuilder builder;
  std::uint64_t at_ms = 0;
  const std::uint64_t requests = std::min<std::uint64_t>(get(p, "requests"), limit);
  while (builder.rows() < requests) {
    Conversation& c = running[static_cast<std::size_t>(dice.below(open))];
    // One more turn must fit: what the user says and the answer are at most 1.5 times their mean.
    const std::uint64_t turn_most = 2 * (message_tokens + output_tokens) + 2;
    if (c.turns == turns || c.tokens + turn_most > Trace::tokens_largest) c = Conversation{};
    if (c.turns == 0) c.add(shared[static_cast<std::size_t>(dice.below(heads))]);
    c.add({dice.origin(), dice.about(message_tokens)});
    const std::uint64_t output = dice.about(output_tokens);
    ask(builder, c, at_ms, output);
    c.add({dice.origin(), output});
    ++c.turns;
    at_ms += dice.about(1000);
  }
  return std::move(builder).take();
}

constexpr std::uint64_t piece_tokens_largest = std::uint64_t{1} << 24U;

constexpr Parameter requests{"requests", 100, 1, 100'000'000, "rows"};
constexpr Parameter seed{"seed", 1, 0, UINT64_MAX, "equal seeds give equal traces"};
constexpr Parameter output{"output_tokens", 128, 1, piece_tokens_largest, "mean per request"};

std::array<Parameter, 7> chat_parameters() {
  return {requests,
          seed,
          output,
          {"users", 8, 1, 65'536, "conversations at a time"},
          {"turns", 6, 1, 65'536, "requests of a conversation"},
          {"system_tokens", 512, 1, piece_tokens_largest, "mean of the one system prompt"},
          {"user_tokens", 200, 1, piece_tokens_largest, "mean of a message"}};
}

std::array<Parameter, 6> shared_parameters() {
  return {requests,
          seed,
          output,
          {"systems", 4, 1, 65'536, "different system prompts"},
          {"system_tokens", 2048, 1, piece_tokens_largest, "mean of a system prompt"},
          {"user_tokens", 256, 1, piece_tokens_largest, "mean of the question after it"}};
}

std::array<Parameter, 7> agent_parameters() {
  return {requests,
          seed,
          output,
          {"agents", 4, 1, 65'536, "loops at a time"},
          {"steps", 20, 1, 65'536, "requests of a loop"},
          {"system_tokens", 4096, 1, piece_tokens_largest, "mean of instructions and tools"},
          {"observation_tokens", 512, 1, piece_tokens_largest, "mean of a tool's answer"}};
}

std::string list_of(Parameters parameters) {
  std::string list;
  for (const auto& p : parameters) {
    list += (list.empty() ? "" : ", ") + std::string(p.name) + "=" + std::to_string(p.value);
  }
  return list;
}

// Reads "key=value&key=value" into `parameters`; the answer is what is wrong, or nothing.
std::optional<std::string> read_parameters(std::string_view text, Parameters parameters) {
  std::vector<bool> seen(parameters.size());
  while (!text.empty()) {
    const auto part = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const auto key = part.substr(0, part.find('='));
    const auto value = part.substr(std::min(part.size(), key.size() + 1));
    const auto found = std::find_if(parameters.begin(), parameters.end(),
                                    [&](const Parameter& p) { return p.name == key; });
    if (found == parameters.end()) {
      return "unknown parameter \"" + config::one_line(key, 60) +
             "\"; allowed: " + list_of(parameters);
    }
    std::uint64_t number = 0;
    const char* const end = value.data() + value.size();
    const auto read = std::from_chars(value.data(), end, number);
    if (read.ec != std::errc{} || read.ptr != end || number < found->min || number > found->max) {
      return std::string(key) + "=" + config::one_line(value, 60) +
             "; it must be an integer from " + std::to_string(found->min) + " to " +
             std::to_string(found->max);
    }
    if (seen[static_cast<std::size_t>(found - parameters.begin())])
      return std::string(key) + " is given twice";
    seen[static_cast<std::size_t>(found - parameters.begin())] = true;
    found->value = number;
  }
  return std::nullopt;
}

// A single-shot request is a conversation of one turn.
config::Parsed<Trace> generate(std::string_view kind, std::string_view text, std::size_t limit) {
  const auto refused = [&](const std::string& why) {
    return config::ParseError{"gen:" + config::one_line(kind, 60) + ": " + why};
  };
  if (kind == "chat") {
    auto p = chat_parameters();
    if (const auto why = read_parameters(text, p)) return refused(*why);
    return conversations(p, get(p, "users"), get(p, "turns"), 1, get(p, "system_tokens"),
                         get(p, "user_tokens"), limit);
  }
  if (kind == "shared") {
    auto p = shared_parameters();
    if (const auto why = read_parameters(text, p)) return refused(*why);
    return conversations(p, 1, 1, get(p, "systems"), get(p, "system_tokens"), get(p, "user_tokens"),
                         limit);
  }
  if (kind == "agent") {
    auto p = agent_parameters();
    if (const auto why = read_parameters(text, p)) return refused(*why);
    return conversations(p, get(p, "agents"), get(p, "steps"), 1, get(p, "system_tokens"),
                         get(p, "observation_tokens"), limit);
  }
  return refused("no such generator; there are chat, shared and agent");
}

}  // namespace

config::Parsed<Trace> generate_trace(std::string_view spec, std::size_t limit) {
  std::string_view rest = spec.substr(std::min<std::size_t>(spec.size(), 4));  // behind "gen:"
  const std::string_view kind = rest.substr(0, rest.find('?'));
  rest.remove_prefix(std::min(rest.size(), kind.size() + 1));
  if (limit == 0) return config::ParseError{config::one_line(spec) + ": no request asked for"};
  try {
    return generate(kind, rest, limit);
  } catch (const std::exception& e) {
    return config::ParseError{config::one_line(spec) + ": cannot be generated: " + e.what()};
  }
}

std::string Trace::generator_help() {
  auto chat = chat_parameters();
  auto shared = shared_parameters();
  auto agent = agent_parameters();
  std::string help;
  const auto add = [&help](const char* name, Parameters parameters) {
    help += std::string("gen:") + name + "\n";
    for (const auto& p : parameters) {
      help += "  " + std::string(p.name) + "=" + std::to_string(p.value) + "  " +
              std::string(p.what) + "\n";
    }
  };
  add("chat", chat);
  add("shared", shared);
  add("agent", agent);
  return help;
}

}  // namespace kvc::host
