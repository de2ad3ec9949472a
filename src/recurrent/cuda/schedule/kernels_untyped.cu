// The LSTM's kernels that know no element type.
#include "recurrent/cuda/schedule/rows.cuh"

namespace warpalign::detail::recurrent {
namespace {

__global__ void __launch_bounds__(kRowThreads) kept_kernel(KeptParams p) {
  for_elements(p.rows * p.words, [&](Offset n) {
    const Offset row = p.first_row + n / p.words;
    const int word = static_cast<int>(n % p.words), t = p.at.step_of(row);
    const int b = static_cast<int>(row - p.at.first(t));
    const auto drawn = [&](std::uint64_t threshold, MaskKind kind) {
      return threshold == 0 ? 0u : p.masks.below_of_four(threshold, kind, t, b, 4 * word);
    };
    const unsigned bits =
        drawn(p.hidden_threshold, MaskKind::kHidden) | drawn(p.cell_threshold, MaskKind::kCell) << 4;
    p.to[row * p.words + word] = static_cast<std::uint8_t>(bits);
  });
}

__global__ void __launch_bounds__(kRowThreads) chunk_lengths_kernel(ChunkLengthsParams p) {
  for_elements(p.batch, [&](Offset b) { p.to[b] = max(p.lengths[b] - p.begin, 0); });
}

}  // namespace

const cuda::Kernel<KeptParams> kKept{kKernels, "zoneout", nullptr, kept_kernel};
const cuda::Kernel<ChunkLengthsParams> kChunkLengths{kKernels, "lengths of a chunk", nullptr,
                                                     chunk_lengths_kernel};

}  // namespace warpalign::detail::recurrent
