// The CPU paths' thread team: every item is solved once, in memory of its own, whoever runs the workers.
#include "cpu/team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "host_buffer.h"
#include "warpalign/thread_pool.h"

namespace warpalign::cpu {
namespace {

// Runs the tasks one after the other, the last one first.
Execution backwards(int threads) {
  return Execution::host({[](void*, int tasks, ParallelFor::Task task, void* state) {
                            for (int k = tasks - 1; k >= 0; --k) task(state, k);
                          },
                          nullptr, threads});
}

Team team_of(int items, const Execution& execution, int workers_per_item) {
  Team team = Team::of(items, execution, workers_per_item);
  team.item_bytes = team.scratch_bytes = kWorkerAlignment;
  return team;
}

// What an item's workers add up: 1 for each part that one of them takes.
struct Parts : SharedWork {
  explicit Parts(int parts) : SharedWork{&run_one}, left(parts) {}
  static void run_one(SharedWork& work, void* scratch) {
    auto& self = static_cast<Parts&>(work);
    *static_cast<int*>(scratch) = 1;  // each worker's own
    while (self.left.fetch_sub(1) > 0) ++self.done;
  }
  std::atomic<int> left;
  std::atomic<int> done{0};
};

void every_item_once(const Execution& execution, int items, int workers_per_item) {
  const Team team = team_of(items, execution, workers_per_item);
  const test::HostBuffer memory(team.bytes());
  std::vector<std::atomic<int>> solved(items);
  run_team(team, {memory.data(), team.bytes()}, execution, [&](int item, const ItemMemory& place) {
    *static_cast<int*>(place.item) = item;
    ASSERT_EQ(place.slot != nullptr, team.shares_work());
    if (place.slot) {
      Parts parts(100);
      place.slot->run_shared(parts, place.scratch);
      EXPECT_EQ(parts.done, 100);  // no helper is still at work
    }
    EXPECT_EQ(*static_cast<int*>(place.item), item);  // nobody else has this memory
    ++solved[item];
  });
  for (int item = 0; item < items; ++item) EXPECT_EQ(solved[item], 1) << item;
}

TEST(Team, EveryItemIsSolvedOnce) {
  ThreadPool pool(4);
  for (const Execution& execution :
       {Execution::host(), Execution::host(pool.parallel_for()), backwards(1), backwards(5)}) {
    for (int items : {0, 1, 2, 3, 7, 100}) {
      for (int workers_per_item : {1, 2, 9}) every_item_once(execution, items, workers_per_item);
    }
  }
}

TEST(Team, HasNoMoreWorkersThanWork) {
  EXPECT_EQ(Team::of(3, backwards(8), 1).workers, 3);
  EXPECT_EQ(Team::of(3, backwards(8), 2).workers, 6);
  EXPECT_EQ(Team::of(3, backwards(8), 2).items_at_once, 3);
  EXPECT_EQ(Team::of(100, backwards(8), 2).workers, 8);
  EXPECT_EQ(Team::of(100, backwards(-1), 2).workers, 1);  // below 1 counts as 1
  EXPECT_EQ(Team::of(0, backwards(8), 1).workers, 1);
  EXPECT_FALSE(Team::of(100, Execution::host(), 7).shares_work());
}

TEST(Team, BytesCountSlotsItemsAndScratch) {
  Team team = team_of(3, backwards(8), 2);
  EXPECT_EQ(team.bytes(), (3 + 3 + 6) * kWorkerAlignment);
  team = team_of(3, backwards(8), 1);
  EXPECT_EQ(team.bytes(), (3 + 3) * kWorkerAlignment);
}

}  // namespace
}  // namespace warpalign::cpu
