// The second pass over the lattice, from the last segment to the first: alpha of the segment's frames is
// computed again and stored, then beta is computed backward, and their products are posteriors. Threads share
// stripes of pairs: those of alpha follow each other from left to right, those of beta from right to left.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ctc/cpu_frames.h"
#include "ctc/cpu_saved.h"
#include "ctc/cpu_stripes.h"

namespace warpalign::detail::ctc {

// One utterance's memory for the second pass.
struct ReverseMemory {
  Lattice lattice;
  Stripes stripes;
  std::int32_t segment;     // the most frames of a segment
  std::int64_t row_stride;  // of a stripe's rows
  std::int64_t row;         // number of doubles of a stripe's row
  double* start;            // [stripe]: the row of the frame before a segment
  double* beta;             // [stripe][frame % 2]: rows
  double* alpha;            // [stripe][frame of the segment]: rows
  double* edges;            // [stripe][frame of the segment, or its end][4]: beta of the stripe's first pair
  Progress* progress;       // [stripe]
  std::int64_t stride;      // number of doubles of a frame's weights, and of its posteriors
  double* weights;          // of a segment: mantissas, then exponents
  double* posteriors;       // of a segment

  ReverseMemory(const CtcProblem& p, Arena& arena)
      : lattice(p, arena),
        stripes(stripes_of(p)),
        segment(segment_frames(p)),
        row_stride(cpu_stride(stripes.widest(p.labels))),
        row(4 * row_stride),
        start(arena.take<double>(row * stripes.count)),
        beta(arena.take<double>(2 * row * stripes.count)),
        alpha(arena.take<double>(row * segment * stripes.count)),
        edges(arena.take<double>(std::size_t{4} * (segment + 1) * stripes.count)),
        progress(arena.take<Progress>(stripes.count)),
        stride(weights_stride(most_slots(p))),
        weights(arena.take<double>(2 * stride * segment)),
        posteriors(arena.take<double>(stride * segment)) {}

  [[nodiscard]] CpuWeights weights_of(std::int32_t frame) const {
    double* const mantissa = weights + 2 * stride * frame;
    return {mantissa, mantissa + stride};
  }
  [[nodiscard]] double* start_of(std::int32_t stripe) const { return start + row * stripe; }
  [[nodiscard]] double* beta_of(std::int32_t stripe, std::int32_t t) const {
    return beta + row * (2 * stripe + t % 2);
  }
  [[nodiscard]] double* alpha_of(std::int32_t stripe, std::int32_t frame) const {
    return alpha + row * (std::int64_t{segment} * stripe + frame);
  }
  [[nodiscard]] double* edge_of(std::int32_t stripe, std::int32_t frame) const {
    return edges + 4 * ((segment + std::int64_t{1}) * stripe + frame);
  }
};

// OnFrame(t, first, labels, range): labels[k] is the posterior of label first + k, for k in range. Called if
// wants_labels, by any worker, for different pairs at the same time; then the workers' scratch memory begins
// with cpu_stride(stripes.widest(p.labels)) doubles.
template <class T, class OnFrame>
class Reverse {
 public:
  Reverse(const CtcProblem& p, const Utterance& u, const Frames<T>& frames, const Saved& saved,
          const ReverseMemory& memory, bool wants_labels, const OnFrame& on_frame)
      : u_(u),
        frames_(frames),
        saved_(saved),
        memory_(memory),
        wants_labels_(wants_labels),
        on_frame_(on_frame),
        lattice_(memory.lattice.view()),
        length_(segment_frames(p)) {
    for (std::int32_t k = 0; k < count(); ++k) {
      new (&memory.progress[k]) Progress;
      for (std::int32_t t = 0; t < 2; ++t) clear_row(memory.beta_of(k, t), memory.row_stride);
      if (const Stripe one = stripe(k); one.has(u.labels)) {
        set_end(memory.beta_of(k, u.frames), memory.row_stride,
                static_cast<std::int32_t>(u.labels - one.first));
      }
      put_first(memory.beta_of(k, u.frames), memory.edge_of(k, length_));
    }
  }

  // Calls on_segment(begin, end) for each segment, from the last to the first, when its posteriors by slot
  // are in memory.
  template <class OnSegment>
  void run(const cpu::ItemMemory& item, OnSegment&& on_segment) {
    for (std::int32_t segment = segments_of(u_.frames, length_) - 1; segment >= 0; --segment) {
      segment_ = segment;
      begin_ = segment * length_;
      end_ = std::min(begin_ + length_, u_.frames);
      std::fill_n(memory_.posteriors, memory_.stride * (end_ - begin_), 0.0);
      const auto forward = [this](std::int32_t k, void*) { sweep_alpha(k); };
      const auto backward = [this](std::int32_t k, void* scratch) { sweep_beta(count() - 1 - k, scratch); };
      restart();
      StripeWork(count(), forward).run_with(item);
      restart();
      StripeWork(count(), backward).run_with(item);
      for (std::int32_t k = 1; k < count(); ++k) {
        std::copy_n(memory_.edge_of(k, 0), 4, memory_.edge_of(k, length_));
      }
      on_segment(begin_, end_);
    }
  }

 private:
  static constexpr std::int32_t kPublished = 8;  // frames between two updates of a stripe's progress

  [[nodiscard]] std::int32_t count() const { return memory_.stripes.count; }
  [[nodiscard]] Stripe stripe(std::int32_t index) const {
    return Stripe(memory_.stripes, lattice_, index, memory_.row_stride);
  }
  void restart() const {
    for (std::int32_t k = 0; k < count(); ++k) memory_.progress[k].publish(0);
  }
  void publish(std::int32_t stripe, std::int32_t done) const {
    if (count() == 1) return;
    if (done % kPublished == 0 || done == end_ - begin_) memory_.progress[stripe].publish(done);
  }

  // The four numbers of a row's pair 0. Stripe 0 needs none of these edges.
  void put_first(const double* row, double* edge) const {
    for (int array = 0; array < 4; ++array) edge[array] = row[array * memory_.row_stride + kCpuPad];
  }
  static void put_dead(double* edge) {
    edge[0] = edge[2] = 1;
    edge[1] = edge[3] = kCpuDead;
  }

  // Computes alpha of a stripe. Stripe 0 also computes the frames' weights.
  void sweep_alpha(std::int32_t index) const {
    const Stripe one = stripe(index), before = stripe(std::max(index - 1, 0));
    const CpuKernels& k = kernels();
    const std::int64_t stride = memory_.row_stride;
    double* from = memory_.start_of(index);
    clear_row(from, stride);
    if (segment_ > 0) {
      if (one.pairs() > 0) saved_.get(segment_, from, stride, one.first, one.pairs());
    } else if (index == 0) {
      set_end(from, stride, 0);
    }
    for (std::int32_t t = begin_; t < end_; ++t) {
      const std::int32_t frame = t - begin_;
      const CpuWeights weights = memory_.weights_of(frame);
      if (index == 0) static_cast<void>(frames_.weigh(t, weights));
      const CpuRange range = one.part_of(range_of(u_, t));
      if (!is_empty(range)) {
        if (index > 0) {
          // A stripe without pairs at a frame waits for none, so that stripe 0 may be earlier than those
          // between.
          memory_.progress[0].wait_for(frame + 1);
          memory_.progress[index - 1].wait_for(frame + 1);
          take_label_before(index, before, t, from);
        }
        double* const to = memory_.alpha_of(index, frame);
        k.alpha(one.lattice, weights, from, to, range);
        if ((t + 1) % kCpuLazy == 0) k.normalize(one.lattice, to, range);
        from = to;
      }
      publish(index, frame + 1);
    }
  }
  // Copies the last label of the stripe before, after frame t - 1, to the place before pair 0.
  void take_label_before(std::int32_t index, const Stripe& before, std::int32_t t, double* row) const {
    const std::int64_t stride = memory_.row_stride;
    const bool lives = t > 0 && !is_empty(before.part_of(range_of(u_, t - 1)));
    const double* const of =
        t > begin_ ? memory_.alpha_of(index - 1, t - begin_ - 1) : memory_.start_of(index - 1);
    const double* const label = of + 2 * stride + kCpuPad + memory_.stripes.width - 1;
    row[2 * stride + kCpuPad - 1] = lives ? label[0] : 1;
    row[3 * stride + kCpuPad - 1] = lives ? label[stride] : kCpuDead;
  }

  // Computes beta of a stripe, and posteriors. A frame's posteriors are added by stripes from right to left.
  void sweep_beta(std::int32_t index, void* scratch) const {
    const Stripe one = stripe(index);
    const std::int64_t stride = memory_.row_stride, width = memory_.stripes.width;
    const CpuKernels& k = kernels();
    const double total_mantissa = 1 / saved_.header->mantissa, total_exponent = saved_.header->exponent;
    double* const labels = wants_labels_ ? static_cast<double*>(scratch) : nullptr;
    for (std::int32_t t = end_ - 1; t >= begin_; --t) {
      const std::int32_t frame = t - begin_, done = end_ - t;
      const CpuRange range = one.part_of(range_of(u_, t));
      if (is_empty(range)) {
        if (index > 0) put_dead(memory_.edge_of(index, frame));
      } else {
        double* const after = memory_.beta_of(index, t + 1);
        double* const to = memory_.beta_of(index, t);
        if (index + 1 < count()) {
          memory_.progress[index + 1].wait_for(done);
          const double* const edge = memory_.edge_of(index + 1, done == 1 ? length_ : frame + 1);
          for (int array = 0; array < 4; ++array) after[array * stride + kCpuPad + width] = edge[array];
        }
        k.beta(one.lattice, memory_.weights_of(frame), after, to, memory_.alpha_of(index, frame),
               {total_mantissa, total_exponent, memory_.posteriors + memory_.stride * frame, labels}, range);
        if (t % kCpuLazy == 0) k.normalize(one.lattice, to, range);
        if (index > 0) put_first(to, memory_.edge_of(index, frame));
        if (labels) on_frame_(t, one.first, labels + kCpuPad, range);
      }
      publish(index, done);
    }
  }

  const Utterance& u_;
  const Frames<T>& frames_;
  const Saved& saved_;
  const ReverseMemory& memory_;
  const bool wants_labels_;
  const OnFrame& on_frame_;
  const CpuLattice lattice_;
  const std::int32_t length_;  // frames of a segment
  std::int32_t segment_ = 0, begin_ = 0, end_ = 0;
};

}  // namespace warpalign::detail::ctc
