// The band of a pruned loss: the host side.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/arena.h"
#include "core/plan_log.h"
#include "cuda/launch/device.h"
#include "cuda/launch/launch.cuh"
#include "transducer/cuda/call/kernels.cuh"
#include "transducer/cuda/pruned/find_band.cuh"
#include "transducer/problem.h"

namespace warpalign::detail::transducer {
namespace {

const cuda::Kernel kFindBand{kKernels, "find band", nullptr, find_band_kernel};

int* take_ended(const TransducerBandProblem& p, Arena& arena) {
  return arena.take<int>(static_cast<std::size_t>(p.batch), "blocks of utterances that have ended");
}

}  // namespace

std::size_t band_workspace_bytes_cuda(const TransducerBandProblem& p) {
  Arena arena;
  take_ended(p, arena);
  return arena.used();
}

Status band_cuda(const TransducerBandProblem& p, Workspace workspace, const Execution& execution) {
  if (PlanLog* const log = PlanLog::current()) {
    log->begin("transducer_band", cuda::name_of_device(execution.cuda_device));
    log->line("way", "the only one");
  }
  constexpr int kResident = 8;  // blocks of a multiprocessor
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  Arena arena(workspace.data);
  int* const ended = take_ended(p, arena);
  if (Status s = cuda::set_memory(ended, 0, static_cast<std::size_t>(p.batch) * sizeof(int), stream);
      !s.ok()) {
    return s;
  }
  const int resident = kResident * std::max(cuda::traits_of(execution.cuda_device).multiprocessors, 1);
  const int per_utterance = std::clamp(resident / p.batch, 1, (p.frames + kFindWarps - 1) / kFindWarps);
  return cuda::launch(kFindBand, {p.batch * per_utterance, kFindThreads, 0, stream}, p, per_utterance, ended);
}

}  // namespace warpalign::detail::transducer
