// The first call of the joint on the CPU. A worker computes a tile of logits and its arc weights; the logits
// are not stored.
#include "transducer/cpu_joint.h"

#include <optional>

#include "core/arena.h"
#include "transducer/band.h"
#include "transducer/cpu_node.h"
#include "transducer/cpu_solve.h"

namespace warpalign::detail::transducer {
namespace {

template <class T>
struct JointMemory {
  using Real = typename Arithmetic<T>::Real;
  std::int64_t* batch;
  std::int32_t* is_nan;
  double* rings;
  Real* weight;
  Real* bias;
  Real* tiles;  // one for each worker
  NodePlace* places;
  Real* saved;  // used if the caller saves nothing

  JointMemory(const TransducerJointProblem& p, const TransducerOutputs& out, const Execution& execution,
              Arena& arena)
      : batch(arena.take<std::int64_t>(Batch::elements(p.lattice))),
        is_nan(arena.take<std::int32_t>(p.lattice.batch)),
        rings(arena.take<double>(Rings(p.lattice).elements() * lattice_workers(p.lattice, execution))),
        weight(arena.take<Real>(JointSizes<T>(p).weight_elements())),
        bias(arena.take<Real>(JointSizes<T>(p).padded_columns)),
        tiles(arena.take<Real>(tile_elements(p) * threads_of(execution))),
        places(
            arena.take<NodePlace>(static_cast<std::size_t>(JointSizes<T>(p).tile) * threads_of(execution))),
        saved(arena.take<Real>(out.saved ? 0 : saved_elements(p.lattice, most_nodes(p.lattice)))) {}

  static std::size_t tile_elements(const TransducerJointProblem& p) {
    const JointSizes<T> sizes(p);
    const std::int64_t words = multiplies_pairs<T>() ? sizes.hidden_words() : 0;
    return static_cast<std::size_t>(sizes.tile) * (sizes.column_stride + sizes.hidden_stride + words);
  }
};

// Writes the places of tile number `task` of all nodes, or of the band's. Returns their number.
std::int32_t places_of_tile(const TransducerLattice& l, const Batch& batch, const Band& band,
                            std::int64_t task, std::int32_t tile, NodePlace* places) {
  std::int32_t rows = 0;
  if (!band) {
    NodeWalk walk(l, batch, task * tile);
    for (; rows < tile && !walk.ended(); walk.next()) places[rows++] = walk.at();
    return rows;
  }
  const std::int64_t end = std::min((task + 1) * tile, std::int64_t{l.batch} * l.frames * band.width);
  for (std::int64_t n = task * tile; n < end; ++n) {
    const std::int64_t frame = n / band.width;
    const auto b = static_cast<std::int32_t>(frame / l.frames),
               t = static_cast<std::int32_t>(frame % l.frames);
    const Utterance utterance = batch[b];
    if (t >= utterance.frames) continue;
    const std::int32_t u = band.begin(b, t) + static_cast<std::int32_t>(n % band.width);
    if (u <= utterance.labels) places[rows++] = {b, t, u};
  }
  return rows;
}

// Takes the nodes outside of the band out of the lattice.
template <class Real>
void close_outside(const TransducerJointProblem& p, const Batch& batch, const Band& band, void* saved,
                   const Execution& execution) {
  for_tasks(p.lattice.batch, execution, [&](std::int64_t b, int) {
    const Utterance utterance = batch[static_cast<int>(b)];
    const NodeWeights<Real> node(p.lattice, p.labels, false, utterance, saved);
    for (std::int32_t t = 0; t < utterance.frames; ++t) {
      for (std::int32_t u = 0; u <= utterance.labels; ++u) {
        if (!band.has(b, t, u)) node.close(t, u);
      }
    }
  });
}

template <class T>
void forward(const TransducerJointProblem& p, const TransducerOutputs& out, const JointMemory<T>& memory,
             const Execution& execution) {
  using Real = typename Arithmetic<T>::Real;
  const TransducerLattice& l = p.lattice;
  const Batch batch(l, memory.batch);
  void* const saved = out.saved ? out.saved : memory.saved;
  std::fill_n(memory.is_nan, l.batch, 0);
  const JointNetwork<T> network(p, memory.weight, memory.bias, nullptr, execution);
  const JointSizes<T>& sizes = network.sizes();
  const Band band = band_of(p);
  if (band) close_outside<Real>(p, batch, band, saved, execution);
  const std::int64_t nodes = band ? joint_nodes(p) : batch.nodes();
  for_tasks(div_up(nodes, sizes.tile), execution, [&](std::int64_t task, int worker) {
    Real* const h = memory.tiles + worker * JointMemory<T>::tile_elements(p);
    Real* const x = h + sizes.tile * sizes.hidden_stride;
    NodePlace* const places = memory.places + std::int64_t{worker} * sizes.tile;
    const std::int32_t rows = places_of_tile(l, batch, band, task, sizes.tile, places);
    auto* const words = reinterpret_cast<std::int32_t*>(x + sizes.tile * sizes.column_stride);
    network.logits(places, rows, h, x, words);
    std::optional<NodeWeights<Real>> node;
    for (std::int32_t r = 0; r < rows; ++r) {
      const NodePlace& at = places[r];
      if (r == 0 || at.b != places[r - 1].b) node.emplace(l, p.labels, false, batch[at.b], saved);
      const Real* const row = x + r * sizes.column_stride;
      if (node->weigh(at.t, at.u, row, row + p.labels)) {
        std::atomic_ref(memory.is_nan[at.b]).store(1, std::memory_order_relaxed);
      }
    }
  });
  solve_batch<Real>(l, batch, memory.is_nan, saved, out.saved != nullptr, memory.rings,
                    Arithmetic<Real>::lattice(kernels()), static_cast<Real*>(out.loss), execution);
}

}  // namespace

std::size_t joint_saved_bytes_cpu(const TransducerJointProblem& p, const Execution& /*execution*/) {
  return saved_elements(p.lattice, most_nodes(p.lattice)) * real_size(p.dtype);
}

std::size_t joint_workspace_bytes_cpu(const TransducerJointProblem& p, const TransducerOutputs& out,
                                      const Execution& execution) {
  Arena arena;
  visit_dtype(p.dtype, [&](auto type) {
    static_cast<void>(JointMemory<typename decltype(type)::Type>(p, out, execution, arena));
  });
  return arena.used();
}

Status joint_forward_cpu(const TransducerJointProblem& p, const TransducerOutputs& out, Workspace workspace,
                         const Execution& execution) {
  Arena arena(workspace.data);
  visit_dtype(p.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    forward<T>(p, out, JointMemory<T>(p, out, execution, arena), execution);
  });
  return {};
}

}  // namespace warpalign::detail::transducer
