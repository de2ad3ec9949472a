#include "simt.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#ifndef __x86_64__
#error "simt.cpp switches stacks in x86-64's own way"
#endif

// The array that src/cuda/shared.cuh declares.
namespace warpalign::cuda {
alignas(256) thread_local unsigned char shared[256 * 1024];
}

// Saves the registers that a call must keep on the stack, changes to another one, and takes them from there.
extern "C" void simt_switch(void** from, void* to);
__asm__(
    ".text\n"
    "simt_switch:\n"
    "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
    "  mov %rsp, (%rdi)\n"
    "  mov %rsi, %rsp\n"
    "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
    "  ret\n");

namespace simt {
namespace {

constexpr std::size_t kStackBytes = 256 * 1024;
constexpr unsigned kFullWarp = ~0u;
constexpr unsigned char kUnused = 0xa5;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "simt: %s\n", what);
  std::abort();
}

struct Fiber {
  void* stack = nullptr;  // where it goes on
  bool ended = false;
};

// What the lanes of a warp have brought. Two meetings take turns: nobody comes to the next but one before all
// have read this one.
struct Warp {
  std::uint64_t values[2][32];
  unsigned arrived = 0;
  unsigned meetings = 0;
  Meeting what = Meeting::kNone;
};

class Block {
 public:
  Block(int threads, const std::function<void()>& thread)
      : thread_(thread),
        stacks_(new unsigned char[threads * kStackBytes]),
        fibers_(threads),
        warps_(threads / 32),
        order_(threads / 32) {
    if (threads % 32 != 0) fail("a block that is not whole warps");
    std::iota(order_.begin(), order_.end(), 0);
  }

  void run(Index index, Index size, Index grid);

  Index index{}, size{}, grid{};
  unsigned current = 0;  // thread

  void yield() {
    const unsigned from = current;
    find_next();
    if (current != from) simt_switch(&fibers_[from].stack, fibers_[current].stack);
  }

  const std::uint64_t* meet(Meeting what, unsigned mask, std::uint64_t value) {
    if (mask != kFullWarp) fail("a part of a warp meets");
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
    }
    while (warp.meetings == meeting) yield();
    return values;
  }

  int sync(int any) {
    const unsigned turn = syncs_;
    any_[turn % 2] |= any;
    if (++arrived_ == live_) end_sync();
    while (syncs_ == turn) yield();
    return any_[turn % 2];
  }

 private:
  static void begin();  // of every fiber

  void end_sync() {
    arrived_ = 0;
    ++syncs_;
    any_[syncs_ % 2] = 0;
  }

  void end() {
    fibers_[current].ended = true;
    --live_;
    if (warps_[current / 32].arrived != 0) fail("a lane ends while others of its warp wait");
    if (live_ > 0 && arrived_ == live_) end_sync();
    void* nowhere;
    if (live_ == 0) simt_switch(&nowhere, main_);
    find_next();
    simt_switch(&nowhere, fibers_[current].stack);
  }

  // The next lane of the warp; behind the last one, the next warp's first.
  void find_next() {
    do {
      if (++current % 32 == 0) current = 32 * next_warp();
    } while (fibers_[current].ended);
  }
  unsigned next_warp() {
    do {
      if (++place_ == order_.size()) {
        place_ = 0;
        std::shuffle(order_.begin(), order_.end(), random_);
        if (++cycles_ % 256 == 0) sched_yield();  // for blocks that wait for each other
      }
    } while (place_ + 1 < order_.size() && random_() % 4 == 0);  // some are slower
    return order_[place_];
  }

  const std::function<void()>& thread_;
  const std::unique_ptr<unsigned char[]> stacks_;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  std::vector<unsigned> order_;  // in which warps take turns
  std::size_t place_ = 0;
  unsigned cycles_ = 0;
  std::minstd_rand random_;
  void* main_ = nullptr;
  unsigned live_ = 0;
  unsigned arrived_ = 0;
  unsigned syncs_ = 0;
  int any_[2] = {0, 0};
};

thread_local Block* block;

void Block::begin() {
  block->thread_();
  block->end();
}

void Block::run(Index at, Index threads, Index blocks) {
  index = at;
  size = threads;
  grid = blocks;
  block = this;
  random_.seed(at.x + 1);
  warps_.assign(warps_.size(), Warp{});
  for (std::size_t k = 0; k < fibers_.size(); ++k) {
    // As simt_switch() leaves a stack: six registers, and where to go. A call's stack is odd by 8 bytes.
    auto** const top = reinterpret_cast<void**>(stacks_.get() + (k + 1) * kStackBytes);
    void** const aligned = reinterpret_cast<void**>(reinterpret_cast<std::uintptr_t>(top) / 16 * 16);
    aligned[-2] = reinterpret_cast<void*>(&begin);
    fibers_[k] = {aligned - 8, false};
  }
  live_ = static_cast<unsigned>(fibers_.size());
  arrived_ = syncs_ = 0;
  any_[0] = any_[1] = 0;
  place_ = 0;
  current = 32 * order_[0];
  simt_switch(&main_, fibers_[current].stack);
}

}  // namespace

Index thread_index() { return {block->current, 0, 0}; }
Index block_index() { return block->index; }
Index block_size() { return block->size; }
Index grid_size() { return block->grid; }
void yield() { block->yield(); }
const std::uint64_t* meet(Meeting what, unsigned mask, std::uint64_t value) {
  return block->meet(what, mask, value);
}
int sync_block(int any) { return block->sync(any); }

namespace {

// One block after the other, on this thread.
class Resident {
 public:
  Resident(const Launch& launch, const std::function<void()>& thread)
      : launch_(launch), filled_(launch.shared_bytes + kGuard), block_(launch.threads, thread) {
    _mm_setcsr(_mm_getcsr() | 0x8040);  // -ftz: denormal numbers are 0
  }
  void run(int index) {
    unsigned char* const shared = warpalign::cuda::shared;
    std::memset(shared, kUnused, filled_);
    block_.run({static_cast<unsigned>(index), 0, 0}, {static_cast<unsigned>(launch_.threads), 1, 1},
               {static_cast<unsigned>(launch_.blocks), 1, 1});
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
  const int teams = launch.blocks / together;
  std::atomic<int> next{0};
  const auto work = [&] {
    if (together == 1) {
      Resident resident(launch, thread);
      for (int b = next++; b < launch.blocks; b = next++) resident.run(b);
      return;
    }
    for (int team = next++; team < teams; team = next++) {
      std::vector<std::thread> blocks;
      for (int k = 0; k < together; ++k)
        blocks.emplace_back([&, k] { Resident(launch, thread).run(team * together + k); });
      for (std::thread& one : blocks) one.join();
    }
  };
  const int at_a_time = std::clamp(device.resident / together, 1, teams);
  std::vector<std::thread> residents;
  for (int k = 0; k < at_a_time; ++k) residents.emplace_back(work);
  for (std::thread& resident : residents) resident.join();
}

}  // namespace simt
