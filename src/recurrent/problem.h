// What the LSTM's paths share: the entry points of the public header, and the sizes that follow from a
// problem. api.cpp has checked the arguments; a path checks only what it alone can know.
#pragma once

#include <algorithm>
#include <string>

#include "warpalign/kernel_launches.h"
#include "warpalign/recurrent.h"

namespace warpalign::detail::recurrent {

inline int directions_of(const LstmProblem& p) { return p.bidirectional ? 2 : 1; }
// Layers times directions: a cell has weights, a state and outputs of its own. Cell layer D + direction.
inline int cells_of(const LstmProblem& p) { return p.layers * directions_of(p); }
// P: entries of h.
inline std::int64_t output_of(const LstmProblem& p) { return p.projection > 0 ? p.projection : p.hidden; }
inline std::int64_t input_of(const LstmProblem& p, int layer) {
  return layer == 0 ? p.input : output_of(p) * directions_of(p);
}
// (t, b) pairs in memory.
inline std::int64_t rows_of(const LstmProblem& p) {
  return p.row_starts ? p.packed_rows : static_cast<std::int64_t>(p.steps) * p.batch;
}
// With LstmProblem::recompute there are so many chunks of steps at most.
constexpr int kMostChunks = 4;
// Steps of each of them but the last, an even number if they are not all. one: all steps.
inline int steps_of_chunks(const LstmProblem& p, bool one) {
  constexpr int kFewestSteps = 32;
  const int share = (p.steps + 2 * kMostChunks - 1) / (2 * kMostChunks) * 2;
  return std::min(p.steps, one ? p.steps : std::max(share, kFewestSteps));
}

inline bool draws_masks(const LstmProblem& p) {
  return p.training && (p.dropout > 0 || p.weight_dropout > 0 || p.zoneout_hidden > 0 || p.zoneout_cell > 0);
}

// Which masks a random word is for: the last part of Philox's counter.
enum class MaskKind : std::uint32_t { kHidden = 0, kCell = 1, kWeight = 2, kDropout = 3 };

std::size_t packed_bytes_cpu(const LstmProblem&);
void pack_cpu(const LstmProblem&, void* packed);
std::size_t tape_bytes_cpu(const LstmProblem&);
std::size_t workspace_bytes_cpu(const LstmProblem&, const LstmOutputs&, const Execution&);
Status forward_cpu(const LstmProblem&, const LstmOutputs&, Workspace, const Execution&);
std::size_t backward_workspace_bytes_cpu(const LstmProblem&, const LstmGradients&, const Execution&);
Status backward_cpu(const LstmProblem&, const LstmKept&, const LstmIncoming&, const LstmGradients&, Workspace,
                    const Execution&);

std::size_t packed_bytes_cuda(const LstmProblem&);
Status pack_cuda(const LstmProblem&, void* packed, const Execution&);
std::size_t tape_bytes_cuda(const LstmProblem&);
std::size_t workspace_bytes_cuda(const LstmProblem&, const LstmOutputs&, const Execution&);
Status forward_cuda(const LstmProblem&, const LstmOutputs&, Workspace, const Execution&);
std::size_t backward_workspace_bytes_cuda(const LstmProblem&, const LstmGradients&, const Execution&);
Status backward_cuda(const LstmProblem&, const LstmKept&, const LstmIncoming&, const LstmGradients&,
                     Workspace, const Execution&);

// How the call would run, in a line for people: its way of a sweep, and which layers overlap.
std::string describe_cuda(const LstmProblem&, const Execution&, bool backward);

// See lstm_way().
const char* way_cuda(int index);

// See recurrent_kernel_launches().
bool kernel_launches_cuda(int index, KernelLaunches& out);

}  // namespace warpalign::detail::recurrent
