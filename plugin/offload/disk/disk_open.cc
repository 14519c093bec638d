// Opening a folder: whose it is, what is in it, and what has to go.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <map>
#include <new>
#include <set>
#include <thread>

#include "plugin/offload/disk/disk_store.h"

namespace kvc::disk {

namespace {

constexpr std::size_t index_piece = std::size_t{4} << 20U;  // read at once
// So that the next one is a number too.
constexpr std::uint64_t generation_most = std::uint64_t{1} << 62U;
constexpr std::string_view blocks_prefix = "blocks-";

Status io_error(const std::string& path, const char* what, IoResult error) {
  const bool full = error == -ENOSPC || error == -EDQUOT;
  return {full ? Code::full : Code::io, fmt::format("{}: {}: {}", path, what, errno_text(error))};
}

std::string boot_id() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(in, id);
  return id.empty() ? "unknown" : id;
}

// All of `bytes`, or as many as there are.
IoResult read_all(Files& files, int fd, std::span<std::uint8_t> bytes, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const IoResult n = files.read(fd, reinterpret_cast<std::byte*>(bytes.data() + done),
                                  bytes.size() - done, offset + done);
    if (n < 0) return n;
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return static_cast<IoResult>(done);
}

IoResult write_all(Files& files, int fd, std::span<const std::uint8_t> bytes,
                   std::uint64_t offset) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const IoResult n = files.write(fd, reinterpret_cast<const std::byte*>(bytes.data() + done),
                                   bytes.size() - done, offset + done);
    if (n <= 0) return n < 0 ? n : -EIO;
    done += static_cast<std::size_t>(n);
  }
  return static_cast<IoResult>(done);
}

// The superblock twice, the probe, the lock, and what the index of a class is rounded up by.
std::uint64_t fixed_bytes(std::size_t classes) { return (4 + classes) * alignment; }

std::string class_name(std::uint64_t payload) {
  return std::string(blocks_prefix) + std::to_string(payload);
}

}  // namespace

Result<std::unique_ptr<DiskStore>> DiskStore::open(const DiskStoreOptions& options, Files& files) {
  try {
    std::unique_ptr<DiskStore> store(new DiskStore(options, files));
    if (Status s = store->check_options(); !s.ok()) return s;
    if (Status s = store->open_folder(); !s.ok()) return s;
    if (Status s = store->make_classes(); !s.ok()) return s;
    if (Status s = store->remove_blocks(true); !s.ok()) return s;
    std::vector<Found> found;
    for (std::uint32_t c = 0; c < store->classes_.size(); ++c) {
      if (Status s = store->read_index(c, found); !s.ok()) return s;
    }
    if (Status s = store->check_generation(found); !s.ok()) return s;
    store->publish_found(found);
    store->fit_budget();
    if (Status s = store->start_engine(); !s.ok()) return s;
    return store;
  } catch (const std::bad_alloc&) {
    return {Code::full, fmt::format("{}: no memory for the disk tier", options.folder)};
  }
}

Status DiskStore::check_options() const {
  const auto refuse = [&](std::string text) {
    return Status{Code::arg, fmt::format("disk tier in {}: {}", options_.folder, text)};
  };
  if (options_.folder.empty()) return {Code::arg, "disk tier: no folder is given"};
  if (options_.key_bytes < 8 || options_.key_bytes > key_bytes_max) {
    return refuse(
        fmt::format("keys of {} bytes, 8 to {} are possible", options_.key_bytes, key_bytes_max));
  }
  if (options_.payload_of_group.size() > class_of_group_.size()) {
    return refuse(fmt::format("{} groups, at most {} are possible",
                              options_.payload_of_group.size(), class_of_group_.size()));
  }
  constexpr std::uint64_t block_most = std::uint64_t{1} << 40U;
  std::uint64_t largest = 0;
  std::set<std::uint64_t> classes;
  for (const std::uint64_t bytes : options_.payload_of_group) {
    if (bytes != 0) classes.insert(bytes);
    if (bytes > block_most) {
      return refuse(fmt::format("blocks of {} bytes, at most {} are possible", bytes, block_most));
    }
    largest = std::max(largest, bytes);
  }
  if (largest == 0) return refuse("no group is to be stored");
  const std::uint64_t least = fixed_bytes(classes.size()) + place_bytes(largest) + record_bytes;
  if (options_.budget.n < least) {
    return refuse(
        fmt::format("a budget of {} bytes, one block needs {}", options_.budget.n, least));
  }
  const IoEngineOptions& io = options_.io;
  if (io.read_depth == 0 || io.write_depth == 0 || io.tasks_max < 16 ||
      std::max(io.read_depth, io.write_depth) > io.tasks_max || io.tasks_max > 1U << 16U ||
      io.hung_max > 1U << 12U) {
    return refuse(
        fmt::format("depths {} and {} of {} operations ({} hung): depths from 1, 16 to "
                    "65536 operations, at most 4096 hung",
                    io.read_depth, io.write_depth, io.tasks_max, io.hung_max));
  }
  return {};
}

Status DiskStore::open_folder() {
  path_ = options_.folder + "/rank-" + std::to_string(options_.rank);
  if (const int r = files_.make_folders(path_); r < 0) return io_error(path_, "make folder", r);
  if (Status s = take_lock(); !s.ok()) return s;
  Owner& owner = body_->shared.owner;
  owner.namespace_digest = digest_of(options_.namespace_id);
  owner.namespace_bytes = options_.namespace_id.size();
  owner.hash_id = options_.hash_id;
  owner.rank = options_.rank;
  owner.key_bytes = options_.key_bytes;
  body_->shared.sync = options_.sync;
  body_->shared.summed = options_.checksum ? wire::Sum::whole : wire::Sum::none;
  if (Status s = open_superblock(); !s.ok()) return s;
  probe_direct();
  return {};
}

Status DiskStore::take_lock() {
  const std::string path = path_ + "/lock";
  lock_fd_ = files_.open(path, O_RDWR | O_CREAT);
  if (lock_fd_ < 0) return io_error(path, "open", lock_fd_);
  if (const int r = files_.lock(lock_fd_); r < 0) {
    if (r != -EWOULDBLOCK) return io_error(path, "lock", r);
    std::string text(256, '\0');
    const IoResult n =
        read_all(files_, lock_fd_, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()}, 0);
    text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    std::replace(text.begin(), text.end(), '\n', ' ');
    return {Code::state, fmt::format("{} belongs to another open disk tier: {}", path_, text)};
  }
  const std::string text = fmt::format("pid {}\nboot {}\n", ::getpid(), boot_id());
  int r = files_.truncate(lock_fd_, 0);
  if (r == 0) {
    const IoResult n = write_all(
        files_, lock_fd_, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, 0);
    r = n < 0 ? static_cast<int>(n) : 0;
  }
  return r < 0 ? io_error(path, "write", r) : Status{};
}

Status DiskStore::open_superblock() {
  const std::string path = path_ + "/store";
  int& fd = body_->shared.superblock_fd;
  fd = files_.open(path, O_RDWR | O_CREAT);
  if (fd < 0) return io_error(path, "open", fd);
  if (Status s = await_calm(fd, path); !s.ok()) return s;
  std::vector<std::uint8_t> bytes(2 * superblock_bytes);
  const IoResult n = read_all(files_, fd, bytes, 0);
  if (n < 0) return io_error(path, "read", n);
  std::optional<Superblock> newest;
  int unreadable = 0;
  for (std::size_t copy = 0; copy < 2; ++copy) {
    const auto one = std::span(bytes).subspan(copy * superblock_bytes, superblock_bytes);
    auto read = read_superblock(one);
    if (read.ok() && read.value().generation > generation_most) {
      read = Status{Code::arg, "superblock: a generation that no folder reaches"};
    }
    if (!read.ok() && read.error().code == Code::unsupported) {
      return {Code::unsupported, fmt::format("{}: {}", path, read.error().text)};
    }
    if (!read.ok()) {
      ++unreadable;
      continue;
    }
    if (!newest || read.value().generation > newest->generation) newest = read.value();
  }
  if (newest && unreadable != 0) {
    say(
        fmt::format("a copy of the superblock cannot be read; it may have been that of a reset "
                    "after generation {}: all blocks are dropped",
                    newest->generation));
    // Above what the lost copy may have said, and in its place.
    return write_generations(newest->generation + 3);
  }
  if (newest && newest->owner == body_->shared.owner) {
    generation_ = newest->generation;
    return {};
  }
  if (newest) {
    say(
        fmt::format("holds blocks of another namespace, hash or key length: they are dropped "
                    "(generation {})",
                    newest->generation));
    return write_generation(newest->generation + 1);
  }
  // Nobody can tell what the blocks here are.
  if (n != 0) say("no superblock can be read: all blocks are dropped");
  if (Status s = remove_blocks(false); !s.ok()) return s;
  return write_generations(1);
}

// Into both copies, one generation apart as after every reset: so one that is missing is one that
// was lost, and named at most one generation more than the other.
Status DiskStore::write_generations(std::uint64_t first) {
  if (Status s = write_generation(first); !s.ok()) return s;
  return write_generation(first + 1);
}

// A record of a newer generation than the superblock's says that the superblock is an old one:
// what it calls live was written before a reset.
Status DiskStore::check_generation(std::vector<Found>& found) {
  if (newest_generation_ <= generation_) return {};
  say(fmt::format("the superblock says generation {}, a record {}: all blocks are dropped",
                  generation_, newest_generation_));
  counters_.dropped_foreign += found.size();
  for (const Found& f : found) classes_[f.cls].places.move(f.place, Use::free);
  found.clear();
  for (Class& c : classes_) {
    while (c.places.count(Use::bad) != 0) c.places.move(c.places.first(Use::bad), Use::free);
  }
  return write_generations(newest_generation_ + 1);
}

Status DiskStore::write_generation(std::uint64_t generation) {
  std::vector<std::uint8_t> bytes(superblock_bytes);
  write_superblock({body_->shared.owner, generation}, bytes);
  const int fd = body_->shared.superblock_fd;
  const IoResult n = write_all(files_, fd, bytes, generation % 2 * superblock_bytes);
  const std::string path = path_ + "/store";
  if (n < 0) return io_error(path, "write", n);
  if (const int r = files_.sync(fd); r < 0) return io_error(path, "sync", r);
  if (const int r = files_.sync_folder(path_); r < 0) return io_error(path_, "sync", r);
  generation_ = generation;
  return {};
}

// Removes the files of blocks: all, or those of classes that nobody asked for.
Status DiskStore::remove_blocks(bool unknown_only) {
  std::vector<std::string> names;
  if (const int r = files_.list(path_, names); r < 0) return io_error(path_, "list", r);
  for (const std::string& name : names) {
    if (!name.starts_with(blocks_prefix)) continue;
    const bool known = std::any_of(classes_.begin(), classes_.end(), [&](const Class& c) {
      return name == c.name + ".data" || name == c.name + ".index";
    });
    if (unknown_only && known) continue;
    const int r = files_.remove(path_ + "/" + name);
    if (r < 0 && r != -ENOENT) return io_error(path_ + "/" + name, "remove", r);
  }
  return {};
}

// O_DIRECT is refused by some file systems at open, by others at the first transfer (K10-95).
void DiskStore::probe_direct() {
  const std::string path = path_ + "/probe";
  int& fd = body_->shared.probe_fd;
  if (options_.direct) {
    fd = files_.open(path, O_RDWR | O_CREAT | O_DIRECT);
    IoResult r = fd;
    Staging page;
    if (fd >= 0 && page.create(1, alignment).ok()) {
      std::byte* const bytes = page.bytes(page.take());
      r = files_.write(fd, bytes, alignment, 0);
      if (r >= 0) r = files_.read(fd, bytes, alignment, 0);
    }
    direct_ = r == static_cast<IoResult>(alignment);
    if (direct_) return;
    say("O_DIRECT does not work here, the page cache is used: " +
        (r < 0 ? errno_text(r) : std::string("short transfer")));
    if (fd >= 0) files_.close(fd);
  }
  fd = files_.open(path, O_RDWR | O_CREAT);
}

Status DiskStore::make_classes() {
  const std::set<std::uint64_t> payloads(options_.payload_of_group.begin(),
                                         options_.payload_of_group.end());
  fixed_bytes_ = fixed_bytes(payloads.size() - payloads.count(0));
  for (std::size_t g = 0; g < options_.payload_of_group.size(); ++g) {
    const std::uint64_t payload = options_.payload_of_group[g];
    if (payload == 0) continue;
    const std::string name = class_name(payload);
    auto it = std::find_if(classes_.begin(), classes_.end(),
                           [&](const Class& c) { return c.name == name; });
    if (it == classes_.end()) {
      classes_.emplace_back().name = name;
      it = classes_.end() - 1;
      if (Status s = open_class(*it); !s.ok()) return s;
      const std::uint64_t room = options_.budget.n - fixed_bytes_;
      const IoResult records = files_.size(it->index_fd);
      if (records < 0) return io_error(path_ + "/" + name + ".index", "size", records);
      const IoResult data = files_.size(it->data_fd);
      if (data < 0) return io_error(path_ + "/" + name + ".data", "size", data);
      // What a larger budget left here must be read too. Records of places that the data file does
      // not reach stand for nothing, however many there are.
      const std::uint64_t there = std::min(static_cast<std::uint64_t>(records) / record_bytes,
                                           static_cast<std::uint64_t>(data) / place_bytes(payload));
      const std::uint64_t places = std::max(room / (place_bytes(payload) + record_bytes), there);
      if (Status s = it->places.create(payload, places); !s.ok()) {
        return {s.code,
                fmt::format("{}: a budget of {} bytes: {}", path_, options_.budget.n, s.text)};
      }
    }
    class_of_group_[g] = static_cast<std::uint32_t>(it - classes_.begin()) + 1;
  }
  return {};
}

Status DiskStore::open_class(Class& cls) {
  const std::string path = path_ + "/" + cls.name;
  cls.data_fd = files_.open(path + ".data", O_RDWR | O_CREAT | (direct_ ? O_DIRECT : 0));
  if (cls.data_fd < 0) return io_error(path + ".data", "open", cls.data_fd);
  cls.index_fd = files_.open(path + ".index", O_RDWR | O_CREAT);
  if (cls.index_fd < 0) return io_error(path + ".index", "open", cls.index_fd);
  if (Status s = await_calm(cls.data_fd, path + ".data"); !s.ok()) return s;
  return await_calm(cls.index_fd, path + ".index");
}

// A process that was killed may have left calls to io_uring behind that still write: they hold the
// open file, and so its lock, longer than the process lives.
Status DiskStore::await_calm(int fd, const std::string& path) {
  constexpr std::uint64_t pause_ns = 1'000'000;
  for (std::uint64_t waited = 0;; waited += pause_ns) {
    const int r = files_.lock(fd);
    if (r == 0) return {};
    if (r != -EWOULDBLOCK) return io_error(path, "lock", r);
    if (waited >= options_.close_patience_ns) {
      return {Code::state, fmt::format("{}: writes of a process before are still at work after {} "
                                       "ms",
                                       path, waited / 1'000'000)};
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause_ns));
  }
}

Status DiskStore::read_index(std::uint32_t cls, std::vector<Found>& found) {
  Class& c = classes_[cls];
  const IoResult data_bytes = files_.size(c.data_fd);
  if (data_bytes < 0) return io_error(path_ + "/" + c.name + ".data", "size", data_bytes);
  std::vector<std::uint8_t> bytes(index_piece);
  for (std::uint64_t offset = 0;; offset += bytes.size()) {
    const IoResult n = read_all(files_, c.index_fd, bytes, offset);
    if (n < 0) return io_error(path_ + "/" + c.name + ".index", "read", n);
    const std::size_t records = static_cast<std::size_t>(n) / record_bytes;
    for (std::size_t i = 0; i < records; ++i) {
      const std::uint64_t place = offset / record_bytes + i;
      if (place == c.places.size()) return drop_tail(c);
      const auto read =
          read_record(std::span(bytes).subspan(i * record_bytes, record_bytes), place);
      c.places.begin_at(static_cast<std::uint32_t>(place + 1));
      if (read.ok()) {
        take_record(cls, static_cast<std::uint32_t>(place), read.value(),
                    static_cast<std::uint64_t>(data_bytes), found);
      } else {
        ++counters_.dropped_torn;
        c.places.move(static_cast<std::uint32_t>(place), Use::free);
      }
    }
    if (static_cast<std::size_t>(n) < bytes.size()) break;
  }
  trim_holes(c);
  return {};
}

// Records behind the last place there can be.
Status DiskStore::drop_tail(Class& c) {
  say(
      fmt::format("{}.index has records of more than the {} places that there can be: they are cut "
                  "off",
                  c.name, c.places.size()));
  const int r = files_.truncate(c.index_fd, c.places.size() * record_bytes);
  if (r < 0) return io_error(path_ + "/" + c.name + ".index", "truncate", r);
  trim_holes(c);
  return {};
}

void DiskStore::take_record(std::uint32_t cls, std::uint32_t place, const Record& record,
                            std::uint64_t data_bytes, std::vector<Found>& found) {
  Places& places = classes_[cls].places;
  if (record.state == PlaceState::empty) return;  // a hole
  sequence_ = std::max(sequence_, record.sequence);
  // Numbers beyond are nobody's.
  if (record.generation <= generation_most)
    newest_generation_ = std::max(newest_generation_, record.generation);
  if (record.generation == generation_ && record.state == PlaceState::bad) {
    return places.move(place, Use::bad);
  }
  if (record.state != PlaceState::live) return places.move(place, Use::free);
  if (record.generation != generation_ || class_of(record.what.group) != cls) {
    ++counters_.dropped_foreign;
    return places.move(place, Use::free);
  }
  if ((place + std::uint64_t{1}) * places.stride() > data_bytes) {
    ++counters_.dropped_short;
    return leave(cls, place, false);
  }
  // Until all are known: the youngest of a key counts.
  places.move(place, Use::writing);
  found.push_back({cls, place, {record.what, record.sequence}});
}

void DiskStore::publish_found(std::vector<Found>& found) {
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.entry.sequence < b.entry.sequence; });
  for (Found& f : found) {
    Places& places = classes_[f.cls].places;
    const Identity& what = f.entry.what;
    if (const std::uint32_t older = places.find(what.group, what.key); older != no_place) {
      ++counters_.dropped_twice;
      leave(f.cls, older, false);
    }
    Place& p = places.at(f.place);
    p.key = what.key;
    p.group = what.group;
    p.sequence = f.entry.sequence;
    places.move(f.place, Use::live);
  }
  inventory_ = std::move(found);
}

// Bytes behind the last record, and of places whose record was never written, belong to nobody.
void DiskStore::trim_holes(Class& cls) {
  const std::uint64_t used = cls.places.with_bytes() * cls.places.stride();
  const std::uint64_t end = cls.places.begun() * cls.places.stride();
  const IoResult size = files_.size(cls.data_fd);
  if (size > 0 && static_cast<std::uint64_t>(size) > end) {
    static_cast<void>(files_.truncate(cls.data_fd, end));
  }
  // Writes behind the end of a file wait for one another; a sparse tail costs nothing.
  static_cast<void>(files_.truncate(cls.data_fd, cls.places.size() * cls.places.stride()));
  const IoResult allocated = files_.allocated(cls.data_fd);
  if (allocated < 0 || static_cast<std::uint64_t>(allocated) <= used) return;
  for (std::uint32_t p = cls.places.first(Use::hole); p != no_place; p = cls.places.next(p)) {
    if (files_.punch(cls.data_fd, p * cls.places.stride(), cls.places.stride()) < 0) return;
  }
}

Status DiskStore::record_now(const Class& cls, const Record& record) {
  std::vector<std::uint8_t> bytes(record_bytes);
  write_record(record, bytes);
  const IoResult n = write_all(files_, cls.index_fd, bytes, record.place * record_bytes);
  return n < 0 ? io_error(path_ + "/" + cls.name + ".index", "write", n) : Status{};
}

// Who goes first for a smaller budget: of the chain whose newest block is the oldest its end, so
// that what stays can still be reached.
void DiskStore::sort_by_leaving(std::vector<const Found*>& live) {
  std::sort(live.begin(), live.end(), [](const Found* a, const Found* b) {
    return a->entry.what.end_tokens > b->entry.what.end_tokens;
  });
  // The newest of what hangs on a key, itself included; what is deeper is known first.
  std::map<Key, std::uint64_t> newest;
  for (const Found* f : live) {
    const Identity& what = f->entry.what;
    const std::uint64_t own = std::max(newest[what.key], f->entry.sequence);
    newest[what.key] = own;
    if (what.has_parent) newest[what.parent] = std::max(newest[what.parent], own);
  }
  std::stable_sort(live.begin(), live.end(), [&](const Found* a, const Found* b) {
    return newest.at(a->entry.what.key) < newest.at(b->entry.what.key);
  });
}

// Gives the bytes of a place back. False: they cannot be.
bool DiskStore::vacate(Class& cls, std::uint32_t place) {
  counters_.dropped_budget += cls.places.at(place).use == Use::live ? 1 : 0;
  cls.places.move(place, Use::leaving);
  Record empty;
  empty.place = place;
  const std::uint64_t stride = cls.places.stride();
  if (!record_now(cls, empty).ok() || files_.punch(cls.data_fd, place * stride, stride) < 0) {
    say("the budget cannot be kept: bytes cannot be given back");
    cls.places.move(place, Use::lost);
    return false;
  }
  cls.places.move(place, Use::hole);
  return true;
}

// A smaller budget than last time: free places give their bytes back, then blocks go.
void DiskStore::fit_budget() {
  for (const Use use : {Use::free, Use::bad}) {
    for (Class& c : classes_) {
      while (used() > options_.budget && c.places.first(use) != no_place)
        if (!vacate(c, c.places.first(use))) return;
    }
  }
  if (used() <= options_.budget) return;
  std::vector<const Found*> live;
  for (const Found& f : inventory_) {
    const Place& p = classes_[f.cls].places.at(f.place);
    if (p.use == Use::live && p.sequence == f.entry.sequence) live.push_back(&f);
  }
  sort_by_leaving(live);
  for (const Found* f : live) {
    if (used() <= options_.budget || !vacate(classes_[f->cls], f->place)) return;
  }
}

Status DiskStore::start_engine() {
  // Those that went with the budget are no longer there to be told.
  std::erase_if(inventory_, [&](const Found& f) {
    const Place& p = classes_[f.cls].places.at(f.place);
    return p.use != Use::live || p.sequence != f.entry.sequence;
  });
  counters_.found = inventory_.size();
  const IoEngineOptions& io = options_.io;
  std::uint64_t stride = alignment;
  for (const Class& c : classes_) stride = std::max(stride, c.places.stride());
  if (Status s =
          body_->shared.staging.create(io.read_depth + io.write_depth + 2 * io.hung_max, stride);
      !s.ok()) {
    return {s.code, path_ + ": staging buffers: " + s.text};
  }
  const std::uint32_t count = 2 * io.tasks_max;
  for (std::uint32_t i = 0; i < count; ++i) {
    DiskTask& task = body_->ops.emplace_back().task;
    task.shared = &body_->shared;
    task.number = i;
    free_ops_.push_back(count - 1 - i);
  }
  done_.reserve(count);
  switch (options_.engine) {
    case EngineChoice::stepped:
      engine_ = make_stepped_engine(io, files_, options_.stepped_seed);
      break;
    case EngineChoice::threads:
      engine_ = make_thread_engine(io, files_);
      break;
    case EngineChoice::best:
    case EngineChoice::uring: {
      auto made = make_uring_engine(io, files_);
      if (made.ok()) {
        engine_ = std::move(made.value());
      } else if (options_.engine == EngineChoice::uring) {
        return {made.error().code, path_ + ": " + made.error().text};
      } else {
        say("threads do the work: " + made.error().text);
        engine_ = make_thread_engine(io, files_);
      }
      break;
    }
  }
  // Records of what was found bad are written from the first poll on: nobody told the time yet.
  return {};
}

}  // namespace kvc::disk
