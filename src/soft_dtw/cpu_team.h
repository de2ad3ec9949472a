// The workers of one call: each takes pair after pair, and when all are taken, helps with the sweeps of those
// that are still at work. cpu.cpp and cpu_jvp.cpp share it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <new>

#include "soft_dtw/cpu_kernel.h"
#include "soft_dtw/problem.h"

namespace warpalign::detail {

inline constexpr std::size_t kWorkerAlignment = 256;  // no two workers share a cache line, nor its neighbour

inline std::size_t rounded_to_worker(std::size_t bytes) {
  return (bytes + kWorkerAlignment - 1) / kWorkerAlignment * kWorkerAlignment;
}

// What any number of workers may run at the same time, each in scratch memory of its own.
struct SharedWork {
  void (*run)(SharedWork&, void* scratch);
};

// Where a pair's worker offers work to the others; kWorkerAlignment bytes from the next one.
struct Desk {
  std::atomic<SharedWork*> offer{nullptr};
  std::atomic<int> guests{0};

  // Runs `work` together with whoever comes; it has ended, for all of them, on return.
  void share(SharedWork& work, void* scratch) {
    offer = &work;
    work.run(work, scratch);
    offer = nullptr;
    for (int turn = 0; guests != 0; ++turn) cpu_pause(turn);
  }

  // Runs what is offered. A guest is counted before it looks, so that no offer ends under its hands.
  void visit(void* scratch) {
    if (offer.load(std::memory_order_relaxed) == nullptr) return;
    ++guests;
    if (SharedWork* const work = offer) work->run(*work, scratch);
    --guests;
  }
};

// Where a worker works on a pair.
struct Place {
  void* memory;   // the pair's
  void* scratch;  // the worker's
  Desk* desk;     // null: nobody will come
};

// How many work, and how the caller's workspace is divided among them.
struct Team {
  int workers = 1;
  int pairs = 1;            // that are worked on at once
  int workers_of_pair = 1;  // at most
  std::size_t pair_bytes = 0;
  std::size_t scratch_bytes = 0;

  // For pairs that so many can work on.
  static Team of(const SoftDtwProblem& p, const Execution& execution, int workers_of_pair) {
    const std::int64_t batch = std::max(p.batch, 1);
    Team team;
    team.workers =
        static_cast<int>(std::clamp<std::int64_t>(threads_of(execution), 1, batch * workers_of_pair));
    team.pairs = static_cast<int>(std::min<std::int64_t>(team.workers, batch));
    team.workers_of_pair = std::min(team.workers, workers_of_pair);
    return team;
  }

  static int threads_of(const Execution& execution) {
    return execution.parallel_for.run ? execution.parallel_for.threads : 1;
  }

  [[nodiscard]] bool helpful() const { return workers_of_pair > 1; }
  [[nodiscard]] std::size_t desk_bytes() const { return helpful() ? pairs * kWorkerAlignment : 0; }
  [[nodiscard]] std::size_t bytes() const {
    return desk_bytes() + pairs * pair_bytes + workers * scratch_bytes;
  }
};

// The call, and the pair that is worked on.
struct Job {
  const SoftDtwProblem& p;
  const SoftDtwOutputs& out;
  const CpuKernels& kernels;
  int b;
  int n;
  int m;
  double gamma;
};

// One call's workers at work: solve(job, place) for every pair. They may run one after the other, in any
// order: whoever waits, waits for what a worker has begun.
template <class Solve>
class TeamWork {
 public:
  TeamWork(const Team& team, const SoftDtwProblem& p, const SoftDtwOutputs& out, const CpuKernels& kernels,
           Workspace workspace, Solve solve)
      : team_(team),
        p_(p),
        out_(out),
        kernels_(kernels),
        desks_(static_cast<std::byte*>(workspace.data)),
        memory_(desks_ + team.desk_bytes()),
        scratch_(memory_ + team.pairs * team.pair_bytes),
        solve_(solve) {
    for (int k = 0; team.helpful() && k < team.pairs; ++k) new (&desk(k)) Desk;
  }

  void run(const Execution& execution) {
    if (team_.workers == 1) return work(0);
    const auto task = [](void* self, int worker) { static_cast<TeamWork*>(self)->work(worker); };
    execution.parallel_for.run(execution.parallel_for.context, team_.workers, task, this);
  }

 private:
  Desk& desk(int k) { return *std::launder(reinterpret_cast<Desk*>(desks_ + k * kWorkerAlignment)); }

  void work(int worker) {
    void* const scratch = scratch_ + worker * team_.scratch_bytes;
    for (int b = next_++; b < p_.batch; b = next_++) {
      // With workers to spare each pair has a place, else each worker.
      const int k = team_.workers > p_.batch ? b : worker;
      const Place place{memory_ + k * team_.pair_bytes, scratch, team_.helpful() ? &desk(k) : nullptr};
      solve_(job_of(b), place);
      ++done_;
    }
    if (!team_.helpful()) return;
    for (int turn = 0; done_ < p_.batch; ++turn) {
      for (int k = 0; k < team_.pairs; ++k) desk((worker + k) % team_.pairs).visit(scratch);
      cpu_pause(turn);
    }
  }

  [[nodiscard]] Job job_of(int b) const {
    return {p_,
            out_,
            kernels_,
            b,
            p_.x_lengths ? p_.x_lengths[b] : p_.n,
            p_.y_lengths ? p_.y_lengths[b] : p_.m,
            gamma_of(p_, b)};
  }

  const Team& team_;
  const SoftDtwProblem& p_;
  const SoftDtwOutputs& out_;
  const CpuKernels& kernels_;
  std::byte* const desks_;
  std::byte* const memory_;
  std::byte* const scratch_;
  Solve solve_;
  std::atomic<int> next_{0};
  std::atomic<int> done_{0};
};

}  // namespace warpalign::detail
