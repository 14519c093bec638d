#include "conformance/probe/judge.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <kvc/kvc_util.h>

namespace kvc::probe {
namespace {

constexpr std::uint64_t nobody = UINT64_MAX;      // no request may have the block
constexpr std::uint64_t steps_to_ask_again = 64;  // after KVC_LATER
constexpr std::size_t findings_most = 64;

template <class T>
T element(const kvc_list& list, std::uint64_t i) {
  T value{};
  if (kvc_read_at(&value, sizeof value, &list, i, sizeof(std::uint32_t)) != KVC_OK) value = {};
  return value;
}

}  // namespace

Judge::Judge(const kvc_host_api& host, const kvc_open& open)
    : host_(host),
      hash_unit_(std::max<std::uint64_t>(1, open.hash_unit_tokens)),
      device_blocks_(open.device_blocks),
      rank_verdicts_((host.caps & KVC_HOST_RANK_VERDICTS) != 0) {
  for (std::uint64_t g = 0; g < open.groups.count; ++g) {
    groups_.push_back(element<kvc_group>(open.groups, g));
    const bool sharded = (groups_.back().caps & KVC_GROUP_CAP_SHARDED) != 0;
    spans_.push_back(groups_.back().tokens_per_block * (sharded ? open.context_parallel : 1));
  }
}

void Judge::find(rules::RuleId rule, const std::string& text) {
  if (findings_.size() >= findings_most) return;
  findings_.push_back(fmt::format("{} step {}: {}", rule.text(), steps_, text));
  if (host_.log == nullptr) return;
  const std::string& line = findings_.back();
  host_.log(host_.self, KVC_LOG_PEER_FAULT, kvc_bytes_of(line.data(), line.size()));
}

bool Judge::by_position(std::uint32_t group) const {
  return (groups_[group].caps & KVC_GROUP_CAP_POSITION_STABLE) != 0;
}

bool Judge::called(const char* slot) {
  if (fatal_slot_.empty()) return true;
  find("KVC-H-005", fmt::format("{} after {} said that the handle is poisoned", slot, fatal_slot_));
  return false;
}

void Judge::answered_fatal(const char* slot) {
  ++acted_;
  fatal_slot_ = slot;
}

void Judge::begin(const kvc_request& in, bool tracked) {
  if (!used_.insert(in.request).second) {
    find("KVC-H-020", fmt::format("request {} begins again", in.request));
  }
  known_[in.request] = {};
  known_[in.request].tracked = tracked;
}

void Judge::block(Blocked& blocked, std::uint64_t request) {
  if (blocked.is) return;
  blocked.is = true;
  blocked.request = request;
  blocked.scheduled = scheduled_;
  blocked.others = std::any_of(known_.begin(), known_.end(), [&](const auto& k) {
    return k.first != request && k.second.tracked && !k.second.waits && k.second.load == 0;
  });
}

void Judge::looked_up(const kvc_lookup_in& in, bool later, std::uint64_t honest) {
  const auto it = known_.find(in.request);
  if (it == known_.end()) return;
  Known& k = it->second;
  k.waits = later;
  k.waits_since = steps_;
  k.device = in.device_tokens;
  k.offered = honest;
  // The notice of a preemption, of a running request.
  if (k.load == 0) k.must_allocate = true;
  if (later) block(later_, in.request);
}

void Judge::allocated(const kvc_alloc_in& in) {
  const auto it = known_.find(in.request);
  if (it == known_.end()) return;
  Known& k = it->second;
  k.waits = false;
  k.must_allocate = false;
  k.allocated_at = steps_;
  if (in.accepted_tokens == 0) return;
  if (!k.tracked) {
    find("KVC-H-061", fmt::format("request {} was refused, but loads {} tokens", in.request,
                                  in.accepted_tokens));
  } else if (in.accepted_tokens > k.offered || in.accepted_tokens % hash_unit_ != 0) {
    find("KVC-H-064", fmt::format("request {} takes {} tokens, {} could be offered, the unit is {}",
                                  in.request, in.accepted_tokens, k.offered, hash_unit_));
  }
  check_new_blocks(in, k.device);
}

void Judge::refused_allocation(std::uint64_t request) {
  const auto it = known_.find(request);
  if (it == known_.end()) return;
  it->second.waits = false;
  it->second.must_allocate = false;
}

// What a load is going to write is free of other jobs.
void Judge::check_new_blocks(const kvc_alloc_in& in, std::uint64_t from_tokens) {
  for (std::uint64_t g = 0; g < std::min<std::uint64_t>(in.tables.count, groups_.size()); ++g) {
    const auto table = element<kvc_table>(in.tables, g);
    for (std::uint64_t p = 0; p < table.count; ++p) {
      const std::int64_t block = table.blocks[p];
      if (block <= 0 || (p + 1) * spans_[g] <= from_tokens) continue;
      const auto held = holds_.find(block);
      if (held == holds_.end()) continue;
      find("KVC-H-047",
           fmt::format("request {} is to load into block {} of group {}, which job {} still holds",
                       in.request, block, g, held->second.job));
    }
  }
}

void Judge::opened_load(std::uint64_t request, kvc_job job, const std::vector<HeldBlock>& held) {
  loads_[job] = request;
  if (const auto it = known_.find(request); it != known_.end()) it->second.load = job;
  for (const HeldBlock& h : held) holds_.insert({h.block, {job, request, h}});
}

void Judge::opened_store(kvc_job job, const std::vector<HeldBlock>& held) {
  for (const HeldBlock& h : held) holds_.insert({h.block, {job, 0, h}});
}

void Judge::opened_last_store(kvc_job job, const std::vector<HeldBlock>& held) {
  std::vector<HeldBlock> own;
  for (const HeldBlock& h : held) {
    if (holds_.count(h.block) == 0) own.push_back(h);
  }
  opened_store(job, own);
}

// A held block stays where it is: at its place, and a load's at its request.
void Judge::check_table(std::uint64_t request, const kvc_table& table) {
  if (table.group >= groups_.size() || !by_position(table.group)) return;
  for (std::uint64_t p = 0; p < table.count; ++p) {
    const auto [first, last] = holds_.equal_range(table.blocks[p]);
    for (auto it = first; it != last; ++it) {
      const Hold& h = it->second;
      const bool moved = h.block.group != table.group || h.block.position != p;
      if (!moved && (h.request == 0 || h.request == request)) continue;
      find("KVC-H-047",
           fmt::format("block {} is at position {} of group {} of request {}, but job {} holds it "
                       "at position {} of group {}",
                       table.blocks[p], p, table.group, request, h.job, h.block.position,
                       h.block.group));
      return;
    }
  }
}

void Judge::step(const kvc_step& in) {
  // A request may be preempted, asked for and allocated again in one step.
  for (std::uint64_t i = 0; i < in.n_preempted; ++i) {
    const auto it = known_.find(in.preempted[i]);
    if (it != known_.end() && it->second.allocated_at != steps_) it->second.must_allocate = true;
  }
  ++steps_;
  for (std::uint64_t i = 0; i < in.scheduled.count; ++i) {
    const auto r = element<kvc_step_request>(in.scheduled, i);
    const auto it = known_.find(r.request);
    if (it == known_.end()) continue;
    ++scheduled_;
    const Known& k = it->second;
    if (k.load != 0 && !rank_verdicts_) {
      find("KVC-H-046",
           fmt::format("request {} runs, but its load {} has no verdict", r.request, k.load));
    }
    if (k.must_allocate && k.tracked) {
      find("KVC-H-046", fmt::format("request {} runs without an allocation since its load failed, "
                                    "it was preempted or began",
                                    r.request));
    }
    for (std::uint64_t g = 0; g < r.tables.count; ++g) {
      check_table(r.request, element<kvc_table>(r.tables, g));
    }
  }
}

void Judge::ended(kvc_job job) {
  loads_.erase(job);
  std::erase_if(holds_, [job](const auto& h) { return h.second.job == job; });
}

void Judge::never_ends(kvc_job job) {
  lost_blocks_ += static_cast<std::uint64_t>(std::count_if(
      holds_.begin(), holds_.end(), [job](const auto& h) { return h.second.job == job; }));
  const auto load = loads_.find(job);
  block(load_, load == loads_.end() ? 0 : load->second);
}

void Judge::verdict(std::uint64_t request, bool ok) {
  const auto it = known_.find(request);
  const kvc_job job = it == known_.end() ? 0 : it->second.load;
  if (job == 0) return;
  it->second.load = 0;
  it->second.must_allocate = !ok;
  for (auto& [block, hold] : holds_) {
    if (hold.job == job) hold.request = ok ? 0 : nobody;
  }
}

void Judge::end(const kvc_end_in& in) {
  const auto it = known_.find(in.request);
  if (it == known_.end()) return;
  // Blocks of an open load go to nobody until the job has ended.
  for (auto& [block, hold] : holds_) {
    if (hold.job == it->second.load && hold.job != 0) hold.request = nobody;
  }
  known_.erase(it);
}

void Judge::check_goes_on(const Blocked& blocked, rules::RuleId rule, const char* what) {
  if (!blocked.is || !blocked.others || scheduled_ != blocked.scheduled) return;
  find(rule, fmt::format("nothing ran any more after request {} {}", blocked.request, what));
}

void Judge::closing() {
  if (!fatal_slot_.empty() || contradicted_) return;
  // Too few blocks are left to serve anybody.
  if (lost_blocks_ > device_blocks_ / 4) return;
  check_goes_on(later_, "KVC-H-060", "was to ask again");
  check_goes_on(load_, "KVC-H-063", "or none, got no end of its job");
  for (const auto& [id, k] : known_) {
    if (k.waits && steps_ - k.waits_since > steps_to_ask_again) {
      find("KVC-H-060", fmt::format("request {} was told to ask again {} steps ago and did not", id,
                                    steps_ - k.waits_since));
    }
  }
  // Who waits for nothing that the probe keeps back has to be over.
  const auto left = std::count_if(known_.begin(), known_.end(), [](const auto& k) {
    return k.second.tracked && !k.second.waits && k.second.load == 0;
  });
  if (load_.is && left != 0) {
    find("KVC-H-063", fmt::format("closed with {} requests that did not run to their end while a "
                                  "job of another did not end",
                                  left));
  }
  if (known_.empty() || later_.is || load_.is) return;
  if (unknown_answers_ != 0) {
    find("KVC-H-004", fmt::format("closed with {} live requests after statuses that are not known",
                                  known_.size()));
  } else {
    find("KVC-H-024", fmt::format("closed with {} live requests", known_.size()));
  }
}

bool Judge::write(const std::string& path) const {
  std::ofstream out(path);
  out << "acted " << acted_ << '\n';
  for (const std::string& finding : findings_) out << finding << '\n';
  out << "findings " << findings_.size() << '\n';
  return static_cast<bool>(out.flush());
}

}  // namespace kvc::probe
