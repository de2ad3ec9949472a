// Streams beside the current one, for operators whose parts run at the same time.
#pragma once

#include <vector>

#include "front_end.h"

namespace warpalign::binding {

// Up to `count` streams of torch's pool on a tensor's device, none of them torch's current one; on the CPU
// none.
std::vector<void*> side_streams_of(const Tensor& tensor, int count);

}  // namespace warpalign::binding
