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

  // body(index, scratch) for 0 <= index < count, in any order and at once. All have ended on return.
  template <class Body>
  void run(std::int64_t count, const Body& body) const {
    struct Turns : cpu::SharedWork {
      const Body& body;
      const std::int64_t count;
      std::atomic<std::int64_t> next{0};

      Turns(const Body& of, std::int64_t turns) : SharedWork{&take}, body(of), count(turns) {}
      static void take(SharedWork& work, void* scratch) {
        auto& self = static_cast<Turns&>(work);
        const host::FlushToZero flush;
        for (std::int64_t k = self.next++; k < self.count; k = self.next++) self.body(k, scratch);
      }
    } turns(body, count);
    if (memory_.slot && count > 1) {
      memory_.slot->run_shared(turns, memory_.scratch);
    } else {
      Turns::take(turns, memory_.scratch);
    }
  }

 private:
  const cpu::ItemMemory& memory_;
};

}  // namespace warpalign::detail::recurrent
