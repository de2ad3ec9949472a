// How calls run: the ways of each operator, and the description of a call's plan.
//
//   const warpalign::PlanDescription description("9.0");  // an H100, whether the machine has one or not
//   const Execution execution = Execution::cuda(0, nullptr);
//   const std::size_t bytes = soft_dtw_workspace_bytes(problem, outputs, execution);
//   const Status status = soft_dtw(problem, outputs, {memory, bytes}, execution);  // computes nothing
//   std::puts(description.text().c_str());
#pragma once

#include <string>

#include "warpalign/execution.h"
#include "warpalign/status.h"

namespace warpalign {

namespace detail {
class PlanLog;
}

// Name number `index` of the ways of soft_dtw() and soft_dtw_jvp() on a device, which Execution::way takes;
// null where there is none. Numbers begin with 0. A library without CUDA has no ways on CUDA. Functions of an
// operator that have one way alone, as second derivatives have, take any of these names.
const char* soft_dtw_way(Device device, int index);
// The same of transducer(), its gradient and alignments.
const char* transducer_way(Device device, int index);
// The same of transducer_joint() and its gradient.
const char* transducer_joint_way(Device device, int index);
// The same of CTC's functions.
const char* ctc_way(Device device, int index);
// The same of lstm() and its gradient.
const char* lstm_way(Device device, int index);
// The same of sinkhorn(), its derivatives, and the functions of a plan.
const char* sinkhorn_way(Device device, int index);

// While it lives, calls of this thread are planned as ever and described here; nothing is computed, enqueued
// or written. Addresses have to keep the contract, but on CUDA their memory is never touched: any address of
// the right alignment will do. Not for several at a time in one thread.
class PlanDescription {
 public:
  // device_class: a compute capability, such as "9.0", whose typical device the CUDA path is planned for,
  // with or without a GPU; null: for the execution's device. Where a plan depends on how many blocks of a
  // kernel a device holds, that number is estimated for a class.
  explicit PlanDescription(const char* device_class = nullptr);
  ~PlanDescription();
  PlanDescription(const PlanDescription&) = delete;
  PlanDescription& operator=(const PlanDescription&) = delete;

  // ok, or that the class is not known, and which ones are.
  [[nodiscard]] Status status() const;
  // The calls so far: for each the way and why it was taken, sizes, the workspace by part, and launches with
  // grid and block. Lines for people; their form may change.
  [[nodiscard]] std::string text() const;

 private:
  detail::PlanLog* const log_;
};

}  // namespace warpalign
