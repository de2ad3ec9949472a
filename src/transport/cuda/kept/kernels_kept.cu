// Sinkhorn on problems whose exponentials stay in shared memory, of given costs and of points.
#include "transport/cuda/kept/kept_rows.cuh"
#include "transport/cuda/solve/kernels.cuh"

namespace warpalign::detail::transport {

template <class Real>
const SinkhornKernel<Real>& kept_rows_kernel() {
  static constexpr SinkhornKernel<Real> kernel = entry<SolveKernel<KeptRows<Real>>>();
  return kernel;
}
template const SinkhornKernel<float>& kept_rows_kernel();
template const SinkhornKernel<double>& kept_rows_kernel();

}  // namespace warpalign::detail::transport
