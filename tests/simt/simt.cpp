#include "simt.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "fiber.h"

// The array that src/cuda/launch/shared.cuh declares.
namespace warpalign::cuda {
alignas(256) thread_local unsigned char shared[256 * 1024];
}

namespace simt {

thread_local Here here;

void fail(const char* what) {
  std::fprintf(stderr, "simt: %s\n", what);
  std::abort();
}

namespace {

constexpr unsigned kFullWarp = ~0u;
constexpr unsigned char kUnused = 0xa5;

// The blocks of a cluster, or of a launch whose blocks are no cluster. They begin and wait together.
class Team {
 public:
  explicit Team(int blocks) : blocks_(blocks), thread_pointers_(blocks) {}

  [[nodiscard]] int blocks() const { return static_cast<int>(blocks_); }
  // Every block calls this before it begins.
  void enter(int rank) { thread_pointers_[rank] = static_cast<unsigned char*>(__builtin_thread_pointer()); }
  // Every block calls this once per meeting. Returns whether the meeting with this number is over.
  void arrive() { ++arrivals_; }
  [[nodiscard]] bool is_over(unsigned meeting) const { return arrivals_ / blocks_ > meeting; }

  // Shared memory is thread_local: it lies at the same distance from every thread's pointer.
  [[nodiscard]] void* in_block(void* here, int rank) const {
    return static_cast<unsigned char*>(here) - static_cast<unsigned char*>(__builtin_thread_pointer()) +
           thread_pointers_[rank];
  }

 private:
  const unsigned blocks_;
  std::atomic<unsigned> arrivals_{0};
  std::vector<unsigned char*> thread_pointers_;
};

// What the lanes of a warp have brought. Two meetings take turns: nobody comes to the next but one before all
// have read this one.
struct Warp {
  std::uint64_t values[2][32];
  alignas(kMeetingBytes) unsigned char bytes[2][32 * kMeetingBytes];
  unsigned arrived = 0;
  unsigned meetings = 0;
  unsigned live = 32;
  unsigned at_barrier = 0;  // lanes that wait for the rest of the block
  Meeting what = Meeting::kNone;

  void reset() {
    arrived = meetings = at_barrier = 0;
    live = 32;
    what = Meeting::kNone;
  }
};

class Block {
 public:
  Block(int threads, const std::function<void()>& thread)
      : thread_(thread),
        fibers_(threads, &begin),
        ended_(threads),
        warps_(threads / 32),
        order_(threads / 32) {
    if (threads % 32 != 0) fail("a block that is not whole warps");
    std::iota(order_.begin(), order_.end(), 0);
  }

  void run(Index at, Index blocks, Team& of_team, int rank_in_team);

  Team* team = nullptr;
  int rank = 0;  // in the team

  void yield() {
    const unsigned from = here.thread.x;
    find_next();
    if (here.thread.x != from) fibers_.change(from, here.thread.x);
  }

  const std::uint64_t* meet(Meeting what, unsigned mask, std::uint64_t value) {
    if (mask != kFullWarp) fail("a part of a warp meets");
    const unsigned current = here.thread.x;
    Warp& warp = warps_[current / 32];
    const unsigned meeting = warp.meetings;
    if (warp.arrived == 0) warp.what = what;
    if (warp.what != what) fail("lanes of a warp meet for different things");
    std::uint64_t* const values = warp.values[meeting % 2];
    values[current % 32] = value;
    warp.arrived |= 1u << (current % 32);
    if (warp.arrived == kFullWarp) {
      warp.arrived = 0;
      ++warp.meetings;
      progress_ = true;
    }
    while (warp.meetings == meeting) yield();
    return values;
  }

  unsigned char* meeting_bytes() {
    Warp& warp = warps_[here.thread.x / 32];
    return warp.bytes[warp.meetings % 2];
  }

  int sync(int any) {
    const unsigned turn = syncs_;
    any_[turn % 2] |= any;
    ++warps_[here.thread.x / 32].at_barrier;
    if (++arrived_ == live_) end_sync();
    while (syncs_ == turn) yield();
    return any_[turn % 2];
  }

  void sync_team() {
    const unsigned turn = team_syncs_;
    sync(0);
    if (team_syncs_ == turn) {  // the first thread behind the block's own barrier
      ++team_syncs_;
      team->arrive();
    }
    while (!team->is_over(turn)) yield();
  }

 private:
  static void begin();  // of every fiber

  void end_sync() {
    arrived_ = 0;
    ++syncs_;
    any_[syncs_ % 2] = 0;
    progress_ = true;
    for (Warp& warp : warps_) warp.at_barrier = 0;
  }

  void end() {
    const unsigned current = here.thread.x;
    ended_[current] = true;
    --live_;
    --warps_[current / 32].live;
    progress_ = true;
    if (warps_[current / 32].arrived != 0) fail("a lane ends while others of its warp wait");
    if (live_ > 0 && arrived_ == live_) end_sync();
    if (live_ == 0) fibers_.finish();
    find_next();
    fibers_.leave(here.thread.x);
  }

  // The next lane of the warp; behind the last one, the next warp's first.
  void find_next() {
    unsigned next = here.thread.x;
    do {
      if (++next % 32 == 0) next = 32 * next_warp();
    } while (ended_[next]);
    here.thread.x = next;
  }
  // The next warp that may have something to do: not all of its lanes have ended or wait for the block.
  unsigned next_warp() {
    const Warp* warp;
    do {
      if (++place_ == order_.size()) {
        place_ = 0;
        std::shuffle(order_.begin(), order_.end(), random_);
        // A block that does not come further waits for other blocks, if there are any.
        idle_cycles_ = progress_ ? 0 : idle_cycles_ + 1;
        if ((idle_cycles_ % 64 == 63 || ++cycles_ % 256 == 0) && here.grid.x > 1) sched_yield();
        progress_ = false;
      }
      warp = &warps_[order_[place_]];
    } while (warp->at_barrier == warp->live ||
             (place_ + 1 < order_.size() && random_() % 4 == 0));  // some are slower
    return order_[place_];
  }

  const std::function<void()>& thread_;
  Fibers fibers_;
  std::vector<unsigned char> ended_;
  std::vector<Warp> warps_;
  std::vector<unsigned> order_;  // in which warps take turns
  std::size_t place_ = 0;
  unsigned cycles_ = 0, idle_cycles_ = 0;
  bool progress_ = false;  // whether threads of the block have met in this cycle
  std::minstd_rand random_;
  unsigned live_ = 0;
  unsigned arrived_ = 0;
  unsigned syncs_ = 0;
  unsigned team_syncs_ = 0;
  int any_[2] = {0, 0};
};

thread_local Block* block;

void Block::begin() {
  block->thread_();
  block->end();
}

void Block::run(Index at, Index blocks, Team& of_team, int rank_in_team) {
  here.block = at;
  here.size = {static_cast<unsigned>(fibers_.size()), 1, 1};
  here.grid = blocks;
  team = &of_team;
  rank = rank_in_team;
  block = this;
  random_.seed(at.x + 1);
  for (Warp& warp : warps_) warp.reset();
  ended_.assign(ended_.size(), false);
  live_ = here.size.x;
  arrived_ = syncs_ = team_syncs_ = 0;
  any_[0] = any_[1] = 0;
  place_ = 0;
  here.thread = {32 * order_[0], 0, 0};
  fibers_.run(here.thread.x);
}

}  // namespace

void yield() { block->yield(); }
const std::uint64_t* meet(Meeting what, unsigned mask, std::uint64_t value) {
  return block->meet(what, mask, value);
}
unsigned char* meeting_bytes() { return block->meeting_bytes(); }
int sync_block(int any) { return block->sync(any); }
int cluster_rank() { return block->rank; }
int cluster_size() { return block->team->blocks(); }
void sync_cluster() { block->sync_team(); }
void* in_block(void* shared, int rank) {
  if (rank < 0 || rank >= cluster_size()) fail("no block of the cluster has this rank");
  return block->team->in_block(shared, rank);
}

namespace {

// One block after the other, on this thread.
class Resident {
 public:
  Resident(const Launch& launch, const std::function<void()>& thread)
      : launch_(launch), filled_(launch.shared_bytes + kGuard), block_(launch.threads, thread) {
    _mm_setcsr(_mm_getcsr() | 0x8040);  // -ftz: denormal numbers are 0
  }
  void run(int index, Team& team, int rank) {
    team.enter(rank);
    unsigned char* const shared = warpalign::cuda::shared;
    std::memset(shared, kUnused, filled_);
    block_.run({static_cast<unsigned>(index), 0, 0}, {static_cast<unsigned>(launch_.blocks), 1, 1}, team,
               rank);
    for (std::size_t k = launch_.shared_bytes; k < filled_; ++k) {
      if (shared[k] != kUnused) fail("written behind the block's shared memory");
    }
  }

 private:
  static constexpr std::size_t kGuard = 4096;
  const Launch& launch_;
  const std::size_t filled_;
  Block block_;
};

struct Kernel {
  Limits limits;
  int launches = 0;
};
struct Kernels {
  std::mutex mutex;
  std::map<const void*, Kernel> all;  // references to elements stay valid
};
Kernels& kernels() {
  static Kernels known;
  return known;
}

}  // namespace

Limits& limits_of(const void* kernel) {
  const std::lock_guard lock(kernels().mutex);
  return kernels().all[kernel].limits;
}
int launched(const void* kernel) {
  const std::lock_guard lock(kernels().mutex);
  return kernels().all[kernel].launches;
}

void run_grid(const Launch& launch, const std::function<void()>& thread) {
  if (launch.shared_bytes > static_cast<std::size_t>(device.shared_bytes))
    fail("more shared memory than there is");
  {
    const std::lock_guard lock(kernels().mutex);
    ++kernels().all[launch.kernel].launches;
  }
  // Blocks that run together: all of a cooperative launch, else those of a cluster.
  const int together = launch.cooperative ? launch.blocks : launch.cluster;
  const int groups = launch.blocks / together;
  std::atomic<int> next{0};
  const auto run_alone = [&] {
    Resident resident(launch, thread);
    for (int b = next++; b < launch.blocks; b = next++) {
      Team team(1);
      resident.run(b, team, 0);
    }
  };
  const auto run_together = [&] {
    for (int group = next++; group < groups; group = next++) {
      std::deque<Team> teams;
      for (int k = 0; k < together; k += launch.cluster) teams.emplace_back(launch.cluster);
      std::vector<std::thread> blocks;
      for (int k = 0; k < together; ++k) {
        blocks.emplace_back([&, k] {
          Resident(launch, thread).run(group * together + k, teams[k / launch.cluster], k % launch.cluster);
        });
      }
      for (std::thread& one : blocks) one.join();
    }
  };
  const int at_a_time = std::clamp(device.resident / together, 1, groups);
  std::vector<std::thread> residents;
  for (int k = 0; k < at_a_time; ++k) {
    if (together == 1) {
      residents.emplace_back(run_alone);
    } else {
      residents.emplace_back(run_together);
    }
  }
  for (std::thread& resident : residents) resident.join();
}

namespace {

struct LateStream {
  std::deque<std::function<void()>> waiting;
  std::size_t done = 0;
};
std::map<void*, LateStream>& late_streams() {
  static std::map<void*, LateStream> all;
  return all;
}

}  // namespace

void enqueue(void* stream, std::function<void()> work) {
  if (!device.late_streams || !stream) return work();
  late_streams()[stream].waiting.push_back(std::move(work));
}
Point end_of(void* stream) {
  if (!device.late_streams || !stream) return {};
  const LateStream& s = late_streams()[stream];
  return {stream, s.done + s.waiting.size()};
}
void catch_up(const Point& point) {
  if (!point.stream) return;
  LateStream& s = late_streams()[point.stream];
  while (s.done < point.count) {
    const std::function<void()> work = std::move(s.waiting.front());
    s.waiting.pop_front();
    ++s.done;
    work();
  }
}
std::size_t late_work_done() {
  std::size_t done = 0;
  for (const auto& [stream, s] : late_streams()) done += s.done;
  return done;
}
std::size_t drop_late_work() {
  std::size_t dropped = 0;
  for (const auto& [stream, s] : late_streams()) dropped += s.waiting.size();
  late_streams().clear();
  return dropped;
}

}  // namespace simt
