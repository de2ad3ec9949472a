// Counts the messages of cluster.cuh.
#pragma once

#include <atomic>
#include <cstdint>

namespace warpalign::cuda {

inline std::atomic<std::int64_t> messages = 0;  // that have been sent

}  // namespace warpalign::cuda
