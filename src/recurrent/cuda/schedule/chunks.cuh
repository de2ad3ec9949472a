// The chunks of steps of a call that overlaps its layers, or that keeps c before each of them and not a tape
// (LstmProblem::recompute). With streams a chunk's sweep has some places of all steps. Else it is a sweep of
// fewer steps, whose cell has the chunk's part of all rows.
#pragma once

#include "recurrent/cuda/schedule/rows_call.cuh"
#include "recurrent/cuda/schedule/schedule.cuh"

namespace warpalign::detail::recurrent {

// The chunks, by their order in time.
class StepChunks {
 public:
  // overlap, steps: those of a plan. backward: a call without overlap has chunks in the backward pass, too.
  // has_tape: gates, c and dz are those of all rows, too, and not of a chunk.
  StepChunks(const LstmProblem& p, Overlap overlap, int steps, bool has_tape)
      : p_(&p), by_places_(overlap == Overlap::kStreams), has_tape_(has_tape && overlap == Overlap::kPairs) {
    // Without a tape a chunk's rows are the host's to know, and it has one first state for all rows and
    // directions.
    const bool is_one = !p.recompute || p.bidirectional || p.row_starts || p.resets;
    steps_ = overlap == Overlap::kNone ? steps_of_chunks(p, is_one) : steps;
  }

  // One chunk of all steps.
  static StepChunks of_all(const LstmProblem& p) {
    StepChunks chunks(p, Overlap::kNone, 0, false);
    chunks.steps_ = p.steps;
    return chunks;
  }

  [[nodiscard]] int count() const { return cuda::div_up(p_->steps, steps_); }
  [[nodiscard]] int last() const { return count() - 1; }
  [[nodiscard]] int steps() const { return steps_; }
  [[nodiscard]] int steps_of(int k) const { return std::min(steps_, p_->steps - k * steps_); }
  // The first row of chunk k, and how many it has.
  [[nodiscard]] Offset first_row(int k) const { return static_cast<Offset>(k) * steps_ * p_->batch; }
  [[nodiscard]] Offset rows(int k) const {
    return count() == 1 ? rows_of(*p_) : static_cast<Offset>(steps_of(k)) * p_->batch;
  }
  // Of arrays that a chunk has for itself, or of those of all rows.
  [[nodiscard]] Offset most_rows() const {
    return count() == 1 || by_places_ ? rows_of(*p_) : static_cast<Offset>(steps_) * p_->batch;
  }
  // Whether chunks are sweeps of fewer steps.
  [[nodiscard]] bool are_parts() const { return count() > 1 && !by_places_; }
  [[nodiscard]] bool has_lengths() const { return are_parts() && p_->lengths; }
  // The places of the chunk's sweep that is the k-th one to begin.
  [[nodiscard]] Places places(int k, const StepRows& of_part) const {
    if (!by_places_) return {0, of_part.steps};
    return {k * steps_, std::min((k + 1) * steps_, p_->steps)};
  }

  // The cell of chunk k. cell: of all steps, but for rows that a chunk has of its own. lengths: the chunk's.
  template <class T>
  [[nodiscard]] CudaCell<T> part_of(const CudaCell<T>& cell, int k, const std::int32_t* lengths) const {
    CudaCell<T> part = cell;
    if (!are_parts()) return part;
    const Offset first = first_row(k);
    part.masks.first_step = static_cast<std::uint32_t>(k) * steps_;
    part.at.steps = steps_of(k);
    part.at.rows = rows(k);
    if (p_->lengths) part.at.lengths = lengths;
    if (part.h_rows) part.h_rows += first * part.h_stride;
    if (part.dy) part.dy += first * part.dy_stride;
    if (part.h_all) part.h_all += first * part.output;
    if (part.dh_all) part.dh_all += first * part.output;
    const std::size_t cells = first * part.hidden, size = size_of(p_->cell_dtype);
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
    return cell.kept_c + static_cast<Offset>(k - 1) * p_->batch * p_->hidden;
  }

  // Enqueues the lengths of chunk k. cell: of all steps.
  template <class T>
  void write_lengths(Queue& queue, int k, const CudaCell<T>& cell, std::int32_t* to) const {
    if (!has_lengths()) return;
    queue.for_each(p_->batch, kChunkLengths, ChunkLengthsParams{cell.at.lengths, p_->batch, k * steps_, to});
  }

 private:
  const LstmProblem* p_;
  int steps_;
  bool by_places_, has_tape_;
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
