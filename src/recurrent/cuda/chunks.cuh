// The chunks of steps of a call that keeps c before each of them, and not a tape (LstmProblem::recompute), or
// that sweeps two layers at a time (two_layers.cuh). A sweep of a chunk is one of fewer steps: its cell has
// the chunk's part of all rows. Without a tape it has gates and c of its own.
#pragma once

#include "recurrent/cuda/memory.cuh"

namespace warpalign::detail::recurrent {

// The chunks, by their places in the forward sweep.
class StepChunks {
 public:
  // A chunk's rows are the host's to know, and it has one first state for all rows and directions.
  explicit StepChunks(const LstmProblem& p)
      : StepChunks(p, steps_of_chunks(p, !p.recompute || p.bidirectional || p.row_starts || p.resets),
                   false) {}
  // Chunks of so many steps. has_tape: gates, c and dz are those of all rows, too.
  StepChunks(const LstmProblem& p, int steps, bool has_tape) : p_(p), steps_(steps), has_tape_(has_tape) {}

  [[nodiscard]] int count() const { return cuda::div_up(p_.steps, steps_); }
  [[nodiscard]] int last() const { return count() - 1; }
  // The first row of chunk k, and how many it has.
  [[nodiscard]] Offset first_row(int k) const { return static_cast<Offset>(k) * steps_ * p_.batch; }
  [[nodiscard]] Offset rows(int k) const { return std::min(most_rows(), rows_of(p_) - first_row(k)); }
  [[nodiscard]] Offset most_rows() const {
    return count() == 1 ? rows_of(p_) : static_cast<Offset>(steps_) * p_.batch;
  }
  [[nodiscard]] bool has_lengths() const { return count() > 1 && p_.lengths; }

  // The cell of chunk k. cell: of all steps, but for rows that a chunk has of its own. lengths: the chunk's.
  template <class T>
  [[nodiscard]] CudaCell<T> part_of(const CudaCell<T>& cell, int k, const std::int32_t* lengths) const {
    CudaCell<T> part = cell;
    if (count() == 1) return part;
    const Offset first = first_row(k);
    part.masks.first_step = static_cast<std::uint32_t>(k) * steps_;
    part.at.steps = std::min(steps_, p_.steps - k * steps_);
    part.at.rows = rows(k);
    if (p_.lengths) part.at.lengths = lengths;
    if (part.h_rows) part.h_rows += first * part.h_stride;
    if (part.dy) part.dy += first * part.dy_stride;
    if (part.h_all) part.h_all += first * part.output;
    if (part.dh_all) part.dh_all += first * part.output;
    const std::size_t cells = first * part.hidden, size = size_of(p_.cell_dtype);
    part.c_all = bytes_at(part.c_all, cells, size);
    part.dc_all = bytes_at(part.dc_all, cells, size);
    if (!has_tape_) return part;
    part.gates += cells * 4;
    part.tape_c += cells;
    if (part.dz) part.dz = part.dz_x = part.dz_h = part.dz + first * part.gates_stride;
    return part;
  }
  // c before chunk k > 0.
  template <class T>
  [[nodiscard]] Sum<T>* kept_c(const CudaCell<T>& cell, int k) const {
    return cell.kept_c + static_cast<Offset>(k - 1) * p_.batch * p_.hidden;
  }

  // Enqueues the lengths of chunk k. cell: of all steps.
  template <class T>
  void write_lengths(Queue& queue, int k, const CudaCell<T>& cell, std::int32_t* to) const {
    if (!has_lengths()) return;
    queue.for_each(p_.batch, kChunkLengths, ChunkLengthsParams{cell.at.lengths, p_.batch, k * steps_, to});
  }

 private:
  const LstmProblem& p_;
  int steps_;
  bool has_tape_;
};

// use(row, rows, h, stride of h) for parts of rows first ... first + rows - 1 whose h before is at hand.
// `row` counts from `first`. h0: null for 0, which no part has. h_before: for so many rows, where they are
// not those of all steps.
template <class T, class Use>
void for_states_before(Queue& queue, const LstmProblem& p, const CudaCell<T>& cell, const T* h0, Offset first,
                       Offset rows, T* h_before, const Use& use) {
  const Offset batch = p.batch, output = cell.output;
  if (rows == 0) return;
  if (!has_every_row(p)) {
    queue.for_each(static_cast<std::size_t>(rows) * cuda::kWarpSize, kHBefore<T>, cell, h0, first, rows,
                   h_before);
    return use(0, rows, h_before, output);
  }
  // h before a step is that of the step before.
  const Offset begin = cell.reverse ? 0 : first > 0 ? 0 : batch;
  const Offset count = rows - (cell.reverse || first == 0 ? batch : 0);
  const T* const h = cell.h_rows + (first + begin + (cell.reverse ? batch : -batch)) * cell.h_stride;
  if (count > 0) use(begin, count, h, cell.h_stride);
  if (h0 && cell.reverse) use(rows - batch, batch, h0, output);
  if (h0 && !cell.reverse && first == 0) use(0, batch, h0, output);
}

}  // namespace warpalign::detail::recurrent
