// A recording: every call of one engine with what went in and came out. Byte layout:
// docs/formats/calls.md.
#pragma once
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/validate/archive.h"
#include "conformance/validate/calls.h"
#include "conformance/validate/slots.h"
#include "plugin/core/result.h"

namespace kvc::validate {

inline constexpr std::string_view recording_magic = "KVCC";
inline constexpr std::uint16_t recording_version = 2;  // 1 has no calls of extensions
inline constexpr std::size_t recording_header_bytes = 16;

// What stands in front of every call.
struct CallHead {
  std::uint32_t slot = 0;     // SlotInfo::number
  std::uint32_t who = 0;      // 0: the scheduler, 1 + r: rank r
  std::uint64_t call = 0;     // 1, 2, ... in the order in which calls began
  std::uint64_t time_ns = 0;  // of the host's clock, when it began
  std::int32_t status = 0;    // 0 for slots without
  template <class Archive>
  void fields(Archive& a) {
    a(slot, who, call, time_ns, status);
  }
  template <class Archive>
  void fields(Archive& a) const {
    a(slot, who, call, time_ns, status);
  }
};

// Writes a recording.
//
// Threads:    any.
// Owns:       the file. Invariants: what was added is the system's, so that it outlives a crash of
//             the process; after close() the file is whole.
class Recorder {
 public:
  explicit Recorder(const std::string& path);
  // Says on stderr if the file, which could be opened, is not whole.
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  // Whether the file could be opened for writing.
  [[nodiscard]] bool opened() const { return opened_; }
  // Empty: all was written so far.
  [[nodiscard]] std::string problem() const;

  template <class In, class Out>
  void add(const CallHead& head, const In& in, const std::vector<QueryAnswer>& queries,
           const Out& out) {
    std::string payload;
    Writer w(payload);
    w(head, in, queries, out);
    append(payload);
  }
  void close();

 private:
  void append(const std::string& payload);
  void write(const std::string& bytes);

  mutable std::mutex mutex_;
  std::string path_;
  std::FILE* file_ = nullptr;
  std::uint64_t hash_ = 0;
  std::string problem_;
  bool opened_ = false;
  bool lost_ = false;  // calls that are not in the file
};

// One call of a recording: its head, and the rest as bytes.
struct RecordedCall {
  CallHead head;
  Slot slot = Slot::count;
  std::string_view body;  // in, queries, out
};

// Threads:    immutable. Owns: the bytes of the file.
// Invariants: calls() are in the order of their numbers.
class Recording {
 public:
  // Reads versions 1 and 2. Survives any bytes. Errors: arg, naming what is wrong: no file, too
  // short, magic, version, a call that crosses the end, no end mark, checksum, an unknown slot.
  // `cut`: of a file without its end, as a killed process leaves it, the whole calls are taken; no
  // checksum covers them.
  enum class Cut : std::uint8_t { refused, allowed };
  static Result<Recording> read(const std::string& path, Cut cut = Cut::refused);
  static Result<Recording> parse(std::string bytes, Cut cut = Cut::refused);
  Recording(Recording&&) = default;
  Recording& operator=(Recording&&) = default;

  [[nodiscard]] const std::vector<RecordedCall>& calls() const { return calls_; }
  // The byte from which on nothing could be used; 0: it is whole.
  [[nodiscard]] std::uint64_t cut_at() const { return cut_at_; }

 private:
  Recording() = default;
  std::vector<char> bytes_;
  std::vector<RecordedCall> calls_;
  std::uint64_t cut_at_ = 0;
};

}  // namespace kvc::validate
