// ThreadPool: threads for programs that have no pool of their own to lend. Owned by the caller; the library
// keeps none.
#pragma once

#include <memory>

#include "warpalign/execution.h"

namespace warpalign {

class ThreadPool {
 public:
  // The calling thread works too, so that threads - 1 are started. 0: one per hardware thread. Unlike the
  // calls of the library this may throw what std::thread throws, where the system has no thread left.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();  // no call may be running
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int threads() const;

  // Valid as long as the pool. Calls from several threads take turns; a task must not call it again.
  [[nodiscard]] ParallelFor parallel_for();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace warpalign
