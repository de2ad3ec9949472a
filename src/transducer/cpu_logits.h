// Logits in memory, for the CPU path: addresses of rows, the division of frames among workers, and arc
// weights.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transducer/cpu_batch.h"
#include "transducer/cpu_node.h"
#include "transducer/tuning.h"

namespace warpalign::detail::transducer {
inline namespace on_host {

inline std::size_t saved_bytes(const TransducerProblem& p) {
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
  // The elements that a worker takes at a time: large against its bookkeeping, small against a batch.
  const std::int64_t elements = cpu_tuning(cpu::selected_isa()).worker_elements;
  const std::int64_t chunk =
      std::clamp<std::int64_t>(elements / (states * p.labels), 1, std::max<std::int64_t>(frames, 1));
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

// Computes lse and arc weights of frames first .. last - 1. Returns whether they have a NaN or +inf.
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

// Computes lse and arc weights of all utterances, by all threads. is_nan: (B,), whether an utterance has a
// NaN or +inf.
template <class T>
void weigh_batch(const TransducerProblem& p, const Batch& batch, void* saved, std::int32_t* is_nan,
                 const Execution& execution) {
  std::fill_n(is_nan, p.lattice.batch, 0);
  for_frames(p, batch, false, execution,
             [&](const Utterance& utterance, std::int32_t first, std::int32_t last) {
               if (weigh_frames<T>(p, utterance, saved, first, last)) {
                 std::atomic_ref(is_nan[utterance.index]).store(1, std::memory_order_relaxed);
               }
             });
}

}  // namespace on_host
}  // namespace warpalign::detail::transducer
