#define BOOST_TEST_MODULE kvc
#include <boost/test/unit_test.hpp>
