// The cosine cost, computed as half the squared distance of steps of length 1 (unit_steps.h).
#pragma once

#include <cstddef>

#include "soft_dtw/cuda/call/call.h"
#include "soft_dtw/cuda/series/unit_steps.h"

namespace warpalign::detail::soft_dtw {

// The calls on the unit steps that make up a call for the cosine. Their addresses are known after place().
class UnitCalls {
 public:
  explicit UnitCalls(const Call& of);
  UnitCalls(const UnitCalls&) = delete;  // arrays_ points into it
  UnitCalls& operator=(const UnitCalls&) = delete;

  [[nodiscard]] const Call& main() const { return main_; }
  // Second order needs the gradients by the unit steps, too.
  [[nodiscard]] bool needs_first_order() const {
    return of_.second_order && (of_.out.grad_x || of_.out.grad_y);
  }
  [[nodiscard]] const Call& first_order() const { return first_order_; }

  // Bytes of the unit steps and their gradients. The calls' own workspace lies behind them.
  [[nodiscard]] std::size_t workspace_bytes() const;
  void place(void* workspace);

  // Before the calls: the unit steps.
  [[nodiscard]] Status make_steps(cudaStream_t stream) const;
  // After them: the caller's gradients, from those by the unit steps.
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
