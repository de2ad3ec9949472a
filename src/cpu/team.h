// The workers of one call. Each worker takes one item after another (a pair of series, an utterance). When
// all items are taken, idle workers help the others, if an item's work can be shared.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "cpu/pause.h"
#include "warpalign/execution.h"

namespace warpalign::cpu {

// The alignment of each worker's memory, in bytes: workers share no cache line, nor a pair of lines that the
// processor fetches together.
inline constexpr std::size_t kWorkerAlignment = 256;

inline std::size_t rounded_to_worker(std::size_t bytes) {
  return (bytes + kWorkerAlignment - 1) / kWorkerAlignment * kWorkerAlignment;
}

// Work that any number of workers may run at the same time, each with its own scratch memory.
struct SharedWork {
  void (*run)(SharedWork&, void* scratch);
};

// Where an item's worker publishes shared work. Takes kWorkerAlignment bytes.
class WorkSlot {
 public:
  // Runs `work` together with whichever workers help. On return it has ended for all of them.
  void run_shared(SharedWork& work, void* scratch) {
    published_ = &work;
    work.run(work, scratch);
    published_ = nullptr;
    for (int turn = 0; helpers_ != 0; ++turn) pause(turn);
  }

  // Runs the published work, if there is any. A helper increments the count of helpers before it reads the
  // slot, so that run_shared() cannot return between that read and the helper's run.
  void help(void* scratch) {
    if (published_.load(std::memory_order_relaxed) == nullptr) return;
    ++helpers_;
    if (SharedWork* const work = published_) work->run(*work, scratch);
    --helpers_;
  }

 private:
  std::atomic<SharedWork*> published_{nullptr};
  std::atomic<int> helpers_{0};
};
static_assert(sizeof(WorkSlot) <= kWorkerAlignment);

// The ways of an operator whose threads may share an item's work, for Execution::way.
enum class ThreadWay {
  kAcrossBatch,  // each thread has items of its own
  kWithinItems,  // threads share each item
};
inline constexpr const char* kThreadWays[] = {"across_batch", "within_items"};

// A worker's memory while it solves an item.
struct ItemMemory {
  void* item;      // Team::item_bytes, aligned to kWorkerAlignment if the workspace is
  void* scratch;   // Team::scratch_bytes
  WorkSlot* slot;  // null: no worker will help
};

// The number of workers of a call, and the division of its workspace among them.
struct Team {
  int items = 0;
  int workers = 1;
  int items_at_once = 1;
  int workers_per_item = 1;       // the most that share one item
  std::size_t item_bytes = 0;     // of each item in work; a multiple of kWorkerAlignment
  std::size_t scratch_bytes = 0;  // of each worker; a multiple of kWorkerAlignment

  // At most `workers_per_item` workers can share an item's work.
  static Team of(int items, const Execution& execution, int workers_per_item) {
    const std::int64_t count = std::max(items, 1);
    Team team;
    team.items = items;
    team.workers =
        static_cast<int>(std::clamp<std::int64_t>(threads_of(execution), 1, count * workers_per_item));
    team.items_at_once = static_cast<int>(std::min<std::int64_t>(team.workers, count));
    team.workers_per_item = std::min(team.workers, workers_per_item);
    return team;
  }

  static int threads_of(const Execution& execution) {
    return execution.parallel_for.run ? execution.parallel_for.threads : 1;
  }

  [[nodiscard]] bool shares_work() const { return workers_per_item > 1; }
  [[nodiscard]] std::size_t slot_bytes() const {
    return shares_work() ? items_at_once * kWorkerAlignment : 0;
  }
  [[nodiscard]] std::size_t bytes() const {
    return slot_bytes() + items_at_once * item_bytes + workers * scratch_bytes;
  }
};

// Runs solve(item, memory) for every item. Workers may run concurrently or one after the other, in any order:
// a worker waits only for work that another worker has begun.
template <class Solve>
class TeamRun {
 public:
  TeamRun(const Team& team, Workspace workspace, Solve solve)
      : team_(team),
        slots_(static_cast<std::byte*>(workspace.data)),
        items_(slots_ + team.slot_bytes()),
        scratch_(items_ + team.items_at_once * team.item_bytes),
        solve_(solve) {
    for (int k = 0; team.shares_work() && k < team.items_at_once; ++k) new (&slot(k)) WorkSlot;
  }

  void run(const Execution& execution) {
    if (team_.workers == 1) return work(0);
    const auto task = [](void* self, int worker) { static_cast<TeamRun*>(self)->work(worker); };
    execution.parallel_for.run(execution.parallel_for.context, team_.workers, task, this);
  }

 private:
  WorkSlot& slot(int k) { return *std::launder(reinterpret_cast<WorkSlot*>(slots_ + k * kWorkerAlignment)); }

  void work(int worker) {
    void* const scratch = scratch_ + worker * team_.scratch_bytes;
    for (int item = next_++; item < team_.items; item = next_++) {
      // With more workers than items, each item has its own memory, otherwise each worker.
      const int k = team_.workers > team_.items ? item : worker;
      solve_(item,
             ItemMemory{items_ + k * team_.item_bytes, scratch, team_.shares_work() ? &slot(k) : nullptr});
      ++done_;
    }
    if (!team_.shares_work()) return;
    for (int turn = 0; done_ < team_.items; ++turn) {
      for (int k = 0; k < team_.items_at_once; ++k) slot((worker + k) % team_.items_at_once).help(scratch);
      pause(turn);
    }
  }

  const Team& team_;
  std::byte* const slots_;
  std::byte* const items_;
  std::byte* const scratch_;
  Solve solve_;
  std::atomic<int> next_{0};
  std::atomic<int> done_{0};
};

// Calls solve(item, memory) for item = 0 ... team.items - 1, in a workspace of team.bytes(). All have been
// solved on return.
template <class Solve>
void run_team(const Team& team, Workspace workspace, const Execution& execution, Solve solve) {
  TeamRun<Solve>(team, workspace, solve).run(execution);
}

}  // namespace warpalign::cpu
