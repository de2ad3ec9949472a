// Soft-DTW from C++: values and gradients of two pairs of series, on threads, in memory that the caller owns.
#include <warpalign/soft_dtw.h>
#include <warpalign/thread_pool.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

// Memory at the alignment that a workspace on the host needs.
struct AlignedDelete {
  void operator()(std::byte* data) const { ::operator delete(data, kAlignment); }
  static constexpr std::align_val_t kAlignment{warpalign::workspace_alignment(warpalign::Device::kHost)};
};
using Scratch = std::unique_ptr<std::byte, AlignedDelete>;

Scratch scratch_of(std::size_t bytes) {
  return Scratch(static_cast<std::byte*>(::operator new(bytes, AlignedDelete::kAlignment)));
}

int main() {
  // Two pairs (B = 2) of series with one feature (D = 1). The second x is one step shorter than its row.
  constexpr std::int32_t kPairs = 2, kRows = 2, kColumns = 2, kFeatures = 1;
  const std::vector<float> x = {0, 1, /**/ 3, -99};
  const std::vector<float> y = {0, 2, /**/ 3, 4};
  const std::vector<std::int32_t> x_lengths = {2, 1};
  std::vector<float> value(kPairs), grad_x(x.size());

  warpalign::SoftDtwProblem problem;
  problem.batch = kPairs;
  problem.n = kRows;
  problem.m = kColumns;
  problem.dim = kFeatures;
  problem.x = warpalign::StridedTensor::contiguous(x.data(), {kPairs, kRows, kFeatures});
  problem.y = warpalign::StridedTensor::contiguous(y.data(), {kPairs, kColumns, kFeatures});
  problem.x_lengths = x_lengths.data();
  problem.gamma = 1.0;
  warpalign::SoftDtwOutputs outputs;  // what stays null is not computed
  outputs.value = value.data();
  outputs.grad_x = grad_x.data();

  warpalign::ThreadPool pool;  // a thread per core; without a pool, the calling thread does everything
  const warpalign::Execution execution = warpalign::Execution::host(pool.parallel_for());
  const std::size_t bytes = warpalign::soft_dtw_workspace_bytes(problem, outputs, execution);
  const Scratch scratch = scratch_of(bytes);

  const warpalign::Status status = warpalign::soft_dtw(problem, outputs, {scratch.get(), bytes}, execution);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", to_string(status).c_str());
    return EXIT_FAILURE;
  }
  for (int pair = 0; pair < kPairs; ++pair) {
    std::printf("value %.6f, gradient (%.6f, %.6f)\n", value[pair], grad_x[2 * pair], grad_x[2 * pair + 1]);
  }

  // Every wrong argument comes back as a Status that names it. Nothing has been written then.
  problem.gamma = -1.0;
  const warpalign::Status refused = warpalign::soft_dtw(problem, outputs, {scratch.get(), bytes}, execution);
  std::printf("refused: %s\n", to_string(refused).c_str());
  return refused.ok() ? EXIT_FAILURE : EXIT_SUCCESS;
}
