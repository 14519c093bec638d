// Reading in-structs and lists of the host: everything of their *form* is checked here, before
// anything is changed.
#pragma once
#include <fmt/format.h>
#include <kvc/kvc_util.h>

#include <cstdint>
#include <cstring>
#include <string_view>

#include "plugin/core/result.h"

namespace kvc::edge {

// How many bytes of T a 1.0 writer filled, and what T is called in messages.
template <class T>
struct Form;
#define KVC_EDGE_FORM(T)                            \
  template <>                                       \
  struct Form<T> {                                  \
    static constexpr std::size_t least = T##_least; \
    static constexpr std::string_view name = #T;    \
  }
KVC_EDGE_FORM(kvc_group);
KVC_EDGE_FORM(kvc_open);
KVC_EDGE_FORM(kvc_table);
KVC_EDGE_FORM(kvc_handoff);
KVC_EDGE_FORM(kvc_candidate);
KVC_EDGE_FORM(kvc_class);
KVC_EDGE_FORM(kvc_rank_info);
KVC_EDGE_FORM(kvc_request);
KVC_EDGE_FORM(kvc_extend);
KVC_EDGE_FORM(kvc_lookup_in);
KVC_EDGE_FORM(kvc_lookup_out);
KVC_EDGE_FORM(kvc_alloc_in);
KVC_EDGE_FORM(kvc_alloc_out);
KVC_EDGE_FORM(kvc_step_request);
KVC_EDGE_FORM(kvc_step);
KVC_EDGE_FORM(kvc_plan);
KVC_EDGE_FORM(kvc_complete_out);
KVC_EDGE_FORM(kvc_end_in);
KVC_EDGE_FORM(kvc_end_out);
KVC_EDGE_FORM(kvc_region);
KVC_EDGE_FORM(kvc_fence);
KVC_EDGE_FORM(kvc_progress);
KVC_EDGE_FORM(kvc_event);
KVC_EDGE_FORM(kvc_stat);
#undef KVC_EDGE_FORM

inline std::uint32_t size_of_struct(const void* p) {
  std::uint32_t n = 0;
  std::memcpy(&n, p, sizeof n);
  return n;
}

// Why kvc_read refused `src`.
inline Status bad_struct(std::string_view name, kvc_status s, const void* src, std::size_t least) {
  if (src == nullptr) return {Code::arg, fmt::format("{} is NULL", name)};
  if (s == KVC_E_UNSUPPORTED) {
    return {Code::unsupported,
            fmt::format("{}: a byte behind those that 1.{} knows is not 0", name, KVC_MINOR)};
  }
  return {Code::arg,
          fmt::format("{}.struct_size is {}, allowed are {} to {}", name, size_of_struct(src),
                      least, static_cast<int>(KVC_STRUCT_BYTES_MAX))};
}

template <class T>
Status read_struct(const T* src, T& dst) {
  const kvc_status s = kvc_read(&dst, sizeof(T), src, Form<T>::least);
  return s == KVC_OK ? Status{} : bad_struct(Form<T>::name, s, src, Form<T>::least);
}

// An out-struct of a call that changes state must have room for all of 1.0, or the caller would
// lose what it was told: checked before anything is done.
template <class T>
Status check_room(const T* out) {
  if (out == nullptr) return {Code::arg, fmt::format("{} is NULL", Form<T>::name)};
  if (size_of_struct(out) >= Form<T>::least) return {};
  return {Code::arg, fmt::format("{}.struct_size is {}, at least {} is needed", Form<T>::name,
                                 size_of_struct(out), Form<T>::least)};
}

inline Status refuse_reserved(std::string_view field, std::uint64_t value) {
  if (value == 0) return {};
  return {Code::unsupported, fmt::format("{} is {}, must be 0", field, value)};
}

// Names the lowest bit of `flags` outside `known`.
inline Status refuse_bits(std::string_view field, std::uint64_t flags, std::uint64_t known) {
  const std::uint64_t foreign = flags & ~known;
  if (foreign == 0) return {};
  return {Code::unsupported,
          fmt::format("{}: bit {} is not known", field, __builtin_ctzll(foreign))};
}

// An array of `count` elements of `element_bytes` at `data`.
inline Status check_array(std::string_view field, const void* data, std::uint64_t count,
                          std::uint64_t element_bytes, std::uint64_t count_max,
                          std::uint64_t alignment = 1) {
  if (count > count_max) {
    return {Code::arg,
            fmt::format("{} has {} elements, at most {} are allowed", field, count, count_max)};
  }
  if (count == 0) return {};
  if (data == nullptr) return {Code::arg, fmt::format("{} is NULL with {} elements", field, count)};
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  if (at % alignment != 0) {
    return {Code::arg, fmt::format("{} is not aligned to {} bytes", field, alignment)};
  }
  std::uint64_t bytes = 0;
  if (kvc_mul(count, element_bytes, &bytes) == 0 || bytes > UINT64_MAX - at) {
    return {Code::arg, fmt::format("{} with {} elements of {} bytes is beyond the address space",
                                   field, count, element_bytes)};
  }
  return {};
}

// A strided list of T: at most count_max elements, each long enough.
template <class T>
Status check_list(std::string_view field, const kvc_list& list, std::uint64_t count_max) {
  if (list.reserved0 != 0)
    return refuse_reserved(fmt::format("{}.reserved0", field), list.reserved0);
  if (list.count != 0 && list.count <= count_max && list.stride < Form<T>::least) {
    return {Code::arg, fmt::format("{}.stride is {}, at least {} is needed", field, list.stride,
                                   Form<T>::least)};
  }
  return check_array(field, list.data, list.count, list.stride, count_max);
}

// Element i of a checked list.
template <class T>
Status read_element(std::string_view field, const kvc_list& list, std::uint64_t i, T& dst) {
  const kvc_status s = kvc_read_at(&dst, sizeof(T), &list, i, Form<T>::least);
  if (s == KVC_OK) return {};
  const void* src = kvc_list_at(&list, i);
  if (s == KVC_E_ARG && size_of_struct(src) > list.stride) {
    return {Code::arg, fmt::format("{}[{}].struct_size is {}, more than the stride {}", field, i,
                                   size_of_struct(src), list.stride)};
  }
  return bad_struct(fmt::format("{}[{}]", field, i), s, src, Form<T>::least);
}

}  // namespace kvc::edge
