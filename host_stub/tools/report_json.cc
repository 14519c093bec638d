#include "host_stub/tools/report_json.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace kvc::host {
namespace {

using Json = nlohmann::ordered_json;

Json model_json(const ModelReport& m) {
  Json groups = Json::array();
  for (const GroupReport& g : m.groups) {
    groups.push_back({{"name", g.name},
                      {"kind", g.kind},
                      {"tokens_per_block", g.tokens_per_block},
                      {"block_span_tokens", g.block_span_tokens},
                      {"window_tokens", g.window_tokens},
                      {"origin", g.origin}});
  }
  return {{"file", m.file},
          {"name", m.name},
          {"origin", m.origin},
          {"hash_unit_tokens", m.hash_unit_tokens},
          {"scheduler_block_tokens", m.scheduler_block_tokens},
          {"context_parallel", m.context_parallel},
          {"cp_interleave_tokens", m.cp_interleave_tokens},
          {"ranks", m.ranks},
          {"sim_bytes_per_token", m.sim_bytes_per_token},
          {"device_blocks", m.device_blocks},
          {"groups", std::move(groups)}};
}

Json pass_json(const PassReport& p) {
  return {{"name", p.name},
          {"requests", p.requests},
          {"prompt_tokens", p.prompt_tokens},
          {"output_tokens", p.output_tokens},
          {"local_hit_tokens", p.local_hit_tokens},
          {"external_hit_tokens", p.external_hit_tokens},
          {"computed_tokens", p.computed_tokens},
          {"recomputed_tokens", p.recomputed_tokens},
          {"loaded_blocks", p.loaded_blocks},
          {"stored_blocks", p.stored_blocks},
          {"loaded_bytes", p.loaded_bytes},
          {"stored_bytes", p.stored_bytes},
          {"verified_blocks", p.verified_blocks},
          {"mismatched_blocks", p.mismatched_blocks},
          {"failed_loads", p.failed_loads},
          {"preemptions", p.preemptions},
          {"output_digest", fmt::format("{:016x}", p.output_digest)},
          {"wall_s", p.wall_s}};
}

Json offers_json(const OfferRow& row) {
  Json out = Json::object();
  for (std::size_t i = 0; i < OfferRow::outcomes; ++i) {
    out[std::string(OfferRow::names[i])] = row.counts[i];
  }
  return out;
}

}  // namespace

std::string to_json(const RunReport& report) {
  Json passes = Json::array();
  for (const PassReport& pass : report.passes) passes.push_back(pass_json(pass));
  Json stats = Json::object();
  for (const StatRow& row : report.stats) {
    stats[row.labels.empty() ? row.name : row.name + "{" + row.labels + "}"] = row.value;
  }
  const Json document{{"schema", "kvc.run/1"},
                      {"connector",
                       {{"name", report.connector_name},
                        {"version", report.connector_version},
                        {"path", report.connector_path}}},
                      {"model", model_json(report.model)},
                      {"passes", std::move(passes)},
                      {"boundary_stats",
                       {{"handoffs", offers_json(report.handoffs)},
                        {"all_offers", offers_json(report.all_offers)}}},
                      {"stats", std::move(stats)},
                      {"leaks",
                       {{"slots", report.leaks.slots},
                        {"holds", report.leaks.holds},
                        {"leases", report.leaks.leases},
                        {"device_blocks", report.leaks.device_blocks}}}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace kvc::host
