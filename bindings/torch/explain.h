// What `warpalign explain` asks: the plan of a call by sizes alone.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "warpalign/execution.h"
#include "warpalign/status.h"
#include "warpalign/tensor.h"

namespace warpalign::binding {

// A call by its sizes. Names and meanings of sizes are each operator's.
struct ExplainRequest {
  std::span<const std::int64_t> sizes;
  DType dtype;
  bool gradient;
  Execution execution;

  [[nodiscard]] std::int32_t size(std::size_t index) const {
    return index < sizes.size() ? static_cast<std::int32_t>(sizes[index]) : 0;
  }
};

// Addresses that nobody reads or writes, far from each other, and vectors that a CPU path's checks read.
class Places {
 public:
  void* next() {
    const std::uintptr_t address = std::uintptr_t{1} << 44 | ++count_ << 38;
    return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): no object has this address
  }
  template <std::size_t kRank>
  auto tensor(const std::int64_t (&extents)[kRank]) {
    return StridedTensorOf<static_cast<int>(kRank)>::contiguous(next(), extents);
  }
  const std::int32_t* ones(std::size_t count) {
    return integers_.emplace_back(count > 0 ? count : 1, 1).data();
  }
  Workspace workspace(std::size_t bytes) { return {next(), bytes}; }

 private:
  std::uintptr_t count_ = 0;
  std::deque<std::vector<std::int32_t>> integers_;
};

// Each makes its operator's calls, which are described and not run (warpalign/plan.h).
Status explain_soft_dtw(const ExplainRequest& request);
Status explain_sinkhorn(const ExplainRequest& request);
Status explain_transducer(const ExplainRequest& request);
Status explain_transducer_joint(const ExplainRequest& request);
Status explain_ctc(const ExplainRequest& request);
Status explain_lstm(const ExplainRequest& request);

}  // namespace warpalign::binding
