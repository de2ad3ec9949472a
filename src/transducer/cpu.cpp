// The transducer's CPU path. Three passes: arc weights from the rows of logits, posteriors from the weights
// (a lattice per utterance), and gradients from the posteriors. Threads share the rows, then the utterances.
#include <cstddef>
#include <cstdint>

#include "core/arena.h"
#include "transducer/cpu_logits.h"
#include "transducer/cpu_solve.h"
#include "transducer/problem.h"

namespace warpalign::detail::transducer {
namespace {

struct ForwardMemory {
  std::int64_t* batch;
  std::int32_t* is_nan;
  double* rings;
  void* saved;  // used if the caller saves nothing

  ForwardMemory(const TransducerProblem& p, const TransducerOutputs& out, const Execution& execution,
                Arena& arena)
      : batch(arena.take<std::int64_t>(Batch::elements(p.lattice))),
        is_nan(arena.take<std::int32_t>(p.lattice.batch)),
        rings(arena.take<double>(Rings(p.lattice).elements() * lattice_workers(p.lattice, execution))),
        saved(arena.take<std::byte>(out.saved ? 0 : saved_bytes(p))) {}
};

template <class T>
void forward(const TransducerProblem& p, const TransducerOutputs& out, const ForwardMemory& memory,
             const Execution& execution) {
  using Real = typename Arithmetic<T>::Real;
  const Batch batch(p.lattice, memory.batch);
  void* const saved = out.saved ? out.saved : memory.saved;
  weigh_batch<T>(p, batch, saved, memory.is_nan, execution);
  solve_batch<Real>(p.lattice, batch, memory.is_nan, saved, out.saved != nullptr, memory.rings,
                    Arithmetic<T>::lattice(kernels()), static_cast<Real*>(out.loss), execution);
}

template <class T>
void write_gradients(const TransducerProblem& p, const TransducerGradient& gradient,
                     const Utterance& utterance, std::int32_t first, std::int32_t last) {
  using Real = typename Arithmetic<T>::Real;
  const TransducerLattice& l = p.lattice;
  const double upstream =
      static_cast<const Real*>(gradient.grad_loss)[utterance.index * gradient.grad_loss_stride];
  NodeGradients<T> node(l, p.labels, p.log_probs, utterance, gradient.saved, upstream);
  const std::int32_t states = p.packed ? utterance.states() : l.states;
  for (std::int32_t t = first; t < last; ++t) {
    for (std::int32_t u = 0; u < states; ++u) {
      T* const out = row_at<T>(gradient.logits, gradient.logits_stride, p.packed, utterance, t, u);
      T* const duration_out = l.tdt ? row_at<T>(gradient.duration_logits, gradient.duration_logits_stride,
                                                p.packed, utterance, t, u)
                                    : nullptr;
      if (t >= utterance.frames || u > utterance.labels) {
        fill_row(out, p.labels, false);
        fill_row(duration_out, l.durations, false);
        continue;
      }
      node.seek(t, u);
      node.write(row_at<T>(p.logits, p.packed, utterance, t, u), out,
                 l.tdt ? row_at<T>(p.duration_logits, p.packed, utterance, t, u) : nullptr, duration_out);
    }
  }
}

}  // namespace

std::size_t saved_bytes_cpu(const TransducerProblem& p, const Execution& /*execution*/) {
  return saved_bytes(p);
}

std::size_t workspace_bytes_cpu(const TransducerProblem& p, const TransducerOutputs& out,
                                const Execution& execution) {
  Arena arena;
  static_cast<void>(ForwardMemory(p, out, execution, arena));
  return arena.used();
}

Status forward_cpu(const TransducerProblem& p, const TransducerOutputs& out, Workspace workspace,
                   const Execution& execution) {
  Arena arena(workspace.data);
  const ForwardMemory memory(p, out, execution, arena);
  visit_dtype(p.dtype, [&](auto type) { forward<typename decltype(type)::Type>(p, out, memory, execution); });
  return {};
}

std::size_t gradient_workspace_bytes_cpu(const TransducerProblem& p, const TransducerGradient& /*gradient*/,
                                         const Execution& /*execution*/) {
  Arena arena;
  arena.take<std::int64_t>(Batch::elements(p.lattice));
  return arena.used();
}

Status gradient_cpu(const TransducerProblem& p, const TransducerGradient& gradient, Workspace workspace,
                    const Execution& execution) {
  Arena arena(workspace.data);
  const Batch batch(p.lattice, arena.take<std::int64_t>(Batch::elements(p.lattice)));
  visit_dtype(p.dtype, [&](auto type) {
    for_frames(p, batch, true, execution,
               [&](const Utterance& utterance, std::int32_t first, std::int32_t last) {
                 write_gradients<typename decltype(type)::Type>(p, gradient, utterance, first, last);
               });
  });
  return {};
}

}  // namespace warpalign::detail::transducer
