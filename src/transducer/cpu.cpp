// The transducer's CPU path: rows of logits become arc weights, a lattice per utterance turns those into
// posteriors, and posteriors become gradients. Threads share rows, then utterances.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/arena.h"
#include "transducer/cpu_node.h"
#include "transducer/cpu_solve.h"
#include "transducer/problem.h"

namespace warpalign::detail::transducer {
namespace {

// Elements of logits that a worker takes at a time: large against its bookkeeping, small against a batch.
constexpr std::int64_t kChunk = 1 << 16;

std::size_t saved_bytes(const TransducerProblem& p) {
  const TransducerLattice& l = p.lattice;
  const std::int64_t nodes =
      p.packed ? p.packed_rows : static_cast<std::int64_t>(l.batch) * l.frames * l.states;
  return saved_elements(l, nodes) * real_size(p.dtype);
}

// Row (t, u) of logits, or of their gradient.
template <class T>
T* row_at(void* data, const std::int64_t* stride, bool packed, const Utterance& utterance, std::int32_t t,
          std::int32_t u) {
  if (packed) {
    return static_cast<T*>(data) +
           (utterance.first_row + static_cast<std::int64_t>(t) * utterance.states() + u) * stride[2];
  }
  return static_cast<T*>(data) + utterance.index * stride[0] + t * stride[1] + u * stride[2];
}
template <class T>
const T* row_at(const StridedTensorOf<4>& tensor, bool packed, const Utterance& utterance, std::int32_t t,
                std::int32_t u) {
  return row_at<const T>(const_cast<void*>(tensor.data), tensor.stride, packed, utterance, t, u);
}

// Calls body(utterance, first frame, last frame + 1) for all frames of the batch, by all threads.
template <class Body>
void for_frames(const TransducerProblem& p, const Batch& batch, bool with_padding, const Execution& execution,
                Body&& body) {
  const std::int64_t frames = with_padding && !p.packed ? p.lattice.frames : batch.longest();
  const std::int64_t states = p.packed ? batch.most_states() : p.lattice.states;
  const std::int64_t chunk =
      std::clamp<std::int64_t>(kChunk / (states * p.labels), 1, std::max<std::int64_t>(frames, 1));
  const std::int64_t chunks = (frames + chunk - 1) / chunk;
  const std::int64_t all = chunks * p.lattice.batch;
  if (all == 0) return;
  std::atomic<std::int64_t> next{0};
  run_workers(execution, static_cast<int>(std::min<std::int64_t>(threads_of(execution), all)), [&](int) {
    const host::FlushToZero flush;
    for (std::int64_t task = next++; task < all; task = next++) {
      const Utterance utterance = batch[static_cast<int>(task / chunks)];
      const std::int64_t begin = task % chunks * chunk;
      const std::int64_t end = std::min(begin + chunk, with_padding && !p.packed ? frames : utterance.frames);
      if (begin < end) body(utterance, static_cast<std::int32_t>(begin), static_cast<std::int32_t>(end));
    }
  });
}

// lse and arc weights of frames first .. last - 1. Returns whether a NaN or +inf is among them.
template <class T>
bool weigh_frames(const TransducerProblem& p, const Utterance& utterance, void* saved, std::int32_t first,
                  std::int32_t last) {
  const NodeWeights<T> node(p.lattice, p.labels, p.log_probs, utterance, saved);
  bool is_nan = false;
  for (std::int32_t t = first; t < last; ++t) {
    for (std::int32_t u = 0; u <= utterance.labels; ++u) {
      const T* const x = row_at<T>(p.logits, p.packed, utterance, t, u);
      const T* const z = node.timed() ? row_at<T>(p.duration_logits, p.packed, utterance, t, u) : nullptr;
      is_nan |= node.weigh(t, u, x, z);
    }
  }
  return is_nan;
}

struct ForwardMemory {
  std::int64_t* batch;
  std::int32_t* is_nan;
  double* rings;
  void* saved;  // where none is wanted

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
  std::fill_n(memory.is_nan, p.lattice.batch, 0);
  for_frames(p, batch, false, execution,
             [&](const Utterance& utterance, std::int32_t first, std::int32_t last) {
               if (weigh_frames<T>(p, utterance, saved, first, last)) {
                 std::atomic_ref(memory.is_nan[utterance.index]).store(1, std::memory_order_relaxed);
               }
             });
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
