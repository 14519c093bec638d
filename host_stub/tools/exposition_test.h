// What is wrong with a text of metrics: the rules of Prometheus' text format 0.0.4, and what a
// careful exporter owes beyond them (one HELP and TYPE per family, samples together, counters end
// in _total). Written from the format's description; promtool is asked by kvc_run_promtool.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace kvc::host {

class Exposition {
 public:
  // Everything that is wrong, one text each, with its line.
  static std::vector<std::string> problems(std::string_view text) {
    Exposition e;
    if (text.empty() || text.back() != '\n') e.wrong("the last line has no end");
    while (!text.empty()) {
      ++e.line_;
      const std::size_t end = std::min(text.find('\n'), text.size());
      e.take(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    for (const auto& [name, family] : e.families_) {
      if (family.help == 0 || family.type.empty() || family.samples == 0) {
        e.wrong(name + " lacks HELP, TYPE or samples");
      }
    }
    return e.problems_;
  }

 private:
  struct Family {
    int help = 0;
    std::string type;
    int samples = 0;
  };

  void wrong(const std::string& what) {
    problems_.push_back("line " + std::to_string(line_) + ": " + what);
  }
  static bool letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  }
  static bool digit(char c) { return c >= '0' && c <= '9'; }
  // Takes a name off the front; empty: there is none.
  static std::string name_of(std::string_view& rest, bool colons) {
    std::size_t n = 0;
    while (n < rest.size() &&
           (letter(rest[n]) || (colons && rest[n] == ':') || (n > 0 && digit(rest[n])))) {
      ++n;
    }
    const std::string name(rest.substr(0, n));
    rest.remove_prefix(n);
    return name;
  }
  static bool skip(std::string_view& rest, std::string_view what) {
    if (!rest.starts_with(what)) return false;
    rest.remove_prefix(what.size());
    return true;
  }

  // The family at hand goes on, or a new one begins. None comes back.
  Family& family(const std::string& name) {
    if (name != current_ && families_.contains(name)) wrong(name + " comes back");
    current_ = name;
    return families_[name];
  }

  void take(std::string_view line) {
    if (line.empty()) return wrong("an empty line");
    if (!line.starts_with('#')) return sample(line);
    std::string_view rest = line;
    const bool help = skip(rest, "# HELP ");
    if (!help && !skip(rest, "# TYPE ")) return wrong("a comment that is neither HELP nor TYPE");
    const std::string name = name_of(rest, true);
    if (name.empty() || !skip(rest, " ")) return wrong("no name of a metric");
    Family& f = family(name);
    if (f.samples != 0) wrong("HELP or TYPE behind samples of " + name);
    if (help) {
      if (++f.help > 1) wrong("a second HELP of " + name);
      for (std::size_t i = 0; i < rest.size(); ++i) {
        if (rest[i] != '\\') continue;
        if (i + 1 == rest.size() || (rest[i + 1] != '\\' && rest[i + 1] != 'n')) {
          wrong("a lonely backslash in the HELP of " + name);
        }
        ++i;
      }
    } else {
      if (!f.type.empty()) wrong("a second TYPE of " + name);
      f.type = rest;
      if (f.type != "counter" && f.type != "gauge") wrong("type '" + f.type + "' of " + name);
      if ((f.type == "counter") != name.ends_with("_total")) wrong(f.type + " " + name);
    }
  }

  bool labels(std::string_view& rest, std::string& series) {
    std::set<std::string> names;
    while (!skip(rest, "}")) {
      const std::string name = name_of(rest, false);
      if (name.empty() || !skip(rest, "=\"") || !names.insert(name).second) return false;
      series += name + "=";
      for (;;) {
        if (rest.empty()) return false;
        const char c = rest.front();
        rest.remove_prefix(1);
        if (c == '"') break;
        if (c == '\\') {
          if (rest.empty() || (rest[0] != '\\' && rest[0] != '"' && rest[0] != 'n')) return false;
          series += rest[0];
          rest.remove_prefix(1);
        }
        series += c;
      }
      series += ',';
      if (!rest.starts_with("}") && !skip(rest, ",")) return false;
    }
    return !names.empty();
  }

  void sample(std::string_view line) {
    std::string_view rest = line;
    const std::string name = name_of(rest, true);
    if (name.empty()) return wrong("no name of a metric");
    Family& f = family(name);
    if (f.type.empty()) wrong(name + " has no TYPE before its samples");
    ++f.samples;
    std::string series = name + "{";
    if (skip(rest, "{") && !labels(rest, series)) return wrong("labels of " + name);
    if (!series_.insert(series).second) wrong("a second sample of " + series);
    if (!skip(rest, " ")) return wrong("no blank before the value of " + name);
    const std::string value(rest);
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    if (value.empty() || value[0] == ' ' || *end != '\0' || !std::isfinite(number) || number < 0) {
      wrong("value '" + value + "' of " + name);
    }
  }

  std::size_t line_ = 0;
  std::string current_;
  std::map<std::string, Family> families_;
  std::set<std::string> series_;
  std::vector<std::string> problems_;
};

}  // namespace kvc::host
