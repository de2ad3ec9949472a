// The name of cuda::Kernel (kernel.cuh), for headers that host code reads.
#pragma once

namespace warpalign::cuda {

template <class... Parameters>
class Kernel;

}  // namespace warpalign::cuda
