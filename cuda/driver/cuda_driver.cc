#include "cuda/driver/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace kvc::cuda {

namespace {

// The entries are asked for as of this version: cuMemcpyBatchAsync changed its parameters in 13.0.
constexpr int entries_as_of = 12080;

using ProcAddress = DriverResult (*)(const char*, void**, int, std::uint64_t, int*);

struct Resolver {
  void* library = nullptr;
  ProcAddress proc_address = nullptr;

  explicit Resolver(void* lib)
      : library(lib),
        proc_address(reinterpret_cast<ProcAddress>(dlsym(lib, "cuGetProcAddress_v2"))) {}

  // `exported` may be null: only cuGetProcAddress knows which of its forms is meant.
  [[nodiscard]] void* find(const char* name, const char* exported) const {
    void* at = nullptr;
    int status = 0;
    if (proc_address != nullptr &&
        proc_address(name, &at, entries_as_of, 0, &status) == driver_success && at != nullptr) {
      return at;
    }
    return exported == nullptr ? nullptr : dlsym(library, exported);
  }

  template <class F>
  [[nodiscard]] bool find(const char* name, const char* exported, F*& out) const {
    out = reinterpret_cast<F*>(find(name, exported));
    return out != nullptr;
  }
};

}  // namespace

Driver::~Driver() {
  if (library != nullptr) dlclose(library);
}

Result<std::shared_ptr<const Driver>> Driver::load(const std::string& path) {
  auto driver = std::make_shared<Driver>();
  driver->path = path.empty() ? "libcuda.so.1" : path;
  driver->library = dlopen(driver->path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (driver->library == nullptr) {
    const char* why = dlerror();
    return {Code::unsupported,
            fmt::format("no CUDA driver: {}", why == nullptr ? "unknown error" : why)};
  }
  const Resolver resolver(driver->library);
  const auto missing = [&](const char* name) -> Status {
    return {Code::unsupported, fmt::format("{} has no entry {}", driver->path, name)};
  };
#define KVC_CUDA_FIND(member, name, symbol, parameters) \
  if (!resolver.find(name, symbol, driver->member)) return missing(name);
  KVC_CUDA_ENTRIES(KVC_CUDA_FIND)
#undef KVC_CUDA_FIND
  static_cast<void>(resolver.find("cuMemcpyBatchAsync", nullptr, driver->copy_batch));
  driver->own_kernel_image = dlsym(driver->library, "kvc_kernel_image");
  if (const DriverResult r = driver->init(0); r != driver_success) {
    return driver->error(r, driver->path + ": cuInit", Code::unsupported);
  }
  if (const DriverResult r = driver->driver_version(&driver->version); r != driver_success) {
    return driver->error(r, driver->path + ": cuDriverGetVersion", Code::unsupported);
  }
  return std::shared_ptr<const Driver>(std::move(driver));
}

Status Driver::error(DriverResult result, const std::string& what, Code code) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (error_name(result, &name) != driver_success || name == nullptr) name = "unknown error";
  if (error_string(result, &text) != driver_success || text == nullptr) text = "no text";
  return {code, fmt::format("{}: {} ({}): {}", what, name, result, text)};
}

}  // namespace kvc::cuda
