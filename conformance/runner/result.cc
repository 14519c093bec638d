#include "conformance/runner/result.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "conformance/rules/rules.h"

namespace kvc::conform {

using Json = nlohmann::ordered_json;

std::string_view word_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::pass:
      return "pass";
    case Outcome::fail:
      return "fail";
    case Outcome::crashed:
      return "crashed";
    case Outcome::timed_out:
      return "timed_out";
    case Outcome::skipped:
      return "skipped";
    case Outcome::warning:
      return "warning";
  }
  return "fail";
}

Summary summary_of(const std::vector<CaseResult>& results) {
  Summary s;
  for (const CaseResult& r : results) {
    switch (r.outcome) {
      case Outcome::pass:
      case Outcome::warning:
        ++s.passed;
        break;
      case Outcome::fail:
        ++s.failed;
        break;
      case Outcome::crashed:
        ++s.crashed;
        break;
      case Outcome::timed_out:
        ++s.timed_out;
        break;
      case Outcome::skipped:
        ++s.skipped;
        break;
    }
  }
  return s;
}

std::string json_of(const Plugin& plugin, const std::vector<CaseResult>& results) {
  Json cases = Json::array();
  for (const CaseResult& r : results) {
    cases.push_back({{"id", r.id},
                     {"rule", r.rule},
                     {"result", word_of(r.outcome)},
                     {"detail", r.detail},
                     {"ms", r.ms}});
  }
  const Summary s = summary_of(results);
  const Json all = {{"schema", "kvc.conform/1"},
                    {"plugin",
                     {{"name", plugin.name},
                      {"version", plugin.version},
                      {"build_id", plugin.build_id},
                      {"path", plugin.path}}},
                    {"cases", std::move(cases)},
                    {"summary",
                     {{"passed", s.passed},
                      {"failed", s.failed},
                      {"crashed", s.crashed},
                      {"timed_out", s.timed_out},
                      {"skipped", s.skipped}}}};
  // Texts come from the connector and may be no UTF-8.
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

namespace {

std::string xml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\n') {
      out += "&#10;";
    } else if (u < 0x20 || u >= 0x7F) {
      out += fmt::format("\\x{:02x}", u);
    } else {
      out += c;
    }
  }
  return out;
}

// The rule was broken, and is not only what a case is about that did not come to its end.
bool was_found(const CaseResult& r) {
  return r.outcome == Outcome::fail || r.detail.starts_with(r.rule + ": ");
}

double seconds_of(std::uint64_t ms) { return static_cast<double>(ms) / 1000; }

std::string_view text_of_rule(std::string_view id) {
  const rules::Rule* const rule = rules::find_rule(id);
  return rule == nullptr ? std::string_view() : rule->text;
}

}  // namespace

std::string junit_of(const Plugin& plugin, const std::vector<CaseResult>& results) {
  const Summary s = summary_of(results);
  std::uint64_t ms = 0;
  for (const CaseResult& r : results) ms += r.ms;
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  out += fmt::format(
      "<testsuite name=\"kvc-conform {}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" "
      "skipped=\"{}\" time=\"{:.3f}\">\n",
      xml(plugin.name), results.size(), s.failed, s.crashed + s.timed_out, s.skipped,
      seconds_of(ms));
  for (const CaseResult& r : results) {
    const std::string family = r.id.substr(0, r.id.find('.'));
    out += fmt::format("  <testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\"", xml(family),
                       xml(r.id), seconds_of(r.ms));
    if (r.outcome == Outcome::pass) {
      out += "/>\n";
      continue;
    }
    if (r.outcome == Outcome::warning) {
      out += fmt::format("><system-out>{}</system-out></testcase>\n", xml(r.detail));
      continue;
    }
    if (r.outcome == Outcome::skipped) {
      out += fmt::format("><skipped message=\"{}\"/></testcase>\n", xml(r.detail));
      continue;
    }
    const char* const tag = r.outcome == Outcome::fail ? "failure" : "error";
    out += fmt::format("><{0} type=\"{1}\" message=\"{2}\">{3}</{0}></testcase>\n", tag,
                       xml(r.rule), xml(text_of_rule(r.rule)), xml(r.detail));
  }
  return out + "</testsuite>\n";
}

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    const bool plain = c == '\n' || (u >= 0x20 && u < 0x7F);
    out += plain ? std::string(1, c) : fmt::format("\\x{:02x}", u);
  }
  return out;
}

std::string line_of(const CaseResult& r, std::string_view repeat) {
  if (r.outcome == Outcome::pass) return {};
  std::string detail = printable(r.detail);
  for (std::size_t at = 0; (at = detail.find('\n', at)) != std::string::npos;) {
    detail.replace(at, 1, "\n    ");
    at += 5;
  }
  if (r.outcome == Outcome::skipped) return fmt::format("skipped    {}: {}\n", r.id, detail);
  if (r.outcome == Outcome::warning) return fmt::format("warning    {}: {}\n", r.id, detail);
  return fmt::format("{:<10} {}: {}{} ({})\n    {}\n    again: {}\n", word_of(r.outcome), r.id,
                     was_found(r) ? "" : "a case about ", r.rule, text_of_rule(r.rule), detail,
                     repeat);
}

std::string broken_rules(const std::vector<CaseResult>& results) {
  std::map<std::string, std::uint64_t> cases_of;
  std::set<std::string> open;
  for (const CaseResult& r : results) {
    if (r.outcome == Outcome::pass || r.outcome == Outcome::skipped ||
        r.outcome == Outcome::warning) {
      continue;
    }
    if (was_found(r)) {
      ++cases_of[r.rule];
    } else {
      open.insert(r.rule);
    }
  }
  std::string text;
  if (!cases_of.empty()) {
    text += "\nrequirements that do not hold (docs/abi.md says what follows from each):\n";
  }
  for (const auto& [id, cases] : cases_of) {
    const rules::Rule* const rule = rules::find_rule(id);
    text += fmt::format("{} in {} case{}: {}\n", id, cases, cases == 1 ? "" : "s",
                        rule == nullptr ? std::string_view("?") : rule->text);
  }
  for (const auto& [id, cases] : cases_of) open.erase(id);
  if (open.empty()) return text;
  return text + fmt::format("\nnot decided, as their cases crashed or ran out of time: {}\n",
                            fmt::join(open, ", "));
}

std::string summary_line(const std::vector<CaseResult>& results, double seconds) {
  const Summary s = summary_of(results);
  return fmt::format(
      "{} cases in {:.1f} s: {} passed, {} failed, {} crashed, {} timed out, {} skipped\n",
      results.size(), seconds, s.passed, s.failed, s.crashed, s.timed_out, s.skipped);
}

}  // namespace kvc::conform
