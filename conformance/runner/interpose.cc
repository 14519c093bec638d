// kvc-conform's own malloc, nanosleep and others stand before those of the C library, so that what
// a connector does inside calls marked noalloc and nowait is seen (KVC-P-014, KVC-P-015). Not in
// sanitized builds: there these functions are the sanitizer's.
#if !defined(KVC_SANITIZED)

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "conformance/rig/watch.h"

using kvc::rig::watch::saw_clock;
using kvc::rig::watch::saw_heap;
using kvc::rig::watch::saw_wait;

namespace {

// Where the system's loader lies. It takes memory for a library's thread-locals at their first use
// in a thread: that is not the library's call.
struct Range {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};
Range loader_range;

int find_loader(dl_phdr_info* info, std::size_t, void*) {
  if (std::strstr(info->dlpi_name, "/ld-linux") == nullptr) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD) continue;
    const std::uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    if (loader_range.begin == 0 || begin < loader_range.begin) loader_range.begin = begin;
    loader_range.end = std::max(loader_range.end, begin + header.p_memsz);
  }
  return 1;
}

[[gnu::constructor]] void learn_loader() { ::dl_iterate_phdr(find_loader, nullptr); }

void saw_heap_of(const void* caller, const char* function) {
  const auto at = reinterpret_cast<std::uintptr_t>(caller);
  if (at < loader_range.begin || at >= loader_range.end) saw_heap(function);
}

template <class F>
F next(const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

#define KVC_INTERPOSED [[gnu::visibility("default")]]

extern "C" {

// Of glibc, under the names that stay when malloc is replaced.
void* __libc_malloc(std::size_t);                 // NOLINT(bugprone-reserved-identifier)
void* __libc_calloc(std::size_t, std::size_t);    // NOLINT(bugprone-reserved-identifier)
void* __libc_realloc(void*, std::size_t);         // NOLINT(bugprone-reserved-identifier)
void* __libc_memalign(std::size_t, std::size_t);  // NOLINT(bugprone-reserved-identifier)
void __libc_free(void*);                          // NOLINT(bugprone-reserved-identifier)

KVC_INTERPOSED void* malloc(std::size_t size) {
  saw_heap_of(__builtin_return_address(0), "malloc");
  return __libc_malloc(size);
}
KVC_INTERPOSED void* calloc(std::size_t count, std::size_t size) {
  saw_heap_of(__builtin_return_address(0), "calloc");
  return __libc_calloc(count, size);
}
KVC_INTERPOSED void* realloc(void* p, std::size_t size) {
  saw_heap_of(__builtin_return_address(0), "realloc");
  return __libc_realloc(p, size);
}
KVC_INTERPOSED void free(void* p) {
  if (p != nullptr) saw_heap_of(__builtin_return_address(0), "free");
  __libc_free(p);
}
KVC_INTERPOSED void* aligned_alloc(std::size_t align, std::size_t size) {
  saw_heap("aligned_alloc");
  return __libc_memalign(align, size);
}
KVC_INTERPOSED int posix_memalign(void** out, std::size_t align, std::size_t size) {
  saw_heap("posix_memalign");
  if (align % sizeof(void*) != 0 || (align & (align - 1)) != 0 || align == 0) return EINVAL;
  void* const p = __libc_memalign(align, size);
  if (p == nullptr) return ENOMEM;
  *out = p;
  return 0;
}
KVC_INTERPOSED void* mmap(void* at, std::size_t bytes, int prot, int flags, int fd, off_t offset) {
  saw_heap("mmap");
  // NOLINTNEXTLINE: the system call returns an address or an error as a long
  return reinterpret_cast<void*>(::syscall(SYS_mmap, at, bytes, prot, flags, fd, offset));
}
KVC_INTERPOSED int munmap(void* at, std::size_t bytes) {
  saw_heap("munmap");
  return static_cast<int>(::syscall(SYS_munmap, at, bytes));
}

KVC_INTERPOSED int nanosleep(const timespec* wanted, timespec* left) {
  static const auto real = next<int (*)(const timespec*, timespec*)>("nanosleep");
  saw_wait("nanosleep");
  return real(wanted, left);
}
KVC_INTERPOSED int clock_nanosleep(clockid_t clock, int flags, const timespec* wanted,
                                   timespec* left) {
  static const auto real =
      next<int (*)(clockid_t, int, const timespec*, timespec*)>("clock_nanosleep");
  saw_wait("clock_nanosleep");
  return real(clock, flags, wanted, left);
}
KVC_INTERPOSED int usleep(useconds_t us) {
  static const auto real = next<int (*)(useconds_t)>("usleep");
  saw_wait("usleep");
  return real(us);
}
KVC_INTERPOSED unsigned sleep(unsigned seconds) {
  static const auto real = next<unsigned (*)(unsigned)>("sleep");
  saw_wait("sleep");
  return real(seconds);
}
KVC_INTERPOSED int poll(pollfd* fds, nfds_t count, int ms) {
  static const auto real = next<int (*)(pollfd*, nfds_t, int)>("poll");
  saw_wait("poll");
  return real(fds, count, ms);
}
KVC_INTERPOSED int select(int n, fd_set* in, fd_set* out, fd_set* odd, timeval* limit) {
  static const auto real = next<int (*)(int, fd_set*, fd_set*, fd_set*, timeval*)>("select");
  saw_wait("select");
  return real(n, in, out, odd, limit);
}
KVC_INTERPOSED ssize_t read(int fd, void* to, std::size_t bytes) {
  static const auto real = next<ssize_t (*)(int, void*, std::size_t)>("read");
  saw_wait("read");
  return real(fd, to, bytes);
}
KVC_INTERPOSED ssize_t write(int fd, const void* from, std::size_t bytes) {
  static const auto real = next<ssize_t (*)(int, const void*, std::size_t)>("write");
  saw_wait("write");
  return real(fd, from, bytes);
}
KVC_INTERPOSED ssize_t pread(int fd, void* to, std::size_t bytes, off_t at) {
  static const auto real = next<ssize_t (*)(int, void*, std::size_t, off_t)>("pread");
  saw_wait("pread");
  return real(fd, to, bytes, at);
}
KVC_INTERPOSED ssize_t pwrite(int fd, const void* from, std::size_t bytes, off_t at) {
  static const auto real = next<ssize_t (*)(int, const void*, std::size_t, off_t)>("pwrite");
  saw_wait("pwrite");
  return real(fd, from, bytes, at);
}
KVC_INTERPOSED int open(const char* path, int flags, ...) {
  static const auto real = next<int (*)(const char*, int, ...)>("open");
  saw_wait("open");
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return real(path, flags, mode);
}
KVC_INTERPOSED int fsync(int fd) {
  static const auto real = next<int (*)(int)>("fsync");
  saw_wait("fsync");
  return real(fd);
}
KVC_INTERPOSED int pthread_cond_wait(pthread_cond_t* cond, pthread_mutex_t* mutex) {
  using Wait = int (*)(pthread_cond_t*, pthread_mutex_t*);
  static const auto real =
      reinterpret_cast<Wait>(::dlvsym(RTLD_NEXT, "pthread_cond_wait", "GLIBC_2.3.2"));
  saw_wait("pthread_cond_wait");
  return real(cond, mutex);
}
KVC_INTERPOSED int clock_gettime(clockid_t clock, timespec* now) {
  static const auto real = next<int (*)(clockid_t, timespec*)>("clock_gettime");
  saw_clock();
  return real(clock, now);
}

}  // extern "C"

#endif
