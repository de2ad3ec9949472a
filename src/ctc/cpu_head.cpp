// CTC of logits that come a chunk of frames at a time, on the CPU: threads share the frames of a chunk.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/half.h"
#include "ctc/cpu_frames.h"
#include "ctc/head.h"

namespace warpalign::detail::ctc {
namespace {

Utterance utterance_of(const CtcProblem& p, std::int32_t b) {
  const std::int64_t stride = p.target_stride < 0 ? p.labels : p.target_stride;
  const auto frames = p.logit_lengths.data ? static_cast<std::int32_t>(p.logit_lengths[b]) : p.frames;
  const auto labels = p.target_lengths.data ? static_cast<std::int32_t>(p.target_lengths[b]) : p.labels;
  return {b, frames, labels, b * stride};
}

// Each thread calls body_of(worker) once, and body(first, last) for some rows at a time.
template <class BodyOf>
void share_rows(const CtcProblem& p, const CtcHeadRows& rows, const Execution& execution,
                const BodyOf& body_of) {
  const std::int64_t elements = cpu_tuning(cpu::selected_isa()).worker_elements;
  const std::int64_t at_once = std::max<std::int64_t>(elements / p.classes, 1);
  std::atomic<std::int64_t> next{0};
  cpu::run_workers(execution, cpu::threads_of(execution), [&](int worker) {
    const host::FlushToZero flush;
    auto&& body = body_of(worker);
    for (std::int64_t row = next.fetch_add(at_once); row < rows.count; row = next.fetch_add(at_once)) {
      body(rows.first + row, rows.first + std::min(row + at_once, rows.count));
    }
  });
}

template <class T>
T* row_at(const CtcHeadRows& rows, std::int64_t row) {
  return static_cast<T*>(rows.logits) + (row - rows.first) * rows.stride;
}

// The log-sums of a frame, and the weights of its labels and of blank.
template <class T>
void write_emissions(const CtcProblem& p, const T* logits, std::int64_t row, const Utterance& u,
                     const CtcHeadEmissions& to) {
  using Real = typename Arithmetic<T>::Real;
  double lse = 0, others = 0;
  if (p.star >= 0) {
    others = others_of(p, logits);
    to.log_sums_of_others[row] = others;
    lse = log_add(others, number_of(logits[p.blank]));
  } else {
    lse = Arithmetic<T>::rows().lse(logits, p.classes);
  }
  if (lse == kInfinity) lse = kNaN;
  to.log_sums[row] = lse;
  const auto weight = [&](double x) { return lse == -kInfinity ? -kInfinity : x - lse; };
  const auto of_class = [&](std::int64_t c) {
    return static_cast<Real>(weight(number_of(logits[c])) - (p.prior ? read_real(p.prior, p.dtype, c) : 0));
  };
  Real* const e = static_cast<Real*>(to.emissions) + row * (p.labels + std::int64_t{1});
  for (std::int32_t k = 0; k < u.labels; ++k) {
    const std::int64_t label = p.targets[u.first_target + k];
    e[k] = p.star >= 0 && label == p.star ? static_cast<Real>(weight(others)) : of_class(label);
  }
  e[p.labels] = of_class(p.blank);
}

// A worker's memory for gradients.
template <class T>
struct GradientWorker {
  Lattice lattice;
  double* posteriors;  // by slot
  FrameMemory<T> frame;

  GradientWorker(const CtcProblem& p, Arena& arena)
      : lattice(p, arena), posteriors(arena.take<double>(most_slots(p) + kCpuSlotPad)), frame(p, arena) {}

  static std::size_t bytes(const CtcProblem& p) {
    Arena arena;
    static_cast<void>(GradientWorker(p, arena));
    return arena.used();
  }
};

// One frame's gradient, in place.
template <class T>
void write_gradient(const CtcProblem& p, const CtcHeadGradient& g, const Utterance& u, std::int64_t row,
                    double upstream, T* logits, const GradientWorker<T>& memory) {
  using Real = typename Arithmetic<T>::Real;
  const Lattice& lattice = memory.lattice;
  double* const sums = memory.posteriors;
  std::fill_n(sums, lattice.slots(), 0.0);
  const Real* const posteriors = static_cast<const Real*>(g.posteriors) + row * p.labels;
  double all = 0;
  for (std::int32_t k = 0; k < u.labels; ++k) {
    const double posterior = static_cast<double>(posteriors[k]);
    sums[lattice.slot_of(k)] += posterior;
    all += posterior;
  }
  sums[0] = std::max(1 - all, 0.0);
  CpuFrameGradient<Real> frame{};
  frame.row = frame.out = logits;
  frame.columns = p.classes;
  frame.lse = g.log_sums[row];
  frame.others = lattice.star() > 0 ? g.log_sums_of_others[row] : 0;
  frame.star = lattice.star() > 0 ? sums[lattice.star()] : 0;
  frame.upstream = upstream;
  frame.slots = lattice.slots();
  frame.blank = p.blank;
  frame.column = lattice.columns();
  frame.star_slot = lattice.star();
  frame.g = sums;
  frame.dense = memory.frame.dense;
  frame.mended = memory.frame.mended;
  Arithmetic<T>::rows().gradient(frame);
}

template <class T>
void gradient(const CtcProblem& p, const CtcHeadRows& rows, const CtcHeadGradient& g, std::byte* workspace,
              const Execution& execution) {
  using Real = typename Arithmetic<T>::Real;
  const std::size_t bytes = GradientWorker<T>::bytes(p);
  share_rows(p, rows, execution, [&](int worker) {
    Arena arena(workspace + worker * bytes);
    GradientWorker<T> own(p, arena);
    own.lattice.clear();
    if (own.frame.dense) std::fill_n(own.frame.dense, p.classes, Real(0));
    return [&p, &rows, &g, own, u = Utterance{-1, 0, 0, 0}, upstream = 1.0, loss = 0.0](
               std::int64_t first, std::int64_t last) mutable {
      for (std::int64_t row = first; row < last; ++row) {
        const auto b = static_cast<std::int32_t>(row / p.frames);
        if (b != u.index) {
          u = utterance_of(p, b);
          own.lattice.set(u);
          upstream = g.grad_loss ? read_real(g.grad_loss, p.dtype, b * g.grad_loss_stride) : 1;
          loss = read_real(g.loss, p.dtype, b);
        }
        T* const logits = row_at<T>(rows, row);
        if (row % p.frames >= u.frames || upstream == 0 || std::isinf(loss)) {
          std::fill_n(logits, p.classes, T{});
        } else if (std::isnan(loss)) {
          std::fill_n(logits, p.classes, rounded_to<T>(std::numeric_limits<float>::quiet_NaN()));
        } else {
          write_gradient<T>(p, g, u, row, upstream, logits, own);
        }
      }
    };
  });
}

}  // namespace

void head_labels_cpu(const CtcProblem& p, const CtcHeadLabels& to) {
  for (std::int32_t b = 0; b < p.batch; ++b) {
    const Utterance u = utterance_of(p, b);
    const std::int64_t row = std::int64_t{b} * p.labels;
    std::fill_n(to.first + row, p.labels, -1);
    std::fill_n(to.next + row, p.labels, -1);
    for (std::int32_t k = 0; k < u.labels; ++k) {
      if (to.first[row + k] >= 0) continue;  // an earlier label has found it
      std::int32_t last = k;
      to.first[row + k] = k;
      for (std::int32_t j = k + 1; j < u.labels; ++j) {
        if (p.targets[u.first_target + j] != p.targets[u.first_target + k]) continue;
        to.first[row + j] = k;
        to.next[row + last] = j;
        last = j;
      }
    }
  }
}

Status head_emissions_cpu(const CtcProblem& p, const CtcHeadRows& rows, const CtcHeadEmissions& to,
                          const Execution& execution) {
  visit_dtype(p.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    share_rows(p, rows, execution, [&](int) {
      return [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t row = first; row < last; ++row) {
          const Utterance u = utterance_of(p, static_cast<std::int32_t>(row / p.frames));
          if (row % p.frames < u.frames) write_emissions<T>(p, row_at<T>(rows, row), row, u, to);
        }
      };
    });
  });
  return {};
}

std::size_t head_gradient_workspace_bytes_cpu(const CtcProblem& p, const Execution& execution) {
  std::size_t bytes = 0;
  visit_dtype(p.dtype, [&](auto type) { bytes = GradientWorker<typename decltype(type)::Type>::bytes(p); });
  return bytes * cpu::threads_of(execution);
}

Status head_gradient_cpu(const CtcProblem& p, const CtcHeadRows& rows, const CtcHeadGradient& g,
                         Workspace workspace, const Execution& execution) {
  visit_dtype(p.dtype, [&](auto type) {
    gradient<typename decltype(type)::Type>(p, rows, g, static_cast<std::byte*>(workspace.data), execution);
  });
  return {};
}

}  // namespace warpalign::detail::ctc
