#include "conformance/validate/recording.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include <xxhash.h>

namespace kvc::validate {
namespace {

constexpr std::uint64_t file_bytes_max = std::uint64_t{4} << 30U;
constexpr std::uint64_t extensions_since = 2;
constexpr std::size_t end_bytes = 1 + sizeof(std::uint64_t);  // a length of 0, the checksum

void put_fixed(std::string& out, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

std::uint64_t get_fixed(const char* at, std::size_t bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(at[i])) << (8 * i);
  }
  return value;
}

// Of pieces, so that a writer needs no more than the last one.
std::uint64_t chained(std::uint64_t before, std::string_view piece) {
  return XXH3_64bits_withSeed(piece.data(), piece.size(), before);
}

Status wrong(const std::string& why) { return {Code::arg, "the recording " + why}; }

// Of one with an end mark.
Status wrong_size(std::size_t bytes, std::size_t right) {
  if (bytes > right)
    return wrong(fmt::format("ends at byte {}, and {} bytes more are there", right, bytes - right));
  return wrong(
      fmt::format("is cut off: {} of its last {} bytes are missing", right - bytes, end_bytes));
}

}  // namespace

Recorder::Recorder(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "wb")) {
  if (file_ == nullptr) {
    problem_ = fmt::format("cannot write {}: {}", path, std::strerror(errno));
    return;
  }
  opened_ = true;
  std::string header(recording_magic);
  put_fixed(header, recording_version, 2);
  put_fixed(header, recording_header_bytes, 2);
  put_fixed(header, 0, 8);
  hash_ = chained(0, header);
  write(header);
}

Recorder::~Recorder() {
  close();
  if (lost_) std::fprintf(stderr, "kvc_validate: the recording is lost: %s\n", problem_.c_str());
}

std::string Recorder::problem() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}

void Recorder::append(const std::string& payload) {
  std::string record;
  Writer(record).number(payload.size());
  record += payload;
  const std::lock_guard lock(mutex_);
  if (file_ == nullptr) return;
  hash_ = chained(hash_, record);
  write(record);
}

void Recorder::write(const std::string& bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size() ||
      std::fflush(file_) != 0) {
    problem_ = fmt::format("cannot write {}: {}", path_, std::strerror(errno));
    lost_ = true;
    std::fclose(file_);
    file_ = nullptr;
  }
}

void Recorder::close() {
  const std::lock_guard lock(mutex_);
  if (file_ == nullptr) return;
  std::string end(1, '\0');
  put_fixed(end, hash_, sizeof hash_);
  write(end);
  if (file_ == nullptr) return;
  if (std::fclose(file_) != 0) {
    problem_ = fmt::format("cannot write {}: {}", path_, std::strerror(errno));
    lost_ = true;
  }
  file_ = nullptr;
}

Result<Recording> Recording::read(const std::string& path, Cut cut) {
  std::FILE* const file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    return Status{Code::arg, fmt::format("cannot read {}: {}", path, std::strerror(errno))};
  }
  std::string bytes;
  char piece[1U << 16U];
  for (std::size_t n = 0; (n = std::fread(piece, 1, sizeof piece, file)) != 0;) {
    bytes.append(piece, n);
    // Not a recording at all: no need to read gigabytes of it.
    if (!bytes.starts_with(recording_magic) || bytes.size() > file_bytes_max) break;
  }
  const bool failed = std::ferror(file) != 0;
  std::fclose(file);
  if (bytes.size() > file_bytes_max && bytes.starts_with(recording_magic)) {
    return Status{Code::arg, fmt::format("{}: larger than {} bytes", path, file_bytes_max)};
  }
  if (failed)
    return Status{Code::arg, fmt::format("cannot read {}: {}", path, std::strerror(errno))};
  auto recording = parse(std::move(bytes), cut);
  if (!recording.ok()) {
    return Status{recording.error().code, path + ": " + recording.error().text};
  }
  return recording;
}

Result<Recording> Recording::parse(std::string bytes, Cut cut) {
  if (bytes.size() < recording_header_bytes + (cut == Cut::allowed ? 0 : end_bytes)) {
    return wrong(fmt::format("has {} bytes, at least {} are needed", bytes.size(),
                             recording_header_bytes + (cut == Cut::allowed ? 0 : end_bytes)));
  }
  if (!std::string_view(bytes).starts_with(recording_magic))
    return wrong("does not begin with KVCC");
  const std::uint64_t version = get_fixed(bytes.data() + 4, 2);
  const std::uint64_t header = get_fixed(bytes.data() + 6, 2);
  if (version == 0 || version > recording_version || header != recording_header_bytes ||
      get_fixed(bytes.data() + 8, 8) != 0) {
    return wrong(
        fmt::format("is of version {} with a header of {} bytes; this reads versions 1 "
                    "to {}",
                    version, header, recording_version));
  }
  Recording r;
  r.bytes_.assign(bytes.begin(), bytes.end());
  const std::string_view all(r.bytes_.data(), r.bytes_.size());
  std::uint64_t hash = chained(0, all.substr(0, recording_header_bytes));
  std::size_t at = recording_header_bytes;
  for (;;) {
    Reader length(all.substr(at, 10));
    const std::uint64_t n = length.number();
    std::string prefix;
    Writer(prefix).number(n);
    if (!length.ok() || n > all.size() - at - prefix.size()) {
      if (cut == Cut::allowed) {
        r.cut_at_ = at;
        break;
      }
      return wrong(fmt::format("is cut off, or wrong, at byte {}", at));
    }
    if (n == 0) {
      if (all.size() < at + end_bytes && cut == Cut::allowed) r.cut_at_ = at;
      break;
    }
    const std::string_view record = all.substr(at, prefix.size() + n);
    if (!record.starts_with(prefix)) return wrong(fmt::format("has a wrong length at byte {}", at));
    hash = chained(hash, record);
    RecordedCall call;
    call.body = record.substr(prefix.size());
    // The head ends where the rest begins: read it twice as cheaply as once.
    std::string head;
    Reader in(call.body);
    in(call.head);
    Writer again(head);
    again(call.head);
    if (!in.ok() || !call.body.starts_with(head)) {
      return wrong(fmt::format("has a call that cannot be read at byte {}", at));
    }
    const std::optional<Slot> slot = slot_of(call.head.slot);
    if (!slot || (version < extensions_since && call.head.slot >= extension_numbers)) {
      return wrong(
          fmt::format("has a call of slot {} at byte {}, which version {} of it does not "
                      "know",
                      call.head.slot, at, version));
    }
    call.slot = *slot;
    call.body.remove_prefix(head.size());
    r.calls_.push_back(call);
    at += record.size();
  }
  const auto in_order = [](const auto& a, const auto& b) { return a.head.call < b.head.call; };
  std::stable_sort(r.calls_.begin(), r.calls_.end(), in_order);
  if (r.cut_at_ != 0) return r;
  if (all.size() != at + end_bytes) return wrong_size(all.size(), at + end_bytes);
  if (get_fixed(all.data() + at + 1, sizeof hash) != hash) return wrong("has a wrong checksum");
  return r;
}

}  // namespace kvc::validate
