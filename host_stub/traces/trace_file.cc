// JSONL traces: Mooncake rows and token rows.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "host_stub/traces/trace.h"
#include "host_stub/traces/turn_joiner.h"

namespace kvc::host {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t tokens_per_hash_id = 512;  // of the Mooncake traces (FAST'25)
// A row of 20 million tokens fits; an endless one (a device, a file of zeros) ends here.
constexpr std::size_t line_bytes_largest = std::size_t{256} << 20U;

// Thrown and caught in this file only; carries what is wrong with the row.
struct BadRow {
  std::string why;
};

std::string quoted(const char* key) { return "\"" + std::string(key) + "\""; }

// Never what is inside of a list or object: printing follows the nesting, which a hostile file
// makes as deep as it likes.
std::string shown(const Json& value) {
  if (value.is_array()) return "[...]";
  if (value.is_object()) return "{...}";
  return config::one_line(value.dump(-1, ' ', true, Json::error_handler_t::replace), 60);
}

const Json& field(const Json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end()) throw BadRow{quoted(key) + " is missing"};
  return *found;
}

std::uint64_t whole_number(const Json& value, const std::string& name, std::uint64_t min,
                           std::uint64_t max) {
  const std::string range =
      "it must be an integer from " + std::to_string(min) + " to " + std::to_string(max);
  // Integers beyond 64 bits are read as fractions, so this refuses them too.
  if (!value.is_number_integer()) throw BadRow{name + " is " + shown(value) + "; " + range};
  const bool negative = !value.is_number_unsigned() && value.get<std::int64_t>() < 0;
  if (negative || value.get<std::uint64_t>() < min || value.get<std::uint64_t>() > max) {
    throw BadRow{name + " is " + shown(value) + "; " + range};
  }
  return value.get<std::uint64_t>();
}

// Milliseconds, rounded down; recorded traces have integers, others fractions.
std::uint64_t timestamp(const Json& value) {
  constexpr double largest = 9.0e15;  // 285,000 years; exact in a double
  const double ms = value.is_number() ? value.get<double>() : -1.0;
  if (!(ms >= 0.0 && ms <= largest)) {
    throw BadRow{"\"timestamp\" is " + shown(value) + "; it must be a number of ms from 0 to 9e15"};
  }
  return static_cast<std::uint64_t>(ms);
}

const Json& array_field(const Json& row, const char* key) {
  const Json& value = field(row, key);
  if (!value.is_array())
    throw BadRow{quoted(key) + " is " + shown(value) + "; it must be an array"};
  return value;
}

void add_mooncake_row(const Json& row, TurnJoiner& turns, TraceBuilder& builder) {
  const std::uint64_t at_ms = timestamp(field(row, "timestamp"));
  const std::uint64_t tokens =
      whole_number(field(row, "input_length"), "\"input_length\"", 1, Trace::tokens_largest);
  const std::uint64_t output =
      whole_number(field(row, "output_length"), "\"output_length\"", 1, Trace::tokens_largest);
  const Json& ids = array_field(row, "hash_ids");
  const std::uint64_t wanted = (tokens + tokens_per_hash_id - 1) / tokens_per_hash_id;
  if (ids.size() != wanted) {
    throw BadRow{std::to_string(ids.size()) + " \"hash_ids\" for \"input_length\" " +
                 std::to_string(tokens) + "; at " + std::to_string(tokens_per_hash_id) +
                 " tokens each it must be " + std::to_string(wanted)};
  }
  turns.begin();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::uint64_t id =
        whole_number(ids[i], "\"hash_ids\"[" + std::to_string(i) + "]", 0, INT64_MAX);
    turns.add(id, std::min(tokens_per_hash_id, tokens - i * tokens_per_hash_id), builder);
  }
  builder.end_row(at_ms, output);
}

void add_token_row(const Json& row, TraceBuilder& builder) {
  const std::uint64_t at_ms = row.contains("timestamp") ? timestamp(row["timestamp"]) : 0;
  const std::uint64_t output =
      whole_number(field(row, "output_length"), "\"output_length\"", 1, Trace::tokens_largest);
  const Json& prompt = array_field(row, "prompt");
  if (prompt.empty() || prompt.size() > Trace::tokens_largest) {
    throw BadRow{"\"prompt\" has " + std::to_string(prompt.size()) + " tokens; it must have 1 to " +
                 std::to_string(Trace::tokens_largest)};
  }
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    const std::string name = "\"prompt\"[" + std::to_string(i) + "]";
    builder.add_token(static_cast<TokenId>(whole_number(prompt[i], name, 0, INT32_MAX)));
  }
  builder.end_row(at_ms, output);
}

// The next line without its end; false if there is none. A line that is too long is a BadRow.
bool next_line(std::istream& in, std::vector<char>& chunk, std::string& line) {
  line.clear();
  for (;;) {
    in.getline(chunk.data(), static_cast<std::streamsize>(chunk.size()));
    const auto got = static_cast<std::size_t>(in.gcount());
    const bool full = in.fail() && !in.eof() && !in.bad() && got + 1 == chunk.size();
    const bool ended = in.good();  // the line end was taken, and counted
    line.append(chunk.data(), ended ? got - 1 : got);
    if (!full) return ended || (in.eof() && !line.empty());
    if (line.size() > line_bytes_largest) {
      throw BadRow{"the line is longer than " + std::to_string(line_bytes_largest) + " bytes"};
    }
    in.clear();
  }
}

// Refuses a key of the row that stands twice: which of the two was meant, nobody knows.
class OnceOnly {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (event != Json::parse_event_t::key || depth != 1) return true;
    const auto& key = parsed.get_ref<const std::string&>();
    if (std::find(seen_.begin(), seen_.end(), key) != seen_.end()) {
      throw BadRow{"\"" + config::one_line(key, 60) + "\" stands twice"};
    }
    if (seen_.size() == keys_most) {
      throw BadRow{"more than " + std::to_string(keys_most) + " names in one row"};
    }
    seen_.push_back(key);
    return true;
  }

 private:
  static constexpr std::size_t keys_most = 256;
  std::vector<std::string> seen_;
};

Json parse_line(const std::string& line, bool last_and_unended) {
  Json row;
  try {
    row = Json::parse(line, OnceOnly());
  } catch (const Json::exception&) {
    throw BadRow{std::string("not a JSON object: ") + config::one_line(line, 60) +
                 (last_and_unended ? " (the file ends inside this line; it may be cut)" : "")};
  }
  if (!row.is_object()) throw BadRow{"not a JSON object: " + config::one_line(line, 60)};
  return row;
}

enum class Format { unknown, mooncake, tokens };

void add_row(const Json& row, Format& format, TurnJoiner& turns, TraceBuilder& builder) {
  const Format here = row.contains("prompt") ? Format::tokens : Format::mooncake;
  if (here == Format::tokens && row.contains("hash_ids")) {
    throw BadRow{"the row has both \"prompt\" and \"hash_ids\"; it must be one of them"};
  }
  if (format == Format::unknown) format = here;
  if (format != here) {
    throw BadRow{
        "rows with \"prompt\" and rows with \"hash_ids\" in one file; it must be one kind"};
  }
  here == Format::tokens ? add_token_row(row, builder) : add_mooncake_row(row, turns, builder);
}

}  // namespace

config::Parsed<Trace> read_trace_file(const std::string& path, std::size_t limit, Turns turns) {
  const std::string name = config::one_line(path);
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) {
    return config::ParseError{name + ": is a directory; a trace is a file"};
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return config::ParseError{name + ": cannot be opened: " + std::strerror(errno)};
  TraceBuilder builder;
  Format format = Format::unknown;
  TurnJoiner joiner(turns, tokens_per_hash_id);
  std::vector<char> chunk(std::size_t{64} << 10U);
  std::string line;
  std::size_t number = 0;
  try {
    while (builder.rows() < limit) {
      ++number;
      if (!next_line(file, chunk, line)) {
        --number;
        break;
      }
      add_row(parse_line(line, file.eof()), format, joiner, builder);
    }
  } catch (const BadRow& bad) {
    return config::ParseError{name + ":" + std::to_string(number) + ": " + bad.why};
  } catch (const std::exception& e) {  // out of memory, or a row too long to hold
    return config::ParseError{name + ":" + std::to_string(number) +
                              ": cannot be read: " + e.what()};
  }
  if (file.bad() || (file.fail() && !file.eof())) {
    return config::ParseError{name + ": cannot be read after line " + std::to_string(number) +
                              ": " + std::strerror(errno)};
  }
  if (builder.rows() == 0) return config::ParseError{name + ": no request in it"};
  return std::move(builder).take();
}

}  // namespace kvc::host
