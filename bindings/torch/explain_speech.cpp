// Plans of transducers, CTC and LSTMs by their sizes.
#include <algorithm>

#include "explain.h"
#include "warpalign/ctc.h"
#include "warpalign/recurrent.h"
#include "warpalign/transducer.h"
#include "warpalign/transducer_joint.h"

namespace warpalign::binding {
namespace {

// B utterances of T frames and U labels, all of column 1; blank is column 0.
TransducerLattice lattice_of(int batch, int frames, int labels, Places& places) {
  TransducerLattice lattice;
  lattice.batch = batch;
  lattice.frames = frames;
  lattice.states = labels + 1;
  lattice.targets = places.ones(static_cast<std::size_t>(batch) * std::max(labels, 0));
  return lattice;
}

}  // namespace

// B, T, U, V.
Status explain_transducer(const ExplainRequest& request) {
  Places places;
  TransducerProblem p;
  p.dtype = request.dtype;
  p.lattice = lattice_of(request.size(0), request.size(1), request.size(2), places);
  p.labels = request.size(3);
  const std::int64_t states = p.lattice.states;
  p.logits = places.tensor<4>({p.lattice.batch, p.lattice.frames, states, p.labels});
  TransducerOutputs out;
  out.loss = places.next();
  if (request.gradient) out.saved = places.next();
  const std::size_t bytes = transducer_workspace_bytes(p, out, request.execution);
  const Status status = transducer(p, out, places.workspace(bytes), request.execution);
  if (!status.ok() || !request.gradient) return status;
  TransducerGradient gradient;
  gradient.saved = out.saved;
  gradient.grad_loss = places.next();
  gradient.logits = places.next();
  std::copy_n(p.logits.stride, 3, gradient.logits_stride);
  const std::size_t more = transducer_gradient_workspace_bytes(p, gradient, request.execution);
  return transducer_gradient(p, gradient, places.workspace(more), request.execution);
}

// B, T, U, V, H.
Status explain_transducer_joint(const ExplainRequest& request) {
  Places places;
  TransducerJointProblem p;
  p.dtype = request.dtype;
  p.lattice = lattice_of(request.size(0), request.size(1), request.size(2), places);
  p.labels = request.size(3);
  p.hidden = request.size(4);
  p.encoder = places.tensor<3>({p.lattice.batch, p.lattice.frames, p.hidden});
  p.predictor = places.tensor<3>({p.lattice.batch, p.lattice.states, p.hidden});
  p.weight = places.next();
  p.bias = places.next();
  TransducerOutputs out;
  out.loss = places.next();
  if (request.gradient) out.saved = places.next();
  const std::size_t bytes = transducer_joint_workspace_bytes(p, out, request.execution);
  const Status status = transducer_joint(p, out, places.workspace(bytes), request.execution);
  if (!status.ok() || !request.gradient) return status;
  TransducerJointGradient gradient;
  gradient.saved = out.saved;
  gradient.grad_loss = places.next();
  gradient.encoder = places.next();
  gradient.predictor = places.next();
  gradient.weight = places.next();
  gradient.bias = places.next();
  const std::size_t more = transducer_joint_gradient_workspace_bytes(p, gradient, request.execution);
  return transducer_joint_gradient(p, gradient, places.workspace(more), request.execution);
}

// B, T, C, U.
Status explain_ctc(const ExplainRequest& request) {
  Places places;
  CtcProblem p;
  p.dtype = request.dtype;
  p.batch = request.size(0);
  p.frames = request.size(1);
  p.classes = request.size(2);
  p.labels = request.size(3);
  p.logits = places.tensor<3>({p.batch, p.frames, p.classes});
  p.targets = places.ones(static_cast<std::size_t>(p.batch) * std::max(p.labels, 0));
  CtcOutputs out;
  out.loss = places.next();
  if (request.gradient) out.saved = places.next();
  const std::size_t bytes = ctc_loss_workspace_bytes(p, out, request.execution);
  const Status status = ctc_loss(p, out, places.workspace(bytes), request.execution);
  if (!status.ok() || !request.gradient) return status;
  CtcGradient gradient;
  gradient.saved = out.saved;
  gradient.logits = places.next();
  std::copy_n(p.logits.stride, 3, gradient.logits_stride);
  const std::size_t more = ctc_gradient_workspace_bytes(p, gradient, request.execution);
  return ctc_gradient(p, gradient, places.workspace(more), request.execution);
}

// T, B, I, H.
Status explain_lstm(const ExplainRequest& request) {
  Places places;
  LstmProblem p;
  p.dtype = request.dtype;
  p.steps = request.size(0);
  p.batch = request.size(1);
  p.input = request.size(2);
  p.hidden = request.size(3);
  if (p.dtype == DType::kFloat64) p.cell_dtype = DType::kFloat64;
  p.training = request.gradient;
  p.x = places.tensor<3>({p.steps, p.batch, p.input});
  const LstmWeights weights{places.next(), places.next(), places.next(), places.next()};
  p.weights = &weights;
  // Products that torch would make: they are described, and not called.
  Execution execution = request.execution;
  execution.matrix_product.run = [](void*, const MatrixProductCall&) { return false; };
  LstmOutputs out;
  out.y = places.next();
  out.h_n = places.next();
  out.c_n = places.next();
  if (request.gradient) out.tape = places.next();
  const std::size_t bytes = lstm_workspace_bytes(p, out, execution);
  const Status status = lstm(p, out, places.workspace(bytes), execution);
  if (!status.ok() || !request.gradient) return status;
  LstmIncoming incoming;
  incoming.y = places.next();
  const LstmWeightGradients of_weights{places.next(), places.next(), places.next()};
  LstmGradients gradients;
  gradients.x = places.next();
  gradients.weights = &of_weights;
  const std::size_t more = lstm_backward_workspace_bytes(p, gradients, execution);
  return lstm_backward(p, {out.tape, out.y}, incoming, gradients, places.workspace(more), execution);
}

}  // namespace warpalign::binding
