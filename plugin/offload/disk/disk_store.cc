#include "plugin/offload/disk/disk_store.h"

#include <dlfcn.h>

#include <algorithm>
#include <bit>

namespace kvc::disk {

namespace {

std::size_t index_of(IoLane lane) { return static_cast<std::size_t>(lane); }

std::uint64_t later_by(std::uint64_t now_ns, std::uint64_t by_ns) {
  return by_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + by_ns;
}

// This library stays loaded: a thread that hangs in the system comes back into it.
void stay_loaded() {
  static const int here = 0;
  Dl_info info{};
  if (::dladdr(&here, &info) != 0 && info.dli_fname != nullptr) {
    static_cast<void>(::dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE));
  }
}

}  // namespace

DiskStore::DiskStore(const DiskStoreOptions& options, Files& files)
    : options_(options), files_(files), body_(std::make_unique<Body>()), health_(options.health) {}

DiskStore::~DiskStore() { close(); }

bool DiskStore::close() {
  if (closed_) return true;
  closed_ = true;
  bool all = true;
  if (engine_ != nullptr) {
    for (Op& op : body_->ops) {
      if (op.used) static_cast<void>(op.task.give_up());
    }
    all = engine_->close(std::chrono::nanoseconds(
        static_cast<std::int64_t>(std::min<std::uint64_t>(options_.close_patience_ns, INT64_MAX))));
    engine_.reset();
  }
  if (!all) {
    // Reachable for ever: the system may still read and write it.
    static auto* const kept = new std::vector<Body*>;
    kept->push_back(body_.release());
    stay_loaded();
    return false;  // nor are the descriptors closed, or the lock: another owner would race
  }
  for (const Class& c : classes_) {
    if (c.data_fd >= 0) files_.close(c.data_fd);
    if (c.index_fd >= 0) files_.close(c.index_fd);
  }
  for (const int fd : {body_->shared.superblock_fd, body_->shared.probe_fd, lock_fd_}) {
    if (fd >= 0) files_.close(fd);
  }
  return true;
}

std::uint32_t DiskStore::class_of(std::uint32_t group) const {
  return group < class_of_group_.size() ? class_of_group_[group] - 1 : none;
}

std::uint32_t DiskStore::take_op(IoLane lane, bool internal) {
  // Records and punches make room for writes: they must not wait for them.
  const std::uint32_t reserve = lane == IoLane::write && !internal ? options_.io.tasks_max / 8 : 0;
  std::uint32_t& open = lane_ops_[index_of(lane)];
  if (open + reserve >= options_.io.tasks_max) return none;
  ++open;
  const std::uint32_t at = free_ops_.back();
  free_ops_.pop_back();
  Op& op = body_->ops[at];
  op.used = true;
  op.lane = lane;
  op.internal = internal;
  op.submitted = op.reported = op.late = op.hung = false;
  op.place = no_place;
  op.deadline_ns = UINT64_MAX;
  op.task.prepare();
  op.task.memory = nullptr;
  return at;
}

void DiskStore::give_back(std::uint32_t at) {
  Op& op = body_->ops[at];
  KVC_CHECK(op.used);
  op.used = false;
  --lane_ops_[index_of(op.lane)];
  free_ops_.push_back(at);
}

void DiskStore::link(OpList& list, std::uint32_t at) {
  Op& op = body_->ops[at];
  op.next = none;
  op.previous = list.last;
  (list.last == none ? list.first : body_->ops[list.last].next) = at;
  list.last = at;
}

void DiskStore::unlink(OpList& list, std::uint32_t at) {
  const Op& op = body_->ops[at];
  (op.previous == none ? list.first : body_->ops[op.previous].next) = op.next;
  (op.next == none ? list.last : body_->ops[op.next].previous) = op.previous;
}

void DiskStore::submit(std::uint32_t at) {
  Op& op = body_->ops[at];
  op.submitted = true;
  if (op.internal) op.deadline_ns = later_by(now_ns_, options_.write_deadline_ns);
  earliest_due_ns_ = std::min(earliest_due_ns_, op.deadline_ns);
  link(due_[index_of(op.lane)], at);
  KVC_CHECK(engine_->submit(op.lane, op.task));
}

bool DiskStore::being_written(std::uint32_t group, const Key& key) const {
  const auto open = [&](const OpList& list) {
    for (std::uint32_t i = list.first; i != none; i = body_->ops[i].next) {
      const Op& op = body_->ops[i];
      const Identity& what = op.task.header.what;
      if (!op.internal && op.op == DiskOp::write && !op.reported && what.key == key &&
          what.group == group && op.task.header.generation == generation_) {
        return true;
      }
    }
    return false;
  };
  return open(due_[index_of(IoLane::write)]) || open(waiting_);
}

Code DiskStore::write(const DiskWrite& op, std::uint64_t now_ns) {
  const std::uint32_t cls = class_of(op.what.group);
  if (cls == none || op.memory == nullptr || op.valid_bytes > classes_[cls].places.payload()) {
    return Code::arg;
  }
  now_ns_ = now_ns;
  if (!on()) return Code::io;
  if (contains(op.what.group, op.what.key) || being_written(op.what.group, op.what.key)) {
    return Code::state;
  }
  if (!has_room(cls) && !room_coming(cls)) return Code::full;
  const std::uint32_t at = take_op(IoLane::write, false);
  if (at == none) return Code::later;
  Op& mine = body_->ops[at];
  mine.id = op.id;
  mine.op = DiskOp::write;
  mine.cls = cls;
  mine.deadline_ns = later_by(now_ns, options_.write_deadline_ns);
  DiskTask& task = mine.task;
  task.kind = TaskKind::write;
  task.memory = const_cast<std::byte*>(op.memory);
  task.header = {op.what,     body_->shared.owner, generation_,
                 ++sequence_, op.valid_bytes,      classes_[cls].places.payload()};
  ++unreported_;
  begin_write(at);
  if (!mine.submitted) {
    link(waiting_, at);
    make_room(cls);
  }
  return Code::ok;
}

// Submits the write if there is a place for it that may be written.
void DiskStore::begin_write(std::uint32_t at) {
  // Until a reset is on disk the next open finds the blocks before it, in places that are free
  // here: none is written over. Nor may a record name a generation that no superblock has: a later
  // reset would give out that number again.
  if (generation_unsaved_) return;
  Op& op = body_->ops[at];
  Class& c = classes_[op.cls];
  op.place = c.places.take(room_for_hole(c));
  if (op.place == no_place) return;
  DiskTask& task = op.task;
  task.data_fd = c.data_fd;
  task.index_fd = c.index_fd;
  const BlockHeader& h = task.header;
  task.record = {PlaceState::live, h.what, op.place, h.generation, h.sequence, h.valid_bytes};
  submit(at);
}

bool DiskStore::room_for_hole(const Class& cls) const {
  return used().n + cls.places.cost() <= options_.budget.n;
}

bool DiskStore::may_write(std::uint32_t group) const {
  const std::uint32_t cls = class_of(group);
  return cls != none && (has_room(cls) || room_coming(cls));
}

bool DiskStore::has_room(std::uint32_t cls) const {
  const Class& c = classes_[cls];
  // Those that wait already come first.
  return waiting_.first == none &&
         (c.places.count(Use::free) != 0 || (room_for_hole(c) && c.places.can_grow()));
}

// Whether places are about to become free, in this class or, by punching, in others; or to be
// allowed, with the superblock of a reset.
bool DiskStore::room_coming(std::uint32_t cls) const {
  if (frees_open_ != 0 || generation_unsaved_) return true;
  for (std::uint32_t i = 0; i < classes_.size(); ++i) {
    const Places& p = classes_[i].places;
    if (p.count(Use::queued) != 0) return true;
    if (i != cls && !punch_refused_ && p.count(Use::free) != 0) return true;
  }
  return false;
}

// Punches free places of other classes until one more place of this class fits the budget.
void DiskStore::make_room(std::uint32_t cls) {
  if (punch_refused_ || frees_open_ != 0 || generation_unsaved_) return;
  const std::uint64_t needed = classes_[cls].places.cost();
  std::uint64_t coming = options_.budget.n - std::min(options_.budget.n, used().n);
  for (std::uint32_t i = 0; i < classes_.size(); ++i) {
    Class& c = classes_[i];
    while (i != cls && coming < needed && c.places.count(Use::free) != 0) {
      const std::uint32_t at = take_op(IoLane::write, true);
      if (at == none) return;
      Op& op = body_->ops[at];
      op.cls = i;
      op.place = c.places.first(Use::free);
      c.places.move(op.place, Use::leaving);
      op.task.kind = TaskKind::punch;
      op.task.data_fd = c.data_fd;
      op.task.index_fd = c.index_fd;
      op.task.header.payload_bytes = c.places.payload();
      op.task.record = {};
      op.task.record.place = op.place;
      ++frees_open_;
      submit(at);
      coming += c.places.cost();
    }
  }
}

// Gives places to writes that wait for one, in their order.
void DiskStore::start_waiting(std::uint64_t now_ns) {
  while (waiting_.first != none) {
    const std::uint32_t at = waiting_.first;
    Op& op = body_->ops[at];
    unlink(waiting_, at);
    if (op.task.header.generation == generation_ && on()) begin_write(at);
    if (op.submitted) continue;
    if (op.task.header.generation != generation_ || !on()) {
      report(at, on() ? Code::cancelled : Code::io, false);
    } else if (op.deadline_ns <= now_ns) {
      ++counters_.late;
      report(at, Code::deadline, false);
    } else {
      make_room(op.cls);
      if (room_coming(op.cls)) {
        // It keeps its turn.
        op.next = waiting_.first;
        op.previous = none;
        (waiting_.first == none ? waiting_.last : body_->ops[waiting_.first].previous) = at;
        waiting_.first = at;
        return;
      }
      report(at, Code::full, false);
    }
    give_back(at);
  }
}

Code DiskStore::read(const DiskRead& read, std::uint64_t now_ns) {
  const std::uint32_t cls = class_of(read.group);
  if (cls == none || read.memory == nullptr) return Code::arg;
  now_ns_ = now_ns;
  if (!on()) return Code::io;
  Class& c = classes_[cls];
  const std::uint32_t place = c.places.find(read.group, read.key);
  if (place == no_place) return Code::arg;
  Place& p = c.places.at(place);
  if (p.readers == UINT16_MAX) return Code::later;
  const std::uint32_t at = take_op(IoLane::read, false);
  if (at == none) return Code::later;
  ++p.readers;
  Op& op = body_->ops[at];
  op.id = read.id;
  op.op = DiskOp::read;
  op.cls = cls;
  op.place = place;
  op.deadline_ns = later_by(now_ns, options_.read_deadline_ns);
  DiskTask& task = op.task;
  task.kind = TaskKind::read;
  task.data_fd = c.data_fd;
  task.memory = read.memory;
  task.record.place = place;
  task.header = {};
  task.header.what.group = read.group;
  task.header.what.end_tokens = read.end_tokens;
  task.header.what.key = read.key;
  task.header.owner = body_->shared.owner;
  task.header.generation = generation_;
  task.header.sequence = p.sequence;
  task.header.payload_bytes = c.places.payload();
  ++unreported_;
  submit(at);
  return Code::ok;
}

bool DiskStore::erase(std::uint32_t group, const Key& key) {
  const std::uint32_t cls = class_of(group);
  if (cls == none) return false;
  const std::uint32_t place = classes_[cls].places.find(group, key);
  if (place == no_place) return false;
  ++counters_.erased;
  leave(cls, place, false);
  start_records();
  return true;
}

// Out of the key table; its record is written soon.
void DiskStore::leave(std::uint32_t cls, std::uint32_t place, bool condemned) {
  Places& places = classes_[cls].places;
  places.at(place).condemned = condemned;
  places.at(place).recorded = false;
  places.move(place, Use::queued);
}

void DiskStore::start_records() {
  for (std::uint32_t cls = 0; cls < classes_.size(); ++cls) {
    Class& c = classes_[cls];
    while (c.places.count(Use::queued) != 0) {
      const std::uint32_t at = take_op(IoLane::write, true);
      if (at == none) return;
      const std::uint32_t place = c.places.first(Use::queued);
      c.places.move(place, Use::leaving);
      Op& op = body_->ops[at];
      op.cls = cls;
      op.place = place;
      op.task.kind = TaskKind::record;
      op.task.index_fd = c.index_fd;
      op.task.header.payload_bytes = c.places.payload();
      op.task.record = {};
      op.task.record.state = c.places.at(place).condemned ? PlaceState::bad : PlaceState::free;
      op.task.record.place = place;
      op.task.record.generation = generation_;
      op.task.record.sequence = c.places.at(place).sequence;
      ++frees_open_;
      submit(at);
    }
  }
}

// A leaving place whose record is written and whose readers are done gets its next use.
void DiskStore::settle(std::uint32_t cls, std::uint32_t place) {
  Places& places = classes_[cls].places;
  Place& p = places.at(place);
  if (p.use != Use::leaving || !p.recorded || p.readers != 0) return;
  if (!p.condemned) return places.move(place, Use::free);
  places.move(place, Use::bad);
  if (places.count(Use::bad) > options_.bad_places_max) {
    leave(cls, places.first(Use::bad), false);
  }
}

Code DiskStore::reset(std::uint64_t id, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  if (reset_id_) return Code::later;
  ++generation_;
  generation_unsaved_ = true;
  reset_id_ = id;
  ++unreported_;
  inventory_ = {};
  for (std::uint32_t cls = 0; cls < classes_.size(); ++cls) {
    Places& places = classes_[cls].places;
    // Records of another generation are free ones: none has to be written.
    for (const Use use : {Use::live, Use::queued, Use::bad}) {
      while (places.count(use) != 0) {
        const std::uint32_t place = places.first(use);
        places.at(place).condemned = false;
        places.at(place).recorded = true;
        places.move(place, Use::leaving);
        settle(cls, place);
      }
    }
  }
  save_generation();
  return Code::ok;
}

// Writes the superblock, one at a time; what is asked for meanwhile is written after it.
void DiskStore::save_generation() {
  if (generation_open_) return;
  const std::uint32_t at = take_op(IoLane::write, true);
  if (at == none) return;  // the next poll tries again
  Op& op = body_->ops[at];
  op.op = DiskOp::reset;
  op.task.kind = TaskKind::superblock;
  op.task.superblock = {body_->shared.owner, generation_};
  generation_open_ = true;
  submit(at);
}

void DiskStore::report_reset(Code status) {
  if (!reset_id_) return;
  --unreported_;
  done_.push_back({*reset_id_, DiskOp::reset, status, false, 0});
  reset_id_.reset();
}

void DiskStore::report(std::uint32_t at, Code status, bool gone, std::uint64_t valid_bytes) {
  Op& op = body_->ops[at];
  KVC_CHECK(!op.internal && !op.reported && unreported_ != 0);
  op.reported = true;
  --unreported_;
  done_.push_back({op.id, op.op, status, gone, valid_bytes});
}

std::size_t DiskStore::poll(std::span<DiskDone> out, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  IoTask* ended[64];
  while (const std::size_t n = engine_->poll(ended)) {
    for (std::size_t i = 0; i < n; ++i) {
      finish(static_cast<DiskTask*>(ended[i])->number, now_ns);
    }
  }
  check_deadlines(now_ns);
  if (reset_id_) save_generation();
  start_records();
  start_waiting(now_ns);
  probe(now_ns);
  const std::size_t n = std::min(out.size(), done_.size());
  std::copy_n(done_.begin(), n, out.begin());
  done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(n));
  return n;
}

void DiskStore::wait(std::uint64_t timeout_ns) {
  if (!done_.empty()) return;
  engine_->wait(std::chrono::nanoseconds(
      static_cast<std::int64_t>(std::min<std::uint64_t>(timeout_ns, INT64_MAX))));
}

bool DiskStore::contains(std::uint32_t group, const Key& key) const {
  const std::uint32_t cls = class_of(group);
  return cls != none && classes_[cls].places.find(group, key) != no_place;
}

std::uint64_t DiskStore::blocks() const {
  std::uint64_t n = 0;
  for (const Class& c : classes_) n += c.places.count(Use::live);
  return n;
}

std::uint64_t DiskStore::blocks_of(std::uint32_t group) const {
  const std::uint32_t cls = class_of(group);
  return cls == none ? 0 : classes_[cls].places.count(Use::live);
}

std::optional<DiskStore::Oldest> DiskStore::oldest_like(std::uint32_t group) const {
  const std::uint32_t cls = class_of(group);
  if (cls == none) return std::nullopt;
  const std::uint32_t place = classes_[cls].places.first(Use::live);
  if (place == no_place) return std::nullopt;
  const Place& p = classes_[cls].places.at(place);
  return Oldest{p.group, p.key, p.sequence};
}

std::optional<DiskStore::Oldest> DiskStore::oldest() const {
  std::optional<Oldest> found;
  for (std::uint32_t g = 0; g < class_of_group_.size(); ++g) {
    const std::optional<Oldest> mine = oldest_like(g);
    if (mine && (!found || mine->sequence < found->sequence)) found = mine;
  }
  return found;
}

Bytes DiskStore::used() const {
  std::uint64_t bytes = fixed_bytes_;
  for (const Class& c : classes_) bytes += c.places.with_bytes() * c.places.cost();
  return {bytes};
}

std::vector<std::uint8_t> DiskStore::next_inventory(std::size_t room) {
  KVC_CHECK(room >= inventory_bytes(1));
  if (inventory_.empty()) return {};
  const std::size_t left = inventory_.size() - inventory_first_;
  const std::size_t n = std::min(left, (room - inventory_header_bytes) / inventory_entry_bytes);
  std::vector<std::uint8_t> bytes(inventory_bytes(n));
  for (std::size_t i = 0; i < n; ++i) {
    write_inventory_entry(
        inventory_[inventory_first_ + i].entry,
        std::span(bytes).subspan(inventory_header_bytes + i * inventory_entry_bytes,
                                 inventory_entry_bytes));
  }
  seal_inventory({generation_, inventory_.size(), inventory_first_, options_.rank,
                  static_cast<std::uint32_t>(n)},
                 bytes);
  inventory_first_ += n;
  if (inventory_first_ == inventory_.size()) inventory_ = {};
  return bytes;
}

void DiskCounters::add(const DiskCounters& other) {
  using Words = std::array<std::uint64_t, sizeof(DiskCounters) / sizeof(std::uint64_t)>;
  auto sum = std::bit_cast<Words>(*this);
  const auto more = std::bit_cast<Words>(other);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  *this = std::bit_cast<DiskCounters>(sum);
}

void DiskStore::forget_those_of(const DiskStore& other) {
  std::erase_if(inventory_, [&](const Found& f) {
    const Identity& what = f.entry.what;
    if (!other.contains(what.group, what.key)) return false;
    ++counters_.dropped_twice;
    leave(f.cls, f.place, false);
    return true;
  });
  counters_.found = inventory_.size();
  start_records();
}

void DiskStore::say(std::string line) {
  // A caller that never takes them must not lose memory by it.
  if (notes_.size() < 256) notes_.push_back(path_ + ": " + std::move(line));
}

}  // namespace kvc::disk
