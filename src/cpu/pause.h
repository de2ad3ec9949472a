// A step of a loop that waits for another thread.
#pragma once

namespace warpalign::cpu {

// Called with turn = 0, 1, 2, ... in a waiting loop: pauses briefly, and yields the processor every 64th
// time.
void pause(int turn);

}  // namespace warpalign::cpu
