// WARPALIGN_ANYWHERE marks a function that both the host and CUDA kernels call. WARPALIGN_HERE marks a device
// function if nvcc compiles it, otherwise a host function.
#pragma once

#if defined(__CUDACC__)
#define WARPALIGN_ANYWHERE __host__ __device__
#define WARPALIGN_HERE __device__
#else
#define WARPALIGN_ANYWHERE
#define WARPALIGN_HERE
#endif
