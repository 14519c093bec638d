// The field list of schema kvc.run/1 (docs/formats/run.md), as a check for tests.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kvc::host {

namespace schema_detail {

inline void need(const nlohmann::json& object, const std::string& where,
                 const std::vector<std::string>& numbers, const std::vector<std::string>& texts,
                 std::vector<std::string>& out) {
  if (!object.is_object()) {
    out.push_back(where + " is no object");
    return;
  }
  for (const std::string& name : numbers) {
    if (!object.contains(name) || !object[name].is_number_unsigned()) {
      out.push_back(where + "." + name + " is missing or no whole number");
    }
  }
  for (const std::string& name : texts) {
    if (!object.contains(name) || !object[name].is_string()) {
      out.push_back(where + "." + name + " is missing or no text");
    }
  }
}

inline void need_pass(const nlohmann::json& pass, const std::string& where,
                      std::vector<std::string>& out) {
  const std::size_t before = out.size();
  need(pass, where,
       {"requests", "prompt_tokens", "output_tokens", "local_hit_tokens", "external_hit_tokens",
        "computed_tokens", "recomputed_tokens", "loaded_blocks", "stored_blocks", "loaded_bytes",
        "stored_bytes", "verified_blocks", "mismatched_blocks", "failed_loads", "preemptions"},
       {"name", "output_digest"}, out);
  if (!pass.contains("wall_s") || !pass["wall_s"].is_number()) {
    out.push_back(where + ".wall_s is missing or no number");
  }
  if (out.size() != before) return;
  const auto n = [&](const char* name) { return pass[name].get<std::uint64_t>(); };
  if (n("prompt_tokens") !=
      n("local_hit_tokens") + n("external_hit_tokens") + n("computed_tokens")) {
    out.push_back(where + ": prompt_tokens != local + external + computed");
  }
}

inline void need_offers(const nlohmann::json& row, const std::string& where,
                        std::vector<std::string>& out) {
  const std::vector<std::string> outcomes{"stored",
                                          "pending",
                                          "skipped_already_cached",
                                          "skipped_in_flight",
                                          "skipped_not_hashed",
                                          "dropped_pool_full",
                                          "dropped_request_gone",
                                          "dropped_null_block",
                                          "dropped_bad_offer",
                                          "dropped_no_parent",
                                          "dropped_parent_failed",
                                          "dropped_copy_failed",
                                          "dropped_leased",
                                          "dropped_hold_budget",
                                          "dropped_reset",
                                          "dropped_plan_full"};
  const std::size_t before = out.size();
  need(row, where, outcomes, {}, out);
  need(row, where, {"published"}, {}, out);
  if (out.size() != before) return;
  std::uint64_t sum = 0;
  for (const std::string& name : outcomes) sum += row[name].get<std::uint64_t>();
  if (sum != row["published"].get<std::uint64_t>()) out.push_back(where + " does not balance");
}

}  // namespace schema_detail

// What is wrong with a document of schema kvc.run/1; empty: nothing.
inline std::vector<std::string> schema_problems(const nlohmann::json& j) {
  using namespace schema_detail;
  std::vector<std::string> out;
  need(j, "document", {}, {"schema"}, out);
  if (!out.empty()) return out;
  if (j["schema"] != "kvc.run/1") out.push_back("schema is not kvc.run/1");
  for (const char* name : {"connector", "model", "boundary_stats", "stats", "leaks"}) {
    if (!j.contains(name) || !j[name].is_object()) {
      out.push_back(std::string(name) + " is missing or no object");
    }
  }
  if (!j.contains("passes") || !j["passes"].is_array()) {
    out.push_back("passes is missing or no list");
  }
  if (!out.empty()) return out;
  need(j["connector"], "connector", {}, {"name", "version", "path"}, out);
  need(j["model"], "model", {"hash_unit_tokens", "sim_bytes_per_token", "ranks"}, {"name"}, out);
  need(j["leaks"], "leaks", {"slots", "holds", "leases", "device_blocks"}, {}, out);
  std::size_t at = 0;
  for (const auto& pass : j["passes"]) need_pass(pass, "passes[" + std::to_string(at++) + "]", out);
  for (const char* row : {"handoffs", "all_offers"}) {
    need_offers(j["boundary_stats"].value(row, nlohmann::json()),
                std::string("boundary_stats.") + row, out);
  }
  for (const auto& [name, value] : j["stats"].items()) {
    if (!value.is_number_unsigned()) out.push_back("stats." + name + " is no whole number");
  }
  return out;
}

}  // namespace kvc::host
