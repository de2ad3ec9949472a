// Stands in for the CUDA toolkit's header; see cuda_runtime.h.
#pragma once

#include <limits>

#define CUDART_INF (std::numeric_limits<double>::infinity())
#define CUDART_INF_F (std::numeric_limits<float>::infinity())
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_NAN (std::numeric_limits<double>::quiet_NaN())
