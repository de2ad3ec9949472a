// A call of soft_dtw() or soft_dtw_jvp() on a GPU. It is planned once, when it is constructed.
#pragma once

#include <cstddef>

#include "core/plan_log.h"
#include "soft_dtw/cuda/call/call.h"
#include "warpalign/kernel_launches.h"

namespace warpalign::detail::soft_dtw {

class CudaCall {
 public:
  // tangents: null for first order. Of addresses, only the alignment and whether they are null is used.
  CudaCall(const SoftDtwProblem& problem, const SoftDtwTangents* tangents, const SoftDtwOutputs& out,
           const Execution& execution);

  // An error unless the device exists, is the calling thread's current one, has enough shared memory,
  // and the way that the execution names can serve the call.
  [[nodiscard]] Status check() const;
  [[nodiscard]] std::size_t workspace_bytes() const;  // 0 if check() fails
  // check() is ok, and `workspace` has workspace_bytes().
  [[nodiscard]] Status run(void* workspace) const;

 private:
  // workspace: the memory after the widened series.
  [[nodiscard]] Status run(const Call& call, void* workspace) const;
  [[nodiscard]] std::size_t widened_bytes(bool of_x_alone = false) const;

  // Ways, sizes and memory; running adds the launches.
  void describe(PlanLog& log) const;

  Call call_;
  int ordinal_;
  void* stream_;
  Status status_;
  std::size_t unit_bytes_ = 0;  // bytes at the workspace's start: the cosine's unit steps and their gradients
  int launches_ = 0;
  Plan plans_[2] = {};
};

std::size_t workspace_bytes_cuda(const SoftDtwProblem& problem, const SoftDtwTangents* tangents,
                                 const SoftDtwOutputs& out, const Execution& execution);

// See soft_dtw_way().
const char* way_cuda(int index);
// See soft_dtw_kernel_launches().
bool kernel_launches_cuda(int index, KernelLaunches& out);

}  // namespace warpalign::detail::soft_dtw
