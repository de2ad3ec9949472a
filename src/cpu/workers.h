// Workers of a call without a common queue.
#pragma once

#include <algorithm>
#include <type_traits>

#include "warpalign/execution.h"

namespace warpalign::cpu {

// Runs body(worker) for every worker.
template <class Body>
void run_workers(const Execution& execution, int workers, Body&& body) {
  if (workers == 1) return body(0);
  const auto task = [](void* state, int worker) {
    (*static_cast<std::remove_reference_t<Body>*>(state))(worker);
  };
  execution.parallel_for.run(execution.parallel_for.context, workers, task, &body);
}

inline int threads_of(const Execution& execution) {
  return execution.parallel_for.run ? std::max(execution.parallel_for.threads, 1) : 1;
}

}  // namespace warpalign::cpu
