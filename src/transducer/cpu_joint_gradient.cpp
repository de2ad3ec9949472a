// The second call of the joint on the CPU. Goes through the live nodes in order, a chunk at a time. First,
// workers share the chunk's nodes: they compute the logits again, overwrite them with their gradients, and
// compute the gradients with respect to hidden rows. Then they share the columns of the results: each adds
// the chunk's nodes in order, so that results do not depend on the number of workers.
#include <cstring>
#include <limits>
#include <optional>

#include "core/arena.h"
#include "transducer/band.h"
#include "transducer/cpu_joint.h"
#include "transducer/cpu_node.h"

namespace warpalign::detail::transducer {
namespace {

constexpr std::int32_t kColumnTask = 48;  // rows of the weight's gradient that are one task: whole tiles
constexpr std::int32_t kBiasRows = 32;    // nodes whose gradients of the bias are summed in Real
constexpr std::int32_t kHiddenTask =
    64;  // columns of the gradients of encoder and predictor that are one task

template <class T>
struct JointGradientMemory {
  using Real = typename Arithmetic<T>::Real;
  std::int32_t chunk;  // nodes
  std::int64_t* batch;
  NodePlace* places;
  Real* weight;
  Real* bias;
  Real* back = nullptr;  // null: no gradients of encoder and predictor
  Real* x;               // (chunk, column_stride)
  Real* h;               // (chunk, hidden_stride)
  Real* dh = nullptr;
  // x and h in pairs, used if products take pairs: first pairs of neighbours in a row, then of neighbouring
  // nodes in a column.
  std::int32_t* x_words = nullptr;  // (chunk, column_words)
  std::int32_t* h_words = nullptr;  // (chunk, hidden_words)
  Real* zeros = nullptr;            // (padded_hidden,)
  Real* frame_sum = nullptr;        // (hidden_stride,): sum of one frame
  Real* state_sum = nullptr;        // (U + 1, hidden_stride): sums of one utterance
  Real* weight_sum = nullptr;       // (columns, hidden_stride)
  double* bias_sum = nullptr;       // (columns,)

  JointGradientMemory(const TransducerJointProblem& p, const TransducerJointGradient& g, Arena& arena) {
    const JointSizes<T> sizes(p);
    const bool pulls_back = g.encoder || g.predictor;
    batch = arena.take<std::int64_t>(Batch::elements(p.lattice));
    weight = arena.take<Real>(sizes.weight_elements());
    bias = arena.take<Real>(sizes.padded_columns);
    if (pulls_back) {
      back = arena.take<Real>(sizes.back_elements());
      zeros = arena.take<Real>(sizes.padded_hidden);
      frame_sum = arena.take<Real>(sizes.hidden_stride);
      state_sum = arena.take<Real>(p.lattice.states * sizes.hidden_stride);
    }
    if (g.weight) weight_sum = arena.take<Real>(sizes.columns * sizes.hidden_stride);
    if (g.bias) bias_sum = arena.take<double>(sizes.columns);
    // As many nodes as fit into the rest of the workspace.
    constexpr std::int64_t kGaps = 512;  // between the arrays
    const std::int64_t words = multiplies_pairs<T>() ? sizes.column_words() + sizes.hidden_words() : 0;
    const std::int64_t numbers = sizes.column_stride + (pulls_back ? 2 : 1) * sizes.hidden_stride + words;
    const std::int64_t row =
        numbers * static_cast<std::int64_t>(sizeof(Real)) + static_cast<std::int64_t>(sizeof(NodePlace));
    const std::int64_t left = p.workspace_limit - static_cast<std::int64_t>(arena.used()) - kGaps;
    const std::int64_t most_bytes = cpu_tuning(cpu::selected_isa()).joint_gradient_chunk_bytes;
    const std::int64_t fitting = std::clamp(left, std::int64_t{0}, most_bytes) / row / sizes.tile;
    const std::int64_t needed = div_up(joint_nodes(p), sizes.tile);
    chunk = static_cast<std::int32_t>(std::max<std::int64_t>(std::min(fitting, needed), 1) * sizes.tile);
    places = arena.take<NodePlace>(chunk);
    x = arena.take<Real>(chunk * sizes.column_stride);
    h = arena.take<Real>(chunk * sizes.hidden_stride);
    if (pulls_back) dh = arena.take<Real>(chunk * sizes.hidden_stride);
    if (words > 0) {
      x_words = arena.take<std::int32_t>(chunk * sizes.column_words());
      h_words = arena.take<std::int32_t>(chunk * sizes.hidden_words());
    }
  }
};

template <class T, class Real>
void round_row(const Real* from, void* to, std::int64_t first, std::int64_t count) {
  auto* const out = static_cast<T*>(to) + first;
  for (std::int64_t k = 0; k < count; ++k) {
    if constexpr (std::is_same_v<T, double>) {
      out[k] = from[k];
    } else {
      out[k] = rounded_to<T>(static_cast<float>(from[k]));
    }
  }
}

template <class T>
class JointGradients {
 public:
  using Real = typename Arithmetic<T>::Real;

  JointGradients(const TransducerJointProblem& p, const TransducerJointGradient& g,
                 const JointGradientMemory<T>& memory, const Execution& execution)
      : p_(p),
        g_(g),
        m_(memory),
        execution_(execution),
        batch_(p.lattice, memory.batch),
        band_(band_of(p)),
        network_(p, memory.weight, memory.bias, memory.back, execution),
        sizes_(network_.sizes()) {}

  void run() {
    clear();
    NodeWalk walk(p_.lattice, batch_, 0);
    std::optional<NodeGradients<Real>> node;
    while (true) {
      const std::int32_t rows = next_chunk(walk, node);
      if (rows == 0) break;
      for_tasks(div_up(rows, sizes_.tile), execution_, [&](std::int64_t task, int) {
        const auto first = static_cast<std::int32_t>(task * sizes_.tile);
        compute(first, std::min(sizes_.tile, rows - first));
      });
      const std::int64_t by_column = g_.weight || g_.bias ? div_up(sizes_.columns, kColumnTask) : 0;
      const std::int64_t by_hidden = m_.dh ? div_up(sizes_.hidden, kHiddenTask) : 0;
      for_tasks(by_column + by_hidden, execution_, [&](std::int64_t task, int) {
        task < by_column ? add_columns(static_cast<std::int32_t>(task) * kColumnTask, rows)
                         : add_hidden(static_cast<std::int32_t>(task - by_column) * kHiddenTask, rows);
      });
      last_ = m_.places[rows - 1];
    }
    if (m_.dh) flush(last_, true, 0, sizes_.hidden);
    for (std::int64_t k = 0; g_.weight && k < sizes_.columns; ++k) {
      round_row<T>(m_.weight_sum + k * sizes_.hidden_stride, g_.weight, k * sizes_.hidden, sizes_.hidden);
    }
    if (g_.bias) round_row<T>(m_.bias_sum, g_.bias, 0, sizes_.columns);
  }

 private:
  void clear() const {
    const TransducerLattice& l = p_.lattice;
    const auto zero = [](auto* to, std::size_t count) {
      if (to) std::memset(static_cast<void*>(to), 0, count * sizeof(*to));
    };
    const auto stride = static_cast<std::size_t>(sizes_.hidden_stride);
    zero(m_.h, m_.chunk * stride);  // also the padding, which products read
    zero(m_.zeros, sizes_.padded_hidden);
    zero(m_.frame_sum, stride);
    zero(m_.state_sum, l.states * stride);
    zero(m_.weight_sum, sizes_.columns * stride);
    zero(m_.bias_sum, sizes_.columns);
    const std::size_t hidden_rows = static_cast<std::size_t>(l.batch) * sizes_.hidden;
    zero(static_cast<T*>(g_.encoder), hidden_rows * l.frames);
    zero(static_cast<T*>(g_.predictor), hidden_rows * l.states);
  }

  [[nodiscard]] NodeGradients<Real> gradients_of(const Utterance& utterance) const {
    const double upstream = static_cast<const Real*>(g_.grad_loss)[utterance.index * g_.grad_loss_stride];
    return {p_.lattice, p_.labels, false, utterance, g_.saved, upstream};
  }

  // Finds the places of the next live nodes. Returns their number.
  std::int32_t next_chunk(NodeWalk& walk, std::optional<NodeGradients<Real>>& node) const {
    std::int32_t rows = 0;
    for (; rows < m_.chunk && !walk.ended(); walk.next()) {
      const NodePlace& at = walk.at();
      if (!node || (at.t == 0 && at.u == 0)) node.emplace(gradients_of(walk.utterance()));
      if (!band_.has(at.b, at.t, at.u)) continue;
      if (node->seek(at.t, at.u) != NodeGradients<Real>::Kind::kZero) m_.places[rows++] = at;
    }
    return rows;
  }

  void compute(std::int32_t first, std::int32_t rows) const {
    const NodePlace* const places = m_.places + first;
    Real* const h = m_.h + first * sizes_.hidden_stride;
    Real* const x = m_.x + first * sizes_.column_stride;
    std::int32_t* const x_words = m_.x_words ? m_.x_words + first * sizes_.column_words() : nullptr;
    std::int32_t* const h_words = m_.h_words ? m_.h_words + first * sizes_.hidden_words() : nullptr;
    network_.logits(places, rows, h, x, h_words);
    std::optional<NodeGradients<Real>> node;
    for (std::int32_t r = 0; r < rows; ++r) {
      const NodePlace& at = places[r];
      if (!node || at.b != places[r - 1].b) node.emplace(gradients_of(batch_[at.b]));
      node->seek(at.t, at.u);
      Real* const row = x + r * sizes_.column_stride;
      Real* const durations = p_.lattice.tdt ? row + p_.labels : nullptr;
      node->write(row, row, durations, durations);
    }
    if (m_.dh) network_.pull_back(x, h, rows, m_.zeros, m_.dh + first * sizes_.hidden_stride, x_words);
    if (!g_.weight) return;
    if constexpr (std::is_same_v<T, BFloat16>) {
      const auto pair_rows = [&](const Real* from, std::int64_t stride, std::int32_t* to,
                                 std::int32_t count) {
        for (std::int32_t r = 0; to && r < rows; r += 2) {
          const Real* const even = from + r * stride;
          joint_kernels().pairs.pack_rows(even, r + 1 < rows ? even + stride : nullptr, to + r / 2 * stride,
                                          count);
        }
      };
      pair_rows(x, sizes_.column_stride, x_words, sizes_.columns);
      pair_rows(h, sizes_.hidden_stride, h_words, sizes_.padded_hidden);
    }
  }

  // Adds the gradients of the weights and the bias of `rows` columns from `first` on.
  void add_columns(std::int32_t first, std::int32_t rows) const {
    const std::int32_t count = std::min(kColumnTask, sizes_.columns - first);
    if (g_.weight && m_.x_words) {
      joint_kernels().pairs.product(
          {m_.x_words + first, 1, sizes_.column_stride, count, m_.h_words, sizes_.width, sizes_.hidden_stride,
           sizes_.padded_hidden, pairs_of(rows), nullptr, 0,
           reinterpret_cast<float*>(m_.weight_sum + first * sizes_.hidden_stride), sizes_.hidden_stride});
    } else if (g_.weight) {
      joint_arithmetic<T>().product({m_.x + first, 1, sizes_.column_stride, count, m_.h, sizes_.width,
                                     sizes_.hidden_stride, sizes_.padded_hidden, rows, nullptr, 0,
                                     m_.weight_sum + first * sizes_.hidden_stride, sizes_.hidden_stride});
    }
    for (std::int32_t begin = 0; g_.bias && begin < rows; begin += kBiasRows) {
      Real sum[kColumnTask] = {};
      for (std::int32_t r = begin; r < std::min(begin + kBiasRows, rows); ++r) {
        joint_arithmetic<T>().add(m_.x + r * sizes_.column_stride + first, sum, count);
      }
      for (std::int32_t k = 0; k < count; ++k) m_.bias_sum[first + k] += static_cast<double>(sum[k]);
    }
  }

  // Adds the gradients of encoder and predictor in columns from `first` on. The sums of a frame, and of an
  // utterance, are written when the nodes of the next one begin.
  void add_hidden(std::int32_t first, std::int32_t rows) const {
    const std::int32_t count = std::min(kHiddenTask, sizes_.hidden - first);
    NodePlace before = last_;
    for (std::int32_t r = 0; r < rows; ++r) {
      const NodePlace& at = m_.places[r];
      if (at.b != before.b || at.t != before.t) flush(before, at.b != before.b, first, count);
      before = at;
      const Real* const from = m_.dh + r * sizes_.hidden_stride + first;
      joint_arithmetic<T>().add(from, m_.frame_sum + first, count);
      joint_arithmetic<T>().add(from, m_.state_sum + at.u * sizes_.hidden_stride + first, count);
    }
  }
  // Writes the sums of a node's frame, and of its utterance if that has ended, and sets them to 0.
  void flush(const NodePlace& at, bool utterance_ends, std::int32_t first, std::int32_t count) const {
    if (at.b < 0) return;
    const TransducerLattice& l = p_.lattice;
    const auto write = [&](Real* sum, void* to, std::int64_t row) {
      if (to) round_row<T>(sum + first, to, row * sizes_.hidden + first, count);
      std::fill_n(sum + first, count, Real(0));
    };
    write(m_.frame_sum, g_.encoder, static_cast<std::int64_t>(at.b) * l.frames + at.t);
    for (std::int32_t u = 0; utterance_ends && u <= batch_[at.b].labels; ++u) {
      write(m_.state_sum + u * sizes_.hidden_stride, g_.predictor,
            static_cast<std::int64_t>(at.b) * l.states + u);
    }
  }

  const TransducerJointProblem& p_;
  const TransducerJointGradient& g_;
  const JointGradientMemory<T>& m_;
  const Execution& execution_;
  const Batch batch_;
  const Band band_;
  const JointNetwork<T> network_;
  const JointSizes<T>& sizes_;
  NodePlace last_{-1, 0, 0};  // of the previous chunk
};

}  // namespace

std::size_t joint_gradient_workspace_bytes_cpu(const TransducerJointProblem& p,
                                               const TransducerJointGradient& g,
                                               const Execution& /*execution*/) {
  Arena arena;
  visit_dtype(p.dtype, [&](auto type) {
    static_cast<void>(JointGradientMemory<typename decltype(type)::Type>(p, g, arena));
  });
  return arena.used();
}

Status joint_gradient_cpu(const TransducerJointProblem& p, const TransducerJointGradient& g,
                          Workspace workspace, const Execution& execution) {
  Arena arena(workspace.data);
  visit_dtype(p.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    const JointGradientMemory<T> memory(p, g, arena);
    JointGradients<T>(p, g, memory, execution).run();
  });
  return {};
}

}  // namespace warpalign::detail::transducer
