#include "host_stub/loader/loader.h"

#include <dlfcn.h>
#include <fstream>
#include <string>
#include <string_view>

#include <kvc/kvc_hints.h>
#include <boost/test/unit_test.hpp>

#include "host_stub/loader/extension_table.h"

using kvc::Code;
using kvc::host::extension_table;
using kvc::host::load_connector;

namespace {

std::string hand_made(const std::string& fault) {
  return std::string(KVC_LIB_DIR) + "/libkvc_loader_" + fault + ".so";
}

// The one line that refuses `path`; empty if it was accepted.
std::string refusal(const std::string& path) {
  const auto result = load_connector(path);
  if (result.ok()) return {};
  BOOST_TEST(result.error().text.find('\n') == std::string::npos);
  BOOST_TEST(result.error().text.find(path) != std::string::npos);
  return result.error().text;
}

bool says(const std::string& text, const std::string& part) {
  BOOST_TEST_INFO(text);
  return text.find(part) != std::string::npos;
}

kvc_hints_api hints_of_a_plugin;
const void* only_hints(kvc_bytes id) noexcept {
  const std::string_view asked(reinterpret_cast<const char*>(id.data), id.size);
  return asked == KVC_HINTS_EXTENSION ? &hints_of_a_plugin : nullptr;
}

// The table as an engine gets it that needs all three functions.
const kvc_hints_api* whole_hints(const kvc_plugin_api& api) {
  return extension_table(api, KVC_HINTS_EXTENSION, &kvc_hints_api::hint, &kvc_hints_api::pin,
                         &kvc_hints_api::unpin);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(loader)

BOOST_AUTO_TEST_CASE(a_table_of_an_extension_is_used_only_with_every_function_that_is_needed) {
  kvc_plugin_api api{};
  api.extension = only_hints;
  hints_of_a_plugin = {
      sizeof(kvc_hints_api), 0,
      [](kvc_sched*, const kvc_hint_in*) noexcept -> kvc_status { return KVC_OK; },
      [](kvc_sched*, const kvc_pin_in*, kvc_pin_out*) noexcept -> kvc_status { return KVC_OK; },
      [](kvc_sched*, std::uint64_t) noexcept -> kvc_status { return KVC_OK; }};
  BOOST_TEST(whole_hints(api) == &hints_of_a_plugin);
  BOOST_TEST((extension_table(api, "kvc.hints/2", &kvc_hints_api::hint) == nullptr));
  hints_of_a_plugin.struct_size = sizeof(kvc_hints_api) + 64;  // a newer connector
  BOOST_TEST(whole_hints(api) == &hints_of_a_plugin);
  // An older one, whose table ends in front of, or inside, the last function.
  for (const std::size_t cut : {sizeof(void*), std::size_t{1}}) {
    hints_of_a_plugin.struct_size = static_cast<std::uint32_t>(sizeof(kvc_hints_api) - cut);
    BOOST_TEST(whole_hints(api) == nullptr);
    BOOST_TEST((extension_table(api, KVC_HINTS_EXTENSION, &kvc_hints_api::hint,
                                &kvc_hints_api::pin) == &hints_of_a_plugin));
  }
  hints_of_a_plugin.struct_size = sizeof(kvc_hints_api);
  hints_of_a_plugin.hint = nullptr;
  BOOST_TEST(whole_hints(api) == nullptr);
}

BOOST_AUTO_TEST_CASE(a_complete_library_is_loaded_and_its_optional_slots_answer_unsupported) {
  const auto result = load_connector(hand_made("complete"));
  BOOST_REQUIRE(result.ok());
  const auto& connector = result.value();
  BOOST_TEST(connector.name == "hand_made");
  BOOST_TEST(connector.version == "1");
  BOOST_TEST(!connector.can(KVC_CAP_STEPPED));
  std::uint64_t count = 7;
  BOOST_TEST(connector.api.take_events(nullptr, nullptr, 0, 0, &count) == KVC_E_UNSUPPORTED);
  BOOST_TEST(count == 0U);
  BOOST_TEST(connector.api.pump_scheduler(nullptr, 1) == KVC_E_UNSUPPORTED);
  BOOST_TEST(connector.api.pump_rank(nullptr, 1) == KVC_E_UNSUPPORTED);
}

BOOST_AUTO_TEST_CASE(a_path_that_was_loaded_before_gives_the_same_table) {
  const auto first = load_connector(hand_made("complete"));
  const auto second = load_connector(hand_made("complete"));
  BOOST_REQUIRE(first.ok());
  BOOST_REQUIRE(second.ok());
  BOOST_TEST((first.value().api.lookup == second.value().api.lookup));
}

BOOST_AUTO_TEST_CASE(a_library_without_the_symbol_is_named_as_no_connector) {
  BOOST_TEST(
      says(refusal(hand_made("no_symbol")), "does not export kvc_plugin_entry_v1 [KVC-L-001]"));
}

BOOST_AUTO_TEST_CASE(a_library_of_another_major_is_refused_with_the_majors_it_has) {
  BOOST_TEST(says(refusal(hand_made("other_major")),
                  "it exports kvc_plugin_entry_v2 but not kvc_plugin_entry_v1 [KVC-L-001]"));
}

BOOST_AUTO_TEST_CASE(a_table_that_ends_early_is_refused_with_the_first_missing_slot) {
  const std::string text = refusal(hand_made("small_table"));
  BOOST_TEST(says(text, "required slot progress"));
  BOOST_TEST(says(text, std::to_string(offsetof(kvc_plugin_api, progress)) + " bytes"));
  BOOST_TEST(says(text, "[KVC-L-003]"));
}

BOOST_AUTO_TEST_CASE(a_required_slot_that_is_null_is_named) {
  BOOST_TEST(says(refusal(hand_made("null_slot")), "required slot complete is NULL [KVC-L-004]"));
}

BOOST_AUTO_TEST_CASE(a_capability_whose_slot_is_null_is_named) {
  BOOST_TEST(
      says(refusal(hand_made("empty_capability")), "its slot pump_scheduler is NULL [KVC-L-005]"));
}

BOOST_AUTO_TEST_CASE(an_entry_that_refuses_this_host_is_unsupported) {
  const auto result = load_connector(hand_made("refuses"));
  BOOST_REQUIRE(!result.ok());
  BOOST_TEST((result.error().code == Code::unsupported));
  BOOST_TEST(says(result.error().text, "[KVC-L-002]"));
}

BOOST_AUTO_TEST_CASE(a_table_that_claims_more_than_the_room_is_refused) {
  BOOST_TEST(says(refusal(hand_made("beyond_room")), "[KVC-L-006]"));
}

BOOST_AUTO_TEST_CASE(a_describe_that_fails_is_refused) {
  BOOST_TEST(
      says(refusal(hand_made("silent")), "describe answered status KVC_E_ARG (-1) [KVC-L-008]"));
}

// A second dlopen would run the constructors of a copied file again, not those of a loaded one.
BOOST_AUTO_TEST_CASE(a_loaded_library_stays_mapped_with_local_symbols) {
  const std::string path = hand_made("complete");
  BOOST_REQUIRE(load_connector(path).ok());
  void* const mapped = ::dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  BOOST_TEST(mapped != nullptr);
  if (mapped != nullptr) ::dlclose(mapped);
  BOOST_TEST(::dlsym(RTLD_DEFAULT, KVC_PLUGIN_ENTRY_NAME) == nullptr);
}

BOOST_AUTO_TEST_CASE(a_file_that_does_not_exist_or_is_no_library_is_one_clear_line) {
  BOOST_TEST(refusal("./no_such_connector.so") ==
             "cannot load connector ./no_such_connector.so: there is no such file");
  BOOST_TEST(refusal("/") == "cannot load connector /: it is a directory");
  BOOST_TEST(refusal("") == "cannot load connector : the path is empty");
  const std::string name = "kvc_loader_test_garbage.so";
  for (const std::string& path : {name, "./" + name}) {
    std::ofstream(path) << std::string(200, 'x');
    BOOST_TEST(refusal(path) == "cannot load connector " + path + ": invalid ELF header");
    std::remove(path.c_str());
    BOOST_TEST(refusal(path) == "cannot load connector " + path + ": there is no such file");
  }
}

BOOST_AUTO_TEST_SUITE_END()
