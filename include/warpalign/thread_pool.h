// ThreadPool: threads for programs without a thread pool. The caller owns the pool; the library keeps no
// threads.
#pragma once

#include <memory>

#include "warpalign/execution.h"

namespace warpalign {

class ThreadPool {
 public:
  // Starts threads - 1 threads, because the calling thread works too. 0: as many as hardware threads. Throws
  // what std::thread throws, if the system has no thread left; the library's calls throw nothing.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();  // no call may be running
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int threads() const;

  // Valid as long as the pool lives. Calls from several threads take turns. A task must not call it again.
  [[nodiscard]] ParallelFor parallel_for();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace warpalign
