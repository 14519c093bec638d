// The host's allocator as a memory resource.
#pragma once
#include <kvc/kvc.h>

#include <cstddef>
#include <memory_resource>
#include <new>

namespace kvc::edge {

// What it serves: the arenas and the log ring of the edge. The roles and the pools of the copy
// engine use their own memory (page aligned mappings and the plugin's heap).
//
// Threads:    any, as the host's functions are [any].
// Owns:       nothing; the host table must outlive it.
class HostMemory final : public std::pmr::memory_resource {
 public:
  explicit HostMemory(const kvc_host_api& host) : host_(host) {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (host_.alloc == nullptr) {
      return std::pmr::new_delete_resource()->allocate(bytes, alignment);
    }
    void* p = host_.alloc(host_.self, bytes, alignment);
    if (p == nullptr) throw std::bad_alloc();
    return p;
  }
  void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override {
    if (host_.alloc == nullptr) {
      std::pmr::new_delete_resource()->deallocate(p, bytes, alignment);
    } else {
      host_.release(host_.self, p, bytes, alignment);
    }
  }
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }

  const kvc_host_api& host_;
};

}  // namespace kvc::edge
