// A call of soft_dtw() or soft_dtw_jvp() on a GPU. It is planned once, when it is constructed.
#pragma once

#include <cstddef>

#include "soft_dtw/cuda/call/call.h"
#include "warpalign/kernel_launches.h"

namespace warpalign::detail::soft_dtw {

class CudaCall {
 public:
  // tangents: null for first order. Only the addresses' alignment, and which of them are null, is looked at.
  CudaCall(const SoftDtwProblem& problem, const SoftDtwTangents* tangents, const SoftDtwOutputs& out,
           const Execution& execution);

  // Whether the device exists, is the calling thread's current one, and has enough shared memory.
  [[nodiscard]] Status check() const;
  [[nodiscard]] std::size_t workspace_bytes() const;  // 0 where check() fails
  // check() is ok, and `workspace` has workspace_bytes().
  [[nodiscard]] Status run(void* workspace) const;

 private:
  // The workspace behind what series of a half type are widened to.
  [[nodiscard]] Status run(const Call& call, void* workspace) const;
  [[nodiscard]] std::size_t widened_bytes(bool of_x_alone = false) const;

  Call call_;
  void* stream_;
  Status device_status_;
  std::size_t unit_bytes_ = 0;  // of the workspace's start: the cosine's unit steps and their gradients
  int launches_ = 0;
  Plan plans_[2] = {};
};

std::size_t workspace_bytes_cuda(const SoftDtwProblem& problem, const SoftDtwTangents* tangents,
                                 const SoftDtwOutputs& out, const Execution& execution);

// See soft_dtw_kernel_launches().
bool kernel_launches_cuda(int index, KernelLaunches& out);

}  // namespace warpalign::detail::soft_dtw
