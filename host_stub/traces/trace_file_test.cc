#include <boost/filesystem.hpp>
#include <boost/test/unit_test.hpp>
#include <fstream>

#include "host_stub/traces/trace.h"

namespace {

using kvc::host::TokenId;
using kvc::host::Trace;
using kvc::host::Turns;

// A file with the given bytes; gone at the end of the test.
class File {
 public:
  explicit File(const std::string& content)
      : path_((boost::filesystem::temp_directory_path() /
               boost::filesystem::unique_path("kvc-trace-%%%%%%%%%%.jsonl"))
                  .string()) {
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~File() { boost::filesystem::remove(path_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Trace good(const std::string& content, std::size_t limit = Trace::no_limit,
           Turns turns = Turns::apart) {
  const File file(content);
  auto trace = Trace::open(file.path(), limit, turns);
  if (!trace.ok()) BOOST_FAIL(trace.error().text);
  return std::move(trace.value());
}

// The error without the file's name: ":line: why".
std::string bad(const std::string& content, std::size_t limit = Trace::no_limit) {
  const File file(content);
  const auto trace = Trace::open(file.path(), limit);
  if (trace.ok()) BOOST_FAIL("accepted: " + content.substr(0, 100));
  const auto& line = trace.error().text;
  BOOST_TEST(line.find('\n') == std::string::npos);
  BOOST_REQUIRE_MESSAGE(line.compare(0, file.path().size(), file.path()) == 0, line);
  return line.substr(file.path().size());
}

void check_has(const std::string& line, const std::vector<std::string>& parts) {
  for (const auto& part : parts) {
    BOOST_CHECK_MESSAGE(line.find(part) != std::string::npos, line << "\n  lacks: " << part);
  }
}

std::vector<TokenId> prompt(const Trace& trace, std::size_t index) {
  std::vector<TokenId> tokens{7, 7, 7};  // must be replaced
  trace.expand_prompt(index, tokens);
  return tokens;
}

const std::string row =
    R"({"timestamp": 5, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]})"
    "\n";

}  // namespace

BOOST_AUTO_TEST_SUITE(trace_file)

BOOST_AUTO_TEST_CASE(a_mooncake_row_is_read) {
  const auto trace = good(row);
  BOOST_REQUIRE(trace.size() == 1U);
  BOOST_TEST(trace.request(0).timestamp_ms == 5U);
  BOOST_TEST(trace.request(0).prompt_tokens == 600U);
  BOOST_TEST(trace.request(0).output_tokens == 3U);
  BOOST_TEST(prompt(trace, 0).size() == 600U);
}

BOOST_AUTO_TEST_CASE(equal_hash_ids_give_equal_tokens_and_others_differ_from_the_first_on) {
  const auto trace = good(R"({"timestamp":0,"input_length":1024,"output_length":1,"hash_ids":[8,9]}
{"timestamp":0,"input_length":700,"output_length":1,"hash_ids":[8,10]}
{"timestamp":0,"input_length":1024,"output_length":1,"hash_ids":[9,8]}
)");
  const auto a = prompt(trace, 0);
  const auto b = prompt(trace, 1);
  const auto c = prompt(trace, 2);
  BOOST_REQUIRE(b.size() == 700U);
  BOOST_TEST(std::equal(a.begin(), a.begin() + 512, b.begin()));
  BOOST_TEST(a[512] != b[512]);
  BOOST_TEST(std::equal(a.begin(), a.begin() + 512, c.begin() + 512));
  BOOST_TEST(std::equal(a.begin() + 512, a.end(), c.begin()));
  for (const auto token : a) BOOST_REQUIRE(token < (1U << 31U));
  BOOST_TEST(prompt(trace, 0) == a, boost::test_tools::per_element());
}

std::size_t shared(const Trace& trace, std::size_t one, std::size_t other) {
  const auto a = prompt(trace, one);
  const auto b = prompt(trace, other);
  std::size_t n = 0;
  while (n < std::min(a.size(), b.size()) && a[n] == b[n]) ++n;
  return n;
}

// 1: 512 + 188; 2 continues it, 3 continues 2; 4 branches off behind the first block of 3.
const std::string turns_rows =
    R"({"timestamp":0,"input_length":700,"output_length":1,"hash_ids":[1,2]}
{"timestamp":0,"input_length":1200,"output_length":1,"hash_ids":[1,3,4]}
{"timestamp":0,"input_length":1500,"output_length":1,"hash_ids":[1,3,5]}
{"timestamp":0,"input_length":1501,"output_length":1,"hash_ids":[1,3,6]}
{"timestamp":0,"input_length":1501,"output_length":1,"hash_ids":[1,3,9]}
{"timestamp":0,"input_length":1300,"output_length":1,"hash_ids":[1,7,8]}
{"timestamp":0,"input_length":800,"output_length":1,"hash_ids":[1,3]}
)";

BOOST_AUTO_TEST_CASE(
    a_continued_turn_repeats_the_last_block_of_the_latest_prompt_that_ended_there) {
  const auto trace = good(turns_rows, Trace::no_limit, Turns::continued);
  BOOST_TEST(shared(trace, 0, 1) == 700U);
  BOOST_TEST(shared(trace, 1, 2) == 1200U);
  BOOST_TEST(shared(trace, 2, 3) == 1500U);
  BOOST_TEST(shared(trace, 3, 4) == 1024U);  // as long, and another one
  BOOST_TEST(shared(trace, 0, 5) == 700U);
  BOOST_TEST(shared(trace, 1, 6) == 800U);
  BOOST_TEST(shared(trace, 5, 1) == 700U);
  for (std::size_t i = 0; i < trace.size(); ++i)
    BOOST_TEST(prompt(trace, i).size() == trace.request(i).prompt_tokens);
}

BOOST_AUTO_TEST_CASE(turns_apart_share_whole_blocks_alone) {
  const auto trace = good(turns_rows);
  BOOST_TEST(shared(trace, 0, 1) == 512U);
  BOOST_TEST(shared(trace, 1, 2) == 1024U);
  BOOST_TEST(shared(trace, 1, 6) == 800U);
}

BOOST_AUTO_TEST_CASE(a_shared_system_prompt_is_nobodys_earlier_turn) {
  std::string rows = R"({"timestamp":0,"input_length":600,"output_length":1,"hash_ids":[1,99]})";
  for (int i = 2; i < 12; ++i) {
    rows +=
        "\n"
        R"({"timestamp":0,"input_length":900,"output_length":1,"hash_ids":[1,)" +
        std::to_string(i) + "]}";
  }
  const auto trace = good(rows, Trace::no_limit, Turns::continued);
  BOOST_TEST(shared(trace, 0, 1) == 600U);
  BOOST_TEST(shared(trace, 9, 10) == 512U);
}

BOOST_AUTO_TEST_CASE(a_token_row_is_read) {
  const auto trace = good(R"({"prompt":[1,2,2147483647],"output_length":4}
{"prompt":[0],"output_length":1,"timestamp":2.75,"note":"ignored"}
)");
  BOOST_REQUIRE(trace.size() == 2U);
  BOOST_TEST(prompt(trace, 0) == (std::vector<TokenId>{1, 2, 2147483647}),
             boost::test_tools::per_element());
  BOOST_TEST(prompt(trace, 1) == (std::vector<TokenId>{0}), boost::test_tools::per_element());
  BOOST_TEST(trace.request(0).output_tokens == 4U);
  BOOST_TEST(trace.request(1).timestamp_ms == 2U);
}

BOOST_AUTO_TEST_CASE(totals_are_those_of_the_rows_read) {
  const std::string other =
      R"({"timestamp":9,"input_length":100,"output_length":900,"hash_ids":[4]})";
  const auto two = good(row + other);
  BOOST_TEST(two.totals().requests == 2U);
  BOOST_TEST(two.totals().prompt_tokens == 700U);
  BOOST_TEST(two.totals().output_tokens == 903U);
  BOOST_TEST(two.totals().longest_prompt_tokens == 600U);
  BOOST_TEST(two.totals().longest_total_tokens == 1000U);
  const auto one = good(row + other, 1);
  BOOST_TEST(one.size() == 1U);
  BOOST_TEST(one.totals().longest_total_tokens == 603U);
  BOOST_TEST(good(row + "garbage behind the limit", 1).size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_bad_row_is_named_by_its_line) {
  const auto third = [](const std::string& text) { return bad(row + row + text + "\n" + row); };
  check_has(third("not json"), {":3: not a JSON object: not json"});
  check_has(third(""), {":3: not a JSON object"});
  check_has(third("[1,2]"), {":3: not a JSON object: [1,2]"});
  check_has(third("{} {}"), {":3: not a JSON object"});
  check_has(third("{\"a\": \xff}"), {":3: not a JSON object"});
  check_has(third(std::string(100'000, '[')), {":3: not a JSON object", "..."});
  check_has(third("{}"), {":3: \"timestamp\" is missing"});
  check_has(third(R"({"timestamp":0,"output_length":1,"hash_ids":[]})"),
            {":3: \"input_length\" is missing"});
  check_has(third(R"({"timestamp":0,"input_length":1,"hash_ids":[]})"),
            {":3: \"output_length\" is missing"});
  check_has(third(R"({"timestamp":0,"input_length":1,"output_length":1})"),
            {":3: \"hash_ids\" is missing"});
}

BOOST_AUTO_TEST_CASE(impossible_numbers_are_refused_with_value_and_range) {
  const auto with = [](const std::string& t, const std::string& in, const std::string& out,
                       const std::string& ids) {
    return bad("{\"timestamp\":" + t + ",\"input_length\":" + in + ",\"output_length\":" + out +
               ",\"hash_ids\":" + ids + "}");
  };
  for (const char* value : {"0", "-1", "1073741825", "99999999999999999999999", "1e3", "1.5",
                            "\"5\"", "null", "true", "[]", "{}", "18446744073709551615"}) {
    check_has(with("0", value, "1", "[1]"),
              {":1: \"input_length\" is ", "an integer from 1 to 1073741824"});
    check_has(with("0", "1", value, "[1]"),
              {":1: \"output_length\" is ", "an integer from 1 to 1073741824"});
  }
  for (const char* value : {"-1", "9223372036854775808", "1.0", "\"7\"", "null"}) {
    check_has(with("0", "513", "1", "[3," + std::string(value) + "]"),
              {":1: \"hash_ids\"[1] is ", "an integer from 0 to "});
  }
  for (const char* value : {"-0.5", "\"now\"", "null", "1e300"}) {
    check_has(with(value, "1", "1", "[1]"), {":1: \"timestamp\" is ", "from 0 to 9e15"});
  }
  check_has(with("0", "1", "1", "7"), {":1: \"hash_ids\" is 7; it must be an array"});
}

BOOST_AUTO_TEST_CASE(the_number_of_hash_ids_must_fit_the_length) {
  check_has(bad(R"({"timestamp":0,"input_length":513,"output_length":1,"hash_ids":[1]})"),
            {":1: 1 \"hash_ids\"", "513", "it must be 2"});
  check_has(bad(R"({"timestamp":0,"input_length":512,"output_length":1,"hash_ids":[1,2]})"),
            {":1: 2 \"hash_ids\"", "512", "it must be 1"});
  check_has(bad(R"({"timestamp":0,"input_length":1073741824,"output_length":1,"hash_ids":[]})"),
            {":1: 0 \"hash_ids\"", "it must be 2097152"});
}

BOOST_AUTO_TEST_CASE(a_cut_last_line_is_an_error_and_a_missing_line_end_is_none) {
  const std::string text = row + row;
  BOOST_TEST(good(text.substr(0, text.size() - 1)).size() == 2U);
  for (std::size_t cut = 2; cut < row.size(); ++cut) {
    const auto line = bad(text.substr(0, text.size() - cut));
    check_has(line, {":2: ", "may be cut"});
  }
}

BOOST_AUTO_TEST_CASE(bad_token_rows_are_refused) {
  check_has(bad(R"({"prompt":[],"output_length":1})"), {":1: \"prompt\" has 0 tokens"});
  check_has(bad(R"({"prompt":[1,-2],"output_length":1})"),
            {"\"prompt\"[1] is -2", "from 0 to 2147483647"});
  check_has(bad(R"({"prompt":[2147483648],"output_length":1})"), {"\"prompt\"[0] is 2147483648"});
  check_has(bad(R"({"prompt":"text","output_length":1})"), {"\"prompt\" is \"text\"", "array"});
  check_has(bad(R"({"prompt":[1]})"), {"\"output_length\" is missing"});
  check_has(bad(row + R"({"prompt":[1],"output_length":1})"), {":2: ", "one kind"});
}

BOOST_AUTO_TEST_CASE(values_nested_as_deep_as_a_file_likes_are_refused_and_named_short) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  const std::string begin = R"({"timestamp":0,"input_length":1,"output_length":1,)";
  check_has(bad(R"({"timestamp":)" + deep + "}"), {":1: \"timestamp\" is [...];"});
  check_has(bad(begin + R"("hash_ids":[)" + deep + "]}"), {":1: \"hash_ids\"[0] is [...];"});
  check_has(bad(R"({"output_length":1,"prompt":[)" + deep + "]}"), {"\"prompt\"[0] is [...];"});
  check_has(bad(begin + R"("hash_ids":{"a":1}})"), {"\"hash_ids\" is {...};"});
  BOOST_TEST(good(begin + R"("hash_ids":[1],"note":)" + deep + "}").size() == 1U);
}

BOOST_AUTO_TEST_CASE(names_that_stand_twice_and_rows_of_two_kinds_are_refused) {
  check_has(
      bad(R"({"timestamp":0,"input_length":1,"output_length":1,"output_length":2,"hash_ids":[1]})"),
      {":1: \"output_length\" stands twice"});
  check_has(bad(R"({"output_length":1,"prompt":[1],"prompt":[1]})"),
            {":1: \"prompt\" stands twice"});
  check_has(
      bad(R"({"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[1],"prompt":[1]})"),
      {":1: ", "both"});
  BOOST_TEST(good(R"({"output_length":1,"prompt":[1],"a":{"b":1},"c":{"b":1}})").size() == 1U);
}

BOOST_AUTO_TEST_CASE(lines_longer_than_a_read_are_whole_and_endless_ones_are_refused) {
  for (const std::size_t pad : {65'000U, 65'534U, 65'535U, 65'536U, 65'537U, 131'071U, 200'000U}) {
    std::string line = R"({"output_length":1,"prompt":[1],"note":")";
    line += std::string(pad - line.size() - 2, 'x') + "\"}";
    BOOST_REQUIRE_EQUAL(line.size(), pad);
    BOOST_TEST(good(line).size() == 1U);
    BOOST_TEST(good(line + "\n" + line + "\n").size() == 2U);
  }
  const auto endless = Trace::open("/dev/zero");
  BOOST_REQUIRE(!endless.ok());
  check_has(endless.error().text, {"/dev/zero:1: the line is longer than"});
}

BOOST_AUTO_TEST_CASE(files_without_a_request_and_unreadable_files_are_errors) {
  check_has(bad(""), {"no request"});
  check_has(bad(row, 0), {"no request"});
  const auto missing = Trace::open("/nowhere/t.jsonl");
  BOOST_REQUIRE(!missing.ok());
  check_has(missing.error().text, {"/nowhere/t.jsonl: cannot be opened: No such file"});
  const auto folder = Trace::open("/");
  BOOST_REQUIRE(!folder.ok());
  check_has(folder.error().text, {"/: is a directory; a trace is a file"});
}

BOOST_AUTO_TEST_SUITE_END()
