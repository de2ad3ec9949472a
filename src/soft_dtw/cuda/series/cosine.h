// The cosine cost, computed as half the squared distance of steps of length 1 (unit_steps.h).
#pragma once

#include <cstddef>

#include "soft_dtw/cuda/call/call.h"
#include "soft_dtw/cuda/series/unit_steps.h"

namespace warpalign::detail::soft_dtw {

// The calls on unit steps that make up a call for the cosine. Their addresses are set by place().
class UnitCalls {
 public:
  explicit UnitCalls(const Call& of);
  UnitCalls(const UnitCalls&) = delete;  // arrays_ points into it
  UnitCalls& operator=(const UnitCalls&) = delete;

  [[nodiscard]] const Call& main() const { return main_; }
  // Whether the gradients with respect to the unit steps are needed: for second order.
  [[nodiscard]] bool needs_first_order() const {
    return of_.second_order && (of_.out.grad_x || of_.out.grad_y);
  }
  [[nodiscard]] const Call& first_order() const { return first_order_; }

  // Bytes of the unit steps and their gradients. The calls' own workspace follows them.
  [[nodiscard]] std::size_t workspace_bytes() const;
  void place(void* workspace);

  // Enqueues the computation of the unit steps. Called before the calls.
  [[nodiscard]] Status make_steps(cudaStream_t stream) const;
  // Enqueues the computation of the caller's gradients from those with respect to the unit steps. Called
  // after the calls.
  [[nodiscard]] Status make_gradients(cudaStream_t stream) const;

 private:
  struct Array {
    void** address;
    std::size_t bytes;
  };
  void add(void*& address, std::size_t bytes) { arrays_[count_++] = {&address, bytes}; }

  Call of_;
  Call main_;
  Call first_order_;
  UnitSteps x_;
  UnitSteps y_;
  Array arrays_[9];
  int count_ = 0;
};

}  // namespace warpalign::detail::soft_dtw
