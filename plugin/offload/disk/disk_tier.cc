#include "plugin/offload/disk/disk_tier.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvc::disk {

Result<std::unique_ptr<DiskTier>> DiskTier::open(const DiskTierOptions& options, Files& files) {
  if (options.paths.empty()) return {Code::arg, "disk tier: no path is given"};
  std::unique_ptr<DiskTier> tier(new DiskTier());
  tier->budget_ = options.store.budget.n;
  for (std::size_t i = 0; i < options.paths.size(); ++i) {
    const std::string& path = options.paths[i];
    if (std::count(options.paths.begin(), options.paths.end(), path) != 1) {
      return {Code::arg, fmt::format("disk tier: the path {} is given twice", path)};
    }
    DiskStoreOptions mine = options.store;
    mine.folder = path;
    mine.stepped_seed = mine.stepped_seed == 0 ? 0 : mine.stepped_seed + i;
    auto store = DiskStore::open(mine, files);
    if (!store.ok()) return store.error();
    tier->stores_.push_back(std::move(store.value()));
  }
  // A key that is on two paths: an erase on one of them was lost. Either is right; one goes.
  for (std::size_t i = 1; i < tier->stores_.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) tier->stores_[i]->forget_those_of(*tier->stores_[j]);
  }
  for (const auto& s : tier->stores_) tier->inventory_all_ += s->inventory_size();
  return tier;
}

DiskStore* DiskTier::holder(std::uint32_t group, const Key& key) const {
  for (const auto& s : stores_) {
    if (s->contains(group, key)) return s.get();
  }
  return nullptr;
}

Code DiskTier::write(const DiskWrite& op, std::uint64_t now_ns) {
  DiskStore* best = nullptr;
  Code refusal = Code::io;
  for (const auto& s : stores_) {
    if (s->contains(op.what.group, op.what.key) || s->being_written(op.what.group, op.what.key)) {
      return Code::state;
    }
    if (!s->on()) continue;
    if (!s->may_write(op.what.group)) {
      refusal = Code::full;
    } else if (best == nullptr || s->used() < best->used()) {
      best = s.get();
    }
  }
  if (best != nullptr) return best->write(op, now_ns);
  // The form of the operation is judged by a store.
  const Code code = stores_.front()->write(op, now_ns);
  return code == Code::arg ? code : refusal;
}

Code DiskTier::read(const DiskRead& op, std::uint64_t now_ns) {
  DiskStore* const s = holder(op.group, op.key);
  return s == nullptr ? Code::arg : s->read(op, now_ns);
}

bool DiskTier::erase(std::uint32_t group, const Key& key) {
  DiskStore* const s = holder(group, key);
  return s != nullptr && s->erase(group, key);
}

Code DiskTier::reset(std::uint64_t id, std::uint64_t now_ns) {
  if (resetting_ != 0) return Code::later;
  inventory_told_ = inventory_all_ = 0;
  reset_status_ = Code::ok;
  for (const auto& s : stores_) {
    const Code code = s->reset(id, now_ns);
    if (code == Code::ok) {
      ++resetting_;
    } else {
      reset_status_ = code;
    }
  }
  return resetting_ == 0 ? reset_status_ : Code::ok;
}

std::size_t DiskTier::poll(std::span<DiskDone> out, std::uint64_t now_ns) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < stores_.size(); ++i) {
    DiskStore& s = *stores_[(next_ + i) % stores_.size()];
    const std::size_t first = n;
    n += s.poll(out.subspan(n), now_ns);
    std::size_t kept = first;
    for (std::size_t k = first; k < n; ++k) {
      DiskDone done = out[k];
      if (done.op == DiskOp::reset) {
        if (done.status != Code::ok) reset_status_ = done.status;
        if (--resetting_ != 0) continue;
        done.status = reset_status_;
      }
      out[kept++] = done;
    }
    n = kept;
  }
  next_ = (next_ + 1) % stores_.size();
  return n;
}

// Several stores: the others are looked at when the first has been waited for.
void DiskTier::wait(std::uint64_t timeout_ns) {
  constexpr std::uint64_t slice_ns = 2'000'000;
  const auto busy = [](const auto& s) { return s->open_operations() != 0; };
  const auto it = std::find_if(stores_.begin(), stores_.end(), busy);
  if (it == stores_.end()) return;
  (*it)->wait(stores_.size() == 1 ? timeout_ns : std::min(timeout_ns, slice_ns));
}

std::uint64_t DiskTier::pump(std::uint64_t budget) {
  std::uint64_t did = 0;
  for (const auto& s : stores_) {
    if (did < budget) did += s->pump(budget - did);
  }
  return did;
}

bool DiskTier::close() {
  bool all = true;
  for (const auto& s : stores_) all = s->close() && all;
  return all;
}

bool DiskTier::contains(std::uint32_t group, const Key& key) const {
  return holder(group, key) != nullptr;
}

std::uint64_t DiskTier::blocks() const {
  std::uint64_t n = 0;
  for (const auto& s : stores_) n += s->blocks();
  return n;
}

Bytes DiskTier::used() const {
  Bytes n;
  for (const auto& s : stores_) n += s->used();
  return n;
}

std::size_t DiskTier::open_operations() const {
  std::size_t n = 0;
  for (const auto& s : stores_) n += s->open_operations();
  return n;
}

std::optional<DiskStore::Oldest> DiskTier::oldest_like(std::uint32_t group) const {
  std::optional<DiskStore::Oldest> found;
  std::uint64_t used = UINT64_MAX;
  for (const auto& s : stores_) {
    if (!s->on() || s->used().n >= used) continue;
    if (auto mine = s->oldest_like(group)) {
      found = mine;
      used = s->used().n;
    }
  }
  return found;
}

std::vector<std::uint8_t> DiskTier::next_inventory(std::size_t room) {
  for (const auto& s : stores_) {
    if (!s->inventory_left()) continue;
    std::vector<std::uint8_t> piece = s->next_inventory(room);
    inventory_told_ += renumber_inventory(piece, inventory_told_, inventory_all_);
    return piece;
  }
  return {};
}

bool DiskTier::inventory_left() const {
  return std::any_of(stores_.begin(), stores_.end(),
                     [](const auto& s) { return s->inventory_left(); });
}

bool DiskTier::on() const {
  return std::any_of(stores_.begin(), stores_.end(), [](const auto& s) { return s->on(); });
}

std::string DiskTier::off_reason() const {
  std::string all;
  for (const auto& s : stores_) {
    if (!s->on()) all += (all.empty() ? "" : "; ") + s->off_reason();
  }
  return all;
}

DiskCounters DiskTier::counters() const {
  DiskCounters sum;
  for (const auto& s : stores_) sum.add(s->counters());
  return sum;
}

std::vector<std::string> DiskTier::take_notes() {
  std::vector<std::string> all;
  for (const auto& s : stores_) {
    for (std::string& line : s->take_notes()) all.push_back(std::move(line));
  }
  return all;
}

std::string DiskTier::verify() const {
  for (const auto& s : stores_) {
    if (std::string text = s->verify(); !text.empty()) return text;
  }
  return {};
}

}  // namespace kvc::disk
