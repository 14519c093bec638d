// The helpers of kvc_util.h at every prefix length of every growable struct, with canaries behind
// the room (style: AR2, AR18; design 2.2).
#include <kvc/kvc.hpp>

#include <boost/test/unit_test.hpp>
#include <cstring>
#include <memory>
#include <vector>

namespace {

constexpr unsigned char canary = 0xA5;
constexpr std::size_t newer = 64;  // how much longer the other side's struct may be

// Exactly `size` bytes on the heap (at least 4), so that a sanitizer sees every byte beyond.
struct Buffer {
  explicit Buffer(std::size_t wanted)
      : size(wanted < 4 ? 4 : wanted), bytes(std::make_unique<unsigned char[]>(size)) {}
  void fill(unsigned char first) {
    for (std::size_t i = 0; i < size; ++i) {
      bytes[i] = static_cast<unsigned char>(1 + (first + i) % 250);
    }
  }
  void set_size(std::size_t n) {
    const auto s = static_cast<std::uint32_t>(n);
    std::memcpy(bytes.get(), &s, sizeof s);
  }
  std::size_t size;
  std::unique_ptr<unsigned char[]> bytes;
};

bool all_are(const unsigned char* p, std::size_t n, unsigned char value) {
  for (std::size_t i = 0; i < n; ++i) {
    if (p[i] != value) return false;
  }
  return true;
}

std::uint32_t size_in(const unsigned char* p) {
  std::uint32_t n = 0;
  std::memcpy(&n, p, sizeof n);
  return n;
}

void read_every_prefix(const char* name, std::size_t own) {
  for (std::size_t n = 0; n <= own + newer; ++n) {
    BOOST_TEST_CONTEXT(name << " of " << own << " bytes, writer filled " << n) {
      Buffer src(n);
      src.fill(static_cast<unsigned char>(n));
      src.set_size(n);
      std::vector<unsigned char> dst(own + newer, canary);
      const kvc_status any = kvc_read(dst.data(), own, src.bytes.get(), 4);
      if (n < 4) {
        BOOST_TEST(any == KVC_E_ARG);
        BOOST_TEST(all_are(dst.data(), dst.size(), canary));
        continue;
      }
      if (n > own) {
        BOOST_TEST(any == KVC_E_UNSUPPORTED);  // the unknown tail is not zero
        BOOST_TEST(all_are(dst.data(), dst.size(), canary));
        std::memset(src.bytes.get() + own, 0, n - own);
        for (std::size_t bad = own; bad < n; ++bad) {  // one unknown byte is enough, wherever it is
          src.bytes[bad] = 1;
          BOOST_TEST(kvc_read(dst.data(), own, src.bytes.get(), 4) == KVC_E_UNSUPPORTED);
          src.bytes[bad] = 0;
        }
        BOOST_TEST(kvc_read(dst.data(), own, src.bytes.get(), 4) == KVC_OK);
      } else {
        BOOST_TEST(any == KVC_OK);
      }
      const std::size_t real = n < own ? n : own;
      BOOST_TEST(size_in(dst.data()) == real);
      BOOST_TEST(std::memcmp(dst.data() + 4, src.bytes.get() + 4, real - 4) == 0);
      BOOST_TEST(all_are(dst.data() + real, own - real, 0));
      BOOST_TEST(all_are(dst.data() + own, newer, canary));
      const bool enough = n >= own;
      std::vector<unsigned char> full(own + newer, canary);
      BOOST_TEST(kvc_read(full.data(), own, src.bytes.get(), own) ==
                 (enough ? static_cast<kvc_status>(KVC_OK) : static_cast<kvc_status>(KVC_E_ARG)));
      BOOST_TEST(all_are(full.data() + own, newer, canary));
    }
  }
}

void write_every_prefix(const char* name, std::size_t own) {
  Buffer mine(own);
  mine.fill(7);
  mine.set_size(own);
  for (std::size_t room = 0; room <= own + newer; ++room) {
    BOOST_TEST_CONTEXT(name << " of " << own << " bytes, room for " << room) {
      Buffer guarded(room + newer);
      std::memset(guarded.bytes.get(), canary, guarded.size);
      guarded.set_size(room);
      const kvc_status s = kvc_write(guarded.bytes.get(), mine.bytes.get(), own, 4);
      if (room < 4) {
        BOOST_TEST(s == KVC_E_ARG);
        continue;
      }
      const std::size_t real = room < own ? room : own;
      BOOST_TEST(s == KVC_OK);
      BOOST_TEST(size_in(guarded.bytes.get()) == real);
      BOOST_TEST(std::memcmp(guarded.bytes.get() + 4, mine.bytes.get() + 4, real - 4) == 0);
      BOOST_TEST(all_are(guarded.bytes.get() + real, guarded.size - real, canary));
      guarded.set_size(room);
      BOOST_TEST(
          kvc_write(guarded.bytes.get(), mine.bytes.get(), own, own) ==
          (room < own ? static_cast<kvc_status>(KVC_E_ARG) : static_cast<kvc_status>(KVC_OK)));
    }
  }
}

// Lists of elements of every stride: a reader with `own` bytes meets older and newer writers.
void read_every_stride(const char* name, std::size_t own) {
  constexpr std::uint64_t count = 3;
  for (std::size_t stride = 0; stride <= own + newer; ++stride) {
    BOOST_TEST_CONTEXT(name << " of " << own << " bytes, stride " << stride) {
      Buffer array(stride * count);
      array.fill(3);
      const kvc_list list = kvc_list_of(array.bytes.get(), count, stride);
      BOOST_TEST(kvc_list_check(&list, 4) == (stride < 4 ? static_cast<kvc_status>(KVC_E_ARG)
                                                         : static_cast<kvc_status>(KVC_OK)));
      if (stride < 4) continue;
      std::vector<unsigned char> dst(own + newer, canary);
      for (std::uint64_t i = 0; i < count; ++i) {
        unsigned char* at = array.bytes.get() + i * stride;
        BOOST_TEST(kvc_list_at(&list, i) == at);
        const auto n = static_cast<std::uint32_t>(stride);
        std::memcpy(at, &n, sizeof n);
        if (stride > own) std::memset(at + own, 0, stride - own);
        BOOST_TEST(kvc_read_at(dst.data(), own, &list, i, 4) == KVC_OK);
        const std::size_t real = stride < own ? stride : own;
        BOOST_TEST(std::memcmp(dst.data() + 4, at + 4, real - 4) == 0);
        BOOST_TEST(all_are(dst.data() + own, newer, canary));
        const std::uint32_t too_long = n + 1;  // an element that claims its neighbour's bytes
        std::memcpy(at, &too_long, sizeof too_long);
        BOOST_TEST(kvc_read_at(dst.data(), own, &list, i, 4) == KVC_E_ARG);
      }
      BOOST_TEST(kvc_read_at(dst.data(), own, &list, count, 4) == KVC_E_ARG);
    }
  }
}

void write_every_stride(const char* name, std::size_t own) {
  constexpr std::uint64_t count = 3;
  Buffer mine(own);
  mine.fill(9);
  for (std::size_t stride = 0; stride <= own + newer; ++stride) {
    BOOST_TEST_CONTEXT(name << " of " << own << " bytes, stride " << stride) {
      std::vector<unsigned char> array(stride * count + newer, canary);
      const auto s = static_cast<std::uint32_t>(stride);
      for (std::uint64_t i = 0; i < count; ++i) {
        const kvc_status done = kvc_write_at(array.data(), s, i, mine.bytes.get(), own, 4);
        BOOST_TEST(done == (stride < 4 ? static_cast<kvc_status>(KVC_E_ARG)
                                       : static_cast<kvc_status>(KVC_OK)));
        if (stride < 4) continue;
        const unsigned char* at = array.data() + i * stride;
        const std::size_t real = stride < own ? stride : own;
        BOOST_TEST(size_in(at) == real);
        BOOST_TEST(std::memcmp(at + 4, mine.bytes.get() + 4, real - 4) == 0);
        BOOST_TEST(all_are(at + real, stride - real, 0));
        BOOST_TEST(all_are(at + stride, array.size() - (i + 1) * stride, canary));
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(growth)

BOOST_AUTO_TEST_CASE(every_struct_is_read_at_every_prefix_length) {
#define KVC_STRUCT(type, size) read_every_prefix(#type, sizeof(type));
#include <kvc/kvc_calls.def>
}

BOOST_AUTO_TEST_CASE(every_struct_and_the_table_are_written_at_every_room) {
#define KVC_STRUCT(type, size) write_every_prefix(#type, sizeof(type));
#include <kvc/kvc_calls.def>
}

BOOST_AUTO_TEST_CASE(lists_are_read_at_every_stride) {
#define KVC_STRUCT(type, size) read_every_stride(#type, sizeof(type));
#include <kvc/kvc_calls.def>
}

BOOST_AUTO_TEST_CASE(arrays_of_callers_are_written_at_every_stride) {
#define KVC_STRUCT(type, size) write_every_stride(#type, sizeof(type));
#include <kvc/kvc_calls.def>
}

BOOST_AUTO_TEST_CASE(the_1_0_size_is_what_a_receiver_asks_for) {
  auto older = kvc::abi::sized<kvc_open>();
  kvc_open mine;
  BOOST_TEST(KVC_READ(kvc_open, &mine, &older) == KVC_OK);
  older.struct_size = kvc_open_least - 1;
  BOOST_TEST(KVC_READ(kvc_open, &mine, &older) == KVC_E_ARG);
}

BOOST_AUTO_TEST_CASE(garbage_sizes_and_missing_structs_are_refused) {
  kvc_open mine;
  BOOST_TEST(KVC_READ(kvc_open, &mine, nullptr) == KVC_E_ARG);
  BOOST_TEST(kvc_write(nullptr, &mine, sizeof mine, 4) == KVC_E_ARG);
  std::uint32_t garbage[4] = {UINT32_MAX, 0, 0, 0};
  BOOST_TEST(kvc_read(&mine, sizeof mine, garbage, 4) == KVC_E_ARG);
  garbage[0] = KVC_STRUCT_BYTES_MAX + 1;
  BOOST_TEST(kvc_read(&mine, sizeof mine, garbage, 4) == KVC_E_ARG);
  for (std::uint32_t n = 0; n < 4; ++n) {
    garbage[0] = n;
    BOOST_TEST(kvc_read(&mine, sizeof mine, garbage, 0) == KVC_E_ARG);
    BOOST_TEST(kvc_write(garbage, &mine, sizeof mine, 0) == KVC_E_ARG);
  }
}

BOOST_AUTO_TEST_CASE(reserved_fields_and_unknown_flags_are_refused) {
  for (int bit = 0; bit < 64; ++bit) {
    const std::uint64_t flag = std::uint64_t{1} << bit;
    const bool known = (flag & KVC_OPEN_FLAGS_ALL) != 0;
    BOOST_TEST(KVC_REFUSE_BITS(flag, KVC_OPEN_FLAGS_ALL) == (known ? KVC_OK : KVC_E_UNSUPPORTED));
    BOOST_TEST(KVC_REFUSE_SET(flag) == KVC_E_UNSUPPORTED);
  }
  BOOST_TEST(KVC_REFUSE_SET(0u) == KVC_OK);
  kvc_list list = kvc_list_of(nullptr, 0, 0);
  BOOST_TEST(kvc_list_check(&list, 24) == KVC_OK);  // an empty list may be all zero
  list.reserved0 = 1;
  BOOST_TEST(kvc_list_check(&list, 24) == KVC_E_UNSUPPORTED);
}

BOOST_AUTO_TEST_CASE(lists_that_cannot_be_in_memory_are_refused) {
  const kvc_block block = kvc::abi::sized<kvc_block>();
  BOOST_TEST(kvc_list_check(nullptr, 4) == KVC_E_ARG);
  kvc_list list = kvc_list_of(nullptr, 1, sizeof block);
  BOOST_TEST(kvc_list_check(&list, 4) == KVC_E_ARG);
  list = kvc_list_of(&block, UINT64_MAX, sizeof block);
  BOOST_TEST(kvc_list_check(&list, 4) == KVC_E_ARG);
  list = kvc_list_of(&block, UINT64_MAX / sizeof block, sizeof block);  // wraps the address space
  BOOST_TEST(kvc_list_check(&list, 4) == KVC_E_ARG);
  list = kvc_list_of(&block, 1, sizeof block);
  BOOST_TEST(kvc_list_check(&list, sizeof block) == KVC_OK);
  BOOST_TEST(kvc_list_check(&list, sizeof block + 1) == KVC_E_ARG);
}

BOOST_AUTO_TEST_CASE(sums_and_products_that_do_not_fit_are_told) {
  std::uint64_t out = 42;
  BOOST_TEST(kvc_add(UINT64_MAX, 1, &out) == 0);
  BOOST_TEST(kvc_mul(UINT64_MAX / 2 + 1, 2, &out) == 0);
  BOOST_TEST(out == 42u);
  BOOST_TEST(kvc_add(UINT64_MAX - 1, 1, &out) == 1);
  BOOST_TEST(out == UINT64_MAX);
  BOOST_TEST(kvc_mul(0, UINT64_MAX, &out) == 1);
  BOOST_TEST(out == 0u);
  BOOST_TEST(kvc_mul(UINT64_MAX / 3, 3, &out) == 1);
  BOOST_TEST(out == UINT64_MAX / 3 * 3);
}

BOOST_AUTO_TEST_CASE(a_pure_query_sizes_refuses_and_fills) {
  const kvc_bytes text = kvc_text_of("seven b");
  std::uint64_t needed = 0;
  char buf[8] = {'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x'};
  BOOST_TEST(kvc_put(nullptr, 0, &needed, text) == KVC_E_ROOM);
  BOOST_TEST(needed == 7u);
  BOOST_TEST(kvc_put(buf, 6, &needed, text) == KVC_E_ROOM);
  BOOST_TEST(needed == 7u);
  BOOST_TEST(buf[0] == 'x');
  BOOST_TEST(kvc_put(buf, 7, &needed, text) == KVC_OK);
  BOOST_TEST(std::string(buf, 8) == "seven bx");
  BOOST_TEST(kvc_put(nullptr, 8, &needed, text) == KVC_E_ARG);
  BOOST_TEST(kvc_put(buf, 8, nullptr, text) == KVC_E_ARG);
  BOOST_TEST(kvc_put(nullptr, 0, &needed, kvc_text_of(nullptr)) == KVC_OK);
  BOOST_TEST(needed == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
