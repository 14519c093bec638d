// A small report with distinct numbers in every field, for the tests of its writers.
#pragma once
#include "host_stub/tools/run_report.h"

namespace kvc::host {

inline PassReport example_pass(std::string name, std::uint64_t base) {
  PassReport p;
  p.name = std::move(name);
  p.requests = base + 1;
  p.local_hit_tokens = base + 2;
  p.external_hit_tokens = base + 3;
  p.computed_tokens = base + 4;
  p.prompt_tokens = 3 * base + 9;
  p.output_tokens = base + 5;
  p.recomputed_tokens = base + 6;
  p.loaded_blocks = base + 7;
  p.stored_blocks = base + 8;
  p.loaded_bytes = base + 9;
  p.stored_bytes = base + 10;
  p.verified_blocks = base + 11;
  p.mismatched_blocks = 0;
  p.failed_loads = base + 12;
  p.preemptions = base + 13;
  p.output_digest = 0xfeed;
  p.wall_s = 1.5;
  return p;
}

inline RunReport example_report() {
  RunReport r;
  r.connector_name = "simple_cpu";
  r.connector_version = "1.0.0";
  r.connector_path = "lib/libkvc_simple_cpu.so";
  r.model.file = "m.toml";
  r.model.name = "two & a <half>";
  r.model.hash_unit_tokens = 16;
  r.model.scheduler_block_tokens = 64;
  r.model.sim_bytes_per_token = 8;
  r.model.device_blocks = 1000;
  r.model.groups = {{"attention", "full", 64, 128, 0, "somewhere"},
                    {"window", "sliding", 16, 16, 1024, ""}};
  r.passes = {example_pass("cold", 100), example_pass("replay", 1'000'000)};
  r.all_offers.counts[0] = 7;
  r.all_offers.counts[1] = 4;
  r.all_offers.counts[6] = 3;
  r.stats = {{"slots_used_now", "class=0", 12}, {"leases_dropped", "", 1}};
  r.host_slots = 500;
  for (std::uint32_t i = 0; i < 700; ++i) {
    r.samples.push_back({i < 350 ? 0U : 1U, i, 2 * i, 1000, 400 + i % 100, 300, i / 2});
  }
  return r;
}

}  // namespace kvc::host
