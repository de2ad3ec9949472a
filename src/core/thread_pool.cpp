#include "warpalign/thread_pool.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace warpalign {

class ThreadPool::Impl {
 public:
  explicit Impl(int threads) : threads_(threads) {
    helpers_.reserve(threads_ - 1);
    try {
      for (int k = 1; k < threads_; ++k) helpers_.emplace_back([this] { help(); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Impl() { stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[nodiscard]] int threads() const { return threads_; }

  void run(int tasks, ParallelFor::Task task, void* state) {
    if (tasks <= 0) return;
    const std::lock_guard turn(turn_);
    std::unique_lock lock(mutex_);
    task_ = task;
    state_ = state;
    tasks_ = tasks;
    next_ = 0;
    open_ = tasks;
    wake_.notify_all();
    take_tasks(lock);
    done_.wait(lock, [this] { return open_ == 0; });
  }

 private:
  // The caller holds the lock on entry and on return. Tasks are long: one lock per task does not matter.
  void take_tasks(std::unique_lock<std::mutex>& lock) {
    while (next_ < tasks_) {
      const int index = next_++;
      const ParallelFor::Task task = task_;
      void* const state = state_;
      lock.unlock();
      task(state, index);
      lock.lock();
      if (--open_ == 0) done_.notify_one();
    }
  }

  void help() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stopping_ || next_ < tasks_; });
      if (stopping_) return;
      take_tasks(lock);
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
  }

  const int threads_;
  std::vector<std::thread> helpers_;
  std::mutex turn_;  // one run() at a time

  std::mutex mutex_;  // guards the members below
  std::condition_variable wake_;
  std::condition_variable done_;
  ParallelFor::Task task_ = nullptr;
  void* state_ = nullptr;
  int tasks_ = 0;
  int next_ = 0;  // first task that no thread has taken
  int open_ = 0;  // tasks that have not ended
  bool stopping_ = false;
};

ThreadPool::ThreadPool(int threads)
    : impl_(std::make_unique<Impl>(
          threads > 0 ? threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency())))) {}

ThreadPool::~ThreadPool() = default;

int ThreadPool::threads() const { return impl_->threads(); }

ParallelFor ThreadPool::parallel_for() {
  return {[](void* context, int tasks, ParallelFor::Task task, void* state) {
            static_cast<Impl*>(context)->run(tasks, task, state);
          },
          impl_.get(), impl_->threads()};
}

}  // namespace warpalign
