// Who hears of what a connector does wrong: a Boost.Test program, kvc-conform, or whoever drives a
// World.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "conformance/rules/rules.h"

namespace kvc::rig {

using rules::RuleId;

// Thrown after a finding behind which the run makes no sense; the judge has heard of it.
struct Stop : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Thrown where the connector may decline and did: `what` names what it does not do. No finding.
struct Declined : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Threads: calls of one at a time.
class Judge {
 public:
  Judge() = default;
  Judge(const Judge&) = delete;
  Judge& operator=(const Judge&) = delete;
  virtual ~Judge() = default;

  // The connector broke `rule`; the text has the numbers. Must return.
  virtual void fail(RuleId rule, const std::string& text) = 0;

  // A finding unless ok; the run goes on.
  template <class... A>
  void expect(bool ok, RuleId rule, fmt::format_string<A...> text, A&&... args) {
    if (!ok) fail(rule, fmt::format(text, std::forward<A>(args)...));
  }
  // A finding unless ok, and the end of the run.
  template <class... A>
  void need(bool ok, RuleId rule, fmt::format_string<A...> text, A&&... args) {
    if (ok) return;
    std::string said = fmt::format(text, std::forward<A>(args)...);
    fail(rule, said);
    throw Stop(said);
  }
};

}  // namespace kvc::rig
