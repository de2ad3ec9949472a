// Shared by the joint's two calls on the CPU: sizes, weights in panels, and tiles of logits.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "transducer/cpu_batch.h"
#include "transducer/cpu_joint_kernel.h"
#include "transducer/joint_dropout.h"
#include "transducer/problem.h"
#include "transducer/tuning.h"

namespace warpalign::detail::transducer {
inline namespace on_host {

inline const CpuJoint& joint_kernels() {
  return cpu::with_selected_isa([](auto isa) -> const CpuJoint& { return joint_kernels_for(isa); });
}

template <class T>
const auto& joint_arithmetic() {
  if constexpr (std::is_same_v<T, double>) {
    return joint_kernels().joint64;
  } else {
    return joint_kernels().joint32;
  }
}
template <class T>
auto hidden_kernel() {
  if constexpr (std::is_same_v<T, double>) {
    return joint_kernels().hidden64;
  } else if constexpr (std::is_same_v<T, float>) {
    return joint_kernels().hidden32;
  } else {
    return std::is_same_v<T, Float16> ? joint_kernels().hidden16 : joint_kernels().hidden_b16;
  }
}

// Whether products of T multiply pairs of bfloat16 numbers.
template <class T>
bool multiplies_pairs() {
  return std::is_same_v<T, BFloat16> && joint_kernels().pairs.product && cpu::has_bfloat16_products();
}
constexpr std::int32_t pairs_of(std::int32_t count) { return (count + 1) / 2; }

// Calls body(task, worker) for every task below `tasks`, by all threads.
template <class Body>
void for_tasks(std::int64_t tasks, const Execution& execution, Body&& body) {
  if (tasks == 0) return;
  std::atomic<std::int64_t> next{0};
  run_workers(execution, static_cast<int>(std::min<std::int64_t>(threads_of(execution), tasks)),
              [&](int worker) {
                const host::FlushToZero flush;
                for (std::int64_t task = next++; task < tasks; task = next++) body(task, worker);
              });
}

struct NodePlace {
  std::int32_t b, t, u;
};

// Goes through all nodes of a batch: utterance by utterance, frame by frame.
class NodeWalk {
 public:
  // Starts at node number `node`, which may be the number of all nodes.
  NodeWalk(const TransducerLattice& lattice, const Batch& batch, std::int64_t node)
      : lattice_(lattice), batch_(batch) {
    if (node >= batch.nodes()) {
      at_.b = lattice.batch;
      return;
    }
    int low = 0, high = lattice.batch;  // bounds of the last utterance that begins at or before `node`
    while (high - low > 1) {
      const int middle = low + (high - low) / 2;
      (batch[middle].first_row <= node ? low : high) = middle;
    }
    enter(low);
    const std::int64_t inside = node - utterance_.first_row;
    at_ = {low, static_cast<std::int32_t>(inside / utterance_.states()),
           static_cast<std::int32_t>(inside % utterance_.states())};
  }

  [[nodiscard]] bool ended() const { return at_.b >= lattice_.batch; }
  [[nodiscard]] const NodePlace& at() const { return at_; }
  [[nodiscard]] const Utterance& utterance() const { return utterance_; }

  void next() {
    if (++at_.u <= utterance_.labels) return;
    at_.u = 0;
    if (++at_.t < utterance_.frames) return;
    at_.t = 0;
    do {
      enter(at_.b + 1);
    } while (at_.b < lattice_.batch && utterance_.frames == 0);
  }

 private:
  void enter(int b) {
    at_.b = b;
    if (b < lattice_.batch) utterance_ = batch_[b];
  }

  const TransducerLattice& lattice_;
  const Batch& batch_;
  NodePlace at_{};
  Utterance utterance_{};
};

inline std::int64_t div_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

inline std::int64_t most_nodes(const TransducerLattice& l) {
  return static_cast<std::int64_t>(l.batch) * l.frames * l.states;
}

// Sizes in memory, in elements.
template <class T>
struct JointSizes {
  using Real = typename Arithmetic<T>::Real;

  std::int32_t width;                          // of a panel
  std::int32_t columns;                        // V + D
  std::int32_t hidden;                         // H
  std::int32_t padded_columns, padded_hidden;  // multiples of the width
  // Distances between rows: an odd number of vectors, so that neighbouring rows are in different sets of a
  // cache.
  std::int64_t column_stride, hidden_stride;
  std::int32_t tile;  // the number of rows computed together, which is even

  explicit JointSizes(const TransducerJointProblem& p)
      : width(joint_arithmetic<T>().width),
        columns(p.labels + (p.lattice.tdt ? p.lattice.durations : 0)),
        hidden(p.hidden),
        padded_columns(static_cast<std::int32_t>(div_up(columns, width) * width)),
        padded_hidden(static_cast<std::int32_t>(div_up(hidden, width) * width)),
        column_stride(padded_columns + width / 2),
        hidden_stride(padded_hidden + width / 2) {
    constexpr std::int64_t kMostRows = 96;
    const std::int64_t tile_bytes = cpu_tuning(cpu::selected_isa()).joint_tile_bytes;
    const std::int64_t row = (column_stride + hidden_stride) * static_cast<std::int64_t>(sizeof(Real));
    const std::int64_t together = joint_arithmetic<T>().rows;
    tile = static_cast<std::int32_t>(std::clamp(tile_bytes / row / together * together, together, kMostRows));
  }
  // The number of elements of the weights in panels; words of 32 bits if they are in pairs.
  [[nodiscard]] std::size_t weight_elements() const {
    return static_cast<std::size_t>(padded_columns) * (multiplies_pairs<T>() ? pairs_of(hidden) : hidden);
  }
  [[nodiscard]] std::size_t back_elements() const {
    return static_cast<std::size_t>(padded_hidden) * (multiplies_pairs<T>() ? pairs_of(columns) : columns);
  }
  // The number of words of a row in pairs.
  [[nodiscard]] std::int64_t column_words() const { return column_stride / 2; }
  [[nodiscard]] std::int64_t hidden_words() const { return hidden_stride / 2; }
};

// A call's joint network.
template <class T>
class JointNetwork {
 public:
  using Real = typename Arithmetic<T>::Real;

  // Memory: weight_elements() of weight, padded_columns of bias, and back_elements() of back, or null if
  // there is no gradient with respect to hidden rows.
  JointNetwork(const TransducerJointProblem& problem, Real* weight, Real* bias, Real* back,
               const Execution& execution)
      : p_(problem),
        sizes_(problem),
        dropout_(problem.dropout, problem.seed),
        weight_(weight),
        bias_(bias),
        back_(back) {
    const auto* const offset = static_cast<const T*>(p_.bias);
    for (std::int32_t k = 0; k < sizes_.padded_columns; ++k) {
      bias_[k] = offset && k < sizes_.columns ? static_cast<Real>(offset[k]) : Real(0);
    }
    multiplies_pairs<T>() ? pack<2>(execution) : pack<1>(execution);
  }

  [[nodiscard]] const JointSizes<T>& sizes() const { return sizes_; }

  // Computes hidden rows h and logits x of `rows` nodes; rows are hidden_stride and column_stride apart.
  // words: memory for h in pairs, hidden_words per row, used if products take pairs.
  void logits(const NodePlace* places, std::int32_t rows, Real* h, Real* x, std::int32_t* words) const {
    const auto hidden = hidden_kernel<T>();
    for (std::int32_t r = 0; r < rows; ++r) {
      const NodePlace& at = places[r];
      hidden(row_of(p_.encoder, at.b, at.t), row_of(p_.predictor, at.b, at.u), sizes_.hidden, is_tanh(),
             h + r * sizes_.hidden_stride);
      if (dropout_.drops()) drop(at, h + r * sizes_.hidden_stride);
    }
    multiply(h, sizes_.hidden_stride, sizes_.hidden, rows, weight_, sizes_.padded_columns, bias_, x,
             sizes_.column_stride, words);
  }

  // Computes dh from the gradients x of logits. zeros: padded_hidden zeros. words: as above, column_words per
  // row.
  void pull_back(const Real* x, const Real* h, std::int32_t rows, const Real* zeros, Real* dh,
                 std::int32_t* words) const {
    multiply(x, sizes_.column_stride, sizes_.columns, rows, back_, sizes_.padded_hidden, zeros, dh,
             sizes_.hidden_stride, words);
    for (std::int32_t r = 0; r < rows; ++r) {
      const std::int64_t row = r * sizes_.hidden_stride;
      if (!dropout_.drops()) {
        joint_arithmetic<T>().pull_back(h + row, dh + row, sizes_.hidden, is_tanh());
        continue;
      }
      for (std::int32_t j = 0; j < sizes_.hidden; ++j) dh[row + j] *= dropout_.slope(h[row + j], is_tanh());
    }
  }

 private:
  // Packs weights in panels of columns, and of hidden numbers. A word has kTogether neighbours along the
  // summed index.
  template <int kTogether>
  void pack(const Execution& execution) {
    const std::int64_t hidden = sizes_.hidden, columns = sizes_.columns;
    pack_panels<kTogether>(weight_, {hidden, 1}, columns, hidden, execution);
    if (back_) pack_panels<kTogether>(back_, {1, hidden}, hidden, columns, execution);
  }
  struct Strides {
    std::int64_t outer, depth;
  };
  // Panel n has columns k = n width .. n width + width - 1: element (j, k) is at j width + k - n width, j
  // along the depth.
  template <int kTogether>
  void pack_panels(Real* to, const Strides& stride, std::int64_t outer, std::int64_t depth,
                   const Execution& execution) {
    const auto* const from = static_cast<const T*>(p_.weight);
    const std::int64_t width = sizes_.width;
    for_tasks(div_up(outer, width), execution, [&](std::int64_t n, int) {
      Real* const panel = to + n * width * div_up(depth, kTogether);
      const auto put = [&](std::int64_t j, std::int64_t k) {
        const std::int64_t place = (n * width + k) * stride.outer;
        const bool exists = n * width + k < outer;
        Real& word = panel[j / kTogether * width + k];
        if constexpr (kTogether == 1) {
          word = exists ? static_cast<Real>(from[place + j * stride.depth]) : Real(0);
        } else if constexpr (std::is_same_v<T, BFloat16>) {
          T pair[2] = {};
          for (int i = 0; i < 2 && exists && j + i < depth; ++i)
            pair[i] = from[place + (j + i) * stride.depth];
          std::memcpy(&word, pair, sizeof word);
        }
      };
      // Reads along contiguous memory.
      if (stride.depth == 1) {
        for (std::int64_t k = 0; k < width; ++k) {
          for (std::int64_t j = 0; j < depth; j += kTogether) put(j, k);
        }
      } else {
        for (std::int64_t j = 0; j < depth; j += kTogether) {
          for (std::int64_t k = 0; k < width; ++k) put(j, k);
        }
      }
    });
  }

  // c = start + a b; b in panels.
  void multiply(const Real* a, std::int64_t a_row, std::int32_t depth, std::int32_t rows, const Real* b,
                std::int32_t columns, const Real* start, Real* c, std::int64_t c_row,
                std::int32_t* words) const {
    const std::int64_t width = sizes_.width;
    if constexpr (std::is_same_v<T, BFloat16>) {
      if (multiplies_pairs<T>()) {
        const CpuPairs& pairs = joint_kernels().pairs;
        for (std::int32_t r = 0; r < rows; ++r) pairs.pack_row(a + r * a_row, words + r * a_row / 2, depth);
        pairs.product({words, a_row / 2, 1, rows, reinterpret_cast<const std::int32_t*>(b),
                       width * pairs_of(depth), width, columns, pairs_of(depth), start, 0, c, c_row});
        return;
      }
    }
    joint_arithmetic<T>().product(
        {a, a_row, 1, rows, b, width * depth, width, columns, depth, start, 0, c, c_row});
  }

  void drop(const NodePlace& at, Real* h) const {
    PhiloxWords words{};
    for (std::int32_t j = 0; j < sizes_.hidden; ++j) {
      if (j % 4 == 0) words = dropout_.words(at.b, at.t, at.u, j / 4);
      h[j] = dropout_.masked(h[j], words.word[j % 4]);
    }
  }
  [[nodiscard]] bool is_tanh() const { return p_.activation == Activation::kTanh; }
  static const T* row_of(const StridedTensor& tensor, std::int64_t b, std::int64_t row) {
    return static_cast<const T*>(tensor.data) + b * tensor.stride[0] + row * tensor.stride[1];
  }

  const TransducerJointProblem& p_;
  const JointSizes<T> sizes_;
  const HiddenDropout<Real> dropout_;
  Real* const weight_;
  Real* const bias_;
  Real* const back_;
};

}  // namespace on_host
}  // namespace warpalign::detail::transducer
