// Kernels with a name, which count their launches.
//
//   template <class Real>
//   inline const cuda::Kernel kSweep{kKernels, "sweep", cuda::type_name<Real>(), sweep_kernel<Real>};
//   ...
//   cuda::launch(kSweep<float>, config, params);
//
// kKernels is the operator's list. It has every kernel that the code launches before main() begins, also
// those that are never launched in this process.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "cuda/launch/launch.cuh"
#include "cuda/numbers/half.cuh"
#include "warpalign/kernel_launches.h"

namespace warpalign::cuda {

template <class T>
constexpr const char* type_name() {
  if constexpr (std::is_same_v<T, double>) return "float64";
  if constexpr (std::is_same_v<T, float>) return "float32";
  if constexpr (std::is_same_v<T, Float16>) return "float16";
  if constexpr (std::is_same_v<T, BFloat16>) return "bfloat16";
}

class KernelList;

// An entry of a list: a variable of static storage duration.
class KernelEntry {
 public:
  KernelEntry(const KernelEntry&) = delete;
  KernelEntry& operator=(const KernelEntry&) = delete;
  void count() const { launches_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] const char* name() const { return name_; }

 protected:
  // The name is copied. type: the element type the kernel is compiled for; null if only one kernel has this
  // name.
  KernelEntry(KernelList& list, const char* name, const char* type);
  ~KernelEntry() = default;

 private:
  friend class KernelList;
  char name_[sizeof(KernelLaunches::kernel)];
  const KernelEntry* const next_;
  mutable std::atomic<unsigned long long> launches_{0};  // successful launches by this process
};

// The kernels of an operator, in no particular order. It is constant-initialized: it exists before its
// entries register themselves.
class KernelList {
 public:
  constexpr KernelList() = default;
  KernelList(const KernelList&) = delete;
  KernelList& operator=(const KernelList&) = delete;

  // Entry number `index`; false where there is none.
  bool read(int index, KernelLaunches& out) const {
    const KernelEntry* entry = index < 0 ? nullptr : first_;
    while (entry && index-- > 0) entry = entry->next_;
    if (!entry) return false;
    std::memcpy(out.kernel, entry->name_, sizeof(out.kernel));
    out.launches = entry->launches_.load(std::memory_order_relaxed);
    return true;
  }

 private:
  friend class KernelEntry;
  const KernelEntry* first_ = nullptr;
};

inline KernelEntry::KernelEntry(KernelList& list, const char* name, const char* type) : next_(list.first_) {
  std::snprintf(name_, sizeof(name_), "%s%s%s", name, type ? " " : "", type ? type : "");
  list.first_ = this;
}

template <class... Parameters>
class Kernel : public KernelEntry {
 public:
  Kernel(KernelList& list, const char* name, const char* type, void (*global)(Parameters...))
      : KernelEntry(list, name, type), function_(global) {}
  [[nodiscard]] auto function() const { return function_; }

 private:
  void (*const function_)(Parameters...);
};

template <class... Parameters, class... Arguments>
Status launch(const Kernel<Parameters...>& kernel, const LaunchConfig& config,
              const Arguments&... arguments) {
  if (is_described(kernel.name(), config)) return {};
  const Status status = launch(kernel.function(), config, arguments...);
  if (status.ok()) kernel.count();
  return status;
}

}  // namespace warpalign::cuda
