#include "conformance/probe/script.h"

#include <algorithm>
#include <array>
#include <optional>
#include <sstream>

#include <fmt/format.h>
#include <toml++/toml.h>

namespace kvc::probe {
namespace {

constexpr std::array faults_known = {
    "later_forever", "later",           "full",      "greedy_hit",     "unaligned_hit",
    "no_job",        "foreign_hold",    "null_hold", "foreign_dest",   "failed",
    "missing_load",  "missing_store",   "late",      "duplicate",      "reordered",
    "unknown_job",   "foreign_release", "rejects",   "lying_capacity", "reset_later"};

// Slots whose answer can be replaced by a status, and whether "nothing was done" can be said of one
// call of them without a contradiction in the next.
struct SlotRule {
  std::string_view slot;
  bool positive;
};
constexpr std::array slots_known = {SlotRule{"request_begin", true},
                                    SlotRule{"request_extend", true},
                                    SlotRule{"lookup", true},
                                    SlotRule{"lookup_cancel", true},
                                    SlotRule{"alloc_update", true},
                                    SlotRule{"build_store_jobs", false},
                                    SlotRule{"complete", false},
                                    SlotRule{"request_end", false},
                                    SlotRule{"reset", true},
                                    SlotRule{"pump_scheduler", true},
                                    SlotRule{"pump_rank", true},
                                    SlotRule{"submit_loads", false},
                                    SlotRule{"submit_stores", false},
                                    SlotRule{"progress", true},
                                    SlotRule{"wait", true}};

Status bad(std::string text) { return {Code::arg, "probe: " + std::move(text)}; }

Result<std::uint64_t> number(const toml::table& table, std::string_view key,
                             std::uint64_t otherwise, std::int64_t least) {
  const toml::node* const node = table.get(key);
  if (node == nullptr) return otherwise;
  const auto value = node->value_exact<std::int64_t>();
  if (!value || *value < least) {
    return bad(fmt::format("{} must be a whole number from {} on", key, least));
  }
  return static_cast<std::uint64_t>(*value);
}

Status only(const toml::table& table, std::initializer_list<std::string_view> known) {
  for (const auto& [key, node] : table) {
    if (std::find(known.begin(), known.end(), key.str()) == known.end()) {
      return bad(fmt::format("line {}: unknown key {}", node.source().begin.line, key.str()));
    }
  }
  return {};
}

Result<Answer> read_answer(const toml::table& table) {
  if (Status s = only(table, {"slot", "at", "every", "status"}); !s.ok()) return s;
  Answer answer;
  answer.slot = table["slot"].value_or(std::string());
  const auto rule = std::find_if(slots_known.begin(), slots_known.end(),
                                 [&](const SlotRule& r) { return r.slot == answer.slot; });
  if (rule == slots_known.end()) return bad(fmt::format("no answer for slot '{}'", answer.slot));
  const auto at = number(table, "at", 1, 1);
  if (!at.ok()) return at.error();
  const auto every = number(table, "every", 0, 0);
  if (!every.ok()) return every.error();
  const auto status = table["status"].value<std::int64_t>();
  if (!status || *status == 0 || *status < INT32_MIN || *status > INT32_MAX) {
    return bad(fmt::format("an answer of {} needs a status", answer.slot));
  }
  answer.at = at.value();
  answer.every = every.value();
  answer.status = static_cast<kvc_status>(*status);
  if (answer.status > 0 && !rule->positive) {
    return bad(fmt::format("{} cannot answer {} with nothing done", answer.slot, answer.status));
  }
  return answer;
}

Status read_faults(const toml::node& node, Script& script) {
  const auto add = [&](const toml::node& one) -> Status {
    const auto name = one.value_exact<std::string>();
    if (!name) return bad(fmt::format("line {}: script is text", one.source().begin.line));
    if (*name == "none") return {};
    if (std::find(faults_known.begin(), faults_known.end(), *name) == faults_known.end()) {
      return bad(fmt::format("line {}: no script '{}'", one.source().begin.line, *name));
    }
    script.faults.insert(*name);
    return {};
  };
  const toml::array* const list = node.as_array();
  if (list == nullptr) return add(node);
  for (const toml::node& one : *list) {
    if (Status s = add(one); !s.ok()) return s;
  }
  return {};
}

Status read_probe(const toml::table& table, Script& script) {
  if (Status s = only(table, {"next", "script", "every", "first", "findings", "answer"}); !s.ok()) {
    return s;
  }
  script.next = table["next"].value_or(script.next);
  script.findings = table["findings"].value_or(std::string());
  const auto every = number(table, "every", script.every, 1);
  if (!every.ok()) return every.error();
  const auto first = number(table, "first", script.first, 1);
  if (!first.ok()) return first.error();
  script.every = every.value();
  script.first = first.value();
  if (const toml::node* const node = table.get("script")) {
    if (Status s = read_faults(*node, script); !s.ok()) return s;
  }
  const toml::node* const answers = table.get("answer");
  if (answers == nullptr) return {};
  const toml::array* const list = answers->as_array();
  if (list == nullptr) return bad("answer is a list: [[probe.answer]]");
  for (const toml::node& one : *list) {
    const toml::table* const item = one.as_table();
    if (item == nullptr) return bad("answer is a list of tables: [[probe.answer]]");
    auto answer = read_answer(*item);
    if (!answer.ok()) return answer.error();
    script.answers.push_back(std::move(answer).value());
  }
  return {};
}

}  // namespace

bool is_fatal(kvc_status status) { return status < KVC_E_DEADLINE; }
bool is_unknown_positive(kvc_status status) { return status > KVC_LATER; }

bool Script::has(std::string_view fault) const { return faults.count(std::string(fault)) != 0; }

bool Script::meets(std::uint64_t n) const { return n >= first && (n - first) % every == 0; }

bool Script::meets_job(std::string_view fault, kvc_job job) const {
  return has(fault) && meets(job);
}

bool Script::ranks_refuse() const {
  constexpr std::array of_ranks = {"submit_loads", "submit_stores", "progress", "wait",
                                   "pump_rank"};
  return std::any_of(answers.begin(), answers.end(), [&](const Answer& a) {
    return a.status < 0 && std::find(of_ranks.begin(), of_ranks.end(), a.slot) != of_ranks.end();
  });
}

Result<Script> Script::parse(std::string_view text, const std::string& beside) {
  Script script;
  script.next = beside + "/libkvc_simple_cpu.so";
  toml::table root;
  try {
    root = toml::parse(text);
  } catch (const toml::parse_error& e) {
    return bad(fmt::format("line {}: {}", e.source().begin.line, e.description()));
  }
  if (const toml::node* const node = root.get("probe")) {
    const toml::table* const table = node->as_table();
    if (table == nullptr) return bad("probe is a table");
    if (Status s = read_probe(*table, script); !s.ok()) return s;
  }
  root.erase("probe");
  std::ostringstream rest;
  if (!root.empty()) rest << root;
  script.rest = rest.str();
  return script;
}

}  // namespace kvc::probe
