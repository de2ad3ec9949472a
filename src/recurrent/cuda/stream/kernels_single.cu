// The LSTM's kernels of one step without a tape, and which of them a step takes.
#include <cstdint>

#include "recurrent/cuda/stream/single_step.cuh"
#include "recurrent/cuda/stream/single_unit_step.cuh"

namespace warpalign::detail::recurrent {

// kernels_single_tf32.cu compiles it.
extern template bool launch_single_units<1>(Queue&, const SingleStepParams<float>&,
                                            const cuda::LaunchConfig&);

// On the matrix units.
template <class T>
bool run_on_units(Queue& queue, const SingleStepParams<T>& step, const cuda::LaunchConfig& config) {
  if constexpr (sizeof(T) == 4) {
    if (queue.execution().precision != Precision::kMedium) {
      return launch_single_units<3>(queue, step, config);
    }
  }
  return launch_single_units<1>(queue, step, config);
}

template <class T>
bool run_single_step(Queue& queue, const LstmProblem& p, const SingleStepParams<T>& step, bool with_tape,
                     bool follows) {
  const auto is_whole = [](const void* data, Offset stride) {
    return reinterpret_cast<std::uintptr_t>(data) % sizeof(Piece<T>) == 0 && stride % Piece<T>::kSize == 0;
  };
  if (p.steps != 1 || p.batch > (kHasUnits<T> ? kMostSingleUnitRows : 1) || with_tape || p.bidirectional ||
      p.projection > 0 || p.layer_norm || !is_plain(p) || drops_weights(p) ||
      queue.execution().batch_invariant) {
    return false;
  }
  if (!is_whole(step.x, step.x_stride) || !is_whole(step.ih, step.input) || !is_whole(step.hh, p.hidden) ||
      !is_whole(step.h0, p.hidden)) {
    return false;
  }
  cuda::LaunchConfig config{.blocks = 0, .threads = kTileThreads};
  config.programmatic = follows && queue.device().has_clusters;
  if constexpr (kHasUnits<T>) {
    const bool by_lanes = p.batch == 1 && (sizeof(T) > 2 || p.hidden < kUnitsOfSingleRow);
    if (!by_lanes && run_on_units(queue, step, config)) return true;
    if (p.batch > 1) return false;
  }
  launch_single_lanes(queue, step, config);
  return true;
}

template bool run_single_step(Queue&, const LstmProblem&, const SingleStepParams<double>&, bool, bool);
template bool run_single_step(Queue&, const LstmProblem&, const SingleStepParams<float>&, bool, bool);
template bool run_single_step(Queue&, const LstmProblem&, const SingleStepParams<Float16>&, bool, bool);
template bool run_single_step(Queue&, const LstmProblem&, const SingleStepParams<BFloat16>&, bool, bool);

}  // namespace warpalign::detail::recurrent
