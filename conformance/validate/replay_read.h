// Templates of Replay that more than one of its sources need.
#pragma once
#include <fmt/format.h>

#include "conformance/validate/replay.h"

namespace kvc::validate {

template <class In, class Out>
void Replay::read(const RecordedCall& call, In& in, Out& out) {
  Reader r(call.body);
  answers_.clear();
  r(in, answers_, out);
  if (!r.ok() || !r.at_end()) wrong(call, "its fields cannot be read");
}

template <class T>
bool Replay::same(const RecordedCall& call, const char* field, const T& recorded,
                  const T& present) {
  if (recorded == present) return true;
  differ(call, field, fmt::format("{}", recorded), fmt::format("{}", present));
  return false;
}

}  // namespace kvc::validate
