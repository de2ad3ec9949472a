// The way of one step without a tape, as streams take it: a launch for each layer. Products with W and with
// R, gates, the cell and all results are in one kernel, which reads weights, x and states as they are given.
#pragma once

#include "recurrent/cuda/schedule/way.cuh"
#include "recurrent/cuda/stream/single_params.cuh"

namespace warpalign::detail::recurrent {

template <class T>
class StreamWay final : public Way<T> {
 public:
  explicit StreamWay(const Question& question) {
    const LstmProblem& p = question.p;
    const int most_rows = sizeof(T) < 8 ? kMostSingleUnitRows : 1;
    tuning_ = question.tuning;
    if (p.steps != 1 || question.backward || question.with_tape || p.bidirectional) {
      this->refusal = "it serves one step in one direction, without a tape";
    } else if (p.batch > most_rows || question.batch_invariant()) {
      this->refusal = "it serves up to 64 rows, one in float64, without batch_invariant";
    } else if (p.projection > 0 || p.layer_norm || !is_plain(p) || drops_weights(p)) {
      this->refusal = "it serves no options, layer norm or projections";
    }
    this->needs.one_step = true;
  }

  bool enqueue(Queue& queue, const LayerSweep<T>& sweep) const override {
    const LstmProblem& p = sweep.p;
    const LstmWeights& w = p.weights[sweep.layer];
    const SweepEnds& ends = *sweep.ends;
    SingleStepParams<T> step{};
    step.cell = sweep.step.cell[0];
    step.x = sweep.input.data, step.x_stride = sweep.input.stride;
    step.input = static_cast<int>(input_of(p, sweep.layer));
    step.ih = static_cast<const T*>(w.ih), step.hh = static_cast<const T*>(w.hh);
    step.h0 = static_cast<const T*>(ends.first.h), step.c0 = ends.first.c;
    step.h_n = static_cast<T*>(ends.last.h), step.c_n = ends.last.c;
    const auto is_whole = [](const void* data, Offset stride) {
      return is_aligned(data, sizeof(Piece<T>)) && stride % Piece<T>::kSize == 0;
    };
    if (!is_whole(step.x, step.x_stride) || !is_whole(step.ih, step.input) || !is_whole(step.hh, p.hidden) ||
        !is_whole(step.h0, p.hidden)) {
      return false;
    }
    return run_single_step(queue, tuning_, step, sweep.layer > 0);
  }

 private:
  CudaTuning tuning_;
};

}  // namespace warpalign::detail::recurrent
