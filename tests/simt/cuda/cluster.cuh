// Stands in for src/cuda/cluster.cuh.
#pragma once

#include "simt.h"

namespace warpalign::cuda {

inline int cluster_rank() { return simt::cluster_rank(); }
inline void cluster_sync() { simt::sync_cluster(); }
template <class T>
T* in_block(T* shared, int rank) {
  return static_cast<T*>(simt::in_block(shared, rank));
}

}  // namespace warpalign::cuda
