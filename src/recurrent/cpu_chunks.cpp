// The CPU path of LstmProblem::recompute, backward. A chunk of steps is a problem of its own: it begins with
// the states that the forward pass has kept, and its gradients with respect to them go on to the chunk
// before.
#include "recurrent/cpu_chunks.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "recurrent/cpu_call.h"

namespace warpalign::detail::recurrent {
namespace {

template <class Real>
class BackwardByChunks {
 public:
  BackwardByChunks(const LstmProblem& p, const LstmKept& kept, const LstmIncoming& incoming,
                   const LstmGradients& gradients, const Execution& execution, Workspace workspace)
      : p_(p),
        kept_(kept),
        in_(incoming),
        out_(gradients),
        execution_(execution),
        arena_(workspace.data),
        steps_(KeptStates<Real>::chunk_steps(p)),
        count_((p.steps + steps_ - 1) / steps_),
        states_h_(static_cast<std::size_t>(cells_of(p)) * p.batch * output_of(p)),
        states_c_(static_cast<std::size_t>(cells_of(p)) * p.batch * p.hidden) {
    const std::size_t rows = rows_of_chunk(0), cells = cells_of(p), size = size_of(p.dtype);
    const std::size_t of_h = output_of(p), of_c = p.hidden;
    y_ = arena_.take<std::byte>(rows * directions_of(p) * of_h * size);
    tape_ = arena_.take<std::byte>(tape_bytes_cpu(problem(0)));
    h0_ = arena_.take<std::byte>(states_h_ * size), c0_ = arena_.take<Real>(states_c_);
    h_all_ = arena_.take<std::byte>(cells * rows * of_h * size),
    c_all_ = arena_.take<Real>(cells * rows * of_c);
    for (int turn = 0; turn < 2; ++turn) {
      by_h_[turn] = arena_.take<std::byte>(states_h_ * size), by_c_[turn] = arena_.take<Real>(states_c_);
    }
    lengths_ = arena_.take<std::int32_t>(p.lengths ? p.batch : 0);
    for (int cell = 0; cell < cells_of(p) && sums_apart(); ++cell) {
      parts_.push_back(out_.weights[cell]);
      for_weights(cell, parts_.back(), [&](void*& to, std::size_t entries) {
        to = arena_.take<std::byte>(entries * size);
        sums_.push_back(arena_.take<Real>(entries));
      });
    }
  }

  [[nodiscard]] std::size_t bytes() const { return arena_.used() + bytes_of_passes(); }

  Status run(Workspace workspace) {
    const Workspace rest{static_cast<std::byte*>(workspace.data) + arena_.used(), bytes_of_passes()};
    for (int k = count_ - 1; k >= 0; --k) {
      if (Status s = chunk(k, rest); !s.ok()) return s;
    }
    if (out_.c0) write_entries(p_.cell_dtype, by_c_[0], static_cast<Index>(states_c_), out_.c0, 0);
    return {};
  }

 private:
  // Whether gradients with respect to weights have to be summed over chunks.
  [[nodiscard]] bool sums_apart() const { return count_ > 1 && out_.weights; }
  [[nodiscard]] std::size_t rows_of_chunk(int k) const {
    return count_ == 1 ? rows_of(p_)
                       : static_cast<std::size_t>(std::min(steps_, p_.steps - k * steps_)) * p_.batch;
  }

  // Chunk k, but for its states and lengths.
  [[nodiscard]] LstmProblem problem(int k) const {
    LstmProblem part = p_;
    part.recompute = false;
    part.cell_dtype = kTypeOf<Real>;
    part.steps = std::min(steps_, p_.steps - k * steps_);
    part.x.data =
        static_cast<const std::byte*>(p_.x.data) + static_cast<std::ptrdiff_t>(k) * steps_ * p_.x.stride[0] *
                                                       static_cast<std::ptrdiff_t>(size_of(p_.dtype));
    return part;
  }
  [[nodiscard]] std::size_t bytes_of_passes() const {
    std::byte something{};
    LstmOutputs wanted;
    wanted.y = wanted.tape = &something;
    std::size_t most = 0;
    for (const int k : {0, count_ - 1}) {
      const LstmProblem part = problem(k);
      most = std::max({most, workspace_bytes_cpu(part, wanted, execution_),
                       backward_workspace_bytes_cpu(part, out_, execution_)});
    }
    return most;
  }

  Status chunk(int k, Workspace workspace) {
    LstmProblem part = problem(k);
    load_states(k, part);
    if (p_.lengths) {
      for (int b = 0; b < p_.batch; ++b) lengths_[b] = std::clamp(p_.lengths[b] - k * steps_, 0, part.steps);
      part.lengths = lengths_;
    }
    LstmOutputs left;
    left.y = y_, left.tape = tape_;
    if (Status s = forward_cpu(part, left, workspace, execution_); !s.ok()) return s;

    const std::size_t row = static_cast<std::size_t>(k) * steps_ * p_.batch, size = size_of(p_.dtype);
    const int turn = k % 2;
    LstmIncoming incoming = incoming_of(k, row);
    LstmGradients to;
    if (out_.x) to.x = static_cast<std::byte*>(out_.x) + row * static_cast<std::size_t>(p_.input) * size;
    to.h0 = k == 0 ? out_.h0 : by_h_[turn];
    to.c0 = by_c_[turn];
    to.weights = sums_apart() ? parts_.data() : out_.weights;
    if (Status s = backward_cpu(part, {tape_, y_}, incoming, to, workspace, execution_); !s.ok()) return s;
    if (sums_apart()) add_weights(k);
    return {};
  }

  void load_states(int k, LstmProblem& part) const {
    if (p_.c0) read_entries(p_.cell_dtype, p_.c0, 0, 1, static_cast<Index>(states_c_), c0_);
    part.c0 = p_.c0 ? c0_ : nullptr;
    if (k == 0) return;
    const CellSizes s(p_, 0);
    for (int cell = 0; cell < cells_of(p_); ++cell) {
      const KeptStates<Real> kept(p_, cell, kept_.tape);
      for (Index b = 0; b < s.batch; ++b) {
        const Index row = cell * s.batch + b;
        write_entries(p_.dtype, kept.h(k) + b * s.pp, s.output, h0_, row * s.output);
        std::copy_n(kept.c(k) + b * s.hp, s.hidden, c0_ + row * s.hidden);
      }
    }
    part.h0 = h0_, part.c0 = c0_;
  }

  // From outside, and from the chunk after.
  LstmIncoming incoming_of(int k, std::size_t row) const {
    const std::size_t size = size_of(p_.dtype), cell_size = size_of(p_.cell_dtype), rows = rows_of_chunk(k);
    const std::size_t all = rows_of(p_), of_h = output_of(p_), of_c = p_.hidden;
    const bool is_last = k == count_ - 1;
    const int turn = (k + 1) % 2;
    LstmIncoming part;
    if (in_.y) part.y = static_cast<const std::byte*>(in_.y) + row * directions_of(p_) * of_h * size;
    part.h_n = is_last ? in_.h_n : by_h_[turn];
    if (is_last && in_.c_n) {
      read_entries(p_.cell_dtype, in_.c_n, 0, 1, static_cast<Index>(states_c_), by_c_[turn]);
    }
    if (!is_last || in_.c_n) part.c_n = by_c_[turn];
    for (std::size_t cell = 0; cell < static_cast<std::size_t>(cells_of(p_)); ++cell) {
      const std::size_t from = cell * all + row;
      if (in_.h_all) {
        std::copy_n(static_cast<const std::byte*>(in_.h_all) + from * of_h * size, rows * of_h * size,
                    h_all_ + cell * rows * of_h * size);
      }
      if (in_.c_all) {
        const auto* const data = static_cast<const std::byte*>(in_.c_all) + from * of_c * cell_size;
        read_entries(p_.cell_dtype, data, 0, 1, static_cast<Index>(rows * of_c), c_all_ + cell * rows * of_c);
      }
    }
    part.h_all = in_.h_all ? h_all_ : nullptr, part.c_all = in_.c_all ? c_all_ : nullptr;
    return part;
  }

  // visit(pointer, entries) for each gradient of a cell that is wanted.
  template <class Visit>
  void for_weights(int cell, LstmWeightGradients& g, const Visit& visit) const {
    const std::size_t hidden = p_.hidden, of_h = output_of(p_);
    const auto input = static_cast<std::size_t>(input_of(p_, cell / directions_of(p_)));
    const struct {
      void*& to;
      std::size_t entries;
    } all[] = {{g.ih, 4 * hidden * input}, {g.hh, 4 * hidden * of_h}, {g.bias, 4 * hidden},
               {g.hr, of_h * hidden},      {g.ln_ih, 4 * hidden},     {g.ln_hh, 4 * hidden},
               {g.ln_cell, hidden},        {g.ln_cell_bias, hidden}};
    for (const auto& one : all) {
      if (one.to) visit(one.to, one.entries);
    }
  }
  // Adds the chunk's gradients to the sums, and writes these after chunk 0.
  void add_weights(int k) {
    auto next = sums_.begin();
    for (int cell = 0; cell < cells_of(p_); ++cell) {
      std::vector<void*> places;
      LstmWeightGradients to = out_.weights[cell];
      for_weights(cell, to, [&](void* place, std::size_t) { places.push_back(place); });
      auto place = places.begin();
      for_weights(cell, parts_[cell], [&](const void* part, std::size_t entries) {
        Real* const sum = *next++;
        const auto count = static_cast<Index>(entries);
        if (k == count_ - 1) std::fill_n(sum, entries, Real(0));
        add_entries(p_.dtype, part, 0, count, sum);
        if (k == 0) write_entries(p_.dtype, sum, count, *place, 0);
        ++place;
      });
    }
  }

  const LstmProblem& p_;
  const LstmKept& kept_;
  const LstmIncoming& in_;
  const LstmGradients& out_;
  const Execution& execution_;
  Arena arena_;
  const int steps_, count_;  // steps of a chunk, and chunks
  const std::size_t states_h_, states_c_;
  std::byte *y_, *tape_, *h0_, *h_all_;
  Real *c0_, *c_all_;
  std::byte* by_h_[2];  // gradients with respect to the states before a chunk, of even and of odd number
  Real* by_c_[2];
  std::int32_t* lengths_;
  std::vector<LstmWeightGradients> parts_;  // a chunk's
  std::vector<Real*> sums_;                 // all chunks', in the order of the arrays of parts_
};

}  // namespace

std::size_t kept_state_bytes(const LstmProblem& p) {
  const CellSizes s(p, 0);
  const std::size_t size = p.dtype == DType::kFloat64 ? sizeof(double) : sizeof(float);
  return static_cast<std::size_t>(cells_of(p) * (kMostChunks - 1) * s.batch * (s.pp + s.hp)) * size;
}

std::size_t backward_by_chunks_bytes(const LstmProblem& p, const LstmGradients& gradients,
                                     const Execution& execution) {
  if (p.dtype == DType::kFloat64) {
    return BackwardByChunks<double>(p, {}, {}, gradients, execution, {}).bytes();
  }
  return BackwardByChunks<float>(p, {}, {}, gradients, execution, {}).bytes();
}

Status backward_by_chunks(const LstmProblem& p, const LstmKept& kept, const LstmIncoming& incoming,
                          const LstmGradients& gradients, Workspace workspace, const Execution& execution) {
  if (p.dtype == DType::kFloat64) {
    return BackwardByChunks<double>(p, kept, incoming, gradients, execution, workspace).run(workspace);
  }
  return BackwardByChunks<float>(p, kept, incoming, gradients, execution, workspace).run(workspace);
}

}  // namespace warpalign::detail::recurrent
