#include "cuda/driver/cuda_driver.h"

#include <boost/test/unit_test.hpp>

#include "cuda/tests/fake_world.h"

namespace kvc::cuda {
namespace {

using copy_test::fake_path;

BOOST_AUTO_TEST_SUITE(cuda_driver)

BOOST_AUTO_TEST_CASE(a_machine_without_a_driver_is_told_which_library_is_missing) {
  const auto driver = Driver::load("/nowhere/libcuda.so.1");
  BOOST_REQUIRE(!driver.ok());
  BOOST_TEST((driver.error().code == Code::unsupported));
  BOOST_TEST(driver.error().text.find("/nowhere/libcuda.so.1") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_library_that_is_no_driver_is_named_with_the_entry_it_lacks) {
  const auto driver = Driver::load("libm.so.6");
  BOOST_REQUIRE(!driver.ok());
  BOOST_TEST((driver.error().code == Code::unsupported));
  BOOST_TEST(driver.error().text == "libm.so.6 has no entry cuInit");
}

BOOST_AUTO_TEST_CASE(errors_carry_the_drivers_name_number_and_text) {
  const auto driver = Driver::load(fake_path());
  BOOST_REQUIRE(driver.ok());
  const Status s = driver.value()->error(driver_launch_failed, "a try", Code::io);
  BOOST_TEST((s.code == Code::io));
  BOOST_TEST(s.text.starts_with("a try: CUDA_ERROR_LAUNCH_FAILED (719): "));
  BOOST_TEST(driver.value()->version == 13000);
}

BOOST_AUTO_TEST_CASE(batched_copies_are_asked_for_at_run_time_in_the_form_of_12_8) {
  auto driver = Driver::load(fake_path());
  BOOST_REQUIRE(driver.ok());
  FakeControl control;
  BOOST_REQUIRE(control.find(*driver.value()));
  control.reset(nullptr);
  BOOST_TEST(Driver::load(fake_path()).value()->copy_batch != nullptr);
  kvc_fake_options old{};
  old.without_batch = 1;
  control.reset(&old);
  BOOST_TEST(Driver::load(fake_path()).value()->copy_batch == nullptr);
  control.reset(nullptr);
}

BOOST_AUTO_TEST_CASE(a_driver_that_does_not_start_is_an_error_with_its_text) {
  auto driver = Driver::load(fake_path());
  BOOST_REQUIRE(driver.ok());
  FakeControl control;
  BOOST_REQUIRE(control.find(*driver.value()));
  control.reset(nullptr);
  control.fail("cuInit", 0, 100);
  const auto again = Driver::load(fake_path());
  BOOST_REQUIRE(!again.ok());
  BOOST_TEST(again.error().text.find("(100)") != std::string::npos);
  BOOST_TEST(Driver::load(fake_path()).ok());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::cuda
