// The one exported function, the slots without handle, and the end of the process.
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <kvc/kvc_util.h>

#include "conformance/validate/engine.h"
#include "conformance/validate/form.h"
#include "conformance/validate/table.h"
#include "conformance/validate/validate.h"

namespace kvc::validate {
namespace {

constexpr std::uint64_t all_caps = KVC_CAP_STEPPED | KVC_CAP_FINE_HITS | KVC_CAP_STATES |
                                   KVC_CAP_EVENTS | KVC_CAP_CANDIDATES | KVC_CAP_PERSISTENT;

// The connector that the environment names; NULL: none. A wrong path stands in *why.
const kvc_plugin_api* named_next(std::string* why) {
  const auto settings = environment_settings();
  if (!settings.ok()) {
    *why = settings.error().text;
    return nullptr;
  }
  if (settings.value().next.empty()) return nullptr;
  const auto next = Registry::of_process().next(settings.value().next);
  if (next.ok()) return next.value();
  *why = next.error().text;
  return nullptr;
}

kvc_bytes bytes_of(std::string_view text) { return kvc_bytes_of(text.data(), text.size()); }

std::uint64_t findings() noexcept { return FindingsList::of_process().count(); }

kvc_status finding(std::uint64_t index, kvc_finding* out) noexcept {
  const Finding* const f = FindingsList::of_process().at(index);
  if (f == nullptr) return KVC_E_ARG;
  const kvc_finding mine{
      sizeof mine, 0, f->engine, f->call, bytes_of(f->rule), bytes_of(f->slot), bytes_of(f->text)};
  return KVC_WRITE(out, &mine);
}

void forget() noexcept { FindingsList::of_process().forget(); }

const kvc_validate_api validate_api{sizeof validate_api, 0, findings, finding, forget};

// KVC-H-008, when the process ends.
struct AtEnd {
  ~AtEnd() {
    for (const auto& side : Registry::of_process().take_all()) {
      const std::string text =
          fmt::format("a {} was opened and never closed", side->sched ? "scheduler" : "rank");
      std::fprintf(stderr, "kvc_validate: KVC-H-008: %s\n", text.c_str());
      publish(side->engine.get(), nullptr, "KVC-H-008",
              side->sched ? "close_scheduler" : "close_rank", side->engine->calls.load(), text);
    }
  }
};
const AtEnd at_end;

}  // namespace

namespace slots {

kvc_status describe(kvc_description* out) noexcept {
  Form form;
  form.room(out, sizeof(std::uint32_t), "kvc_description");
  for (const Form::Item& item : form.items()) {
    std::fprintf(stderr, "kvc_validate: KVC-H-003: describe: %s\n", item.text.c_str());
    publish(nullptr, nullptr, "KVC-H-003", "describe", 0, item.text);
  }
  std::string why;
  if (const kvc_plugin_api* const next = named_next(&why); next != nullptr) {
    return next->describe(out);
  }
  const kvc_description mine{sizeof mine, 0, bytes_of("kvc_validate"),
                             bytes_of(KVC_VALIDATE_VERSION), bytes_of("")};
  return KVC_WRITE(out, &mine);
}

const void* extension(kvc_bytes id) noexcept {
  const std::string_view name(reinterpret_cast<const char*>(id.data),
                              id.data == nullptr ? 0 : id.size);
  if (name == KVC_VALIDATE_EXTENSION) return &validate_api;
  std::string why;
  const kvc_plugin_api* next = named_next(&why);
  if (next == nullptr) next = Registry::of_process().first_next();
  const void* const table = next == nullptr ? nullptr : next->extension(id);
  if (table == nullptr) return nullptr;
  const void* const checked = checked_extension(name, table);
  if (checked == table) Registry::of_process().unseen_calls = true;
  return checked;
}

}  // namespace slots
namespace {

// The entry: the layer's slots, with the capabilities of the connector behind it.
kvc_status fill_table(kvc_plugin_api* out) {
  kvc_plugin_api mine{};
  mine.struct_size = sizeof mine;
  mine.abi_minor = KVC_MINOR;
  mine.caps = all_caps;
#define KVC_SLOT(slot, handle, role, attributes, minor, need, capability) mine.slot = slots::slot;
#include <kvc/kvc_calls.def>
  std::string why;
  if (const kvc_plugin_api* const next = named_next(&why); next != nullptr) {
    // A bit of a newer minor names a slot that this table does not have.
    mine.caps = next->caps & all_caps;
  } else if (!why.empty()) {
    std::fprintf(stderr, "kvc_validate: KVC_LAYER_NEXT: %s\n", why.c_str());
    return KVC_E_ARG;
  }
  return kvc_write(out, &mine, sizeof mine, offsetof(kvc_plugin_api, describe));
}

}  // namespace
}  // namespace kvc::validate

extern "C" KVC_EXPORT kvc_status kvc_plugin_entry_v1(std::uint32_t host_minor,
                                                     kvc_plugin_api* out) noexcept {
  static_cast<void>(host_minor);
  // KVC_LAYER_NEXT may name the layer, whose entry looks at KVC_LAYER_NEXT.
  thread_local bool inside = false;
  if (inside) {
    std::fprintf(stderr, "kvc_validate: KVC_LAYER_NEXT leads back to the layer\n");
    return KVC_E_ARG;
  }
  inside = true;
  const kvc_status status = kvc::validate::fill_table(out);
  inside = false;
  return status;
}
