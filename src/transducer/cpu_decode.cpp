// Decoding on the CPU: scores of the joint network, and steps of greedy and beam search. Threads share
// utterances.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/arena.h"
#include "core/visit_dtype.h"
#include "cpu/dispatch.h"
#include "cpu/team.h"
#include "transducer/beam.h"
#include "transducer/cpu_decode_kernel.h"
#include "transducer/decode.h"
#include "transducer/walk.h"

namespace warpalign::detail::transducer {
namespace {

template <class Real>
const CpuDecodeKernels<Real>& kernels() {
  const CpuDecode& all =
      cpu::with_selected_isa([](auto isa) -> const CpuDecode& { return decode_kernels_for(isa); });
  if constexpr (sizeof(Real) == sizeof(double)) {
    return all.of64;
  } else {
    return all.of32;
  }
}

std::int64_t padded(std::int32_t hidden) { return (hidden + kDecodePad - 1) / kDecodePad * kDecodePad; }

std::int32_t length_of(const std::int32_t* lengths, std::int32_t frames, std::int32_t b) {
  return lengths ? lengths[b] : frames;
}

// The rows that a worker scores together, and the destination of each row's scores.
template <class Real>
class RowTile {
 public:
  RowTile(const TransducerJoint& joint, std::int32_t columns, Arena& arena)
      : joint_(joint),
        columns_(columns),
        stride_(padded(joint.hidden)),
        hidden_(arena.take<Real>(kDecodeRows * stride_)) {}

  // Adds the row of frame t of utterance b, for hypothesis n.
  void add(std::int32_t b, std::int32_t t, std::int64_t n, Real* out) {
    const Real* const encoder = static_cast<const Real*>(joint_.encoder.data) + b * joint_.encoder.stride[0] +
                                t * joint_.encoder.stride[1];
    const Real* const predictor = static_cast<const Real*>(joint_.predictor) + n * joint_.hidden;
    kernels<Real>().hidden(encoder, predictor, joint_.hidden, joint_.activation == Activation::kTanh,
                           hidden_ + rows_ * stride_);
    out_[rows_++] = out;
  }
  [[nodiscard]] bool is_full() const { return rows_ == kDecodeRows; }
  // Computes the scores of all rows, and removes the rows.
  void score() {
    kernels<Real>().scores(hidden_, stride_, rows_, static_cast<const Real*>(joint_.weight),
                           static_cast<const Real*>(joint_.bias), joint_.hidden, columns_, out_);
    rows_ = 0;
  }

 private:
  const TransducerJoint& joint_;
  std::int32_t columns_;
  std::int64_t stride_;
  Real* hidden_;
  Real* out_[kDecodeRows] = {};
  int rows_ = 0;
};

// Tasks of `size` neighbouring items, and a team with scratch memory for them.
struct Tasks {
  std::int32_t items;
  std::int32_t size;
  cpu::Team team;

  Tasks(std::int32_t all, std::int32_t most, const Execution& execution) : items(all) {
    const std::int32_t workers = std::max(cpu::Team::threads_of(execution), 1);
    size = std::clamp((all + workers - 1) / workers, 1, most);
    team = cpu::Team::of((all + size - 1) / size, execution, 1);
  }
  [[nodiscard]] std::int32_t begin(int task) const { return task * size; }
  [[nodiscard]] std::int32_t end(int task) const { return std::min(items, (task + 1) * size); }
};

template <class Real>
Tasks score_tasks(const TransducerScores& p, const Execution& execution) {
  const std::int32_t hypotheses = p.batch * p.beams;
  Tasks tasks(hypotheses, std::max(hypotheses, 1), execution);
  Arena arena;
  RowTile<Real>(p.joint, p.columns, arena);
  tasks.team.scratch_bytes = cpu::rounded_to_worker(arena.used());
  return tasks;
}

// Computes the scores of the requested hypotheses, of any utterances; a tile takes their rows in order.
template <class Real>
void score_hypotheses(const TransducerScores& p, std::int32_t first, std::int32_t last, void* scratch) {
  Arena arena(scratch);
  RowTile<Real> tile(p.joint, p.columns, arena);
  Real* out = static_cast<Real*>(p.scores) + std::int64_t{first} * p.window * p.columns;
  for (std::int32_t n = first; n < last; ++n) {
    const std::int32_t b = n / p.beams, length = length_of(p.lengths, p.frames, b);
    const std::int32_t start = p.frame[n * p.frame_stride];
    for (std::int32_t f = 0; f < p.window; ++f, out += p.columns) {
      if (start < 0 || start >= length - f) {
        std::fill_n(out, p.columns, Real(0));
        continue;
      }
      tile.add(b, start + f, n, out);
      if (tile.is_full()) tile.score();
    }
  }
  tile.score();
}

template <class Real>
Tasks greedy_tasks(const TransducerGreedyStep& p, const Execution& execution) {
  Tasks tasks(p.batch, kDecodeRows, execution);
  if (p.scores) return tasks;
  Arena arena;
  RowTile<Real>(p.joint, columns_of(p.decoding), arena);
  arena.take<Real>(std::size_t{kDecodeRows} * columns_of(p.decoding));
  tasks.team.scratch_bytes = cpu::rounded_to_worker(arena.used());
  return tasks;
}

// One utterance's walk.
template <class Real>
struct Walker {
  double log_prob;
  std::int32_t utterance;
  std::int32_t end;  // the first frame that is not read
  TransducerWalk walk;
  bool walks;

  Walker() = default;
  Walker(const TransducerGreedyStep& p, std::int32_t b)
      : log_prob(p.log_prob[b]), utterance(b), walk(begun(p.walk[b])) {
    const std::int64_t limit = std::int64_t{walk.frame} + p.window;
    end = static_cast<std::int32_t>(std::min<std::int64_t>(length_of(p.lengths, p.frames, b), limit));
    walks = walk.frame < end;
  }
  // Continues the walk over the scores of `count` frames.
  void go(const TransducerDecoding& d, const Real* scores, std::int32_t count) {
    const std::int32_t start = walk.frame;
    while (walks && walk.frame - start < count) {
      const Real* const row = scores + std::int64_t{walk.frame - start} * columns_of(d);
      Best<Real> best;
      cpu::Column<Real> found;
      if (kernels<Real>().largest(row, nullptr, d.labels, 1, &found) > 0) best = {found.value, found.column};
      const double lse = kernels<Real>().lse(row, d.labels);
      walks = take(best_arc(d, best, lse, row + d.labels), d, walk, log_prob) && walk.frame < end;
    }
  }
};

// Walks over some utterances together, so that a pass over the weights serves all of them. If they are fewer
// than a product's rows, further frames of the first ones fill the rest.
template <class Real>
void walk_utterances(const TransducerGreedyStep& p, std::int32_t first, std::int32_t last, void* scratch) {
  Walker<Real> walkers[kDecodeRows];
  const std::int32_t count = last - first;
  for (std::int32_t k = 0; k < count; ++k) walkers[k] = Walker<Real>(p, first + k);
  const std::int64_t columns = columns_of(p.decoding);
  if (p.scores) {
    for (std::int32_t k = 0; k < count; ++k) {
      const Real* const scores = static_cast<const Real*>(p.scores) + (first + k) * p.window * columns;
      walkers[k].go(p.decoding, scores, p.window);
    }
  } else {
    Arena arena(scratch);
    RowTile<Real> tile(p.joint, columns_of(p.decoding), arena);
    Real* const scores = arena.take<Real>(kDecodeRows * columns);
    for (;;) {
      const auto walking = std::count_if(walkers, walkers + count, [](const auto& w) { return w.walks; });
      if (walking == 0) break;
      const auto all = static_cast<std::int32_t>((walking + kDecodeStep - 1) / kDecodeStep * kDecodeStep);
      std::int32_t rows[kDecodeRows] = {};
      std::int32_t left = all, walkers_left = static_cast<std::int32_t>(walking);
      Real* to = scores;
      for (std::int32_t k = 0; k < count; ++k) {
        const Walker<Real>& w = walkers[k];
        if (!w.walks) continue;
        rows[k] = std::min((left + walkers_left - 1) / walkers_left, w.end - w.walk.frame);
        left -= rows[k];
        --walkers_left;
        for (std::int32_t f = 0; f < rows[k]; ++f, to += columns) {
          tile.add(w.utterance, w.walk.frame + f, w.utterance, to);
        }
      }
      tile.score();
      const Real* from = scores;
      for (std::int32_t k = 0; k < count; ++k) {
        walkers[k].go(p.decoding, from, rows[k]);
        from += rows[k] * columns;
      }
    }
  }
  for (std::int32_t k = 0; k < count; ++k) leave(p, first + k, walkers[k].walk, walkers[k].log_prob);
}

// The crew of a step of beam search.
template <class Real>
struct Alone {
  static std::int32_t rank() { return 0; }
  static std::int32_t size() { return 1; }
  static void sync() {}
  template <class T, class Op>
  static T combine(const T& v, const Op&) {
    return v;
  }
  static double lse(const Real* row, std::int32_t columns) { return kernels<Real>().lse(row, columns); }
  static void best_labels(const TransducerDecoding& d, const Real* row, const Real* added, std::int32_t count,
                          Best<Real>* out) {
    // As many more columns as there are blanks.
    cpu::Column<Real> all[kTransducerMostBeams + kTransducerBigBlanks + 1];
    const int blanks = d.tdt ? 1 : 1 + d.durations;
    const int found = kernels<Real>().largest(row, added, d.labels, count + blanks, all);
    std::int32_t kept = 0;
    for (int k = 0; k < found && kept < count; ++k) {
      if (blank_frames(d, all[k].column) == 0) out[kept++] = {all[k].value, all[k].column};
    }
    std::fill(out + kept, out + count, Best<Real>{});
  }
};

template <class Real>
Tasks beam_tasks(const TransducerBeamStep& p, const Execution& execution) {
  Tasks tasks(p.batch, 1, execution);
  Arena arena;
  static_cast<void>(BeamWork<Real>(BeamLayout(p), 1, arena));
  tasks.team.scratch_bytes = cpu::rounded_to_worker(arena.used());
  return tasks;
}

template <class Real>
void beam_utterance(const TransducerBeamStep& p, std::int32_t b, void* scratch) {
  Arena arena(scratch);
  const BeamWork<Real> work(BeamLayout(p), 1, arena);
  const Alone<Real> crew;
  BeamSearchStep<Real, Alone<Real>>(p, b, length_of(p.lengths, p.frames, b), work, crew).run();
}

}  // namespace

std::size_t scores_workspace_bytes_cpu(const TransducerScores& p, const Execution& execution) {
  return visit_float32_float64(p.dtype, [&](auto type) {
    return score_tasks<typename decltype(type)::Type>(p, execution).team.bytes();
  });
}

Status scores_cpu(const TransducerScores& p, Workspace workspace, const Execution& execution) {
  visit_float32_float64(p.dtype, [&](auto type) {
    using Real = typename decltype(type)::Type;
    const Tasks tasks = score_tasks<Real>(p, execution);
    cpu::run_team(tasks.team, workspace, execution, [&](int task, const cpu::ItemMemory& memory) {
      score_hypotheses<Real>(p, tasks.begin(task), tasks.end(task), memory.scratch);
    });
  });
  return {};
}

std::size_t greedy_step_workspace_bytes_cpu(const TransducerGreedyStep& p, const Execution& execution) {
  return visit_float32_float64(p.dtype, [&](auto type) {
    return greedy_tasks<typename decltype(type)::Type>(p, execution).team.bytes();
  });
}

Status greedy_step_cpu(const TransducerGreedyStep& p, Workspace workspace, const Execution& execution) {
  visit_float32_float64(p.dtype, [&](auto type) {
    using Real = typename decltype(type)::Type;
    const Tasks tasks = greedy_tasks<Real>(p, execution);
    cpu::run_team(tasks.team, workspace, execution, [&](int task, const cpu::ItemMemory& memory) {
      walk_utterances<Real>(p, tasks.begin(task), tasks.end(task), memory.scratch);
    });
  });
  return {};
}

std::size_t beam_step_workspace_bytes_cpu(const TransducerBeamStep& p, const Execution& execution) {
  return visit_float32_float64(p.dtype, [&](auto type) {
    return beam_tasks<typename decltype(type)::Type>(p, execution).team.bytes();
  });
}

Status beam_step_cpu(const TransducerBeamStep& p, Workspace workspace, const Execution& execution) {
  visit_float32_float64(p.dtype, [&](auto type) {
    using Real = typename decltype(type)::Type;
    cpu::run_team(beam_tasks<Real>(p, execution).team, workspace, execution,
                  [&](int b, const cpu::ItemMemory& memory) { beam_utterance<Real>(p, b, memory.scratch); });
  });
  return {};
}

}  // namespace warpalign::detail::transducer
