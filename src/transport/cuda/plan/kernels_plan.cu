// The kernels that read a plan.
#include "transport/cuda/plan/plan_kernel.cuh"
#include "transport/cuda/solve/kernels.cuh"

namespace warpalign::detail::transport {
namespace {

template <class Real>
struct PlanKernel {
  using Costs = Points<Real>;
  static constexpr const char* name() { return "plan"; }
  static constexpr auto get() { return plan_kernel<Costs>; }
};

template <class Real>
constexpr SinkhornKernel<Real> kKernel = entry<PlanKernel<Real>>();

}  // namespace

template <>
const SinkhornKernel<float>& plan_kernel_entry<float>() {
  return kKernel<float>;
}
template <>
const SinkhornKernel<double>& plan_kernel_entry<double>() {
  return kKernel<double>;
}

}  // namespace warpalign::detail::transport
