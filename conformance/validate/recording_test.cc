// The format of recordings: docs/formats/calls.md is what the writer writes; wrong bytes are a
// text.
#include <boost/filesystem.hpp>
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "conformance/validate/recording.h"
#include "conformance/validate/tests/resealed_test.h"

namespace kvc::validate {
namespace {

struct Folder {
  Folder()
      : path(boost::filesystem::temp_directory_path() /
             boost::filesystem::unique_path("kvc_calls_%%%%%%%%")) {
    boost::filesystem::create_directory(path);
  }
  ~Folder() { boost::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return (path / name).string(); }
  boost::filesystem::path path;
};

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The example of the page.
std::string example(const Folder& folder) {
  Recorder recorder(folder.file("a.kvcc"));
  const auto slot = [](Slot s) { return info(s).number; };
  recorder.add({slot(Slot::lookup), 0, 1, 300, KVC_OK}, LookupIn{0, 12, 200, 32, KVC_NO_LIMIT},
               {QueryAnswer{false, 1, "key", 7, 48, 1}}, LookupOut{0, KVC_WHY_MISS});
  recorder.add({slot(Slot::wait), 2, 2, 301, KVC_LATER}, WaitIn{{5, 6}, 1000}, {}, Nothing{});
  recorder.add({slot(Slot::load_in_step), 0, 3, 302, KVC_OK}, InStepIn{0, 12, 5}, {}, Nothing{});
  recorder.close();
  BOOST_TEST(recorder.problem() == "");
  return bytes_of(folder.file("a.kvcc"));
}

// The hex digits of the page's example, without offsets and notes.
std::string page_bytes() {
  std::ifstream in(std::string(KVC_SOURCE_DIR) + "/docs/formats/calls.md");
  std::string line;
  std::string bytes;
  bool inside = false;
  while (std::getline(in, line)) {
    if (line.starts_with("```")) inside = line == "```hex";
    if (!inside || line.size() < 6 || line[0] == '`') continue;
    std::istringstream digits(line.substr(4, line.find('|') - 4));
    for (std::string pair; digits >> pair;) {
      bytes += static_cast<char>(std::stoul(pair, nullptr, 16));
    }
  }
  return bytes;
}

std::string hex(const std::string& bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i % 8 == 0) out += fmt::format("\n{:4}  ", i);
    out += fmt::format("{:02x} ", static_cast<unsigned char>(bytes[i]));
  }
  return out;
}

BOOST_AUTO_TEST_SUITE(recordings)

BOOST_AUTO_TEST_CASE(the_example_of_the_page_is_what_the_writer_writes) {
  const Folder folder;
  const std::string bytes = example(folder);
  BOOST_TEST(bytes == page_bytes(), "written:" << hex(bytes));
  const auto read = Recording::parse(bytes);
  BOOST_REQUIRE(read.ok());
  BOOST_REQUIRE(read.value().calls().size() == 3U);
  BOOST_TEST((read.value().calls()[2].slot == Slot::load_in_step));
  const RecordedCall& call = read.value().calls()[0];
  BOOST_TEST(call.head.time_ns == 300U);
  Reader r(call.body);
  LookupIn in;
  std::vector<QueryAnswer> queries;
  LookupOut out;
  r(in, queries, out);
  BOOST_TEST(r.ok());
  BOOST_TEST(r.at_end());
  BOOST_TEST(in.cap == KVC_NO_LIMIT);
  BOOST_REQUIRE(queries.size() == 1U);
  BOOST_TEST(queries[0].key == "key");
  BOOST_TEST(out.why == KVC_WHY_MISS);
}

BOOST_AUTO_TEST_CASE(version_1_has_the_same_calls_but_for_those_of_extensions) {
  const Folder folder;
  const auto whole = Recording::parse(example(folder));
  BOOST_REQUIRE(whole.ok());
  std::vector<RecordedCall> calls = whole.value().calls();
  const auto as_they_are = [](std::size_t, std::string&) {};
  const auto refused = [&](std::uint16_t version, const std::string& part) {
    const auto read = Recording::parse(testing::sealed(calls, version, as_they_are));
    BOOST_REQUIRE(!read.ok());
    BOOST_TEST(read.error().text.find(part) != std::string::npos, read.error().text);
  };
  BOOST_TEST(Recording::parse(testing::sealed(calls, 2, as_they_are)).ok());
  refused(1, "slot 257");
  refused(3, "reads versions 1 to 2");
  refused(0, "reads versions 1 to 2");
  calls.back().head.slot = 300;
  refused(2, "slot 300");
  calls.back().head.slot = 100;
  refused(2, "slot 100");
  calls.pop_back();
  const auto old = Recording::parse(testing::sealed(calls, 1, as_they_are));
  BOOST_REQUIRE(old.ok());
  BOOST_TEST(old.value().calls().size() == 2U);
}

BOOST_AUTO_TEST_CASE(a_recording_that_is_cut_off_anywhere_is_refused_with_a_text) {
  const Folder folder;
  const std::string bytes = example(folder);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    const auto read = Recording::parse(bytes.substr(0, n));
    BOOST_REQUIRE(!read.ok());
    BOOST_TEST(!read.error().text.empty());
  }
  const auto text = [](const std::string& b) { return Recording::parse(b).error().text; };
  BOOST_TEST(text(bytes.substr(0, bytes.size() - 3)).find("3 of its last 9 bytes are missing") !=
             std::string::npos);
  BOOST_TEST(text(bytes + "12").find("and 2 bytes more are there") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(of_a_recording_without_its_end_the_whole_calls_can_be_taken) {
  const Folder folder;
  const std::string bytes = example(folder);
  std::size_t calls = 0;
  for (std::size_t n = recording_header_bytes; n < bytes.size(); ++n) {
    const auto read = Recording::parse(bytes.substr(0, n), Recording::Cut::allowed);
    BOOST_REQUIRE_MESSAGE(read.ok(), n << ": " << (read.ok() ? "" : read.error().text));
    BOOST_TEST(read.value().calls().size() >= calls);
    calls = read.value().calls().size();
    BOOST_TEST(read.value().cut_at() != 0U);
  }
  BOOST_TEST(calls == 3U);
  BOOST_TEST(Recording::parse(bytes, Recording::Cut::allowed).value().cut_at() == 0U);
}

BOOST_AUTO_TEST_CASE(a_recording_with_any_byte_changed_is_refused) {
  const Folder folder;
  const std::string bytes = example(folder);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 0x15);
    BOOST_TEST(!Recording::parse(changed).ok(), "byte " << i);
  }
}

BOOST_AUTO_TEST_CASE(numbers_of_every_size_come_back) {
  const std::vector<std::uint64_t> numbers{0, 1, 127, 128, 1U << 14U, UINT32_MAX, UINT64_MAX};
  const std::vector<std::int64_t> folded{0, -1, 1, INT64_MIN, INT64_MAX, -300};
  std::string bytes;
  Writer w(bytes);
  w(numbers, folded);
  std::vector<std::uint64_t> a;
  std::vector<std::int64_t> b;
  Reader r(bytes);
  r(a, b);
  BOOST_TEST(r.ok());
  BOOST_TEST(r.at_end());
  BOOST_TEST(a == numbers, boost::test_tools::per_element());
  BOOST_TEST(b == folded, boost::test_tools::per_element());
  // More than 64 bits, a number without end, a count beyond the bytes.
  for (const std::string& wrong :
       {std::string(10, '\xff') + '\x01', std::string("\x80"), std::string("\x05")}) {
    Reader reader(wrong);
    std::vector<std::uint64_t> none;
    reader(none);
    BOOST_TEST(!reader.ok());
  }
}

BOOST_AUTO_TEST_CASE(a_file_that_cannot_be_written_is_a_text) {
  const Recorder recorder("/nowhere/a.kvcc");
  BOOST_TEST(recorder.problem().find("/nowhere/a.kvcc") != std::string::npos);
  BOOST_TEST(!Recording::read("/nowhere/a.kvcc").ok());
}

BOOST_AUTO_TEST_CASE(what_is_no_recording_is_not_read_to_its_end) {
  const auto endless = Recording::read("/dev/zero");
  BOOST_REQUIRE(!endless.ok());
  BOOST_TEST(endless.error().text == "/dev/zero: the recording does not begin with KVCC");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::validate
