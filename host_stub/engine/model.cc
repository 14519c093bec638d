#include "host_stub/engine/model.h"

#include <algorithm>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <fmt/format.h>
#include <xxhash.h>

namespace kvc::host {
namespace {

// Odd constants with well mixed bits (fractions of the golden ratio and of square roots).
constexpr std::uint64_t word_step = 0xC2B2AE3D27D4EB4FU;   // word j of a token or state
constexpr std::uint64_t token_step = 0x9FB21C651E98DF25U;  // place of a token in what is read
constexpr std::uint64_t rank_step = 0xA0761D6478BD642FU;

std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30U;
  x *= 0xBF58476D1CE4E5B9U;
  x ^= x >> 27U;
  x *= 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

// One word of what is read, with its place: any change of `u` or `place` changes it.
std::uint64_t weigh(std::uint64_t u, std::uint64_t place) {
  const std::uint64_t x = u + place;
  return u + (x & 0xFFFFFFFFU) * (x >> 32U);
}

// What was added to the words of a run: word i carries shift + i * shift_step and has place + i *
// place_step.
struct Run {
  std::uint64_t shift;
  std::uint64_t shift_step;
  std::uint64_t place;
  std::uint64_t place_step;
};

// Adds up weigh over words with consecutive places, two at a time: the inner loop of all reading.
// The state of the loop lives on over several pieces of memory, so that short blocks cost little.
class Weigher {
 public:
  explicit Weigher(const Run& run) : run_(run) { load(); }

  void add(const std::uint64_t* words, std::uint64_t count) {
    std::uint64_t i = 0;
#if defined(__SSE2__)
    for (; i + 2 <= count; i += 2) {
      const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(words + i));
      const __m128i u = _mm_sub_epi64(raw, shifts_);
      const __m128i x = _mm_add_epi64(u, places_);
      places_ = _mm_add_epi64(places_, place_steps_);
      shifts_ = _mm_add_epi64(shifts_, shift_steps_);
      sums_ = _mm_add_epi64(sums_, _mm_add_epi64(u, _mm_mul_epu32(x, _mm_srli_epi64(x, 32))));
    }
#endif
    run_.shift += i * run_.shift_step;
    run_.place += i * run_.place_step;
    if (i == count) return;
    for (; i < count; ++i) {
      sum_ += weigh(words[i] - run_.shift, run_.place);
      run_.shift += run_.shift_step;
      run_.place += run_.place_step;
    }
    load();
  }

  [[nodiscard]] std::uint64_t sum() const {
#if defined(__SSE2__)
    std::uint64_t halves[2];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(halves), sums_);
    return sum_ + halves[0] + halves[1];
#else
    return sum_;
#endif
  }

 private:
  void load() {
#if defined(__SSE2__)
    const auto pair = [](std::uint64_t lo, std::uint64_t hi) {
      return _mm_set_epi64x(static_cast<long long>(hi), static_cast<long long>(lo));
    };
    shifts_ = pair(run_.shift, run_.shift + run_.shift_step);
    places_ = pair(run_.place, run_.place + run_.place_step);
    shift_steps_ = pair(run_.shift_step * 2, run_.shift_step * 2);
    place_steps_ = pair(run_.place_step * 2, run_.place_step * 2);
#endif
  }

  Run run_;
  std::uint64_t sum_ = 0;
#if defined(__SSE2__)
  __m128i shifts_ = _mm_setzero_si128();
  __m128i places_ = _mm_setzero_si128();
  __m128i shift_steps_ = _mm_setzero_si128();
  __m128i place_steps_ = _mm_setzero_si128();
  __m128i sums_ = _mm_setzero_si128();
#endif
};

// The value of the first replica, disturbed by every one that differs: replicas must not change
// outputs.
class Agreement {
 public:
  void add(std::uint64_t value) {
    if (count_ == 0) first_ = value;
    sum_ += (value - first_) * (rank_step + 2 * count_++);
  }
  [[nodiscard]] std::uint64_t value() const { return first_ + sum_; }

 private:
  std::uint64_t first_ = 0;
  std::uint64_t sum_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace

std::string Mismatch::text() const {
  return fmt::format(
      "group {} position {} block {} token {} rank {}: expected {:016x} found {:016x}", group,
      position, block, token, rank, expected, found);
}

Model::Model(const Geometry& geometry, const ModelShape& shape,
             std::span<const std::unique_ptr<RankMemory>> memory)
    : geometry_(geometry),
      memory_(memory),
      words_per_token_(shape.bytes_per_token / 8),
      layers_(shape.layers),
      layer_bytes_(layer_bytes(geometry, shape.bytes_per_token).n),
      vocabulary_(shape.vocabulary),
      seed_(shape.seed),
      ranks_(shape.ranks),
      cp_(geometry.options().context_parallel) {
  KVC_CHECK(shape.bytes_per_token % 8 == 0 && shape.bytes_per_token > 0);
  KVC_CHECK(ranks_ % cp_ == 0 && memory.size() == ranks_ && layers_ != 0);
  for (GroupId g = 0; g < geometry.groups(); ++g) {
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      salts_.push_back(mix(seed_ ^ mix((std::uint64_t{g} << 32U) + r + 1)));
    }
  }
}

Bytes Model::layer_bytes(const Geometry& geometry, std::uint64_t bytes_per_token) {
  std::uint64_t tokens = 1;
  for (GroupId g = 0; g < geometry.groups(); ++g) {
    tokens = std::max(tokens, geometry.group(g).tokens_per_block.n);
  }
  return {tokens * bytes_per_token};
}

std::uint64_t Model::root(std::string_view salt_bytes) const {
  return XXH3_64bits_withSeed(salt_bytes.data(), salt_bytes.size(), seed_);
}

void Model::extend(std::uint64_t root_hash, std::span<const TokenId> tokens,
                   std::vector<std::uint64_t>& prefix) const {
  std::size_t t = prefix.size();
  std::uint64_t hash = t == 0 ? root_hash : prefix.back();
  prefix.resize(tokens.size());
  for (; t < tokens.size(); ++t) prefix[t] = hash = fold(hash, tokens[t]);
}

std::uint64_t* Model::words(std::uint32_t rank, BlockId block, std::uint64_t layer) const {
  return reinterpret_cast<std::uint64_t*>(memory_[rank]->block(block) + layer * layer_bytes_);
}

std::uint64_t Model::state_words(GroupId group) const {
  return geometry_.group(group).tokens_per_block.n * words_per_token_;
}

template <class Visit>
void Model::for_pieces(GroupId group, std::uint32_t rank, std::uint64_t position,
                       std::uint64_t begin, std::uint64_t end, Visit visit) const {
  const std::uint64_t span = geometry_.block_tokens(group).n;
  const std::uint64_t block_begin = position * span;
  const std::uint64_t lo = std::max(begin, block_begin);
  const std::uint64_t hi = std::min(end, block_begin + span);
  if (lo >= hi) return;
  if (!geometry_.group(group).sharded || cp_ == 1) {
    visit(Piece{lo, 1, hi - lo, lo - block_begin});
    return;
  }
  // Token t lives on rank (t / interleave) mod cp; within the rank its tokens keep their order.
  const std::uint64_t interleave = geometry_.options().cp_interleave.n;
  const std::uint64_t round = interleave * cp_;
  const std::uint64_t mine = std::uint64_t{rank % cp_} * interleave;
  if (interleave == 1) {
    const std::uint64_t first = lo + (mine + round - lo % round) % round;
    if (first >= hi) return;
    visit(Piece{first, round, ceil_div(hi - first, round), (first - block_begin) / round});
    return;
  }
  for (std::uint64_t base = lo - lo % round; base < hi; base += round) {
    const std::uint64_t from = std::max(lo, base + mine);
    const std::uint64_t to = std::min(hi, base + mine + interleave);
    if (from >= to) continue;
    visit(Piece{from, 1, to - from, (base - block_begin) / cp_ + (from - base - mine)});
  }
}

void Model::write_tokens(GroupId group, std::span<const BlockId> table,
                         std::span<const std::uint64_t> prefix, std::uint64_t begin,
                         std::uint64_t end, std::uint64_t layer) const {
  const std::uint64_t span = geometry_.block_tokens(group).n;
  KVC_CHECK(end <= prefix.size() && ceil_div(end, span) <= table.size());
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    const std::uint64_t shift = salt(group, rank, layer);
    for (std::uint64_t p = begin / span; p * span < end; ++p) {
      KVC_CHECK(table[p] != null_block);
      for_pieces(group, rank, p, begin, end, [&](const Piece& piece) {
        std::uint64_t* out = words(rank, table[p], layer) + piece.place * words_per_token_;
        memory_[rank]->touched(out, piece.count * words_per_token_ * 8, true);
        for (std::uint64_t i = 0; i < piece.count; ++i) {
          const std::uint64_t base = prefix[piece.first_token + i * piece.step] + shift;
          for (std::uint64_t j = 0; j < words_per_token_; ++j) *out++ = base + j * word_step;
        }
      });
    }
  }
}

std::uint64_t Model::read_rank(GroupId group, std::uint32_t rank, std::span<const BlockId> table,
                               std::uint64_t begin, std::uint64_t end, std::uint64_t layer) const {
  const std::uint64_t span = geometry_.block_tokens(group).n;
  const std::uint64_t shift = salt(group, rank, layer);
  if (words_per_token_ == 1 && (cp_ == 1 || !geometry_.group(group).sharded)) {
    Weigher weigher({shift, 0, begin * token_step, token_step});
    const std::byte* const base = memory_[rank]->base() + layer * layer_bytes_;
    const std::uint64_t stride = memory_[rank]->block_bytes().n;
    for (std::uint64_t t = begin; t < end;) {
      const std::uint64_t place = t % span;
      const std::uint64_t count = std::min(span - place, end - t);
      const std::byte* const block = base + table[t / span] * stride;
      memory_[rank]->touched(block + place * 8, count * 8, false);
      weigher.add(reinterpret_cast<const std::uint64_t*>(block) + place, count);
      t += count;
    }
    return weigher.sum();
  }
  std::uint64_t sum = 0;
  for (std::uint64_t p = begin / span; p * span < end; ++p) {
    for_pieces(group, rank, p, begin, end, [&](const Piece& piece) {
      const std::uint64_t* in = words(rank, table[p], layer) + piece.place * words_per_token_;
      memory_[rank]->touched(in, piece.count * words_per_token_ * 8, false);
      const std::uint64_t place = piece.first_token * token_step;
      const std::uint64_t step = piece.step * token_step;
      if (words_per_token_ == 1) {
        Weigher weigher({shift, 0, place, step});
        weigher.add(in, piece.count);
        sum += weigher.sum();
        return;
      }
      for (std::uint64_t i = 0; i < piece.count; ++i) {
        for (std::uint64_t j = 0; j < words_per_token_; ++j) {
          sum += weigh(*in++ - shift - j * word_step, place + i * step + j * rank_step);
        }
      }
    });
  }
  return sum;
}

std::uint64_t Model::read_tokens(GroupId group, std::span<const BlockId> table, std::uint64_t begin,
                                 std::uint64_t end, std::uint64_t layer) const {
  KVC_CHECK(ceil_div(end, geometry_.block_tokens(group).n) <= table.size());
  const std::uint32_t shards = geometry_.group(group).sharded ? cp_ : 1;
  Agreement replicas;
  for (std::uint32_t rank = 0; rank < ranks_; rank += shards) {
    std::uint64_t sum = 0;
    for (std::uint32_t s = 0; s < shards; ++s) {
      sum += read_rank(group, rank + s, table, begin, end, layer);
    }
    replicas.add(sum);
  }
  return replicas.value();
}

std::uint64_t Model::load_state(GroupId group, BlockId block, std::uint32_t rank,
                                std::uint64_t layer) const {
  const std::uint64_t* const in = words(rank, block, layer);
  memory_[rank]->touched(in, 8, false);
  return in[0] - salt(group, rank, layer);
}

void Model::store_state(GroupId group, BlockId block, std::uint32_t rank, std::uint64_t state,
                        std::uint64_t layer) const {
  std::uint64_t* const out = words(rank, block, layer);
  std::uint64_t word = state + salt(group, rank, layer);
  const std::uint64_t count = state_words(group);
  memory_[rank]->touched(out, count * 8, true);
  for (std::uint64_t i = 0; i < count; ++i) {
    out[i] = word;
    word += word_step;
  }
}

std::uint64_t Model::read_state(GroupId group, BlockId block, std::uint64_t layer) const {
  const std::uint64_t count = state_words(group);
  Agreement replicas;
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    // words[i] - salt - i * word_step is the state in every right word.
    Weigher weigher({salt(group, rank, layer), word_step, 0, token_step});
    const std::uint64_t* const in = words(rank, block, layer);
    memory_[rank]->touched(in, count * 8, false);
    weigher.add(in, count);
    replicas.add(weigher.sum());
  }
  return replicas.value();
}

TokenId Model::sample(std::span<const std::uint64_t> group_hashes, std::uint64_t tokens) const {
  std::uint64_t x = mix(seed_ + tokens);
  for (const std::uint64_t h : group_hashes) x = mix(x ^ h);
  return static_cast<TokenId>(x % vocabulary_);
}

std::optional<Mismatch> Model::verify_tokens(GroupId group, std::uint64_t position, BlockId block,
                                             std::span<const std::uint64_t> prefix,
                                             std::uint64_t end, std::uint64_t layer) const {
  const std::uint64_t begin = position * geometry_.block_tokens(group).n;
  std::optional<Mismatch> wrong;
  for (std::uint32_t rank = 0; rank < ranks_ && !wrong; ++rank) {
    const std::uint64_t shift = salt(group, rank, layer);
    for_pieces(group, rank, position, begin, end, [&](const Piece& piece) {
      const std::uint64_t* in = words(rank, block, layer) + piece.place * words_per_token_;
      memory_[rank]->touched(in, piece.count * words_per_token_ * 8, false);
      for (std::uint64_t i = 0; i < piece.count; ++i) {
        const std::uint64_t token = piece.first_token + i * piece.step;
        for (std::uint64_t j = 0; j < words_per_token_; ++j, ++in) {
          const std::uint64_t expected = prefix[token] + shift + j * word_step;
          if (*in != expected && !wrong) {
            wrong = Mismatch{group, position, block, token, rank, expected, *in};
          }
        }
      }
    });
  }
  return wrong;
}

std::optional<Mismatch> Model::verify_state(GroupId group, std::uint64_t position, BlockId block,
                                            std::span<const std::uint64_t> prefix,
                                            std::uint64_t end, std::uint64_t layer) const {
  KVC_CHECK(end >= 1 && end <= prefix.size());
  const std::uint64_t count = state_words(group);
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    const std::uint64_t* const in = words(rank, block, layer);
    memory_[rank]->touched(in, count * 8, false);
    std::uint64_t expected = prefix[end - 1] + salt(group, rank, layer);
    for (std::uint64_t i = 0; i < count; ++i) {
      if (in[i] != expected) return Mismatch{group, position, block, end, rank, expected, in[i]};
      expected += word_step;
    }
  }
  return std::nullopt;
}

}  // namespace kvc::host
