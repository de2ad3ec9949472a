// A row's largest columns. Needs cpu/simd.h.
#include "cpu/row_kernel.h"

namespace WARPALIGN_SIMD_NAMESPACE {

// The `count` largest of row[c] + added[c], the largest first, equal ones in order of their columns; added
// may be null. -inf and NaN are left out. Returns how many there are.
template <class Real>
int largest_columns(const Real* row, const Real* added, __INT32_TYPE__ columns, int count,
                    cpu::Column<Real>* out) {
  using V = typename VectorOf<Real>::Type;
  constexpr int kLanes = static_cast<int>(sizeof(V) / sizeof(Real));
  Real least = static_cast<Real>(-__builtin_inf());  // what a number has to be above
  int found = 0;
  const auto see = [&](Real value, __INT32_TYPE__ column) {
    if (!(value > least)) return;
    if (found < count) ++found;
    int place = found - 1;
    for (; place > 0 && value > out[place - 1].value; --place) out[place] = out[place - 1];
    out[place] = {value, column};
    if (found == count) least = out[found - 1].value;
  };
  __INT32_TYPE__ k = 0;
  for (; k + kLanes <= columns; k += kLanes) {
    const V v = added ? load(row + k) + load(added + k) : load(row + k);
    if (!any_bit(v > splat(least))) continue;
    for (int lane = 0; lane < kLanes; ++lane) see(v[lane], k + lane);
  }
  for (; k < columns; ++k) see(added ? row[k] + added[k] : row[k], k);
  return found;
}

}  // namespace WARPALIGN_SIMD_NAMESPACE
