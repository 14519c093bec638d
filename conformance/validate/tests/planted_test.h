// One broken rule on purpose, and what must be found first.
#pragma once
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <functional>
#include <ostream>
#include <string>

#include "conformance/validate/table.h"
#include "conformance/validate/tests/scripted.h"

namespace kvc::validate::testing {

struct Planted {
  const char* rule;
  const char* what;
  std::function<void(Host&)> run;
  bool opened = true;     // by the fixture, before run
  const char* also = "";  // the rule is the answer to this one, which is found before it
};
inline std::ostream& operator<<(std::ostream& out, const Planted& p) {
  return out << p.rule << ": " << p.what;
}

using Blocks = std::vector<std::int64_t>;

inline kvc_block stored(std::int64_t block, std::uint64_t position) {
  return {sizeof(kvc_block), 0, block, position};
}

inline void run(Host& h, std::uint64_t id, std::uint64_t n, std::uint32_t flags = 0) {
  Blocks blocks;
  for (std::uint64_t p = 0; p < n / 16; ++p) blocks.push_back(static_cast<std::int64_t>(p + 1));
  h.begin(id, n, flags);
  h.alloc(id, 0, blocks);
  h.schedule(id, n, blocks);
}

inline void begin_load(Host& h) {
  script().offer = 32;
  h.begin(1, 48);
  h.lookup(1, 48);
  h.alloc(1, 32, {1, 2});
}

// The right answer, then a change to it.
template <class T, class F>
void change(T* out, const F& f) {
  T mine = *out;
  f(mine);
  *out = mine;
}

inline void offer(std::uint64_t tokens, std::int32_t why, kvc_status status = KVC_OK) {
  script().lookup = [=](kvc_sched*, const kvc_lookup_in*, kvc_lookup_out* out) {
    const kvc_lookup_out mine{sizeof mine, 0, tokens, why, 0};
    static_cast<void>(KVC_WRITE(out, &mine));
    return status;
  };
}

inline void check(const Planted& planted) {
  Host h;
  if (planted.opened) h.open();
  BOOST_REQUIRE_MESSAGE(found_rules().empty(), found_texts());
  planted.run(h);
  const auto rules = found_rules();
  BOOST_TEST_CONTEXT("found:\n" << found_texts()) {
    const std::size_t at = planted.also[0] == '\0' ? 0 : 1;
    BOOST_REQUIRE(rules.size() > at);
    BOOST_TEST(rules[at] == planted.rule);
    if (at == 1) BOOST_TEST(rules[0] == planted.also);
  }
}

}  // namespace kvc::validate::testing
