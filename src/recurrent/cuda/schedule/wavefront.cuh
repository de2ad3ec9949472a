// The streams of layers that overlap (Overlap::kStreams), which the caller lends. Products over the rows of a
// chunk stay on the execution's own stream.
//
// Nobody waits on the device but for stream order, and clusters wait for their own blocks alone. So no order
// in which the GPU takes sweeps or steps can hang, whether or not they find place beside each other. Sweeps
// of a whole grid are left out: two of them might each hold what the other one waits for. Overlap::kPairs has
// both in one launch.
#pragma once

#include <optional>
#include <vector>

#include "cuda/launch/event.h"
#include "recurrent/cuda/schedule/rows_call.cuh"

namespace warpalign::detail::recurrent {

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

  // Layer `layer` goes on after all that the main queue has now.
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
  // The main queue goes on after this chunk of a layer, which is one of the layer's last two.
  void wait_for(int layer, int chunk) {
    main_.fail(done_[layer].chunks[chunk % 2].make_wait(main_.stream()));
  }
  // The main queue goes on after all layers. Also if something failed: the workspace is then free.
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

}  // namespace warpalign::detail::recurrent
