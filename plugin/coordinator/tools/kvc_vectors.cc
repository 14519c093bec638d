// kvc-vectors FILE.jsonl [--json OUT]: runs recorded lookups against the coordinator.
//
// One JSON object a line: the layout, what each group holds, and the recorded answer (--help and
// conformance/corpus/README.md describe the fields). The last line of output is `N passed, M
// failed`. Exit code 0 only if M is 0 and N is not; 1 otherwise; 2 for a file that cannot be read,
// a line that is no such row or a wrong command line.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "host_stub/tools/command_line.h"
#include "host_stub/tools/program_files.h"
#include "plugin/coordinator/geometry.h"
#include "plugin/coordinator/key_index.h"
#include "plugin/coordinator/lookup.h"
#include "plugin/core/program.h"

namespace {

using nlohmann::json;
using namespace kvc;

constexpr std::uint32_t key_bytes = 16;
// Rows beyond this are no lookups anybody recorded: a limit against files that would only eat
// memory.
constexpr std::uint64_t units_max = std::uint64_t{1} << 24;

struct Expect {
  std::optional<std::string> refused;
  std::uint64_t hit = 0;
  bool fine = false;
  std::vector<std::uint64_t> blocks, slots, real;
  std::uint64_t uncached = 0;
  std::optional<std::uint64_t> best;
};

struct Row {
  std::string name;
  GeometryOptions options;
  Tokens prompt;
  std::vector<std::vector<std::uint64_t>> held;
  Expect expect;
};

constexpr const char* help_footer = R"(A row of FILE:
  name                what the output calls it
  hash_block          tokens per key, at least 1
  scheduler_block     tokens; a multiple of every group's block
  dcp                 context parallel size, at least 1
  fine_hits_allowed   false: the owner forbids hits inside a block
  prompt_tokens       n; a lookup may answer at most n - 1
  groups              a list, one object for each:
    kind              full, sliding, chunked or mamba
    block             tokens per block of one rank
    window            tokens; of sliding (the window) and chunked (the chunk)
    mode              of mamba: align (a state only where one was handed off) or all
    eagle             true: a draft group; may be absent
    held              the ends, in tokens, of the prefixes that are cached; multiples of hash_block
  expect              an object: what is right
    refused           a text: the layout must be refused, or answered as by brute force; else
    hit_tokens        the least hit in tokens that is right
    best_hit_tokens   the most; may be absent: hit_tokens
    fine_hits         whether hits may end inside a block
    group_block_tokens, slots, real
                      one number a group: tokens per block over all ranks; length of the answered
                      list; blocks in it that are not null (both compared where hit == hit_tokens)
    uncached_common_prefix_tokens
                      how much further attention alone would reach

Exit codes: 0 rows passed and none failed; 1 a row failed, or there was none; 2 FILE or a row of it
cannot be read, OUT.json cannot be written, or the command line is wrong.

Example:
  kvc-vectors conformance/corpus/vectors/lookup_vllm.jsonl --json build/vectors.json
)";

struct BadRow : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::uint64_t number(const json& j, const char* key) {
  const auto it = j.find(key);
  if (it == j.end()) throw BadRow(fmt::format("\"{}\" is missing", key));
  if (!it->is_number_integer() || *it < 0)
    throw BadRow(fmt::format("\"{}\" is not a whole number", key));
  return it->get<std::uint64_t>();
}

std::string text(const json& j, const char* key, const char* fallback = nullptr) {
  const auto it = j.find(key);
  if (it == j.end() && fallback != nullptr) return fallback;
  if (it == j.end() || !it->is_string())
    throw BadRow(fmt::format("\"{}\" is missing or no string", key));
  return it->get<std::string>();
}

bool flag(const json& j, const char* key, std::optional<bool> fallback = std::nullopt) {
  const auto it = j.find(key);
  if (it == j.end() && fallback) return *fallback;
  if (it == j.end() || !it->is_boolean())
    throw BadRow(fmt::format("\"{}\" is missing or not true or false", key));
  return it->get<bool>();
}

std::vector<std::uint64_t> numbers(const json& j, const char* key) {
  const auto it = j.find(key);
  if (it == j.end() || !it->is_array())
    throw BadRow(fmt::format("\"{}\" is missing or no list", key));
  std::vector<std::uint64_t> out;
  for (const json& v : *it) {
    if (!v.is_number_integer() || v < 0)
      throw BadRow(fmt::format("\"{}\" holds something else than whole numbers", key));
    out.push_back(v.get<std::uint64_t>());
  }
  return out;
}

GroupSpec parse_group(const json& j) {
  if (!j.is_object()) throw BadRow("a group is no object");
  const std::string kind = text(j, "kind");
  const Tokens block{number(j, "block")};
  GroupSpec s;
  if (kind == "full") {
    s = group_spec(GroupKind::full, block);
  } else if (kind == "sliding" || kind == "chunked") {
    s = group_spec(kind == "sliding" ? GroupKind::sliding : GroupKind::chunked, block,
                   {number(j, "window")});
  } else if (kind == "mamba") {
    const std::string mode = text(j, "mode");
    if (mode != "align" && mode != "all")
      throw BadRow(fmt::format("mode \"{}\" is neither align nor all", mode));
    s = group_spec(GroupKind::state, block, {}, mode == "all");
  } else {
    throw BadRow(fmt::format("unknown kind \"{}\"", kind));
  }
  s.draft = flag(j, "eagle", false);
  return s;
}

Expect parse_expect(const json& row, std::size_t groups) {
  const auto it = row.find("expect");
  if (it == row.end() || !it->is_object()) throw BadRow("\"expect\" is missing or no object");
  const json& j = *it;
  Expect e;
  if (j.contains("refused")) {
    e.refused = text(j, "refused");
    return e;
  }
  e.hit = number(j, "hit_tokens");
  e.fine = flag(j, "fine_hits");
  e.blocks = numbers(j, "group_block_tokens");
  e.slots = numbers(j, "slots");
  e.real = numbers(j, "real");
  e.uncached = number(j, "uncached_common_prefix_tokens");
  if (j.contains("best_hit_tokens")) e.best = number(j, "best_hit_tokens");
  if (e.blocks.size() != groups || e.slots.size() != groups || e.real.size() != groups)
    throw BadRow(
        fmt::format("the lists of \"expect\" do not have one entry for each of {} groups", groups));
  return e;
}

Row parse_row(const json& j) {
  if (!j.is_object()) throw BadRow("no object");
  Row row;
  row.name = text(j, "name");
  row.options.hash_unit = {number(j, "hash_block")};
  row.options.scheduler_block = {number(j, "scheduler_block")};
  const std::uint64_t parallel = number(j, "dcp");
  if (parallel > UINT32_MAX) throw BadRow(fmt::format("\"dcp\" is {}", parallel));
  row.options.context_parallel = static_cast<std::uint32_t>(parallel);
  row.options.fine_hits_allowed = flag(j, "fine_hits_allowed");
  row.prompt = {number(j, "prompt_tokens")};
  const auto groups = j.find("groups");
  if (groups == j.end() || !groups->is_array() || groups->empty())
    throw BadRow("\"groups\" is missing, no list or empty");
  for (const json& g : *groups) {
    row.options.groups.push_back(parse_group(g));
    row.options.draft_drop = row.options.draft_drop || row.options.groups.back().draft;
    row.held.push_back(numbers(g, "held"));
  }
  const std::uint64_t h = row.options.hash_unit.n;
  if (h == 0) throw BadRow("\"hash_block\" is 0");
  if (row.prompt.n / h > units_max)
    throw BadRow(fmt::format("\"prompt_tokens\" {} is too long", row.prompt.n));
  for (const auto& held : row.held)
    for (const std::uint64_t end : held)
      if (end == 0 || end % h != 0 || end / h > units_max)
        throw BadRow(fmt::format("\"held\" has {}, not a prefix end on the hash unit {}", end, h));
  row.expect = parse_expect(j, row.held.size());
  return row;
}

// Keys of one request: unit number i in the first 8 bytes is as good as any hash here.
std::vector<std::byte> make_keys(const Row& row) {
  std::uint64_t last = row.prompt.n;
  for (const auto& held : row.held)
    for (const std::uint64_t end : held) last = std::max(last, end);
  const std::uint64_t units = last / row.options.hash_unit.n;
  std::vector<std::byte> keys(units * key_bytes);
  for (std::uint64_t i = 0; i < units; ++i) std::memcpy(&keys[i * key_bytes], &i, sizeof i);
  return keys;
}

bool holds(const Row& row, GroupId g, std::uint64_t end) {
  return std::find(row.held[g].begin(), row.held[g].end(), end) != row.held[g].end();
}

// Written from the rules, obvious and slow: whether group g can serve a prefix of `end` tokens.
bool serves(const Row& row, const Geometry& geometry, GroupId g, std::uint64_t end) {
  const GroupSpec& s = row.options.groups[g];
  const std::uint64_t block = geometry.block_tokens(g).n;
  const std::uint64_t h = row.options.hash_unit.n;
  if (s.kind == GroupKind::state) return holds(row, g, end);
  if (s.kind == GroupKind::full) {
    for (std::uint64_t p = 0; (p + 1) * block <= end; ++p)
      if (!holds(row, g, (p + 1) * block)) return false;
    if (end % block == 0) return true;
    const std::uint64_t known = row.prompt.n / h * h;
    for (std::uint64_t t = end; t <= std::min(end / block * block + block, known); t += h)
      if (holds(row, g, t)) return true;
    return false;
  }
  if (end % block != 0) return false;
  const std::uint64_t w = s.window.n;
  const std::uint64_t from =
      s.kind == GroupKind::chunked ? end / w * w : (end > w - 1 ? end - (w - 1) : 0);
  for (std::uint64_t p = from / block; p < end / block; ++p)
    if (!holds(row, g, (p + 1) * block)) return false;
  return true;
}

std::uint64_t brute_force(const Row& row, const Geometry& geometry) {
  const std::uint64_t align = geometry.hit_alignment().n;
  const std::uint64_t known = row.prompt.n / row.options.hash_unit.n * row.options.hash_unit.n;
  for (std::uint64_t end = std::min(row.prompt.n - 1, known) / align * align; end > 0;
       end -= align) {
    bool all = true;
    for (GroupId g = 0; g < geometry.groups() && all; ++g) all = serves(row, geometry, g, end);
    if (all) return end;
  }
  return 0;
}

struct Verdict {
  bool passed = true;
  bool refused = false;
  std::optional<std::uint64_t> hit;
  std::string why;  // what is wrong, or the text of a refusal
  void fail(std::string text) {
    passed = false;
    why += (why.empty() ? "" : "; ") + std::move(text);
  }
};

// A refusal must name the numbers that are wrong: at least one of the row's own.
bool names_numbers(const Row& row, const std::string& message) {
  std::vector<std::uint64_t> own{row.options.hash_unit.n, row.options.scheduler_block.n};
  for (const GroupSpec& s : row.options.groups) own.push_back(s.tokens_per_block.n);
  return std::any_of(own.begin(), own.end(), [&](std::uint64_t n) {
    return message.find(std::to_string(n)) != std::string::npos;
  });
}

std::uint64_t real_blocks(const Row& row, const Geometry& geometry, const Hit& hit, GroupId g) {
  // A window of one token needs no block before it, but the recorded lists name the last one when
  // it is held.
  const GroupSpec& s = row.options.groups[g];
  const bool beside = s.kind == GroupKind::sliding && s.window.n == 1 && hit.tokens.n > 0 &&
                      hit.groups[g].slots.empty() && holds(row, g, hit.tokens.n);
  (void)geometry;
  return hit.groups[g].slots.size() + (beside ? 1 : 0);
}

// Attention that is held behind the longest allowed answer serves its inside here, but not in the
// recorded answers: attention alone then reaches further than recorded.
bool attention_held_behind_cap(const Row& row) {
  for (GroupId g = 0; g < row.held.size(); ++g)
    for (const std::uint64_t end : row.held[g])
      if (row.options.groups[g].kind == GroupKind::full && end >= row.prompt.n) return true;
  return false;
}

void check_answer(const Row& row, const Geometry& geometry, const Hit& hit, Verdict& v) {
  const Expect& e = row.expect;
  const std::uint64_t got = hit.tokens.n;
  const std::uint64_t most = e.best.value_or(e.hit);
  if (got < e.hit || got > most) v.fail(fmt::format("hit {} is not in [{}, {}]", got, e.hit, most));
  if (geometry.fine_hits() != e.fine)
    v.fail(fmt::format("fine hits are {}, expected {}", geometry.fine_hits(), e.fine));
  for (GroupId g = 0; g < geometry.groups(); ++g) {
    if (geometry.block_tokens(g).n != e.blocks[g])
      v.fail(fmt::format("group {}: blocks of {} tokens, expected {}", g,
                         geometry.block_tokens(g).n, e.blocks[g]));
    if (got != e.hit) continue;
    if (hit.groups[g].list_length() != e.slots[g])
      v.fail(fmt::format("group {}: {} positions, expected {}", g, hit.groups[g].list_length(),
                         e.slots[g]));
    if (real_blocks(row, geometry, hit, g) != e.real[g])
      v.fail(fmt::format("group {}: {} blocks, expected {}", g, real_blocks(row, geometry, hit, g),
                         e.real[g]));
  }
  const std::uint64_t uncached = hit.uncached_common_prefix.n;
  const bool further = attention_held_behind_cap(row);
  if (got == e.hit && (further ? uncached < e.uncached : uncached != e.uncached))
    v.fail(fmt::format("uncached common prefix {}, expected {}{}", uncached, e.uncached,
                       further ? " or more" : ""));
}

Verdict run_row(const Row& row) {
  Verdict v;
  const Result<Geometry> made = Geometry::make(row.options);
  if (!made.ok()) {
    v.refused = true;
    v.why = made.error().text;
    if (!row.expect.refused)
      v.fail("refused a layout that has an answer");
    else if (!names_numbers(row, v.why))
      v.fail("the refusal names no number of the layout");
    return v;
  }
  const Geometry& geometry = made.value();
  const std::vector<std::byte> keys = make_keys(row);
  std::uint64_t entries = 1;
  for (const auto& held : row.held) entries += held.size();
  Result<FlatIndex> index = FlatIndex::make({key_bytes, entries, 0, false});
  if (!index.ok()) {
    v.fail(index.error().text);
    return v;
  }
  SlotId slot = 0;
  for (GroupId g = 0; g < geometry.groups(); ++g)
    for (const std::uint64_t end : row.held[g])
      if (index.value().insert(g, &keys[(end / row.options.hash_unit.n - 1) * key_bytes], slot++,
                               {end}) != Code::ok)
        v.fail(fmt::format("group {}: end {} is held twice", g, end));
  const KeyView view{keys.data(), key_bytes, row.prompt.n / row.options.hash_unit.n};
  Hit hit;
  const Tokens most{row.prompt.n == 0 ? 0 : row.prompt.n - 1};
  if (lookup(geometry, index.value(), view, {}, most, hit) != Code::ok)
    v.fail("the lookup itself failed");
  v.hit = hit.tokens.n;
  if (!row.expect.refused) {
    check_answer(row, geometry, hit, v);
  } else if (geometry.has_drafts()) {
    v.fail("answers a layout with draft groups that must be refused");
  } else if (const std::uint64_t want = brute_force(row, geometry); want != hit.tokens.n) {
    v.fail(fmt::format("hit {}, by brute force {}", hit.tokens.n, want));
  }
  return v;
}

int run(const std::string& path, const std::string& json_path) {
  std::ifstream in(path);
  if (!in) {
    fmt::print(stderr, "kvc-vectors: cannot read {}: {}\n", path, std::strerror(errno));
    return 2;
  }
  json rows = json::array();
  std::uint64_t passed = 0, failed = 0, refused = 0, line_number = 0;
  std::string line;
  while (std::getline(in, line)) {
    ++line_number;
    if (line.empty()) continue;
    Verdict v;
    std::string name;
    try {
      const Row row = parse_row(json::parse(line));
      name = row.name;
      v = run_row(row);
    } catch (const json::parse_error& e) {
      fmt::print(stderr, "kvc-vectors: {}:{}: not a JSON object: wrong at byte {} of {}{}\n", path,
                 line_number, e.byte, line.size(),
                 in.eof() ? " (the file ends inside this line; it may be cut)" : "");
      return 2;
    } catch (const std::exception& e) {
      fmt::print(stderr, "kvc-vectors: {}:{}: {}\n", path, line_number, e.what());
      return 2;
    }
    v.passed ? ++passed : ++failed;
    refused += v.refused ? 1 : 0;
    if (!v.passed)
      std::fputs(fmt::format("{} (line {}): {}\n", name, line_number, v.why).c_str(), stdout);
    if (json_path.empty()) continue;
    rows.push_back({{"name", name},
                    {"line", line_number},
                    {"passed", v.passed},
                    {"refused", v.refused},
                    {"why", v.why},
                    {"hit_tokens", v.hit ? json(*v.hit) : json(nullptr)}});
  }
  if (in.bad()) {
    fmt::print(stderr, "kvc-vectors: {}: read failed after line {}\n", path, line_number);
    return 2;
  }
  if (passed + failed == 0) fmt::print(stderr, "kvc-vectors: {}: no lookup in it\n", path);
  if (!json_path.empty()) {
    std::ofstream out(json_path);
    out << json{{"schema", "kvc.vectors/1"}, {"file", path},       {"passed", passed},
                {"failed", failed},          {"refused", refused}, {"rows", std::move(rows)}}
               .dump(1)
        << '\n';
    out.flush();
    if (!out) {
      fmt::print(stderr, "kvc-vectors: cannot write {}\n", json_path);
      return 2;
    }
  }
  std::fputs(fmt::format("{} passed, {} failed\n", passed, failed).c_str(), stdout);
  return failed == 0 && passed != 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Runs recorded lookups against the coordinator. The last line of output is\n"
      "`N passed, M failed`, before it one line for each failed row that says what differs.",
      "kvc-vectors"};
  std::string path, json_path;
  app.add_option("FILE", path, "vectors, one JSON object a line (required)");
  app.add_option("--json", json_path, "write every verdict to this file, schema kvc.vectors/1")
      ->type_name("OUT.json");
  app.set_version_flag("--version", version_line("kvc-vectors"));
  app.footer(help_footer);
  app.allow_extras();
  const auto refuse = [](const std::string& why) {
    fmt::print(stderr, "kvc-vectors: {} (see kvc-vectors --help)\n", why);
    return 2;
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // help and version
    static_cast<void>(app.exit(e));
    return with_stdout_written("kvc-vectors", 0, 2);
  } catch (const CLI::ParseError& e) {
    return refuse(host::unknown_argument(app).value_or(host::first_line(e.what())));
  }
  if (const auto unknown = host::unknown_argument(app)) return refuse(*unknown);
  if (path.empty()) return refuse("FILE is required");
  if (const auto why = host::file_named_twice({{"--json", json_path}}, {{"FILE", path}}))
    return refuse(*why);
  try {
    return with_stdout_written("kvc-vectors", run(path, json_path), 2);
  } catch (const std::exception& e) {
    fmt::print(stderr, "kvc-vectors: {}\n", e.what());
    return 2;
  }
}
