// CTC's losses on the CPU: the normalisers of all frames first, then for each utterance the sum over the
// paths of its lattice. Threads share the frames, then the utterances.
#include <cstddef>
#include <cstdint>

#include "ctc/cpu_forward.h"

namespace warpalign::detail::ctc {

std::size_t saved_bytes_cpu(const CtcProblem& p, const Execution& /*execution*/) {
  return static_cast<std::size_t>(p.batch) * Saved::doubles(p) * sizeof(double);
}

std::size_t loss_workspace_bytes_cpu(const CtcProblem& p, const CtcOutputs& out, const Execution& execution) {
  Arena arena;
  static_cast<void>(ForwardMemory(p, out.saved != nullptr, execution, arena));
  return arena.used();
}

Status loss_cpu(const CtcProblem& p, const CtcOutputs& out, Workspace workspace, const Execution& execution) {
  Arena arena(workspace.data);
  const ForwardMemory memory(p, out.saved != nullptr, execution, arena);
  const Batch batch(p, memory.first_targets);
  visit_dtype(p.dtype, [&](auto type) {
    forward<typename decltype(type)::Type>(p, out.loss, out.saved, memory, batch, execution);
  });
  return {};
}

}  // namespace warpalign::detail::ctc
