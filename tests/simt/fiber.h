// Fibers: functions with stacks of their own on one thread of the operating system, which switch to each
// other by themselves. x86-64 alone. AddressSanitizer is told of every switch.
#pragma once

#include <cstddef>
#include <vector>

namespace simt {

class Fibers {
 public:
  Fibers(std::size_t count, void (*function)());
  ~Fibers();
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  // Runs fiber `first` from the start of its function; all fibers start there when somebody first switches to
  // them. Returns when a fiber calls finish().
  void run(std::size_t first);

  // From the running fiber to another one; returns when somebody switches back.
  void change(std::size_t from, std::size_t to);
  // The same, for a fiber that never goes on. Not declared [[noreturn]]: AddressSanitizer makes a system call
  // before each call that does not return.
  void leave(std::size_t to);
  // From the last fiber back to the caller of run(), for good.
  void finish();

  [[nodiscard]] std::size_t size() const { return fibers_.size(); }

 private:
  struct Fiber {
    unsigned char* stack = nullptr;
    void* top = nullptr;   // of its stack, where it goes on
    void* fake = nullptr;  // AddressSanitizer's copy of the stack
  };
  static void begin();
  void announce(void** fake, std::size_t to) const;

  void (*const function_)();
  std::vector<Fiber> fibers_;
  Fiber caller_;
  const void* caller_stack_ = nullptr;
  std::size_t caller_bytes_ = 0;
};

}  // namespace simt
