#include "config/model_config.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <sstream>

#include "config/toml_table.h"

namespace kvc::config {
namespace {

constexpr std::uint64_t block_tokens_largest = std::uint64_t{1} << 20U;
constexpr std::uint64_t tokens_largest = std::uint64_t{1} << 40U;
constexpr std::size_t groups_most = 64;
constexpr std::array<const char*, 5> kind_names{"full", "sliding", "chunked", "state", "other"};

std::string number(std::uint64_t n) { return std::to_string(n); }

// Requires: the key means something for `wanted` only; refuses it elsewhere, demands it there.
std::uint64_t size_of_kind(TomlTable& table, const char* key, GroupKind kind, GroupKind wanted) {
  const auto given = table.integer(key, 1, tokens_largest);
  if (kind != wanted && given) {
    table.refuse(key, std::string("only for kind = \"") +
                          kind_names[static_cast<std::size_t>(wanted)] + "\"");
  }
  if (kind == wanted && !given) {
    table.refuse(key, std::string("missing; kind = \"") +
                          kind_names[static_cast<std::size_t>(wanted)] +
                          "\" needs an integer from 1 to " + number(tokens_largest));
  }
  return given.value_or(0);
}

GroupConfig read_group(TomlTable& table, std::uint64_t context_parallel) {
  GroupConfig g;
  const auto kind = table.word("kind", {"full", "sliding", "chunked", "state", "other"});
  if (!kind) table.refuse("kind", "missing; one of full, sliding, chunked, state, other");
  g.kind = static_cast<GroupKind>(*kind);
  g.name = table.text("name").value_or("");
  g.origin = table.text("origin").value_or("");
  const auto block = table.integer("tokens_per_block", 1, block_tokens_largest);
  if (!block) {
    table.refuse("tokens_per_block",
                 "missing; an integer from 1 to " + number(block_tokens_largest) + " per rank");
  }
  g.tokens_per_block = *block;
  g.window_tokens = size_of_kind(table, "window_tokens", g.kind, GroupKind::sliding);
  g.chunk_tokens = size_of_kind(table, "chunk_tokens", g.kind, GroupKind::chunked);
  g.extra_retained_tokens =
      table.integer("extra_retained_tokens", 0, block_tokens_largest).value_or(0);
  const auto mode = table.word("mode", {"align", "all"});
  if (mode && g.kind != GroupKind::state) table.refuse("mode", "only for kind = \"state\"");
  g.mode = static_cast<StateMode>(mode.value_or(0));
  g.cacheable = table.boolean("cacheable").value_or(g.kind != GroupKind::other);
  g.draft = table.boolean("draft").value_or(false);
  g.sharded = table.boolean("sharded").value_or(g.kind == GroupKind::full && context_parallel > 1);
  g.resume_inside_block = table.boolean("resume_inside_block").value_or(false);
  const bool fine = g.kind == GroupKind::full || g.kind == GroupKind::state;
  g.fine_lookup = table.boolean("fine_lookup").value_or(fine);
  const bool moves = g.kind == GroupKind::state && g.mode == StateMode::align;
  g.position_stable = table.boolean("position_stable").value_or(!moves);
  table.refuse_unknown_keys();
  return g;
}

void check_group(const TomlTable& table, const GroupConfig& g, std::uint64_t context_parallel) {
  if (g.cacheable && g.kind == GroupKind::other) {
    table.refuse("cacheable", "a group of kind \"other\" is never cached (R-106)");
  }
  if (context_parallel == 1) return;
  const std::string ranks = "context_parallel is " + number(context_parallel);
  if (g.sharded && g.kind != GroupKind::full) {
    table.refuse("sharded", ranks + ": only full attention can be sharded (R-110)");
  }
  if (g.kind == GroupKind::chunked) {
    table.refuse("kind", ranks + ": chunked attention needs context_parallel = 1 (R-106)");
  }
}

// Reports, statistics and errors name groups: every name once.
void settle_names(const std::vector<TomlTable>& tables, std::vector<GroupConfig>& groups) {
  const auto first_of = [&](const std::string& name) {
    return static_cast<std::size_t>(
        std::find_if(groups.begin(), groups.end(),
                     [&](const GroupConfig& g) { return g.name == name; }) -
        groups.begin());
  };
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string& name = groups[i].name;
    const std::size_t first = first_of(name);
    if (name.empty() || first == i) continue;
    tables[i].refuse("name", "every group needs a name of its own; it is " +
                                 tables[first].where("name") + ", too");
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (!groups[i].name.empty()) continue;
    std::string name = kind_names[static_cast<std::size_t>(groups[i].kind)];
    while (first_of(name) != groups.size()) name.append(1, '-').append(number(i));
    groups[i].name = name;
  }
}

// lcm of all spans; refuses what does not fit.
std::uint64_t lcm_of_spans(const TomlTable& model, const ModelConfig& m) {
  std::uint64_t lcm = 1;
  for (const auto& g : m.groups) {
    const std::uint64_t span = ModelConfig::block_span_tokens(g, m.context_parallel);
    const std::uint64_t factor = span / std::gcd(lcm, span);
    if (factor > tokens_largest / lcm) {
      model.refuse("scheduler_block", "the least common multiple of the block sizes exceeds " +
                                          number(tokens_largest) + " tokens");
    }
    lcm *= factor;
  }
  return lcm;
}

// h where the file gives none.
std::uint64_t default_hash_unit(const ModelConfig& m) {
  std::uint64_t of_cacheable = 0;
  std::uint64_t of_all = 0;
  bool all_mode = false;
  for (const auto& g : m.groups) {
    const std::uint64_t span = ModelConfig::block_span_tokens(g, m.context_parallel);
    of_all = std::gcd(of_all, span);
    if (g.cacheable) of_cacheable = std::gcd(of_cacheable, span);
    all_mode = all_mode || (g.kind == GroupKind::state && g.mode == StateMode::all);
  }
  if (m.groups.size() == 1 || all_mode) return m.scheduler_block_tokens;
  return of_cacheable != 0 ? of_cacheable : of_all;
}

// What would fit every group; an error says the way out (field report 118).
std::string fitting_sizes(const ModelConfig& m) {
  std::uint64_t unit = 0;
  std::string spans;
  for (std::size_t i = 0; i < m.groups.size(); ++i) {
    const auto& g = m.groups[i];
    const std::uint64_t span = ModelConfig::block_span_tokens(g, m.context_parallel);
    if (g.cacheable) unit = std::gcd(unit, span);
    spans += (i == 0 ? "" : ", ") + number(span);
  }
  return "; blocks span " + spans + " tokens: " +
         (unit == 0 ? "" : "model.hash_unit = " + number(unit) + " or a divisor fits, ") +
         "model.scheduler_block is a multiple of all";
}

// R-110, with the numbers.
void check_layout(const TomlTable& model, const std::vector<TomlTable>& tables,
                  const ModelConfig& m) {
  const std::uint64_t h = m.hash_unit_tokens;
  const std::uint64_t s = m.scheduler_block_tokens;
  if (s % h != 0) {
    model.refuse("hash_unit", "the scheduler block of " + number(s) +
                                  " tokens is no multiple of the hash unit of " + number(h));
  }
  for (std::size_t i = 0; i < m.groups.size(); ++i) {
    const auto& g = m.groups[i];
    const std::uint64_t span = ModelConfig::block_span_tokens(g, m.context_parallel);
    if (s % g.tokens_per_block != 0) {
      tables[i].refuse("tokens_per_block", "the scheduler block of " + number(s) +
                                               " tokens is no multiple of it (R-110)" +
                                               fitting_sizes(m));
    }
    if (g.cacheable && span % h != 0) {
      tables[i].refuse("tokens_per_block", "a block of group " + number(i) + " (" +
                                               one_line(g.name, 60) + ") spans " + number(span) +
                                               " tokens, no multiple of the hash unit of " +
                                               number(h) + " (R-110)" + fitting_sizes(m));
    }
  }
}

ModelConfig read_model(std::string_view text, std::string_view file) {
  const toml::table document = parse_document(text, file);
  TomlTable root(document, "", file);
  TomlTable model = root.table("model");
  ModelConfig m;
  const auto name = model.text("name");
  if (!name || name->empty())
    model.refuse("name", "missing; a model file has [model] name = \"...\"");
  m.name = *name;
  m.origin = model.text("origin").value_or("");
  m.context_parallel = model.integer("context_parallel", 1, 1024).value_or(1);
  m.cp_interleave_tokens = model.integer("cp_interleave", 1, block_tokens_largest).value_or(1);
  m.vocabulary = model.integer("vocabulary", 2, std::uint64_t{1} << 31U).value_or(m.vocabulary);
  m.sim_bytes_per_token = model.integer("sim_bytes_per_token", 8, 65'536).value_or(8);
  if (m.sim_bytes_per_token % 8 != 0) {
    model.refuse("sim_bytes_per_token", "it must be a multiple of 8 from 8 to 65536");
  }
  const auto scheduler_block = model.integer("scheduler_block", 1, tokens_largest);
  const auto hash_unit = model.integer("hash_unit", 1, tokens_largest);
  model.refuse_unknown_keys();
  auto tables = root.tables("group");
  root.refuse_unknown_keys();
  if (tables.empty() || tables.size() > groups_most) {
    root.refuse("group", number(tables.size()) + " groups; a model has 1 to " +
                             number(groups_most) + ", each a table [[group]]");
  }
  for (auto& table : tables) {
    m.groups.push_back(read_group(table, m.context_parallel));
    check_group(table, m.groups.back(), m.context_parallel);
  }
  settle_names(tables, m.groups);
  m.scheduler_block_tokens = scheduler_block ? *scheduler_block : lcm_of_spans(model, m);
  m.hash_unit_tokens = hash_unit ? *hash_unit : default_hash_unit(m);
  check_layout(model, tables, m);
  return m;
}

}  // namespace

Parsed<ModelConfig> parse_model(std::string_view text, std::string_view file) {
  return without_exceptions<ModelConfig>(file, [&] { return read_model(text, file); });
}

std::string effective_toml(const ModelConfig& m) {
  const auto flag = [](bool b) { return b ? "true" : "false"; };
  std::ostringstream out;
  out << "[model]\n"
      << "name = " << toml_quoted(m.name) << "\n"
      << "origin = " << toml_quoted(m.origin) << "\n"
      << "hash_unit = " << m.hash_unit_tokens << "\n"
      << "scheduler_block = " << m.scheduler_block_tokens << "\n"
      << "context_parallel = " << m.context_parallel << "\n"
      << "cp_interleave = " << m.cp_interleave_tokens << "\n"
      << "sim_bytes_per_token = " << m.sim_bytes_per_token << "\n"
      << "vocabulary = " << m.vocabulary << "\n";
  for (const auto& g : m.groups) {
    out << "\n[[group]]\n"
        << "name = " << toml_quoted(g.name) << "\n"
        << "origin = " << toml_quoted(g.origin) << "\n"
        << "kind = " << toml_quoted(kind_names[static_cast<std::size_t>(g.kind)]) << "\n"
        << "tokens_per_block = " << g.tokens_per_block << "\n";
    if (g.kind == GroupKind::sliding) out << "window_tokens = " << g.window_tokens << "\n";
    if (g.kind == GroupKind::chunked) out << "chunk_tokens = " << g.chunk_tokens << "\n";
    if (g.kind == GroupKind::state) {
      out << "mode = " << (g.mode == StateMode::align ? "\"align\"" : "\"all\"") << "\n";
    }
    out << "extra_retained_tokens = " << g.extra_retained_tokens << "\n"
        << "cacheable = " << flag(g.cacheable) << "\n"
        << "draft = " << flag(g.draft) << "\n"
        << "sharded = " << flag(g.sharded) << "\n"
        << "resume_inside_block = " << flag(g.resume_inside_block) << "\n"
        << "fine_lookup = " << flag(g.fine_lookup) << "\n"
        << "position_stable = " << flag(g.position_stable) << "\n";
  }
  return out.str();
}

}  // namespace kvc::config
