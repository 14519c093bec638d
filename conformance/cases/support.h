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

// A request is stored, found if the connector hits at all, loaded and ended.
void one_life(World& w, std::uint64_t seed = 1);

// How many tokens of what was stored a fresh request is offered. At most `stored`; nothing at all
// ends the case as skipped: there is nothing to load.
std::uint64_t stored_hit(Context& c, World& w, const Tokens& tokens, std::uint64_t stored);

// A struct of its full size, zero but for that.
template <class T>
T sized() {
  T t{};
  t.struct_size = sizeof t;
  return t;
}

// Raw calls with any numbers, of requests whose keys are 16 bytes.
struct Raw {
  explicit Raw(World& world) : w(world) {}
  kvc_status begin(std::uint64_t id, std::uint64_t prompt_tokens, std::uint64_t n_keys);
  kvc_status extend(std::uint64_t id, std::uint64_t first, std::uint64_t n);
  kvc_status lookup(std::uint64_t id, std::uint64_t total, std::uint64_t device,
                    std::uint64_t cap = KVC_NO_LIMIT);
  kvc_status alloc(std::uint64_t id, std::uint64_t accepted);
  kvc_status end(std::uint64_t id, std::uint64_t confirmed, std::int32_t reason = KVC_END_STOP);
  World& w;
  kvc_lookup_out found{};
};

// Two ranks that both have every block; the connector may decline.
Setup two_ranks(const Context& c);

// Arms a fault point of the library for a while; false: the library has none (kvc.test/1).
class Fault {
 public:
  Fault(const Context& c, const char* name, std::uint64_t countdown = 0);
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;
  ~Fault();
  [[nodiscard]] bool there() const { return test_ != nullptr; }
  [[nodiscard]] bool tripped() const { return test_ != nullptr && test_->tripped() != 0; }

 private:
  const kvc_test_api* test_;
};

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
