// The launches and products of a call, in the order of its stream.
#pragma once

#include <algorithm>

#include "cuda/launch/kernel.cuh"
#include "cuda/products/product.h"
#include "recurrent/cuda/cell/kernel_list.cuh"
#include "recurrent/cuda/cell/params.cuh"
#include "recurrent/cuda/schedule/rows.cuh"

namespace warpalign::detail::recurrent {

// A factor of a product: element (i, j) lies `row` i + `column` j elements after `data`.
struct Factor {
  const void* data;
  Offset row, column;
};
// A matrix whose rows lie `stride` elements apart, and its transpose.
inline Factor matrix(const void* data, Offset stride) { return {data, stride, 1}; }
inline Factor transposed(const void* data, Offset stride) { return {data, 1, stride}; }

// Of a product: its rows and columns, and how many products each of its entries is the sum of.
struct Extents {
  Offset rows, columns, depth;
};

// After the first launch that fails nothing is enqueued.
class Queue {
 public:
  explicit Queue(const Execution& execution)
      : execution_(execution),
        status_(cuda::check_device(execution.cuda_device)),
        device_(status_.ok() ? cuda::traits_of(execution.cuda_device) : cuda::DeviceTraits{}) {}

  [[nodiscard]] Status status() const { return status_; }
  [[nodiscard]] const Execution& execution() const { return execution_; }
  [[nodiscard]] const cuda::DeviceTraits& device() const { return device_; }
  // Whether a float32 product of a step on matrix units is one product of TF32, and not three.
  [[nodiscard]] bool by_tf32() const {
    return execution_.precision == Precision::kMedium && !execution_.batch_invariant;
  }
  [[nodiscard]] cudaStream_t stream() const { return static_cast<cudaStream_t>(execution_.stream); }
  void fail(Status status) {
    if (status_.ok()) status_ = status;
  }

  template <class... Parameters, class... Arguments>
  void launch(const cuda::Kernel<Parameters...>& kernel, cuda::LaunchConfig config,
              const Arguments&... arguments) {
    if (status_.ok() && config.blocks > 0) status_ = try_launch(kernel, config, arguments...);
  }
  template <class... Parameters, class... Arguments>
  void launch(const cuda::Kernel<Parameters...>& kernel, int blocks, int threads,
              const Arguments&... arguments) {
    launch(kernel, cuda::LaunchConfig{.blocks = blocks, .threads = threads}, arguments...);
  }
  // A launch that the device may refuse: its error is the caller's, and nothing has been enqueued then.
  template <class... Parameters, class... Arguments>
  [[nodiscard]] Status try_launch(const cuda::Kernel<Parameters...>& kernel, cuda::LaunchConfig config,
                                  const Arguments&... arguments) {
    config.stream = stream();
    return cuda::launch(kernel, config, arguments...);
  }
  // A thread for each element, which has more of them where a grid of 2^16 blocks has fewer threads.
  template <class... Parameters, class... Arguments>
  void for_each(std::size_t elements, const cuda::Kernel<Parameters...>& kernel,
                const Arguments&... arguments) {
    constexpr std::size_t kMostBlocks = 1 << 16;
    const std::size_t blocks = std::min(cuda::div_up(elements, kRowThreads), kMostBlocks);
    launch(kernel, static_cast<int>(blocks), kRowThreads, arguments...);
  }
  void clear(void* data, std::size_t bytes) { fill(data, 0, bytes); }
  void fill(void* data, int byte, std::size_t bytes) {
    if (status_.ok()) status_ = cuda::set_memory(data, byte, bytes, stream());
  }
  // c = a b, or with `adds` c += a b. Rows of c lie `stride` elements apart.
  void multiply(DType dtype, const Extents& of, const Factor& a, const Factor& b, void* c, Offset stride,
                bool adds = false) {
    if (!status_.ok()) return;
    const bool is_empty = of.depth == 0 && !adds;
    if (is_empty && stride == of.columns) return clear(c, of.rows * of.columns * size_of(dtype));
    status_ = cuda::multiply({dtype,
                              of.rows,
                              of.columns,
                              of.depth,
                              a.data,
                              {a.row, a.column},
                              b.data,
                              {b.row, b.column},
                              c,
                              stride,
                              adds},
                             execution_);
  }

 private:
  const Execution& execution_;
  Status status_;
  cuda::DeviceTraits device_;
};

}  // namespace warpalign::detail::recurrent
