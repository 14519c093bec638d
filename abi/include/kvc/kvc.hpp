// C++17 and later, header only: kvc.h with owners and typed views, for both sides of the line.
//
// Hosts:    Connector (a checked table), Scheduler and Rank (handles that close themselves),
//           ListView (reads what a connector put out, whatever its stride).
// Plugins:  read / read_list / write / fill_table / guard, and the casts of handles.
// Nothing here crosses the line: no C++ type is in kvc.h, and every function is inline in its user.
#pragma once
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <kvc/kvc_util.h>

namespace kvc::abi {

// The 1.0 size of a growable struct.
template <class T>
struct Least;
#define KVC_STRUCT(type, bytes)                 \
  template <>                                   \
  struct Least<type> {                          \
    static constexpr std::size_t value = bytes; \
  };
#include <kvc/kvc_calls.def>

// A zeroed struct that knows its size.
template <class T>
[[nodiscard]] T sized() noexcept {
  T t;
  std::memset(&t, 0, sizeof t);
  t.struct_size = static_cast<std::uint32_t>(sizeof t);
  return t;
}

[[nodiscard]] inline std::string_view text(kvc_bytes b) noexcept {
  if (b.data == nullptr || b.size == 0) return {};
  return {static_cast<const char *>(static_cast<const void *>(b.data)),
          static_cast<std::size_t>(b.size)};
}
[[nodiscard]] inline kvc_bytes bytes(std::string_view s) noexcept {
  return kvc_bytes_of(s.data(), s.size());
}

// A list to pass: elements are borrowed, the container must outlive the use.
template <class T>
[[nodiscard]] kvc_list list_of(const T *data, std::size_t count) noexcept {
  return kvc_list_of(data, count, sizeof(T));
}
template <class Container>
[[nodiscard]] kvc_list list_of(const Container &c) noexcept {
  return list_of(std::data(c), std::size(c));
}

// What a status means to a caller of this minor: unknown positives are OK with nothing done,
// unknown negatives are KVC_E_INTERNAL.
[[nodiscard]] constexpr kvc_status known(kvc_status s) noexcept {
  if (s >= 0) return s <= KVC_LATER ? s : static_cast<kvc_status>(KVC_OK);
  return s >= KVC_E_DEADLINE ? s : static_cast<kvc_status>(KVC_E_INTERNAL);
}

[[nodiscard]] constexpr const char *status_name(kvc_status s) noexcept {
  switch (s) {
    case KVC_OK:
      return "KVC_OK";
    case KVC_MORE:
      return "KVC_MORE";
    case KVC_LATER:
      return "KVC_LATER";
    case KVC_E_ARG:
      return "KVC_E_ARG";
    case KVC_E_STATE:
      return "KVC_E_STATE";
    case KVC_E_ROOM:
      return "KVC_E_ROOM";
    case KVC_E_UNSUPPORTED:
      return "KVC_E_UNSUPPORTED";
    case KVC_E_FULL:
      return "KVC_E_FULL";
    case KVC_E_IO:
      return "KVC_E_IO";
    case KVC_E_CANCELLED:
      return "KVC_E_CANCELLED";
    case KVC_E_DEADLINE:
      return "KVC_E_DEADLINE";
    case KVC_E_INTERNAL:
      return "KVC_E_INTERNAL";
    default:
      return "unknown status";
  }
}

// Reads a list that the other side put out. Elements are copied: a shorter (older) element is
// filled up with zeros, the unknown end of a longer (newer) one is left out.
//
// Owns: nothing. Valid as long as the list is (kvc.h, OWNERSHIP).
template <class T>
class ListView {
 public:
  class iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = T;
    iterator(const ListView *view, std::uint64_t at) noexcept : view_(view), at_(at) {}
    T operator*() const noexcept { return (*view_)[at_]; }
    iterator &operator++() noexcept {
      ++at_;
      return *this;
    }
    friend bool operator==(iterator a, iterator b) noexcept { return a.at_ == b.at_; }
    friend bool operator!=(iterator a, iterator b) noexcept { return a.at_ != b.at_; }

   private:
    const ListView *view_;
    std::uint64_t at_;
  };

  // A list that is not well formed (no data, no stride) reads as empty.
  explicit ListView(const kvc_list &list) noexcept : list_(list) {
    if (kvc_list_check(&list_, sizeof(std::uint32_t)) != KVC_OK) list_.count = 0;
  }
  [[nodiscard]] std::uint64_t size() const noexcept { return list_.count; }
  [[nodiscard]] bool empty() const noexcept { return list_.count == 0; }
  // Requires i < size().
  [[nodiscard]] T operator[](std::uint64_t i) const noexcept {
    T t;
    std::memset(&t, 0, sizeof t);
    const void *at = kvc_list_at(&list_, i);
    std::uint32_t n = 0;
    std::memcpy(&n, at, sizeof n);
    if (n > list_.stride) n = list_.stride;
    if (n > sizeof t) n = static_cast<std::uint32_t>(sizeof t);
    std::memcpy(&t, at, n);
    t.struct_size = n;
    return t;
  }
  [[nodiscard]] iterator begin() const noexcept { return {this, 0}; }
  [[nodiscard]] iterator end() const noexcept { return {this, list_.count}; }

 private:
  kvc_list list_;
};

template <class T>
[[nodiscard]] ListView<T> view(const kvc_list &list) noexcept {
  return ListView<T>(list);
}

// ------------------------------------------------------------------------------------- hosts

// The checked table of one library. Optional slots that are absent answer KVC_E_UNSUPPORTED, so
// that call sites need no NULL test.
//
// Threads: immutable after load.
// Owns:    a copy of the table, shared with the handles opened through it. The library itself is
//          not its business: it has to stay loaded.
class Connector {
 public:
  Connector() = default;

  // Asks the entry for its table. On failure *why says which rule the library broke.
  [[nodiscard]] static kvc_status load(kvc_plugin_entry_fn entry, Connector *out,
                                       std::string *why) {
    auto table = std::make_shared<kvc_plugin_api>(sized<kvc_plugin_api>());
    const kvc_status s = known(entry(KVC_MINOR, table.get()));
    if (s != KVC_OK) {
      *why = std::string(KVC_PLUGIN_ENTRY_NAME) + " answered " + status_name(s) +
             " to a host of minor " + std::to_string(KVC_MINOR);
      return s < 0 ? s : static_cast<kvc_status>(KVC_E_STATE);
    }
    if (table->struct_size < offsetof(kvc_plugin_api, describe) ||
        table->struct_size > sizeof(kvc_plugin_api)) {
      *why = "the table's struct_size is " + std::to_string(table->struct_size) + ", room was " +
             std::to_string(sizeof(kvc_plugin_api));
      return KVC_E_ARG;
    }
    if (const char *missing = fill_optional(*table)) {
      *why = std::string("the table lacks the slot ") + missing +
             ", which is required or promised by a capability bit";
      return KVC_E_ARG;
    }
    out->api_ = std::move(table);
    return KVC_OK;
  }

  [[nodiscard]] bool loaded() const noexcept { return api_ != nullptr; }
  // Requires loaded().
  [[nodiscard]] const kvc_plugin_api &api() const noexcept { return *api_; }
  [[nodiscard]] std::shared_ptr<const kvc_plugin_api> share() const noexcept { return api_; }
  [[nodiscard]] bool can(std::uint64_t caps) const noexcept { return (api_->caps & caps) == caps; }
  [[nodiscard]] kvc_description describe() const noexcept {
    auto d = sized<kvc_description>();
    if (api_->describe(&d) != KVC_OK) return sized<kvc_description>();
    return d;
  }

 private:
  template <class... A>
  static void stand_in(kvc_status (*&slot)(A...) KVC_NOTHROW) noexcept {
    slot = [](A...) noexcept -> kvc_status { return KVC_E_UNSUPPORTED; };
  }
  template <class F>
  static void stand_in(F &) noexcept {}  // slots without a status are all required

  // The name of a slot that is absent and must not be; an optional one gets its stand-in.
  template <class F>
  static const char *check(F &slot, std::size_t end, std::uint32_t size, const char *name,
                           bool required) noexcept {
    if (size >= end && slot != nullptr) return nullptr;
    if (required) return name;
    stand_in(slot);
    return nullptr;
  }

  // The name of the first slot that must be there and is not; nullptr: none.
  static const char *fill_optional(kvc_plugin_api &t) {
    enum { req = 1, opt = 0 };
    const std::uint32_t size = t.struct_size;
    const char *missing = nullptr;
#define KVC_SLOT(slot, handle, role, attributes, minor, need, capability)   \
  if (missing == nullptr) {                                                 \
    constexpr std::uint64_t bit = capability;                               \
    missing = check(t.slot, KVC_THROUGH(kvc_plugin_api, slot), size, #slot, \
                    need == req || (t.caps & bit) != 0);                    \
  }
#include <kvc/kvc_calls.def>
    return missing;
  }

  std::shared_ptr<const kvc_plugin_api> api_;
};

// What both roles have in common: an open handle that closes itself. `Role` says which slots of the
// table serve it.
//
// Threads: as the tags of kvc.h say; this class adds no lock.
// Owns:    the handle; closes it.
template <class Role>
class OpenHandle {
 public:
  using Raw = typename Role::Raw;

  [[nodiscard]] bool is_open() const noexcept { return h_ != nullptr; }
  [[nodiscard]] Raw *handle() const noexcept { return h_; }
  void close() noexcept {
    if (h_ != nullptr) Role::close(*api_, std::exchange(h_, nullptr));
  }

  // The rest requires is_open().
  kvc_status pump(std::uint32_t budget) { return known(Role::pump(*api_, h_, budget)); }
  [[nodiscard]] std::string last_error() const {
    return text_of([&](char *buf, std::uint64_t cap, std::uint64_t *needed) {
      return Role::last_error(*api_, h_, buf, cap, needed);
    });
  }
  // Appends all log lines that wait.
  kvc_status take_log(std::string *out) {
    for (;;) {
      constexpr std::size_t chunk = 16384;
      const std::size_t before = out->size();
      out->resize(before + chunk);
      std::uint64_t count = 0;
      const kvc_status s = known(Role::take_log(*api_, h_, out->data() + before, chunk, &count));
      out->resize(before + (s >= 0 && count <= chunk ? static_cast<std::size_t>(count) : 0));
      if (s != KVC_MORE || count == 0) return s;
    }
  }

 protected:
  OpenHandle() = default;
  OpenHandle(OpenHandle &&o) noexcept : api_(std::move(o.api_)), h_(std::exchange(o.h_, nullptr)) {}
  OpenHandle &operator=(OpenHandle &&o) noexcept {
    if (this != &o) {
      close();
      api_ = std::move(o.api_);
      h_ = std::exchange(o.h_, nullptr);
    }
    return *this;
  }
  ~OpenHandle() { close(); }

  [[nodiscard]] kvc_status open_with(const Connector &connector, const kvc_host_api &host,
                                     const kvc_open &how) {
    Raw *h = nullptr;
    const kvc_status s = known(Role::open(connector.api(), &host, &how, &h));
    if (s != KVC_OK) return s;
    if (h == nullptr) return KVC_E_INTERNAL;
    close();
    api_ = connector.share();
    h_ = h;
    return s;
  }

  // The whole text that `call` fills into (buffer, capacity, needed). Empty on failure.
  template <class Call>
  static std::string text_of(Call &&call) {
    std::string t;
    std::uint64_t needed = 0;
    for (;;) {
      const kvc_status s = known(call(t.empty() ? nullptr : t.data(), t.size(), &needed));
      if (s == KVC_OK && needed <= t.size()) break;
      if ((s != KVC_OK && s != KVC_E_ROOM) || needed <= t.size()) return {};
      t.resize(static_cast<std::size_t>(needed));
    }
    t.resize(static_cast<std::size_t>(needed));
    return t;
  }

  std::shared_ptr<const kvc_plugin_api> api_;
  Raw *h_ = nullptr;
};

struct SchedulerRole {
  using Raw = kvc_sched;
  static kvc_status open(const kvc_plugin_api &t, const kvc_host_api *host, const kvc_open *how,
                         Raw **out) noexcept {
    return t.open_scheduler(host, how, out);
  }
  static void close(const kvc_plugin_api &t, Raw *h) noexcept { t.close_scheduler(h); }
  static kvc_status pump(const kvc_plugin_api &t, Raw *h, std::uint32_t budget) noexcept {
    return t.pump_scheduler(h, budget);
  }
  static kvc_status last_error(const kvc_plugin_api &t, const Raw *h, char *buf, std::uint64_t cap,
                               std::uint64_t *needed) noexcept {
    return t.last_error_scheduler(h, buf, cap, needed);
  }
  static kvc_status take_log(const kvc_plugin_api &t, Raw *h, char *buf, std::uint64_t cap,
                             std::uint64_t *count) noexcept {
    return t.take_log_scheduler(h, buf, cap, count);
  }
};

struct RankRole {
  using Raw = kvc_rank;
  static kvc_status open(const kvc_plugin_api &t, const kvc_host_api *host, const kvc_open *how,
                         Raw **out) noexcept {
    return t.open_rank(host, how, out);
  }
  static void close(const kvc_plugin_api &t, Raw *h) noexcept { t.close_rank(h); }
  static kvc_status pump(const kvc_plugin_api &t, Raw *h, std::uint32_t budget) noexcept {
    return t.pump_rank(h, budget);
  }
  static kvc_status last_error(const kvc_plugin_api &t, const Raw *h, char *buf, std::uint64_t cap,
                               std::uint64_t *needed) noexcept {
    return t.last_error_rank(h, buf, cap, needed);
  }
  static kvc_status take_log(const kvc_plugin_api &t, Raw *h, char *buf, std::uint64_t cap,
                             std::uint64_t *count) noexcept {
    return t.take_log_rank(h, buf, cap, count);
  }
};

// The scheduler role of a connector. Every call answers known(status) of the slot of the same name;
// requirements and results are those of kvc.h.
//
// Threads: as the tags of kvc.h say; this class adds no lock.
// Owns:    the handle; closes it.
class Scheduler : public OpenHandle<SchedulerRole> {
 public:
  // Requires connector.loaded(). On failure *out stays closed; the text went to host.log.
  [[nodiscard]] static kvc_status open(const Connector &connector, const kvc_host_api &host,
                                       const kvc_open &how, Scheduler *out) {
    return out->open_with(connector, host, how);
  }

  // The rest requires is_open(). Out-structs are cleared here: the caller need not.
  kvc_status set_ranks(const kvc_list &ranks, kvc_list *usable) {
    *usable = {};
    return known(api_->set_ranks(h_, &ranks, usable));
  }
  kvc_status request_begin(const kvc_request &r) { return known(api_->request_begin(h_, &r)); }
  kvc_status request_extend(const kvc_extend &e) { return known(api_->request_extend(h_, &e)); }
  kvc_status lookup(const kvc_lookup_in &in, kvc_lookup_out *out) {
    *out = sized<kvc_lookup_out>();
    return known(api_->lookup(h_, &in, out));
  }
  kvc_status lookup_cancel(std::uint64_t request) {
    return known(api_->lookup_cancel(h_, request));
  }
  kvc_status alloc_update(const kvc_alloc_in &in, kvc_alloc_out *out) {
    *out = sized<kvc_alloc_out>();
    return known(api_->alloc_update(h_, &in, out));
  }
  kvc_status build_store_jobs(const kvc_step &step, kvc_plan *out) {
    *out = sized<kvc_plan>();
    return known(api_->build_store_jobs(h_, &step, out));
  }
  kvc_status complete(const kvc_bytes *reports, std::uint64_t n, kvc_complete_out *out) {
    *out = sized<kvc_complete_out>();
    return known(api_->complete(h_, reports, n, out));
  }
  kvc_status request_end(const kvc_end_in &in, kvc_end_out *out) {
    *out = sized<kvc_end_out>();
    return known(api_->request_end(h_, &in, out));
  }
  kvc_status boundary_stats(kvc_boundary_stats *out) const {
    *out = sized<kvc_boundary_stats>();
    return known(api_->boundary_stats(h_, out));
  }
  kvc_status has_pending(kvc_pending *out) const {
    *out = sized<kvc_pending>();
    return known(api_->has_pending(h_, out));
  }
  kvc_status reset(std::uint64_t flags) { return known(api_->reset(h_, flags)); }

  // All counters. Names and labels live as long as the handle.
  kvc_status stats(std::vector<kvc_stat> *out) const {
    std::uint64_t needed = 0;
    for (;;) {
      const kvc_status s = known(api_->stats(h_, out->empty() ? nullptr : out->data(),
                                             sizeof(kvc_stat), out->size(), &needed));
      if (s != KVC_E_ROOM && (s != KVC_OK || needed <= out->size())) {
        out->resize(s == KVC_OK ? static_cast<std::size_t>(needed) : 0);
        return s;
      }
      out->resize(static_cast<std::size_t>(needed));
    }
  }
  // JSON; request 0: gates, options and the last requests. Empty on failure.
  [[nodiscard]] std::string explain(std::uint64_t request) const {
    return text_of([&](char *buf, std::uint64_t cap, std::uint64_t *needed) {
      return api_->explain(h_, request, buf, cap, needed);
    });
  }
  // Appends all events that wait. KVC_E_UNSUPPORTED: the connector has none.
  kvc_status take_events(std::vector<kvc_event> *out) {
    for (;;) {
      constexpr std::size_t chunk = 256;
      const std::size_t before = out->size();
      out->resize(before + chunk);
      std::uint64_t count = 0;
      const kvc_status s =
          known(api_->take_events(h_, out->data() + before, sizeof(kvc_event), chunk, &count));
      out->resize(before + (s >= 0 && count <= chunk ? static_cast<std::size_t>(count) : 0));
      if (s != KVC_MORE || count == 0) return s;
    }
  }
};

// The rank role of a connector, as Scheduler.
//
// Threads: as the tags of kvc.h say; this class adds no lock.
// Owns:    the handle; closes it.
class Rank : public OpenHandle<RankRole> {
 public:
  // Requires connector.loaded(). On failure *out stays closed; the text went to host.log.
  [[nodiscard]] static kvc_status open(const Connector &connector, const kvc_host_api &host,
                                       const kvc_open &how, Rank *out) {
    return out->open_with(connector, host, how);
  }

  // The rest requires is_open().
  kvc_status register_regions(const kvc_list &regions, kvc_rank_info *out) {
    *out = sized<kvc_rank_info>();
    return known(api_->register_regions(h_, &regions, out));
  }
  kvc_status submit_loads(kvc_bytes plan, const kvc_fence &fence) {
    return known(api_->submit_loads(h_, plan, &fence));
  }
  kvc_status submit_stores(kvc_bytes plan, const kvc_fence &fence) {
    return known(api_->submit_stores(h_, plan, &fence));
  }
  kvc_status progress(kvc_progress *out) {
    *out = sized<kvc_progress>();
    return known(api_->progress(h_, out));
  }
  kvc_status wait(const kvc_job *jobs, std::uint64_t n, std::uint64_t timeout_ns) {
    return known(api_->wait(h_, jobs, n, timeout_ns));
  }
};

// ----------------------------------------------------------------------------------- plugins

// kvc_read with the 1.0 size as the least: unknown non-zero tail bytes are KVC_E_UNSUPPORTED.
template <class T>
[[nodiscard]] kvc_status read(T *dst, const T *src) noexcept {
  return kvc_read(dst, sizeof(T), src, Least<T>::value);
}

// All elements of a request's list, each as by read(). At most `max` elements (KVC_E_ARG beyond).
// On failure *out holds the elements before the bad one. May throw std::bad_alloc.
template <class T>
[[nodiscard]] kvc_status read_list(std::vector<T> *out, const kvc_list &list, std::uint64_t max) {
  out->clear();
  kvc_status s = kvc_list_check(&list, Least<T>::value);
  if (s != KVC_OK) return s;
  if (list.count > max) return KVC_E_ARG;
  out->reserve(static_cast<std::size_t>(list.count));
  for (std::uint64_t i = 0; i < list.count; ++i) {
    T t;
    s = kvc_read_at(&t, sizeof t, &list, i, Least<T>::value);
    if (s != KVC_OK) return s;
    out->push_back(t);
  }
  return KVC_OK;
}

template <class T>
[[nodiscard]] kvc_status write(T *dst, const T &src) noexcept {
  return kvc_write(dst, &src, sizeof src, sizeof(std::uint32_t));
}

// The body of kvc_plugin_entry_v1: the leading part of `mine` that the host has room for.
[[nodiscard]] inline kvc_status fill_table(kvc_plugin_api *out,
                                           const kvc_plugin_api &mine) noexcept {
  return kvc_write(out, &mine, sizeof mine, offsetof(kvc_plugin_api, describe));
}

// Handles are the plugin's own objects under an opaque name.
template <class Handle, class Impl>
[[nodiscard]] Handle *to_handle(Impl *impl) noexcept {
  static_assert(std::is_same_v<Handle, kvc_sched> || std::is_same_v<Handle, kvc_rank>);
  return reinterpret_cast<Handle *>(impl);
}
template <class Impl>
[[nodiscard]] Impl *from_handle(kvc_sched *h) noexcept {
  return reinterpret_cast<Impl *>(h);
}
template <class Impl>
[[nodiscard]] const Impl *from_handle(const kvc_sched *h) noexcept {
  return reinterpret_cast<const Impl *>(h);
}
template <class Impl>
[[nodiscard]] Impl *from_handle(kvc_rank *h) noexcept {
  return reinterpret_cast<Impl *>(h);
}
template <class Impl>
[[nodiscard]] const Impl *from_handle(const kvc_rank *h) noexcept {
  return reinterpret_cast<const Impl *>(h);
}

// Runs the body of a slot; no exception passes. `broken` is told the text of what is not
// std::bad_alloc, and must not throw.
template <class Body, class Broken>
[[nodiscard]] kvc_status guard(Body &&body, Broken &&broken) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc &) {
    return KVC_E_FULL;
  } catch (const std::exception &e) {
    broken(std::string_view(e.what()));
  } catch (...) {
    broken(std::string_view("unknown exception"));
  }
  return KVC_E_INTERNAL;
}

}  // namespace kvc::abi
