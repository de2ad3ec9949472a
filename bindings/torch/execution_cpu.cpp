// On the CPU torch's own intra-op thread pool runs the core's tasks.
#include <torch/csrc/stable/ops.h>

#include "execution.h"
#include "streams.h"

namespace warpalign::binding {
namespace {

void run_tasks(void* /*context*/, int tasks, ParallelFor::Task task, void* state) {
  torch::stable::parallel_for(0, tasks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) task(state, static_cast<int>(index));
  });
}

}  // namespace

Placement::Placement(const torch::stable::Tensor& /*tensor*/, Precision precision, bool batch_invariant)
    : execution_(Execution::host({&run_tasks, nullptr, static_cast<int>(torch::stable::get_num_threads())})) {
  execution_.precision = precision;  // changes nothing on the CPU, but the core checks it
  execution_.batch_invariant = batch_invariant;
}

std::vector<void*> side_streams_of(const torch::stable::Tensor& /*tensor*/, int /*count*/) { return {}; }

}  // namespace warpalign::binding
