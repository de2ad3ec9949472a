// Layers at once: layer l sweeps a chunk of steps while layer l + 1 sweeps the chunk before it. Each layer
// has a stream that the caller lends. Products over the rows of a chunk stay on the execution's own stream.
//
// Nobody waits on the device but for stream order, and clusters wait for their own blocks alone. So no order
// in which the GPU takes sweeps or steps can hang, whether or not they find place beside each other. Sweeps
// of a whole grid are left out: two of them might each hold what the other one waits for. two_layers.cuh has
// both in one launch.
#pragma once

#include <cmath>
#include <optional>
#include <vector>

#include "cuda/event.h"
#include "recurrent/cuda/block_call.h"
#include "recurrent/cuda/cluster_call.cuh"
#include "recurrent/cuda/projected_steps.cuh"
#include "recurrent/cuda/resident_call.cuh"

namespace warpalign::detail::recurrent {

// Whether each step of a layer is a launch of its own, or a product and a launch.
template <class T>
bool has_launches_of_steps(Queue& queue, const LstmProblem& p, const ClusterPlan<T>& plan, bool backward) {
  if (sweeps_in_blocks<T>(p)) return false;
  return plan.kernel ? has_too_many_tiles(queue, p, plan)
                     : !resident_way<T>(queue, p, backward, directions_at_once(p)).kernel;
}
// Whether those are products that nobody lends to the layers' own streams.
template <class T>
bool lacks_products(const Queue& queue, const LstmProblem& p) {
  return !p.side_streams.products && takes_products<T>(queue, p) && gains_by_products<T>(queue, p);
}
// Whether sweeps in one launch of two layers find place beside each other.
template <class T>
bool have_place(const Queue& queue, const LstmProblem& p, const ClusterPlan<T>& plan) {
  if (!sweeps_in_blocks<T>(p)) return plan.kernel && plan.resident >= 2 * plan.clusters;
  const int device = queue.execution().cuda_device;
  return 2 * p.batch <= kBlocksOfMultiprocessor * cuda::attribute(cudaDevAttrMultiProcessorCount, device);
}

// The steps of a chunk; 0: layers run in turn.
template <class T>
int steps_of_chunk(Queue& queue, const LstmProblem& p, bool backward) {
  const bool may_run_at_once = p.layers > 1 && !p.bidirectional && !p.row_starts && !p.layer_norm &&
                               !p.recompute && p.batch > 0 && p.side_streams.count > 0;
  if (!may_run_at_once || takes_projected_products<T>(queue, p)) return 0;
  const auto plan = plan_clusters<T>(p, backward);
  const bool in_blocks = sweeps_in_blocks<T>(p);
  const bool by_launches = has_launches_of_steps(queue, p, plan, backward);
  if (by_launches ? lacks_products<T>(queue, p) : !have_place(queue, p, plan)) return 0;
  // The start of a chunk takes as long as so many steps. The layers' products over a chunk share a stream,
  // and take as long as the fewest steps. Steps of single blocks are short.
  const double start = in_blocks ? 28 + p.batch / 4.0 : by_launches ? 5 : 10;
  const int fewest = by_launches ? 16 : (in_blocks ? 6 + p.batch / 8 : 6) / 2 * p.layers * 2;
  // (T / c + L - 1) chunks of c steps and a start each take least with this c.
  const double best = std::sqrt(start * p.steps / (p.layers - 1));
  const int chunk = std::max(static_cast<int>(best / 2 + .5) * 2, fewest);
  return 2 * chunk <= p.steps ? chunk : 0;
}

// The queues of a call's layers beside its main one.
class Wavefront {
 public:
  Wavefront(Queue& main, const LstmProblem& p) : main_(main), done_(static_cast<std::size_t>(p.layers)) {
    const int count = std::min(p.side_streams.count, p.layers);
    executions_.assign(static_cast<std::size_t>(count), main.execution());
    for (int n = 0; n < count; ++n) {
      executions_[n].stream = p.side_streams.streams[n];
      executions_[n].matrix_product = p.side_streams.products ? p.side_streams.products[n] : MatrixProduct{};
      queues_.emplace_back(executions_[n]);
    }
  }

  // Layer `layer` goes on behind all that the main queue has now.
  Queue& start(int layer) {
    Queue& queue = of(layer);
    main_.fail(here_.record(main_.stream()));
    main_.fail(here_.make_wait(queue.stream()));
    queue.fail(main_.status());
    return queue;
  }
  // Says that layer `layer` has been given all of this chunk.
  void end(int layer, int chunk) {
    main_.fail(of(layer).status());
    main_.fail(done_[layer].chunks[chunk % 2].record(of(layer).stream()));
  }
  // The main queue goes on behind this chunk of a layer, which is one of the layer's last two.
  void wait_for(int layer, int chunk) {
    main_.fail(done_[layer].chunks[chunk % 2].make_wait(main_.stream()));
  }
  // The main queue goes on behind all layers. Also if something failed: the workspace is then free.
  void join(int chunks) {
    for (std::size_t layer = 0; layer < done_.size(); ++layer) wait_for(static_cast<int>(layer), chunks - 1);
  }

 private:
  struct Ends {
    cuda::Event chunks[2];  // of even and odd number
  };

  Queue& of(int layer) { return queues_[layer % queues_.size()]; }

  Queue& main_;
  cuda::Event here_;
  std::vector<Ends> done_;
  std::vector<Execution> executions_;
  std::vector<Queue> queues_;
};

// act(n, chunk) for the n-th layer to begin and its chunk, in an order in which each one finds its
// predecessors: the chunk before, and the same chunk of the layer before.
template <class Act>
void for_chunks(int layers, int chunks, const Act& act) {
  for (int turn = 0; turn < layers + chunks - 1; ++turn) {
    for (int n = std::max(0, turn - chunks + 1); n <= std::min(turn, layers - 1); ++n) act(n, turn - n);
  }
}

}  // namespace warpalign::detail::recurrent
