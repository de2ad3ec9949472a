// Monotonic alignment search on the CPU: vectors run along a frame's positions, and one byte per position and
// frame stores the predecessor on the best path. Threads share the items.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "ctc/cpu_frames.h"

namespace warpalign::detail::ctc {
namespace {

constexpr std::int32_t kFramesAtOnce =
    32;  // frames whose scores are transposed together, from (S, T) to (T, S)

struct MonotonicWorker {
  std::int64_t stride;  // of a row, and of a frame's bytes
  double* rows[2];
  double* scores;
  std::uint8_t* stays;

  MonotonicWorker(const MonotonicAlignmentProblem& p, Arena& arena)
      : stride(cpu_stride(p.positions)),
        rows{arena.take<double>(stride), arena.take<double>(stride)},
        scores(arena.take<double>(stride * kFramesAtOnce)),
        stays(arena.take<std::uint8_t>(static_cast<std::size_t>(stride) * p.frames)) {}
};

int workers_of(const MonotonicAlignmentProblem& p, const Execution& execution) {
  return std::clamp(cpu::threads_of(execution), 1, p.batch);
}

std::size_t worker_bytes(const MonotonicAlignmentProblem& p) {
  Arena arena;
  static_cast<void>(MonotonicWorker(p, arena));
  return arena.used();
}

template <class T>
class Search {
 public:
  Search(const MonotonicAlignmentProblem& p, std::int32_t b, const MonotonicWorker& memory)
      : p_(p),
        data_(static_cast<const T*>(p.scores.data) + b * p.scores.stride[0]),
        memory_(memory),
        positions_(static_cast<std::int32_t>(p.text_lengths.data ? p.text_lengths[b] : p.positions)),
        frames_(static_cast<std::int32_t>(p.frame_lengths.data ? p.frame_lengths[b] : p.frames)) {}

  // Returns the best sum. On return the predecessors are in memory.
  double best() {
    if (positions_ == 0 && frames_ == 0) return 0;
    double* row = memory_.rows[0] + kCpuPad;
    double* next = memory_.rows[1] + kCpuPad;
    std::fill_n(memory_.rows[0], memory_.stride, kCpuDead);
    std::fill_n(memory_.rows[1], memory_.stride, kCpuDead);
    row[-1] = 0;  // state before the first frame: from it a path can only enter position 0
    bool bad = false;
    for (std::int32_t t = 0; t < frames_; ++t) {
      const std::int32_t within = t % kFramesAtOnce;
      if (within == 0) bad |= turn(t, std::min(t + kFramesAtOnce, frames_));
      const CpuRange range = {std::max(0, positions_ - frames_ + t), std::min(positions_ - 1, t)};
      kernels().monotonic(memory_.scores + memory_.stride * within, row, next,
                          memory_.stays + memory_.stride * t, range);
      std::swap(row, next);
    }
    if (bad) return kNaN;
    if (positions_ == 0 || positions_ > frames_ || row[positions_ - 1] < kCpuNoPath) return -kInfinity;
    return row[positions_ - 1];
  }

  // Calls on_frame(s, t) from the last frame to the first.
  template <class OnFrame>
  void trace(OnFrame&& on_frame) const {
    std::int32_t s = positions_ - 1;
    for (std::int32_t t = frames_ - 1; t >= 0; --t) {
      on_frame(s, t);
      if (s > 0 && (s == t || memory_.stays[memory_.stride * t + s] == 0)) --s;
    }
  }

 private:
  // Transposes the scores of frames begin .. end - 1 to a row of positions for each frame. Returns whether
  // one of them is NaN or +inf.
  bool turn(std::int32_t begin, std::int32_t end) const {
    bool bad = false;
    for (std::int32_t s = 0; s < positions_; ++s) {
      const T* const from = data_ + s * p_.scores.stride[1];
      for (std::int32_t t = begin; t < end; ++t) {
        const double x = number_of(from[t * p_.scores.stride[2]]);
        bad |= !(x < kInfinity);
        memory_.scores[memory_.stride * (t - begin) + s] = std::max(x, -1e299);
      }
    }
    return bad;
  }

  const MonotonicAlignmentProblem& p_;
  const T* const data_;
  const MonotonicWorker& memory_;
  const std::int32_t positions_, frames_;
};

template <class T>
void search(const MonotonicAlignmentProblem& p, const MonotonicAlignment& out, std::byte* memory,
            const Execution& execution) {
  using Real = typename Arithmetic<T>::Real;
  const std::size_t bytes = worker_bytes(p);
  std::atomic<int> next{0};
  cpu::run_workers(execution, workers_of(p, execution), [&](int worker) {
    Arena arena(memory + worker * bytes);
    const MonotonicWorker own(p, arena);
    std::fill_n(own.scores, own.stride * kFramesAtOnce,
                0.0);  // positions past the item's own are read by vectors
    for (int b = next++; b < p.batch; b = next++) {
      const std::int64_t first = std::int64_t{b} * p.positions;
      std::int32_t* const durations = out.durations ? out.durations + first : nullptr;
      std::uint8_t* const path = out.path ? out.path + first * p.frames : nullptr;
      if (durations) std::fill_n(durations, p.positions, 0);
      if (path) std::fill_n(path, std::int64_t{p.positions} * p.frames, std::uint8_t{0});
      Search<T> item(p, b, own);
      const double score = item.best();
      if (out.score) static_cast<Real*>(out.score)[b] = static_cast<Real>(score);
      if (!(score > -kInfinity)) continue;
      item.trace([&](std::int32_t s, std::int32_t t) {
        if (durations) ++durations[s];
        if (path) path[std::int64_t{s} * p.frames + t] = 1;
      });
    }
  });
}

}  // namespace

std::size_t monotonic_workspace_bytes_cpu(const MonotonicAlignmentProblem& p,
                                          const MonotonicAlignment& /*out*/, const Execution& execution) {
  return worker_bytes(p) * static_cast<std::size_t>(workers_of(p, execution));
}

Status monotonic_cpu(const MonotonicAlignmentProblem& p, const MonotonicAlignment& out, Workspace workspace,
                     const Execution& execution) {
  visit_dtype(p.dtype, [&](auto type) {
    search<typename decltype(type)::Type>(p, out, static_cast<std::byte*>(workspace.data), execution);
  });
  return {};
}

}  // namespace warpalign::detail::ctc
