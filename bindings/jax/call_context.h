// What XLA lends to the call that a thread runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "front_end.h"

namespace warpalign::binding {

struct CallContext {
  bool describes = false;       // whether only the results' shapes are asked for
  std::vector<Tensor> results;  // in the operator's order
  std::size_t next_result = 0;
  std::function<void*(std::size_t bytes)> scratch;
  ParallelFor parallel_for;  // used on a CPU
  void* stream = nullptr;    // used on a CUDA device
  std::int32_t device = 0;   // its ordinal

  // That of the innermost CurrentCall of this thread.
  static CallContext& current();
};

// Makes a context this thread's current one during its lifetime.
class CurrentCall {
 public:
  explicit CurrentCall(CallContext& context);
  ~CurrentCall();
  CurrentCall(const CurrentCall&) = delete;
  CurrentCall& operator=(const CurrentCall&) = delete;

 private:
  CallContext* previous_;
};

}  // namespace warpalign::binding
