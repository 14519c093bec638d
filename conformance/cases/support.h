// What cases of several families share.
#pragma once
#include <sys/mman.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "conformance/cases/case.h"

namespace kvc::conform {

using rig::Completed;
using rig::Ended;
using rig::Found;
using rig::Group;
using rig::Planned;
using rig::Request;
using rig::Setup;
using rig::Tokens;
using rig::tokens_of;
using rig::operator+;

// A World of the case's connector.
class World : public rig::World {
 public:
  World(const Context& c, Setup setup) : rig::World(std::move(setup), *c.library, *c.judge) {}
};

// `blocks` blocks of 16 tokens and one token, which no other seed has.
Tokens prompt(std::uint64_t seed, std::uint64_t blocks);

// Computes [computed, to) in one step and hands off the states at `to` if it is a boundary.
void compute_step(World& w, std::uint64_t id, std::uint64_t to);

// How many tokens of what was stored a fresh request is offered. At most `stored`; nothing at all
// ends the case as skipped: there is nothing to load.
std::uint64_t stored_hit(Context& c, World& w, const Tokens& tokens, std::uint64_t stored);

// Threads of this process.
std::uint64_t thread_count();

// The bytes in front of a page that cannot be touched: a read or write behind them is a crash.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t bytes);
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  ~GuardedBytes();
  [[nodiscard]] unsigned char* data() { return data_; }

 private:
  unsigned char* data_ = nullptr;
  void* mapping_ = nullptr;
  std::size_t mapped_ = 0;
};

// Numbers that break sums and products.
inline constexpr std::uint64_t odd_numbers[] = {0,
                                                1,
                                                15,
                                                17,
                                                1U << 16U,
                                                1U << 31U,
                                                UINT32_MAX,
                                                std::uint64_t{1} << 40U,
                                                std::uint64_t{1} << 60U,
                                                std::uint64_t{1} << 63U,
                                                UINT64_MAX - 1,
                                                UINT64_MAX};

// The groups of a name for texts.
std::string name_of(const Setup& setup);

// Layouts of every kind: one by one, together, with tails inside blocks, with several ranks.
struct Layout {
  std::string_view name;
  Setup setup;
};
std::vector<Layout> layouts(const Context& c);

}  // namespace kvc::conform
