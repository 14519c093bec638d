// What a DiskStore makes of operations that ended, are late, or hang.
#include <fmt/format.h>

#include "plugin/offload/disk/disk_store.h"

namespace kvc::disk {

void DiskStore::finish(std::uint32_t at, std::uint64_t now_ns) {
  Op& op = body_->ops[at];
  unlink(due_[static_cast<std::size_t>(op.lane)], at);
  if (op.hung) --hung_;
  note(op, now_ns);
  switch (op.task.kind) {
    case TaskKind::write:
      finish_write(op, at);
      break;
    case TaskKind::read:
      finish_read(op, at);
      break;
    case TaskKind::record:
      finish_record(op);
      break;
    case TaskKind::punch:
      finish_punch(op);
      break;
    case TaskKind::superblock:
      finish_superblock(op, now_ns);
      break;
    case TaskKind::probe:
      probe_op_ = none;
      finish_probe(op, now_ns);
      break;
  }
  give_back(at);
}

// Only what the device did counts: no room and bad bytes do not make it sick, and of what was given
// up the deadline was noted.
void DiskStore::note(const Op& op, std::uint64_t now_ns) {
  const DiskTask& task = op.task;
  if (task.kind == TaskKind::probe || task.given_up() || task.corrupt) return;
  if (task.status == Code::full || task.status == Code::internal) return;
  const bool well = task.status == Code::ok;
  const std::string what = well ? std::string() : errno_text(-task.error);
  if (health_.note(well, what.c_str(), now_ns)) went_off();
}

void DiskStore::went_off() {
  ++counters_.switched_off;
  say("the disk tier is switched off: " + health_.reason());
  // Those that have not begun need not wait for their deadlines.
  for (const IoLane lane : {IoLane::read, IoLane::write}) {
    for (std::uint32_t i = due_[static_cast<std::size_t>(lane)].first; i != none;
         i = body_->ops[i].next) {
      Op& op = body_->ops[i];
      if (!op.internal && !op.reported && op.task.drop()) {
        report(i, Code::io, false);
      }
    }
  }
}

void DiskStore::finish_write(Op& op, std::uint32_t at) {
  Class& c = classes_[op.cls];
  DiskTask& task = op.task;
  const bool current = task.header.generation == generation_;
  const bool taken = c.places.find(task.header.what.group, task.header.what.key) != no_place;
  if (task.status == Code::ok && !op.reported && !task.given_up() && current && !taken) {
    Place& p = c.places.at(op.place);
    p.key = task.header.what.key;
    p.group = task.header.what.group;
    p.sequence = task.header.sequence;
    c.places.move(op.place, Use::live);
    ++counters_.writes_ok;
    counters_.written_bytes += task.header.payload_bytes;
    return report(at, Code::ok, false);
  }
  ++counters_.writes_failed;
  if (task.status == Code::full && task.error != 0) ++counters_.no_space;
  // A record of this generation may stand there; one of another means nothing.
  if (task.record_touched && current) {
    leave(op.cls, op.place, false);
  } else {
    c.places.move(op.place, Use::free);
  }
  if (op.reported) return;
  report(at, !current ? Code::cancelled : task.status == Code::ok ? Code::io : task.status, false);
}

void DiskStore::finish_read(Op& op, std::uint32_t at) {
  Class& c = classes_[op.cls];
  DiskTask& task = op.task;
  Place& p = c.places.at(op.place);
  KVC_CHECK(p.readers != 0);
  --p.readers;
  const bool current = task.header.generation == generation_;
  bool gone = false;
  if (task.corrupt) {
    ++counters_.corrupt;
    gone = true;
    // The second reader of the same block finds it gone already.
    if (p.use == Use::live && current) {
      say(fmt::format("group {} end {} in place {} of {}: {}; the block is dropped",
                      task.header.what.group, task.header.what.end_tokens, op.place, c.name,
                      task.detail.text));
      leave(op.cls, op.place, true);
    }
  }
  settle(op.cls, op.place);
  const bool ok = task.status == Code::ok && !task.given_up() && current && !op.reported;
  ok ? ++counters_.reads_ok : ++counters_.reads_failed;
  if (ok) counters_.read_bytes += task.header.payload_bytes;
  if (op.reported) return;
  report(at,
         ok         ? Code::ok
         : !current ? Code::cancelled
                    : task.status,
         gone, ok ? task.header.valid_bytes : 0);
}

void DiskStore::finish_record(Op& op) {
  --frees_open_;
  Places& places = classes_[op.cls].places;
  Place& p = places.at(op.place);
  if (op.task.status != Code::ok) {
    // Its record may still call it live: the next open decides.
    ++counters_.lost_places;
    places.move(op.place, Use::lost);
    return;
  }
  // Given up before it began: the record still says what it said.
  if (!op.task.record_touched && op.task.record.generation == generation_) {
    return places.move(op.place, Use::queued);
  }
  p.recorded = true;
  settle(op.cls, op.place);
}

void DiskStore::finish_punch(Op& op) {
  --frees_open_;
  const DiskTask& task = op.task;
  const bool punched = task.record_touched;
  classes_[op.cls].places.move(op.place, punched ? Use::hole : Use::free);
  if (!punched && !punch_refused_) {
    punch_refused_ = true;
    say(fmt::format("room of one class of blocks cannot be given to another: {}",
                    errno_text(-task.error)));
  }
}

void DiskStore::finish_superblock(Op& op, std::uint64_t now_ns) {
  generation_open_ = false;
  const bool ok = op.task.status == Code::ok && !op.task.given_up();
  if (ok && op.task.superblock.generation != generation_) return save_generation();
  generation_unsaved_ = !ok;
  if (ok) return report_reset(Code::ok);
  unsaved(now_ns, Code::io);
}

// What is on disk would be found again by the next open: nothing is served until it is not so.
void DiskStore::unsaved(std::uint64_t now_ns, Code status) {
  if (on()) {
    health_.switch_off(fmt::format("generation {} could not be written", generation_), now_ns);
    went_off();
  }
  report_reset(status);
}

void DiskStore::finish_probe(Op& op, std::uint64_t now_ns) {
  if (on()) return;
  if (op.task.status != Code::ok || op.task.given_up() || generation_unsaved_) {
    health_.probe_failed(now_ns);
    return;
  }
  health_.switch_on();
  say("the disk tier is on again");
}

void DiskStore::check_deadlines(std::uint64_t now_ns) {
  if (now_ns < earliest_due_ns_) return;
  earliest_due_ns_ = UINT64_MAX;
  for (const OpList& list : due_) {
    for (std::uint32_t i = list.first; i != none; i = body_->ops[i].next) {
      const Op& op = body_->ops[i];
      if (op.hung) continue;
      if (op.deadline_ns > now_ns || !give_up(i, now_ns)) {
        earliest_due_ns_ = std::min(earliest_due_ns_, op.deadline_ns);
      }
    }
  }
}

// False: the task is just ending, or as many as may hang do: the next poll asks again.
bool DiskStore::give_up(std::uint32_t at, std::uint64_t now_ns) {
  Op& op = body_->ops[at];
  if (!op.task.give_up()) return false;
  if (!op.late) {
    op.late = true;
    ++counters_.late;
    if (!op.reported && !op.internal) report(at, Code::deadline, false);
    if (health_.note(false, "an operation is past its deadline", now_ns)) went_off();
    if (op.task.kind == TaskKind::superblock) unsaved(now_ns, Code::deadline);
  }
  if (engine_->give_up(op.lane, op.task)) {
    op.hung = true;
    ++hung_;
  } else if (on()) {
    health_.switch_off(fmt::format("{} operations hang", options_.io.hung_max), now_ns);
    went_off();
  }
  return op.hung;
}

void DiskStore::probe(std::uint64_t now_ns) {
  if (probe_op_ != none || !health_.probe_due(now_ns)) return;
  if (generation_unsaved_) save_generation();
  const std::uint32_t at = take_op(IoLane::write, true);
  if (at == none) return;
  ++counters_.probes;
  Op& op = body_->ops[at];
  op.task.kind = TaskKind::probe;
  op.task.record.sequence = counters_.probes;
  probe_op_ = at;
  submit(at);
}

std::string DiskStore::verify() const {
  std::size_t writing = 0;
  std::size_t readers = 0;
  std::size_t unreported = reset_id_ ? 1 : 0;
  for (const Op& op : body_->ops) {
    if (!op.used) continue;
    if (!op.internal && !op.reported) ++unreported;
    if (op.task.kind == TaskKind::write && op.place != no_place) ++writing;
    if (op.task.kind == TaskKind::read) ++readers;
  }
  for (const Class& c : classes_) {
    if (std::string s = c.places.verify(); !s.empty()) return c.name + ": " + s;
    writing -= c.places.count(Use::writing);
    for (std::uint32_t p = 0; p < c.places.size(); ++p) readers -= c.places.at(p).readers;
  }
  if (writing != 0) return fmt::format("{} writes too many have a place", writing);
  if (readers != 0) return fmt::format("{} reads too many are open", readers);
  if (unreported != unreported_) {
    return fmt::format("{} operations are open, {} counted", unreported, unreported_);
  }
  if (used() > options_.budget) {
    return fmt::format("{} bytes are used of a budget of {}", used().n, options_.budget.n);
  }
  return {};
}

}  // namespace kvc::disk
