#include "conformance/validate/form.h"

#include <sys/uio.h>
#include <unistd.h>
#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace kvc::validate {

bool readable(const void* data, std::uint64_t bytes) {
  if (bytes == 0) return true;
  if (data == nullptr) return false;
  constexpr std::uint64_t page = 4096;
  constexpr std::size_t at_once = 64;
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  if (bytes > UINTPTR_MAX - begin) return false;
  std::array<iovec, at_once> there{};
  std::array<char, at_once> here{};
  std::uint64_t done = 0;
  while (done < bytes) {
    std::size_t n = 0;
    for (; n < at_once && done < bytes; ++n) {
      there[n] = {reinterpret_cast<void*>(begin + done), 1};
      const std::uint64_t to_next = page - (begin + done) % page;
      done += std::min(to_next, bytes - done);
    }
    if (done >= bytes) {  // the last byte too: it may be alone on its page
      there[n - 1].iov_base = reinterpret_cast<void*>(begin + bytes - 1);
    }
    const iovec mine{here.data(), n};
    const ssize_t got = ::process_vm_readv(::getpid(), &mine, 1, there.data(), n, 0);
    if (got >= 0 && static_cast<std::size_t>(got) < n) return false;
    if (got < 0 && errno == EFAULT) return false;
    if (got < 0) return true;  // the kernel does not say
  }
  return true;
}

bool Form::take(kvc_status status, void* dst, std::size_t bytes, const char* name) {
  if (status == KVC_OK) return true;
  __builtin_memset(dst, 0, bytes);
  if (status == KVC_E_UNSUPPORTED) {
    add(Fault::tail, fmt::format("{} has bytes of a newer version that are not 0", name));
  } else {
    add(Fault::size, fmt::format("{} is NULL or its struct_size is no size of that struct", name));
  }
  return false;
}

bool Form::list(const kvc_list& list, std::size_t least, std::uint64_t most, const char* name) {
  if (list.reserved0 != 0) {
    add(Fault::bits, fmt::format("{}.reserved0 is {}", name, list.reserved0));
    return false;
  }
  if (list.count == 0) return true;
  if (kvc_list_check(&list, least) != KVC_OK) {
    add(Fault::list, fmt::format("{} has {} elements, stride {} (at least {}), data {}", name,
                                 list.count, list.stride, least, fmt::ptr(list.data)));
    return false;
  }
  if (list.count > most) {
    add(Fault::limit,
        fmt::format("{} has {} elements; the numbers of open allow {}", name, list.count, most));
    return false;
  }
  if (readable(list.data, list.count * list.stride)) return true;
  add(Fault::list, fmt::format("{}: its {} elements of {} bytes at {} cannot be read", name,
                               list.count, list.stride, fmt::ptr(list.data)));
  return false;
}

bool Form::array(const void* data, std::uint64_t count, std::uint64_t bytes, std::uint64_t most,
                 const char* name) {
  if (count == 0) return true;
  if (count > most) {
    add(data == nullptr ? Fault::list : Fault::limit,
        fmt::format("{} has {} elements; allowed are {}", name, count, most));
    return false;
  }
  if (data != nullptr && readable(data, count * bytes)) return true;
  add(Fault::list, fmt::format("{}: its {} elements of {} bytes at {} cannot be read", name, count,
                               bytes, fmt::ptr(data)));
  return false;
}

void Form::check_room(const void* out, std::size_t least, const char* name) {
  if (out == nullptr) return add(Fault::no_room, fmt::format("the room for {} is NULL", name));
  std::uint32_t room = 0;
  __builtin_memcpy(&room, out, sizeof room);
  if (room >= least && room <= KVC_STRUCT_BYTES_MAX) return;
  add(room < sizeof room ? Fault::no_room : Fault::short_room,
      fmt::format("{}.struct_size is {}: no room of {} to {} bytes", name, room, least,
                  static_cast<int>(KVC_STRUCT_BYTES_MAX)));
}

void Form::buffer(const void* out, std::uint64_t cap, std::uint64_t bytes,
                  const std::uint64_t* set) {
  if (set == nullptr) add(Fault::short_room, "the number that the call sets is NULL");
  if (cap == 0) return;
  if (out == nullptr) {
    add(Fault::short_room, fmt::format("the room is NULL and cap is {}", cap));
  } else if (bytes > UINT64_MAX - reinterpret_cast<std::uintptr_t>(out)) {
    add(Fault::short_room,
        fmt::format("cap is {}: {} bytes are no room at {}", cap, bytes, fmt::ptr(out)));
  }
}

void Form::bits(std::uint64_t flags, std::uint64_t known, const char* name) {
  if ((flags & ~known) == 0) return;
  add(Fault::bits, fmt::format("{} has unknown bits {:#x}", name, flags & ~known));
}

}  // namespace kvc::validate
