// Decoding on CUDA: one launch computes scores, another one takes the step.
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/arena.h"
#include "core/visit_dtype.h"
#include "transducer/cuda/call/kernels.cuh"
#include "transducer/cuda/decode/beam.cuh"
#include "transducer/cuda/decode/decode_scores.cuh"
#include "transducer/cuda/decode/greedy.cuh"
#include "transducer/decode.h"
#include "transducer/walk.h"

namespace warpalign::detail::transducer {
namespace {

template <class Real>
const cuda::Kernel kScores{kKernels, "scores", cuda::type_name<Real>(), scores_kernel<Real>};
template <class Real>
const cuda::Kernel kGreedy{kKernels, "greedy", cuda::type_name<Real>(), greedy_kernel<Real>};
template <class Real>
const cuda::Kernel kBeam{kKernels, "beam", cuda::type_name<Real>(), beam_kernel<Real>};

Status launch_scores(const TransducerScores& p, cudaStream_t stream) {
  const std::int64_t rows = std::int64_t{p.batch} * p.beams * p.window;
  const std::int64_t blocks = cuda::div_up(rows, kScoreRows) * cuda::div_up(p.columns, kScoreColumns);
  if (blocks > std::numeric_limits<int>::max()) {
    return Status::unsupported("window", "fewer than 2^31 tiles of 16 rows and 64 columns");
  }
  return visit_float32_float64(p.dtype, [&](auto type) {
    using Real = typename decltype(type)::Type;
    return cuda::launch(kScores<Real>, {static_cast<int>(blocks), kScoreThreads, 0, stream}, p);
  });
}

template <class Real>
Real* take_scores(const TransducerGreedyStep& p, Arena& arena) {
  return arena.take<Real>(static_cast<std::size_t>(p.batch) * p.window * columns_of(p.decoding));
}

// The problem of a step's scores, for a step to which the caller gives none.
TransducerScores scores_of(const TransducerGreedyStep& p, void* scores) {
  TransducerScores s;
  s.dtype = p.dtype;
  s.batch = p.batch;
  s.frames = p.frames;
  s.window = p.window;
  s.columns = columns_of(p.decoding);
  s.lengths = p.lengths;
  s.frame = &p.walk->frame;
  s.frame_stride = sizeof(TransducerWalk) / sizeof(std::int32_t);
  s.joint = p.joint;
  s.scores = scores;
  return s;
}

}  // namespace

std::size_t scores_workspace_bytes_cuda(const TransducerScores&, const Execution&) { return 0; }

Status scores_cuda(const TransducerScores& p, Workspace, const Execution& execution) {
  return launch_scores(p, static_cast<cudaStream_t>(execution.stream));
}

std::size_t greedy_step_workspace_bytes_cuda(const TransducerGreedyStep& p, const Execution&) {
  if (p.scores) return 0;
  return visit_float32_float64(p.dtype, [&](auto type) {
    Arena arena;
    take_scores<typename decltype(type)::Type>(p, arena);
    return arena.used();
  });
}

Status greedy_step_cuda(const TransducerGreedyStep& p, Workspace workspace, const Execution& execution) {
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  return visit_float32_float64(p.dtype, [&](auto type) {
    using Real = typename decltype(type)::Type;
    TransducerGreedyStep step = p;
    if (!p.scores) {
      Arena arena(workspace.data);
      step.scores = take_scores<Real>(p, arena);
      const Status s =
          launch_scores(scores_of(p, const_cast<void*>(step.scores)), stream);  // NOLINT: written
      if (!s.ok()) return s;
    }
    constexpr int kThreads = kGreedyFrames * cuda::kWarpSize;
    return cuda::launch(kGreedy<Real>, {p.batch, kThreads, 0, stream}, step);
  });
}

std::size_t beam_step_workspace_bytes_cuda(const TransducerBeamStep& p, const Execution&) {
  return visit_float32_float64(p.dtype, [&](auto type) {
    Arena arena;
    static_cast<void>(BeamWork<typename decltype(type)::Type>(BeamLayout(p), p.batch, arena));
    return arena.used();
  });
}

Status beam_step_cuda(const TransducerBeamStep& p, Workspace workspace, const Execution& execution) {
  return visit_float32_float64(p.dtype, [&](auto type) {
    using Real = typename decltype(type)::Type;
    Arena arena(workspace.data);
    const BeamWork<Real> work(BeamLayout(p), p.batch, arena);
    return cuda::launch(kBeam<Real>, {p.batch, kBeamThreads, 0, static_cast<cudaStream_t>(execution.stream)},
                        p, work);
  });
}

}  // namespace warpalign::detail::transducer
