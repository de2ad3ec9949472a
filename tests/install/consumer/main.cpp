// Soft-DTW of two series from C++: value and gradient from one call, in memory that the caller owns.
#include <warpalign/soft_dtw.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

int main() {
  const std::vector<float> x = {0, 1};
  const std::vector<float> y = {0, 2};
  std::vector<float> grad_x(x.size());
  float value = 0;

  warpalign::SoftDtwProblem problem;
  problem.batch = 1;
  problem.n = 2;
  problem.m = 2;
  problem.dim = 1;
  problem.x = {x.data(), {2, 1, 1}};
  problem.y = {y.data(), {2, 1, 1}};
  problem.gamma = 1.0;
  warpalign::SoftDtwOutputs outputs;
  outputs.value = &value;
  outputs.grad_x = grad_x.data();

  const warpalign::Execution execution = warpalign::Execution::host();
  const std::size_t bytes = warpalign::soft_dtw_workspace_bytes(problem, outputs, execution);
  constexpr std::align_val_t kAlignment{256};
  void* scratch = ::operator new(bytes, kAlignment);
  const warpalign::Status status = warpalign::soft_dtw(problem, outputs, {scratch, bytes}, execution);
  ::operator delete(scratch, kAlignment);
  if (!status.ok()) {
    std::printf("%s: expected %s, got %g\n", status.argument, status.message, status.value);
    return EXIT_FAILURE;
  }

  // By hand: the costs are {0, 4; 1, 1}, so three paths reach the last cell, of weights 1, e^-1 and e^-4.
  const double weights = 1 + std::exp(-1.0) + std::exp(-4.0);
  const double expected_value = 1 - std::log(weights);
  const double expected_grad_x[] = {-4 * std::exp(-4.0) / weights, 2 * std::exp(-1.0) / weights - 2};
  std::printf("value %.6f, d value / d x = (%.6f, %.6f)\n", value, grad_x[0], grad_x[1]);
  const bool right = std::abs(value - expected_value) < 1e-5 &&
                     std::abs(grad_x[0] - expected_grad_x[0]) < 1e-5 &&
                     std::abs(grad_x[1] - expected_grad_x[1]) < 1e-5;
  return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
