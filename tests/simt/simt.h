// Runs CUDA kernels that were compiled as C++: blocks are threads of the operating system, so many of them at
// a time as simt::device says, and a block's threads are fibers of its own. A fiber goes on until it waits
// for others or polls; warps take turns in an order that changes all the time, so that what works by a lucky
// order fails soon. Lanes of a warp meet at its collective operations only.
//
// It shows what a kernel computes, that it ends, and with a sanitizer that it stays within its memory. It
// knows no weak memory order and says nothing about speed.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>

namespace simt {

// The GPU that the host code sees; tests may change it.
struct Device {
  int multiprocessors = 3;
  int shared_bytes = 227 * 1024;  // per block
  int compute_capability_major = 9;
  int resident = 2;  // blocks: fewer than a kernel may hope for
};
inline Device device;

struct Index {
  unsigned x, y, z;
};
Index thread_index();
Index block_index();
Index block_size();
Index grid_size();
inline int lane() { return static_cast<int>(thread_index().x % 32); }

// Lets the block's other threads go on.
void yield();

// All lanes of the warp bring a value and get all of them; they must have come for the same thing.
enum class Meeting { kNone, kSync, kBallot, kShuffle };
const std::uint64_t* meet(Meeting what, unsigned mask, std::uint64_t value);

// All threads of the block that have not ended; whether any of them brought 1.
int sync_block(int any);

template <class To, class From>
To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

template <class T>
T shuffle(unsigned mask, T v, int from) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &v, sizeof(v));
  const std::uint64_t theirs = meet(Meeting::kShuffle, mask, bits)[from];
  std::memcpy(&v, &theirs, sizeof(v));
  return v;
}

// Runs `thread` as every thread of the grid, and returns when all have ended. The process ends with a message
// where CUDA would be undefined: a lane that does not come, memory written behind the block's share.
void run_grid(int blocks, int threads, std::size_t shared_bytes, const std::function<void()>& thread);

}  // namespace simt

// The kernels' dynamic shared memory, of which there is one array.
namespace warpalign::detail::soft_dtw {
extern thread_local unsigned char shared[];
}
