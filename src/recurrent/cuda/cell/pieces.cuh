// Rows of matrices as pieces of 16 bytes, which is the most that a thread reads at once.
#pragma once

#include "recurrent/cuda/cell/params.cuh"

namespace warpalign::detail::recurrent {

template <class T>
struct alignas(16) Piece {
  static constexpr int kSize = 16 / sizeof(T);
  T entries[kSize];
};
// So many entries, rounded up to whole pieces.
template <class T>
constexpr int whole_pieces(int entries) {
  return (entries + Piece<T>::kSize - 1) / Piece<T>::kSize * Piece<T>::kSize;
}
template <class T>
__device__ __forceinline__ Piece<T> read_piece(const T* row, int piece) {
  return *reinterpret_cast<const Piece<T>*>(row + static_cast<Offset>(piece) * Piece<T>::kSize);
}

}  // namespace warpalign::detail::recurrent
