// The LSTM's kernels of one step without a tape, and which of them a step takes.
#include "recurrent/cuda/steps/unit_step.cuh"
#include "recurrent/cuda/stream/single_step.cuh"
#include "recurrent/cuda/stream/single_unit_step.cuh"

namespace warpalign::detail::recurrent {

// kernels_single_tf32.cu compiles it.
extern template bool launch_single_units<1>(Queue&, const CudaTuning&, const SingleStepParams<float>&,
                                            const cuda::LaunchConfig&);

// On the matrix units.
template <class T>
bool run_on_units(Queue& queue, const CudaTuning& tuning, const SingleStepParams<T>& step,
                  const cuda::LaunchConfig& config) {
  if constexpr (sizeof(T) == 4) {
    if (queue.execution().precision != Precision::kMedium) {
      return launch_single_units<3>(queue, tuning, step, config);
    }
  }
  return launch_single_units<1>(queue, tuning, step, config);
}

template <class T>
bool run_single_step(Queue& queue, const CudaTuning& tuning, const SingleStepParams<T>& step, bool follows) {
  const int batch = step.cell.at.batch;
  cuda::LaunchConfig config{.blocks = 0, .threads = kTileThreads};
  config.programmatic = follows && queue.device().has_clusters;
  if constexpr (kHasUnits<T>) {
    const bool by_lanes = batch == 1 && (sizeof(T) > 2 || step.cell.hidden < tuning.single_row_units);
    if (!by_lanes && run_on_units(queue, tuning, step, config)) return true;
    if (batch > 1) return false;
  }
  launch_single_lanes(queue, step, config);
  return true;
}

template bool run_single_step(Queue&, const CudaTuning&, const SingleStepParams<double>&, bool);
template bool run_single_step(Queue&, const CudaTuning&, const SingleStepParams<float>&, bool);
template bool run_single_step(Queue&, const CudaTuning&, const SingleStepParams<Float16>&, bool);
template bool run_single_step(Queue&, const CudaTuning&, const SingleStepParams<BFloat16>&, bool);

}  // namespace warpalign::detail::recurrent
