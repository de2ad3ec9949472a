// Runs CUDA kernels that were compiled as C++. A block is a thread of the operating system; its threads are
// fibers. A fiber runs until it waits for others or polls. Warps take turns in an order that changes all the
// time, so that what works by a lucky order fails soon. Lanes of a warp meet at its collective operations
// only.
//
// simt::device.resident says how many blocks run at a time. The blocks of a cluster always run together, and
// so do all blocks of a cooperative launch.
//
// The emulator shows what a kernel computes, that it ends, and with a sanitizer that it stays within its
// memory. It knows no weak memory order and says nothing about speed.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

namespace simt {

// The GPU that the host code sees; tests may change it.
struct Device {
  int count = 1;  // devices like this one; the first one is the current one
  int multiprocessors = 3;
  int shared_bytes = 227 * 1024;  // of a block, and of a multiprocessor
  int compute_capability_major = 9;
  int compute_capability_minor = 0;
  int largest_cluster = 16;  // some have 8
  // Launches of clusters fail, though the device has said that they fit, as where others share it.
  bool refuses_clusters = false;
  // Blocks that run at a time, of a launch that is not cooperative: fewer than a kernel may hope for.
  // Clusters run as many at a time as fit into this number, but one at least.
  int resident = 2;
  // Work in streams other than null is done as late as possible: when another stream has to wait for it.
  bool late_streams = false;
};
inline Device device;

// Blocks that the runtime says a multiprocessor can hold; shared memory alone limits them.
inline int blocks_of_multiprocessor(std::size_t shared_bytes) {
  constexpr std::size_t kMost = 2;
  const std::size_t fitting =
      static_cast<std::size_t>(device.shared_bytes) / (shared_bytes > 0 ? shared_bytes : 1);
  return static_cast<int>(fitting < kMost ? fitting : kMost);
}

// What a stream has been given, up to some point.
struct Point {
  void* stream = nullptr;
  std::size_t count = 0;  // of the stream's items
};
// Does `work` now, or later if the stream is late.
void enqueue(void* stream, std::function<void()> work);
Point end_of(void* stream);
// Does what the point's stream has up to there.
void catch_up(const Point& point);
// Items of late streams that are done; items that nobody has waited for, which are dropped.
std::size_t late_work_done();
std::size_t drop_late_work();

struct Index {
  unsigned x, y, z;
};
// The running thread, its block, and how many of each there are.
struct Here {
  Index thread, block, size, grid;
};
extern thread_local Here here;
inline Index thread_index() { return here.thread; }
inline Index block_index() { return here.block; }
inline Index block_size() { return here.size; }
inline Index grid_size() { return here.grid; }
inline int lane() { return static_cast<int>(thread_index().x % 32); }

// Ends the process with a message: where the GPU's behaviour would be undefined.
[[noreturn]] void fail(const char* what);

// Lets the block's other threads go on.
void yield();

// All lanes of the warp bring a value and get all of them; they must have come for the same thing.
enum class Meeting { kNone, kSync, kBallot, kShuffle };
const std::uint64_t* meet(Meeting what, unsigned mask, std::uint64_t value);

// Where the warp's next meeting keeps larger values: kMeetingBytes a lane, lane 0 first.
constexpr std::size_t kMeetingBytes = 64;
unsigned char* meeting_bytes();

// All lanes of the warp bring a value of at most kMeetingBytes and get all of them, kMeetingBytes apart.
template <class T>
class Exchange {
 public:
  static_assert(sizeof(T) <= kMeetingBytes && std::is_trivially_copyable_v<T>);

  Exchange(unsigned mask, const T& mine) : all_(meeting_bytes()) {
    std::memcpy(all_ + static_cast<std::size_t>(lane()) * kMeetingBytes, &mine, sizeof(T));
    meet(Meeting::kShuffle, mask, 0);
  }
  const T& operator[](int lane) const {
    return *reinterpret_cast<const T*>(all_ + static_cast<std::size_t>(lane) * kMeetingBytes);
  }

 private:
  unsigned char* const all_;
};

// All threads of the block that have not ended; whether any of them brought 1.
int sync_block(int any);

// This block's place in its cluster; the cluster's blocks; waiting for all threads of the cluster; where the
// block of this rank has what this one has at `shared`.
int cluster_rank();
int cluster_size();
void sync_cluster();
void* in_block(void* shared, int rank);

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

struct Launch {
  const void* kernel;
  int blocks;
  int threads;  // of a block
  std::size_t shared_bytes = 0;
  int cluster = 1;
  bool cooperative = false;
};

// Runs `thread` as every thread of the grid, and returns when all have ended. The launch is one that CUDA
// would take. The process ends with a message where CUDA would be undefined: a lane that does not come,
// memory written behind the block's share.
void run_grid(const Launch& launch, const std::function<void()>& thread);

// What a kernel has been allowed by cudaFuncSetAttribute().
struct Limits {
  int shared_bytes = 48 * 1024;
  bool large_clusters = false;
};
Limits& limits_of(const void* kernel);

// How often this process has launched the kernel.
int launched(const void* kernel);

}  // namespace simt
