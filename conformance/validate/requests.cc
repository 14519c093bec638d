// Ids and keys of requests: KVC-H-020 to 023, KVC-P-050 to 052, 066.
#include <fmt/format.h>

#include "conformance/validate/checks.h"
#include "host_stub/loader/status_text.h"
#include "plugin/core/check.h"

#include <xxhash.h>

namespace kvc::validate {
namespace {

// So many keys are remembered; beyond, new ones are not judged.
constexpr std::size_t keys_kept_max = 4'000'000;

// KVC-H-022.
void take_keys(const Check& c, std::uint64_t id, Request& r, std::uint64_t n,
               const ByteString& bytes) {
  Model& m = c.model;
  const std::uint64_t size = m.layout.key_bytes;
  if (size == 0 || bytes.size() < n * size) return;
  for (std::uint64_t i = 0; i < n; ++i) {
    const KeyId key = hash_of(bytes.data() + i * size, size);
    const KeyId before = r.keys.empty() ? no_key : r.keys.back();
    const Model::Place place{r.keys.size(), before};
    r.keys.push_back(key);
    const auto it = m.keys.find(key);
    if (it == m.keys.end()) {
      if (m.keys.size() < keys_kept_max) m.keys.emplace(key, place);
      continue;
    }
    if (it->second.index != place.index) {
      c.find("KVC-H-022", fmt::format("request {}: its key {} stood at {} before", id, place.index,
                                      it->second.index));
    } else if (it->second.before != place.before) {
      c.find("KVC-H-022", fmt::format("request {}: its key {} stood behind another key before", id,
                                      place.index));
    }
  }
}

bool refused(kvc_status status) { return status < 0 && status != KVC_E_INTERNAL; }

}  // namespace

KeyId hash_of(const void* data, std::uint64_t bytes) {
  const XXH128_hash_t h = XXH3_128bits(data, bytes);
  return {h.low64, h.high64};
}

KeyId key_at(const Model& model, const Request& request, std::uint64_t tokens) {
  const std::uint64_t h = model.layout.hash_unit;
  if (tokens == 0 || tokens % h != 0 || tokens / h > request.keys.size()) return no_key;
  return request.keys[tokens / h - 1];
}

void before_begin(const Check& c, const BeginIn& in) {
  const Model& m = c.model;
  if (in.request == 0) {
    c.find("KVC-H-020", "request_begin of request 0");
  } else if (m.used_ids.contains(in.request)) {
    const auto live = m.live.find(in.request);
    if (live != m.live.end() && !live->second.tracked) {
      c.find("KVC-H-061", fmt::format("request {} begins again after KVC_E_FULL", in.request));
    } else {
      c.find("KVC-H-020", fmt::format("request {} was used before", in.request));
    }
  }
  if (in.prompt > m.layout.max_prompt) {
    c.find("KVC-H-021", fmt::format("request {} has {} prompt tokens, max_prompt_tokens is {}",
                                    in.request, in.prompt, m.layout.max_prompt));
  }
  if (in.n_keys > in.prompt / m.layout.hash_unit) {
    c.find("KVC-H-021", fmt::format("request {} has {} keys of {} tokens for {} tokens", in.request,
                                    in.n_keys, m.layout.hash_unit, in.prompt));
  }
}

void after_begin(const Check& c, const BeginIn& in, kvc_status status) {
  Model& m = c.model;
  const bool wrong = c.findings.host_is_wrong();
  if (status >= 0 && wrong) {
    c.find("KVC-P-050",
           fmt::format("request_begin of {} answered {}", in.request, host::Said{status}));
  }
  if (refused(status) && status != KVC_E_FULL) {
    if (!wrong) {
      c.find("KVC-P-050", fmt::format("request_begin of {} with {} tokens and {} keys answered {}",
                                      in.request, in.prompt, in.n_keys, host::Said{status}));
    }
    return;
  }
  if (wrong || status == KVC_E_INTERNAL) return;
  m.used_ids.insert(in.request);
  Request& r = m.live[in.request];
  r.flags = in.flags;
  r.prompt = in.prompt;
  r.load_limit = in.load_limit;
  r.store_limit = in.store_limit;
  r.tracked = status >= 0;
  r.last_named = m.step;
  r.tables.resize(m.layout.groups.size());
  if (!r.tracked) return;
  if (++m.tracked > m.layout.max_live) {
    c.find("KVC-P-051", fmt::format("request {} is the {}th, max_live_requests is {}", in.request,
                                    m.tracked, m.layout.max_live));
  }
  take_keys(c, in.request, r, in.n_keys, in.keys);
}

void before_extend(const Check& c, const ExtendIn& in) {
  const Model& m = c.model;
  const auto it = m.live.find(in.request);
  if (it == m.live.end()) {
    c.find("KVC-H-023", fmt::format("request_extend of {}, which is not live", in.request));
    return;
  }
  const Request& r = it->second;
  if (!r.tracked || r.keys_stopped) return;
  if (in.first_key != r.keys.size()) {
    c.find("KVC-H-021", fmt::format("request {} has {} keys, new ones begin at {}", in.request,
                                    r.keys.size(), in.first_key));
  }
  if (in.n_keys > m.layout.max_total || in.first_key > m.layout.max_total ||
      (in.first_key + in.n_keys) > m.layout.max_total / m.layout.hash_unit) {
    c.find("KVC-H-021",
           fmt::format("request {}: keys {} to {} lie behind max_total_tokens {}", in.request,
                       in.first_key, in.first_key + in.n_keys, m.layout.max_total));
  }
}

void after_extend(const Check& c, const ExtendIn& in, kvc_status status) {
  Request* const r = c.model.find(in.request);
  const bool wrong = c.findings.host_is_wrong();
  if (r != nullptr && !r->tracked) {
    if (status != KVC_OK && status != KVC_E_INTERNAL) {
      c.find("KVC-P-051", fmt::format("request_extend of {}, which was refused with KVC_E_FULL, "
                                      "answered {}",
                                      in.request, host::Said{status}));
    }
    return;
  }
  if (status >= 0 && wrong) {
    c.find("KVC-P-052",
           fmt::format("request_extend of {} answered {}", in.request, host::Said{status}));
    return;
  }
  if (r == nullptr || r->keys_stopped) return;
  if (status == KVC_E_FULL) {
    r->keys_stopped = true;
  } else if (refused(status) && !wrong) {
    c.find("KVC-P-052", fmt::format("request_extend of {}: keys {} to {} answered {}", in.request,
                                    in.first_key, in.first_key + in.n_keys, host::Said{status}));
  } else if (status >= 0) {
    take_keys(c, in.request, *r, in.n_keys, in.keys);
  }
}

void after_cancel(const Check& c, std::uint64_t id, kvc_status status) {
  Request* const r = c.model.find(id);
  if (r == nullptr) {
    c.find("KVC-H-023", fmt::format("lookup_cancel of {}, which is not live", id));
    if (status != KVC_E_ARG && status != KVC_E_INTERNAL) {
      c.find("KVC-P-066", fmt::format("lookup_cancel of unknown request {} answered {}", id,
                                      host::Said{status}));
    }
    return;
  }
  c.model.leases.erase(id);
  if (status == KVC_OK || status == KVC_E_INTERNAL) return;
  const std::string text = fmt::format("lookup_cancel of {} answered {}", id, host::Said{status});
  if (r->tracked) {
    c.find("KVC-P-066", text);
  } else {
    c.find("KVC-P-051", text);
  }
}

}  // namespace kvc::validate
