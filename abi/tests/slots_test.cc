// kvc_calls.def against kvc.h: the same slots in the same order, and the same tags word by word
// (AR10).
#include <kvc/kvc_util.h>

#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

// The order: slot k of the list lies k pointers behind the head of the table, and none is left
// over.
enum PluginSlot : std::size_t {
#define KVC_SLOT(slot, ...) plugin_##slot,
#include <kvc/kvc_calls.def>
  plugin_slots
};
enum HostSlot : std::size_t {
#define KVC_HOST_SLOT(slot, ...) host_##slot,
#include <kvc/kvc_calls.def>
  host_slots
};
constexpr std::size_t plugin_head = 16;
constexpr std::size_t host_head = 24;
#define KVC_SLOT(slot, ...) \
  static_assert(offsetof(kvc_plugin_api, slot) == plugin_head + 8 * plugin_##slot);
#define KVC_HOST_SLOT(slot, ...) \
  static_assert(offsetof(kvc_host_api, slot) == host_head + 8 * host_##slot);
#define KVC_STRUCT(type, bytes) static_assert(sizeof(type) == (bytes));
#include <kvc/kvc_calls.def>
static_assert(sizeof(kvc_plugin_api) == plugin_head + 8 * plugin_slots);
static_assert(sizeof(kvc_host_api) == host_head + 8 * host_slots);

// The handle column: the type of the first argument.
template <class F>
struct FirstArgument;
template <class R, class A, class... Rest>
struct FirstArgument<R (*)(A, Rest...) noexcept> {
  using type = A;
};
template <class A>
constexpr bool is_sched = std::is_same_v<A, kvc_sched*> || std::is_same_v<A, const kvc_sched*>;
template <class A>
constexpr bool is_rank = std::is_same_v<A, kvc_rank*> || std::is_same_v<A, const kvc_rank*>;
enum Handle { none, sched, rank };
#define KVC_SLOT(slot, handle, ...)                                                           \
  static_assert(                                                                              \
      is_sched<FirstArgument<decltype(kvc_plugin_api::slot)>::type> == ((handle) == sched) && \
      is_rank<FirstArgument<decltype(kvc_plugin_api::slot)>::type> == ((handle) == rank));
#include <kvc/kvc_calls.def>

std::string tag(const char* role, unsigned attributes, unsigned minor, const char* need,
                const std::string& capability) {
  std::string t = "[";
  t.append(role).append("]");
  if ((attributes & KVC_ATTR_NOWAIT) != 0) t += " +nowait";
  if ((attributes & KVC_ATTR_NOALLOC) != 0) t += " +noalloc";
  if ((attributes & KVC_ATTR_PURE) != 0) t += " +pure";
  if ((attributes & KVC_ATTR_CALLS_HOST) != 0) t += " +calls-host";
  t += " since 1." + std::to_string(minor) + " " + need;
  if (capability != "0") t += ", " + capability;
  return t;
}

using Tags = std::vector<std::pair<std::string, std::string>>;  // slot, tag

std::string read_header() {
  std::ifstream in(std::string(KVC_SOURCE_DIR) + "/abi/include/kvc/kvc.h");
  BOOST_REQUIRE_MESSAGE(in.good(), "kvc.h is missing");
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

// The tags of one struct of function pointers, as written in its comments: the first line of the
// comment before a slot. Slots that share a comment share its tag; "[a] / [b]" goes by slot order.
Tags tags_of(const std::string& header, const std::string& name) {
  const std::size_t from = header.find("typedef struct " + name + " {");
  const std::size_t to = header.find("} " + name + ";");
  BOOST_REQUIRE(from != std::string::npos && to != std::string::npos);
  std::istringstream in(header.substr(from, to - from));
  const std::regex comment(R"(^  /\* (\[.*))");
  const std::regex slot(R"(^  .*\(\*(\w+)\)\()");
  const std::regex roles(R"(^\[(\w+)\](?: / \[(\w+)\])?(.*)$)");
  Tags tags;
  std::string line, first, second, rest;
  std::size_t in_comment = 0;
  for (std::smatch m, r; std::getline(in, line);) {
    if (std::regex_search(line, m, comment)) {
      const std::string text = m[1];
      BOOST_REQUIRE_MESSAGE(std::regex_match(text, r, roles), text);
      first = r[1];
      second = r[2];
      rest = r[3];
      in_comment = 0;
    } else if (std::regex_search(line, m, slot)) {
      const std::string& role = in_comment == 1 && !second.empty() ? second : first;
      tags.emplace_back(m[1], "[" + role + "]" + rest);
      ++in_comment;
    }
  }
  return tags;
}

void check_same(const Tags& header, const Tags& list) {
  BOOST_REQUIRE_EQUAL(header.size(), list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    BOOST_TEST(header[i].first == list[i].first);
    BOOST_TEST_CONTEXT("slot " << list[i].first) { BOOST_TEST(header[i].second == list[i].second); }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(slots)

BOOST_AUTO_TEST_CASE(each_slot_of_the_plugin_has_the_tag_of_the_list) {
  Tags list;
#define KVC_SLOT(slot, handle, role, attributes, minor, need, capability) \
  list.emplace_back(#slot, tag(#role, (attributes), (minor), #need, #capability));
#include <kvc/kvc_calls.def>
  check_same(tags_of(read_header(), "kvc_plugin_api"), list);
}

BOOST_AUTO_TEST_CASE(each_slot_of_the_host_has_the_tag_of_the_list) {
  Tags list;
#define KVC_HOST_SLOT(slot, role, attributes, minor, need, capability) \
  list.emplace_back(#slot, tag(#role, (attributes), (minor), #need, #capability));
#include <kvc/kvc_calls.def>
  check_same(tags_of(read_header(), "kvc_host_api"), list);
}

BOOST_AUTO_TEST_CASE(a_wrong_tag_is_seen) {
  const std::string text =
      "typedef struct kvc_x {\n  /* [sched] / [rank] +pure since 1.0 req\n     Text. */\n"
      "  int (*a)(void);\n  int (*b)(void);\n} kvc_x;\n";
  const Tags tags = tags_of(text, "kvc_x");
  BOOST_REQUIRE_EQUAL(tags.size(), 2u);
  BOOST_TEST(tags[0].second == "[sched] +pure since 1.0 req");
  BOOST_TEST(tags[1].second == "[rank] +pure since 1.0 req");
  BOOST_TEST(tags[1].second != tag("rank", 0, 0, "req", "0"));
}

BOOST_AUTO_TEST_CASE(every_struct_with_a_size_field_is_in_the_list) {
  std::set<std::string> list;
#define KVC_STRUCT(type, bytes) list.insert(#type);
#include <kvc/kvc_calls.def>
  std::set<std::string> header;
  const std::string text = read_header();
  const std::regex one(R"(typedef struct (kvc_\w+) \{[^\n]*\n  uint32_t struct_size;)");
  for (std::sregex_iterator i(text.begin(), text.end(), one), end; i != end; ++i) {
    header.insert((*i)[1]);
  }
  BOOST_TEST(list == header, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_golden_layout_names_every_constant_of_the_header) {
  std::ifstream in(std::string(KVC_SOURCE_DIR) + "/abi/tests/layout.txt");
  BOOST_REQUIRE(in.good());
  std::stringstream golden;
  golden << in.rdbuf();
  const std::string layout = "\n" + golden.str();
  // Not values of the contract: guards and what the builder sets.
  const std::set<std::string> not_values = {"KVC_KVC_H_", "KVC_NOTHROW", "KVC_EXPORT",
                                            "KVC_TARGET_MINOR"};
  const std::string text = read_header();
  const std::regex one(R"(\b(KVC_\w+) = |#define (KVC_\w+)[ \n])");
  std::size_t seen = 0;
  for (std::sregex_iterator i(text.begin(), text.end(), one), end; i != end; ++i) {
    const std::string name = (*i)[1].matched ? (*i)[1] : (*i)[2];
    if (not_values.count(name) != 0) continue;
    ++seen;
    BOOST_TEST(layout.find("\nconst " + name + " ") != std::string::npos, name << " is missing");
  }
  BOOST_TEST(seen > 50u);
}

BOOST_AUTO_TEST_SUITE_END()
