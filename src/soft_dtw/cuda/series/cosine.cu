#include "soft_dtw/cuda/series/cosine.h"

namespace warpalign::detail::soft_dtw {
namespace {

UnitSteps side_of(const Call& call, bool is_y) {
  const SoftDtwProblem& p = call.problem;
  UnitSteps side{};
  side.dtype = p.dtype;
  side.batch = p.batch;
  side.length = is_y ? p.m : p.n;
  side.dim = p.dim;
  side.is_y = is_y;
  side.series = is_y ? p.y : p.x;
  side.lengths = is_y ? p.y_lengths : p.x_lengths;
  side.mask = is_y ? p.y_mask : p.x_mask;
  if (call.second_order) side.tangents = is_y ? call.tangents.y : call.tangents.x;
  return side;
}

std::size_t bytes_of(const UnitSteps& side) {
  return static_cast<std::size_t>(side.batch) * side.length * unit_features(side.dim) * size_of(side.dtype);
}

StridedTensor tensor_of(const void* units, const UnitSteps& side) {
  const std::int64_t features = unit_features(side.dim);
  return {units, {side.length * features, features, 1}};
}

}  // namespace

UnitCalls::UnitCalls(const Call& of) : of_(of), main_(of), x_(side_of(of, false)), y_(side_of(of, true)) {
  // Unit steps are aligned to be read as float4.
  main_.problem.dim = unit_features(of.problem.dim);
  main_.vectorized = of.problem.dtype == DType::kFloat32;
  first_order_ = main_;
  first_order_.second_order = false;
  first_order_.tangents = {};
  first_order_.out = {};
  add(x_.units, bytes_of(x_));
  add(y_.units, bytes_of(y_));
  if (of.out.grad_x) add(main_.out.grad_x, bytes_of(x_));
  if (of.out.grad_y) add(main_.out.grad_y, bytes_of(y_));
  if (!of.second_order) return;
  add(x_.unit_tangents, bytes_of(x_));
  add(y_.unit_tangents, bytes_of(y_));
  first_order_.out = {of.out.value, of.out.grad_x,
                      of.out.grad_y};  // until place(), only whether they are null
  add(first_order_.out.value, static_cast<std::size_t>(of.problem.batch) * size_of(of.problem.dtype));
  if (of.out.grad_x) add(first_order_.out.grad_x, bytes_of(x_));
  if (of.out.grad_y) add(first_order_.out.grad_y, bytes_of(y_));
}

std::size_t UnitCalls::workspace_bytes() const {
  std::size_t bytes = 0;
  for (int k = 0; k < count_; ++k) bytes += aligned(arrays_[k].bytes);
  return bytes;
}

void UnitCalls::place(void* workspace) {
  auto* next = static_cast<unsigned char*>(workspace);
  for (int k = 0; k < count_; ++k) {
    *arrays_[k].address = next;
    next += aligned(arrays_[k].bytes);
  }
  for (Call* const call : {&main_, &first_order_}) {
    call->problem.x = tensor_of(x_.units, x_);
    call->problem.y = tensor_of(y_.units, y_);
  }
  if (of_.second_order) {
    main_.tangents = {tensor_of(x_.unit_tangents, x_), tensor_of(y_.unit_tangents, y_), {}};
  }
}

Status UnitCalls::make_steps(cudaStream_t stream) const {
  if (Status s = make_unit_steps(x_, stream); !s.ok()) return s;
  return make_unit_steps(y_, stream);
}

Status UnitCalls::make_gradients(cudaStream_t stream) const {
  const auto make = [&](const UnitSteps& side, const void* first, const void* found, void* to) {
    if (!to) return Status{};
    return of_.second_order ? from_unit_tangent(side, first, found, to, stream)
                            : from_unit_gradient(side, found, to, stream);
  };
  if (Status s = make(x_, first_order_.out.grad_x, main_.out.grad_x, of_.out.grad_x); !s.ok()) return s;
  return make(y_, first_order_.out.grad_y, main_.out.grad_y, of_.out.grad_y);
}

}  // namespace warpalign::detail::soft_dtw
