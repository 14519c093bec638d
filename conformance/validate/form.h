// The form of what is passed: sizes, flags, reserved fields, lists, room for answers (KVC-H-003 and
// the answers that the connector owes, KVC-P-004 to 007).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <kvc/kvc.h>
#include <kvc/kvc_layerwise.h>
#include <kvc/kvc_retention.h>
#include <kvc/kvc_util.h>

#include "conformance/validate/calls.h"
#include "conformance/validate/layout.h"

namespace kvc::validate {

// What is wrong with the form of what is passed.
enum class Fault : std::uint8_t {
  size,        // no struct, fewer bytes than in 1.0, a garbage size: KVC_E_ARG
  tail,        // unknown bytes that are not 0: KVC_E_UNSUPPORTED
  bits,        // unknown flag bits, a reserved field that is not 0: KVC_E_UNSUPPORTED
  list,        // no data, a stride too short, memory that is not there: KVC_E_ARG
  limit,       // more elements than the numbers of open allow: not read
  no_room,     // an out-struct that is NULL or ends inside struct_size: KVC_E_ARG
  short_room,  // room for less than the call needs: KVC_E_ARG, or as far as it goes
};

// Threads:    one. Owns: the texts.
// Invariants: none.
class Form {
 public:
  struct Item {
    Fault fault;
    std::string text;
  };
  void add(Fault fault, std::string text) { items_.push_back({fault, std::move(text)}); }
  [[nodiscard]] bool ok() const { return items_.empty(); }
  [[nodiscard]] const std::vector<Item>& items() const { return items_; }

  // Copies the known part of *src; false, and dst all 0, if its form is wrong.
  template <class T>
  bool read(const T* src, T& dst, std::size_t least, const char* name) {
    return take(kvc_read(&dst, sizeof dst, src, least), &dst, sizeof dst, name);
  }
  template <class T>
  bool read_at(const kvc_list& list, std::uint64_t i, T& dst, std::size_t least, const char* name) {
    return take(kvc_read_at(&dst, sizeof dst, &list, i, least), &dst, sizeof dst, name);
  }
  // May `list` be stepped through? Not if it has more than `most` elements.
  bool list(const kvc_list& list, std::size_t least, std::uint64_t most, const char* name);
  // May count elements of `bytes` each be read from data?
  bool array(const void* data, std::uint64_t count, std::uint64_t bytes, std::uint64_t most,
             const char* name);
  void bits(std::uint64_t flags, std::uint64_t known, const char* name);
  // Is there an out-struct with `least` bytes of room?
  template <class T>
  void room(const T* out, std::size_t least, const char* name) {
    check_room(out, least, name);
  }
  // Is there a number to set, and are there the `bytes` of room that `cap` promises at `out`?
  void buffer(const void* out, std::uint64_t cap, std::uint64_t bytes, const std::uint64_t* set);

 private:
  void check_room(const void* out, std::size_t least, const char* name);
  bool take(kvc_status status, void* dst, std::size_t bytes, const char* name);
  std::vector<Item> items_;
};

// Whether the process can read these bytes. No is certain; yes is as good as the kernel's answer.
[[nodiscard]] bool readable(const void* data, std::uint64_t bytes);

// In-structs of kvc.h as values. What has a wrong form stays empty and stands in `form`.
[[nodiscard]] OpenIn read_open(Form& form, const kvc_host_api* host, const kvc_open* open);
[[nodiscard]] SetRanksIn read_ranks(Form& form, const kvc_list* ranks, const Layout& layout);
[[nodiscard]] BeginIn read_begin(Form& form, const kvc_request* in, const Layout& layout);
[[nodiscard]] ExtendIn read_extend(Form& form, const kvc_extend* in, const Layout& layout);
[[nodiscard]] LookupIn read_lookup(Form& form, const kvc_lookup_in* in);
[[nodiscard]] RetentionIn read_retention(Form& form, const kvc_retention_in* in);
[[nodiscard]] InStepIn read_in_step(Form& form, const kvc_load_in_step* in);
[[nodiscard]] AllocIn read_alloc(Form& form, const kvc_alloc_in* in, const Layout& layout);
[[nodiscard]] StepIn read_step(Form& form, const kvc_step* in, const Layout& layout);
[[nodiscard]] CompleteIn read_reports(Form& form, const kvc_bytes* reports, std::uint64_t count,
                                      const Layout& layout);
[[nodiscard]] EndIn read_end(Form& form, const kvc_end_in* in, const Layout& layout);
[[nodiscard]] RegionsIn read_regions(Form& form, const kvc_list* regions);
[[nodiscard]] SubmitIn read_submit(Form& form, kvc_bytes plan, const kvc_fence* fence);
[[nodiscard]] WaitIn read_wait(Form& form, const kvc_job* jobs, std::uint64_t count,
                               std::uint64_t timeout_ns);

// Out-structs as values. A list that cannot be stepped through stands in `form`.
[[nodiscard]] std::vector<ClassInfo> read_classes(Form& form, const kvc_list& list);
[[nodiscard]] std::vector<Block> read_blocks(Form& form, const kvc_list& list, const char* name);
[[nodiscard]] RetentionOut read_retention_out(Form& form, const kvc_retention_out& out);
[[nodiscard]] AllocOut read_alloc_out(Form& form, const kvc_alloc_out& out);
[[nodiscard]] PlanOut read_plan_out(Form& form, const kvc_plan& out);
[[nodiscard]] CompleteOut read_complete_out(Form& form, const kvc_complete_out& out);
[[nodiscard]] EndOut read_end_out(Form& form, const kvc_end_out& out);
[[nodiscard]] RankInfo read_rank_info(Form& form, const kvc_rank_info& out);
[[nodiscard]] ProgressOut read_progress_out(Form& form, const kvc_progress& out);

}  // namespace kvc::validate
