// WARPALIGN_ANYWHERE: a function that both the host and CUDA kernels call. WARPALIGN_HERE: one of CUDA
// kernels where nvcc compiles it, else of the host.
#pragma once

#if defined(__CUDACC__)
#define WARPALIGN_ANYWHERE __host__ __device__
#define WARPALIGN_HERE __device__
#else
#define WARPALIGN_ANYWHERE
#define WARPALIGN_HERE
#endif
