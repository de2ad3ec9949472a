// How a thread waits for another one in a loop.
#pragma once

namespace warpalign::cpu {

// The turn-th turn of a waiting loop, counted from 0: a short pause, and every 64th turn the processor for
// another thread.
void pause(int turn);

}  // namespace warpalign::cpu
