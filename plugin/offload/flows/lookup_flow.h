// lookup and lookup_cancel (design 2.3, CW-1, CW-17, CW-21, CW-22).
#pragma once
#include "plugin/offload/flows/admissions.h"

namespace kvc {

// Threads:    scheduler role only.
// Owns:       two scratch hits.
// Invariants: at most one lease per request; an answer above 0 has a lease, and what is leased is
//             exactly the needed set of the answer.
class LookupFlow {
 public:
  LookupFlow(SchedulerCore& core, Admissions& admissions);

  [[nodiscard]] Result<LookupAnswer> lookup(const LookupQuery& query);
  [[nodiscard]] Status cancel(RequestId request);
  // Ends the leases that have seen `lease_steps` plans. Called at the start of a plan.
  void end_old_leases();
  // Finds exactly `accepted` tokens beyond r.device; null if they cannot be served any more.
  [[nodiscard]] const Hit* resolve(const Request& r, Tokens accepted);
  // The longest prefix of at most `most` tokens that the host tier has, whatever the request may
  // read; valid until the next search. Requires a tier of known size.
  [[nodiscard]] Hit& stored(const Request& r, Tokens most);
  // What the disk has of the prefix that the request may hit, and the host tier has not, is on its
  // way into free slots, as far as there are some.
  void prefetch(RequestIndex index);

 private:
  [[nodiscard]] Why gate(const Request& r, const LookupQuery& query) const;
  [[nodiscard]] Tokens bound(const Request& r, const LookupQuery& query) const;
  [[nodiscard]] LookupAnswer find(RequestIndex index, const LookupQuery& query);
  [[nodiscard]] LookupAnswer note(RequestIndex index, const LookupQuery& query,
                                  LookupAnswer answer);
  // A hit that counts blocks on disk and is longer than scratch_, into scratch_. Later: a block of
  // it is on its way into the host tier, or may be on disk and is not known yet.
  [[nodiscard]] Code look_deeper(RequestIndex index, Tokens device, Tokens max_tokens);
  [[nodiscard]] bool search_both(const Request& r, Tokens device, Tokens max_tokens);
  // deep_, cut to `room` entries beside those of the host tier. False: nothing is left of it.
  [[nodiscard]] bool cut_deep(const Request& r, Tokens device, Tokens max_tokens,
                              std::uint64_t room, DiskNeed& need);
  [[nodiscard]] bool attached(RequestIndex index, Tokens start, Tokens end);
  // The cost gate: whether scratch_, of which disk_tokens_ are on disk, is to be loaded.
  [[nodiscard]] bool pays(Request& r);
  // Whether deep_, of which `disk` tokens are on disk, is better than scratch_, which needs none.
  [[nodiscard]] bool disk_pays(Request& r, Tokens disk);

  SchedulerCore& core_;
  Admissions& admissions_;
  Hit scratch_;
  Hit deep_;
  Tokens disk_tokens_;     // of scratch_, as find left it
  bool full_only_ = true;  // every cacheable group is full attention
};

}  // namespace kvc
