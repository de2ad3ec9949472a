#include "fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <mutex>

#ifndef __x86_64__
#error "fiber.cpp switches stacks in x86-64's own way"
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

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

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kLargestStack = 512 * 1024;  // its frames are larger
void announce_switch(void** fake, const void* stack, std::size_t bytes) {
  __sanitizer_start_switch_fiber(fake, stack, bytes);
}
void complete_switch(void* fake, const void** left = nullptr, std::size_t* bytes = nullptr) {
  __sanitizer_finish_switch_fiber(fake, left, bytes);
}
// Frames that were left for good are still marked: those of begin() and of what calls leave().
void forget_frames(unsigned char* end) {
  constexpr std::size_t kBytes = 4096;
  ASAN_UNPOISON_MEMORY_REGION(end - kBytes, kBytes);
}
#else
constexpr std::size_t kLargestStack = 256 * 1024;
void announce_switch(void**, const void*, std::size_t) {}
void complete_switch(void*, const void** = nullptr, std::size_t* = nullptr) {}
void forget_frames(unsigned char*) {}
#endif

// Not a power of two: the tops of stacks would all fall into the same few lines of a cache.
constexpr std::size_t kStackBytes = kLargestStack + 17 * 64;

// Stacks that nobody uses. They stay mapped for the next launch: new pages cost more than most launches do.
struct FreeStacks {
  std::mutex mutex;
  std::vector<unsigned char*> all;

  unsigned char* take() {
    if (all.empty()) {
      constexpr std::size_t kCount = 128;
      void* const fresh = mmap(nullptr, kCount * kStackBytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (fresh == MAP_FAILED) std::abort();
      for (std::size_t k = 0; k < kCount; ++k) {
        all.push_back(static_cast<unsigned char*>(fresh) + k * kStackBytes);
      }
    }
    unsigned char* const stack = all.back();
    all.pop_back();
    return stack;
  }
};
FreeStacks& free_stacks() {
  static FreeStacks stacks;
  return stacks;
}

thread_local Fibers* running;

}  // namespace

Fibers::Fibers(std::size_t count, void (*function)()) : function_(function), fibers_(count) {
  FreeStacks& stacks = free_stacks();
  const std::lock_guard lock(stacks.mutex);
  for (Fiber& one : fibers_) one.stack = stacks.take();
}

Fibers::~Fibers() {
  FreeStacks& stacks = free_stacks();
  const std::lock_guard lock(stacks.mutex);
  for (const Fiber& one : fibers_) stacks.all.push_back(one.stack);
}

void Fibers::run(std::size_t first) {
  for (Fiber& one : fibers_) {
    unsigned char* const end = one.stack + kStackBytes;
    forget_frames(end);
    // As simt_switch() leaves a stack: six registers, and where to go. A call's stack is odd by 8 bytes.
    void** const aligned = reinterpret_cast<void**>(reinterpret_cast<std::uintptr_t>(end) / 16 * 16);
    aligned[-2] = reinterpret_cast<void*>(&begin);
    one.top = aligned - 8;
    one.fake = nullptr;
  }
  running = this;
  announce(&caller_.fake, first);
  simt_switch(&caller_.top, fibers_[first].top);
  complete_switch(caller_.fake);
}

void Fibers::begin() {
  Fibers& all = *running;
  const void* left = nullptr;
  std::size_t bytes = 0;
  complete_switch(nullptr, &left, &bytes);
  if (!all.caller_stack_) {  // the first one comes from run()
    all.caller_stack_ = left;
    all.caller_bytes_ = bytes;
  }
  all.function_();
  std::abort();  // it has to leave() or to finish()
}

void Fibers::announce(void** fake, std::size_t to) const {
  announce_switch(fake, fibers_[to].stack, kStackBytes);
}

void Fibers::change(std::size_t from, std::size_t to) {
  announce(&fibers_[from].fake, to);
  simt_switch(&fibers_[from].top, fibers_[to].top);
  complete_switch(fibers_[from].fake);
}

void Fibers::leave(std::size_t to) {
  void* nowhere;
  announce(nullptr, to);
  simt_switch(&nowhere, fibers_[to].top);
  std::abort();
}

void Fibers::finish() {
  void* nowhere;
  announce_switch(nullptr, caller_stack_, caller_bytes_);
  simt_switch(&nowhere, caller_.top);
  std::abort();
}

}  // namespace simt
