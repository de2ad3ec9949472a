// WARPALIGN_ANYWHERE: a function that both the host and CUDA kernels call.
#pragma once

#if defined(__CUDACC__)
#define WARPALIGN_ANYWHERE __host__ __device__
#else
#define WARPALIGN_ANYWHERE
#endif
