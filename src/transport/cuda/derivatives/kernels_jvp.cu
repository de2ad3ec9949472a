// Derivatives of solutions.
#include "transport/cuda/derivatives/jvp.cuh"
#include "transport/cuda/solve/kernels.cuh"

namespace warpalign::detail::transport {
namespace {

template <class Real>
struct JvpKernel {
  using Costs = TangentTiles<Real>;
  static constexpr const char* name() { return "derivatives"; }
  static constexpr auto get() { return jvp_kernel<Costs>; }
};

template <class Real>
constexpr SinkhornKernel<Real> kKernel = entry<JvpKernel<Real>>();

}  // namespace

template <>
const SinkhornKernel<float>& jvp_kernel_entry<float>() {
  return kKernel<float>;
}
template <>
const SinkhornKernel<double>& jvp_kernel_entry<double>() {
  return kKernel<double>;
}

}  // namespace warpalign::detail::transport
