// A point in a stream that other streams wait for.
#pragma once

#include "cuda/launch/check.h"

namespace warpalign::cuda {

// Where plans are described, an event stands for nothing.
class Event {
 public:
  Event() {
    if (!PlanLog::current()) status_ = to_status(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  }
  ~Event() {
    if (event_) cudaEventDestroy(event_);  // CUDA frees it when no stream waits for it any more
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // The event now stands for all work enqueued in `stream` so far.
  [[nodiscard]] Status record(cudaStream_t stream) {
    return event_ ? to_status(cudaEventRecord(event_, stream)) : status_;
  }
  // Work enqueued in `stream` from now on runs after the work that the event stands for.
  [[nodiscard]] Status make_wait(cudaStream_t stream) const {
    return event_ ? to_status(cudaStreamWaitEvent(stream, event_, 0)) : status_;
  }

 private:
  cudaEvent_t event_ = nullptr;
  Status status_;
};

}  // namespace warpalign::cuda
