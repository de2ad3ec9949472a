// The way of a sweep in single blocks.
#pragma once

#include "recurrent/cuda/blocks/block_call.h"
#include "recurrent/cuda/schedule/way.cuh"

namespace warpalign::detail::recurrent {

template <class T>
class BlockWay final : public Way<T> {
 public:
  explicit BlockWay(const Question& question) {
    const LstmProblem& p = question.p;
    const int most = is_plain(p) ? kMostBlockHidden<T> : kMostBlockHiddenOfOptions<T>;
    if (p.hidden > most) this->refusal = "R has more units than a block's registers hold";
    if (p.layer_norm || p.projection > 0) this->refusal = "layers with layer norm or a projection have none";
    if (sizeof(T) == 2 && !question.device().has_matrix_units) {
      this->refusal = "16-bit types need the matrix units of compute capability 8.0";
    }
    this->needs.states_as_given = this->needs.kept = true;
    // Layers overlap while the blocks of two find place. Steps of single blocks are short.
    if (2 * p.batch <= kBlocksOfMultiprocessor * question.device().multiprocessors) {
      this->on_streams = {question.tuning.block_chunk_start + p.batch / 4.0,
                          (6 + p.batch / 8) / 2 * p.layers * 2};
    }
    // A block has many rows where blocks of one would be too many to run at once.
    const bool is_alone = sizeof(T) == 2 && p.hidden >= question.tuning.lone_block_units;
    const int alone = is_alone ? 1 : kBlocksOfMultiprocessor;
    many_rows_ = static_cast<Offset>(p.batch) * directions_of(p) >
                 static_cast<Offset>(alone) * question.device().multiprocessors;
  }

  bool enqueue(Queue& queue, const LayerSweep<T>& sweep) const override {
    BlockParams<T> params{{sweep.step.cell[0], sweep.step.cell[1]}, {}, 0, sweep.places};
    for (int d = 0; d < directions_of(sweep.p); ++d) {
      draw_kept(queue, params.cell[d], sweep.backward, sweep.places);
      params.ends[d] = sweep.ends ? given_ends(params.cell[d], sweep.ends[d])
                                  : ends_in_cell(params.cell[d], sweep.backward, sweep.places);
    }
    launch_blocks(queue, sweep.p, sweep.backward, many_rows_, params);
    return true;
  }

 private:
  static BlockEnds<T> given_ends(const CudaCell<T>& cell, const SweepEnds& ends) {
    return {ends.first.h, ends.first.c, ends.first.h, ends.c0,        ends.last.h,
            ends.last.c,  cell.hidden,  false,        cell.wide_cells};
  }
  static BlockEnds<T> ends_in_cell(const CudaCell<T>& cell, bool backward, const Places& places) {
    if (backward) {
      return {cell.dh, cell.dc, nullptr, cell.c0, cell.dh, cell.dc, 0, true, true, cell.dh0, cell.dc0};
    }
    T* const h_last = cell.h[places.end % 2];
    return {cell.h[0], cell.c, cell.h0, cell.c0, h_last, cell.c, cell.output_stride, false, true};
  }

  bool many_rows_ = false;
};

}  // namespace warpalign::detail::recurrent
