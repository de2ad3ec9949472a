// Loops of one cell (a layer in a direction), whose turns the team's idle workers share (cpu/team.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "cpu/team.h"
#define WARPALIGN_SIMD_NAMESPACE warpalign::detail::recurrent::host
#include "cpu/simd.h"  // FlushToZero

namespace warpalign::detail::recurrent {

class Loops {
 public:
  explicit Loops(const cpu::ItemMemory& memory) : memory_(memory) {}

  // body(index, scratch) for 0 <= index < count, in any order and at once. All have ended on return. The
  // caller begins with the first turn, helpers with the last one: so loops of the same turns find them in the
  // same caches again.
  template <class Body>
  void run(std::int64_t count, const Body& body) const {
    struct Turns : cpu::SharedWork {
      const Body& body;
      const std::int64_t count;
      const void* const owner = this_thread();
      // Counters have lines of their own: what the body refers to stays in every worker's cache.
      alignas(cpu::kWorkerAlignment) std::atomic<std::int64_t> taken{0};
      std::atomic<std::int64_t> from_end{0};
      alignas(cpu::kWorkerAlignment) char end{};

      Turns(const Body& of, std::int64_t turns) : SharedWork{&take}, body(of), count(turns) {}
      static void take(SharedWork& work, void* scratch) {
        auto& self = static_cast<Turns&>(work);
        const host::FlushToZero flush;
        const Body body = self.body;
        const bool is_owner = this_thread() == self.owner;
        for (std::int64_t begun = 0; self.taken++ < self.count; ++begun) {
          body(is_owner ? begun : self.count - 1 - self.from_end++, scratch);
        }
      }
    } turns(body, count);
    if (memory_.slot && count > 1) {
      memory_.slot->run_shared(turns, memory_.scratch);
    } else {
      Turns::take(turns, memory_.scratch);
    }
  }

 private:
  // An address that no other thread has.
  static const void* this_thread() {
    static thread_local char place;
    return &place;
  }

  const cpu::ItemMemory& memory_;
};

}  // namespace warpalign::detail::recurrent
