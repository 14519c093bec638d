#include "conformance/validate/outputs.h"

#include <sys/uio.h>
#include <unistd.h>
#include <algorithm>

#include <fmt/format.h>

#include "conformance/validate/form.h"

namespace kvc::validate {
namespace {

bool steppable(const kvc_list& list, std::size_t least) {
  Form form;
  constexpr std::uint64_t most = std::uint64_t{1} << 24U;
  return list.count != 0 && form.list(list, least, most, "list");
}

void add(Ranges& ranges, const kvc_list& list, std::size_t least) {
  if (steppable(list, least)) ranges.push_back({list.data, list.count * list.stride});
}

void add(Ranges& ranges, const kvc_bytes& bytes) {
  if (bytes.size != 0 && readable(bytes.data, bytes.size))
    ranges.push_back({bytes.data, bytes.size});
}

template <class T, class Each>
void for_each(const kvc_list& list, std::size_t least, const Each& each) {
  if (!steppable(list, least)) return;
  for (std::uint64_t i = 0; i < list.count; ++i) {
    T element{};
    if (kvc_read_at(&element, sizeof element, &list, i, least) == KVC_OK) each(element);
  }
}

// The memory may be gone: copied by the kernel, which says so instead of crashing.
bool copy_of(const Range& range, std::vector<std::uint8_t>& into) {
  into.resize(range.bytes);
  std::uint64_t done = 0;
  while (done < range.bytes) {
    const auto* const from = static_cast<const std::uint8_t*>(range.data) + done;
    const iovec here{into.data() + done, range.bytes - done};
    const iovec there{const_cast<std::uint8_t*>(from), range.bytes - done};
    const ssize_t n = ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0);
    if (n <= 0) return false;
    done += static_cast<std::uint64_t>(n);
  }
  return true;
}

// Where the kernel forbids it, nothing is judged.
bool kernel_copies() {
  static const bool works = [] {
    const std::uint64_t probe = 1;
    std::vector<std::uint8_t> into;
    return copy_of({&probe, sizeof probe}, into);
  }();
  return works;
}

}  // namespace

Ranges ranges_of(const kvc_list& plain) {
  Ranges r;
  add(r, plain, kvc_class_least);
  return r;
}

Ranges ranges_of(const kvc_alloc_out& out) {
  Ranges r;
  add(r, out.held, kvc_block_least);
  add(r, out.media, kvc_medium_tokens_least);
  return r;
}

Ranges ranges_of(const kvc_plan& out) {
  Ranges r;
  add(r, out.jobs, kvc_plan_job_least);
  for_each<kvc_plan_job>(out.jobs, kvc_plan_job_least,
                         [&](const kvc_plan_job& j) { add(r, j.held, kvc_block_least); });
  add(r, out.bytes);
  return r;
}

Ranges ranges_of(const kvc_complete_out& out) {
  Ranges r;
  add(r, out.jobs, kvc_ended_job_least);
  for_each<kvc_ended_job>(out.jobs, kvc_ended_job_least, [&](const kvc_ended_job& j) {
    add(r, j.failed, kvc_failed_block_least);
    add(r, j.released, kvc_block_least);
  });
  add(r, out.verdicts, kvc_verdict_least);
  add(r, out.rejected, kvc_rejected_least);
  return r;
}

Ranges ranges_of(const kvc_end_out& out) {
  Ranges r;
  add(r, out.held, kvc_block_least);
  return r;
}

Ranges ranges_of(const kvc_rank_info& out) {
  Ranges r;
  add(r, out.classes, kvc_class_least);
  add(r, out.inventory);
  return r;
}

Ranges ranges_of(const kvc_retention_out& out) {
  Ranges r;
  constexpr std::uint64_t most = std::uint64_t{1} << 24U;
  if (out.n_boundaries == 0 || out.n_boundaries > most) return r;
  const std::uint64_t bytes = out.n_boundaries * sizeof *out.boundaries;
  if (readable(out.boundaries, bytes)) r.push_back({out.boundaries, bytes});
  return r;
}

Ranges ranges_of(const kvc_progress& out) {
  Ranges r;
  add(r, out.loads, kvc_load_done_least);
  for_each<kvc_load_done>(out.loads, kvc_load_done_least, [&](const kvc_load_done& d) {
    add(r, d.failed, kvc_failed_block_least);
  });
  add(r, out.report);
  return r;
}

void Outputs::keep(Slot slot, const Ranges& ranges) {
  std::vector<Kept>& kept = kept_[static_cast<std::size_t>(slot)];
  kept.clear();
  for (const Range& r : ranges) kept.push_back({r, hash_of(r.data, r.bytes)});
}

std::string Outputs::changed(Slot slot) {
  std::vector<Kept>& kept = kept_[static_cast<std::size_t>(slot)];
  std::string why;
  std::vector<std::uint8_t> now;
  for (const Kept& k : kept) {
    if (!why.empty() || !kernel_copies()) break;
    if (!copy_of(k.range, now)) {
      why = fmt::format("{} bytes that {} put out cannot be read any more", k.range.bytes,
                        info(slot).name);
    } else if (hash_of(now.data(), now.size()) != k.hash) {
      why = fmt::format("{} bytes that {} put out are not what they were", k.range.bytes,
                        info(slot).name);
    }
  }
  kept.clear();
  return why;
}

}  // namespace kvc::validate
