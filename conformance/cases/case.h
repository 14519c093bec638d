// What kvc-conform runs: cases, each about one requirement of the line, for any connector.
#pragma once
#include <kvc/kvc.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "conformance/rig/judge.h"
#include "conformance/rig/world.h"

namespace kvc::conform {

using rig::RuleId;

// What a case gets.
//
// Threads: the case's own.
// Owns:    nothing but texts.
class Context {
 public:
  const rig::Library* library = nullptr;
  kvc_plugin_entry_fn entry = nullptr;
  rig::Judge* judge = nullptr;
  std::string config_toml;  // the connector's options, as given
  std::uint64_t seed = 1;   // of random cases: the first
  bool one_seed = false;    // only that one: a failed run is repeated
  std::string repeat;       // the command that repeats this case, without --seed
  std::size_t param = 0;    // of the case

  [[nodiscard]] const kvc_plugin_api& api() const { return library->api(); }
  [[nodiscard]] bool can(std::uint64_t capability) const { return library->can(capability); }

  // A finding unless ok; the case goes on. need: .. and the end of the case.
  template <class... A>
  void expect(bool ok, RuleId rule, fmt::format_string<A...> text, A&&... args) {
    judge->expect(ok, rule, text, std::forward<A>(args)...);
  }
  template <class... A>
  void need(bool ok, RuleId rule, fmt::format_string<A...> text, A&&... args) {
    judge->need(ok, rule, text, std::forward<A>(args)...);
  }
  // Ends the case as skipped; the text names the missing capability.
  [[noreturn]] static void skip(const std::string& text) { throw rig::Declined(text); }
  // The case passes with this remark.
  void warn(const std::string& text);
  [[nodiscard]] const std::string& warning() const { return warning_; }

  // One group of full attention, 16 tokens per block, the connector's options as given. Must open.
  [[nodiscard]] rig::Setup plain() const;
  // The same for other groups, which the connector may decline.
  [[nodiscard]] rig::Setup layout(std::vector<rig::Group> groups) const;

 private:
  std::string warning_;
};

struct Case {
  std::string_view id;  // family.what
  RuleId rule;          // what it is about; findings may name others
  void (*run)(Context&);
  unsigned seconds = 60;  // of real time, then it counts as timed out
  std::size_t param = 0;  // for families in which cases differ by a number
};

// Every case of every family, in the order in which they are run.
std::span<const Case> all_cases();

}  // namespace kvc::conform
