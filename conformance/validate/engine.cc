#include "conformance/validate/engine.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "conformance/validate/table.h"
#include "host_stub/loader/loader.h"

namespace kvc::validate {

Registry& Registry::of_process() {
  // Never destroyed: calls may come while the process ends.
  static auto* const registry = new Registry;
  return *registry;
}

std::shared_ptr<Side> Registry::find(const void* handle) {
  const std::lock_guard lock(mutex_);
  const auto it = sides_.find(handle);
  return it == sides_.end() ? nullptr : it->second;
}

void Registry::add(const std::shared_ptr<Side>& side) {
  const std::lock_guard lock(mutex_);
  sides_[side->handle] = side;
}

void Registry::remove(const void* handle) {
  const std::lock_guard lock(mutex_);
  sides_.erase(handle);
}

Result<std::shared_ptr<Engine>> Registry::engine_for(const kvc_host* self, bool sched,
                                                     const OpenIn& open, const Settings& settings,
                                                     bool& clash) {
  const std::lock_guard lock(mutex_);
  clash = false;
  std::erase_if(engines_, [](const auto& weak) { return weak.expired(); });
  for (const auto& weak : engines_) {
    std::shared_ptr<Engine> engine = weak.lock();
    if (engine == nullptr || engine->self != self || engine->settings.next != settings.next) {
      continue;
    }
    const std::lock_guard inner(engine->mutex);
    if (engine->first_open.name_space != open.name_space) continue;
    if (sched ? engine->sched_used
              : open.rank < engine->model.ranks.size() && engine->model.ranks[open.rank].here) {
      clash = clash || !sched;
      continue;
    }
    clash = false;
    return engine;
  }
  auto engine = std::make_shared<Engine>();
  engine->number = engines_made_ + 1;
  engine->self = self;
  engine->settings = settings;
  const std::string suffix = engine->number == 1 ? "" : fmt::format(".{}", engine->number);
  if (!settings.findings.empty()) {
    engine->findings = std::make_shared<FindingsFile>(settings.findings + suffix);
    if (!engine->findings->open()) {
      return Status{Code::arg, fmt::format("cannot write the findings {}: {}",
                                           settings.findings + suffix, std::strerror(errno))};
    }
  }
  if (!settings.record.empty()) {
    engine->recorder = std::make_unique<Recorder>(settings.record + suffix);
    if (!engine->recorder->opened()) return Status{Code::arg, engine->recorder->problem()};
  }
  ++engines_made_;
  if (engine->findings != nullptr) newest_findings_ = engine->findings;
  engine->first_open = open;
  engine->open_known = true;
  engine->model.layout = Layout::of(open);
  // A number of ranks that no memory could hold is the connector's to refuse.
  constexpr std::size_t ranks_max = 1U << 16U;
  engine->model.ranks.resize(std::min<std::size_t>(engine->model.layout.ranks, ranks_max));
  engines_.push_back(engine);
  return engine;
}

HostTable* Registry::keep(std::unique_ptr<HostTable> table) {
  const std::lock_guard lock(mutex_);
  tables_.push_back(std::move(table));
  return tables_.back().get();
}

Result<const kvc_plugin_api*> Registry::next(const std::string& path) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = next_.find(path); it != next_.end()) return it->second.get();
  }
  auto loaded = host::load_connector(path);
  if (!loaded.ok()) return loaded.error();
  if (loaded.value().api.open_scheduler == slots::open_scheduler) {
    return Status{Code::arg, path + " is the layer itself"};
  }
  const std::lock_guard lock(mutex_);
  auto& slot = next_[path];
  if (slot == nullptr) slot = std::make_unique<kvc_plugin_api>(loaded.value().api);
  if (first_ == nullptr) first_ = slot.get();
  return slot.get();
}

void Registry::use(const std::string& name, const kvc_plugin_api& api) {
  const std::lock_guard lock(mutex_);
  auto& slot = next_[name];
  if (slot == nullptr) slot = std::make_unique<kvc_plugin_api>(api);
}

const kvc_plugin_api* Registry::first_next() {
  const std::lock_guard lock(mutex_);
  return first_;
}

std::shared_ptr<FindingsFile> Registry::newest_findings() {
  const std::lock_guard lock(mutex_);
  return newest_findings_;
}

std::vector<std::shared_ptr<Side>> Registry::take_all() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Side>> all;
  for (auto& [handle, side] : sides_) all.push_back(side);
  sides_.clear();
  return all;
}

void publish(Engine* engine, HostTable* host, rules::RuleId rule, std::string_view slot,
             std::uint64_t call, const std::string& text) {
  Finding finding{rule.text(), slot, engine == nullptr ? 0 : engine->number, call, text};
  const std::uint64_t same = FindingsList::of_process().add(finding);
  if (same > FindingsList::told_max) return;
  if (same == FindingsList::told_max) {
    finding.text += fmt::format("; of this rule {} have been told, more are only counted", same);
  }
  const auto file = engine == nullptr ? Registry::of_process().newest_findings() : engine->findings;
  if (file != nullptr) file->add(finding);
  if (host == nullptr || host->closed.load() || host->theirs.log == nullptr) return;
  const std::string line =
      fmt::format("{}: call {} ({}): {}", rule.text(), call, slot, finding.text);
  const bool host_broke = rule.text().starts_with("KVC-H-");
  host->theirs.log(host->theirs.self, host_broke ? KVC_LOG_PEER_FAULT : KVC_LOG_ERROR,
                   kvc_bytes_of(line.data(), line.size()));
}

}  // namespace kvc::validate
