// The way of a sweep on clusters: which kernel a call takes, how the batch is shared out, and the launch.
#pragma once

#include "cuda/launch/cluster_launch.h"
#include "recurrent/cuda/clusters/cluster_backward.cuh"
#include "recurrent/cuda/clusters/cluster_forward.cuh"
#include "recurrent/cuda/layer_norm/cluster_norm.cuh"
#include "recurrent/cuda/schedule/way.cuh"
#include "recurrent/cuda/steps/choice.cuh"

namespace warpalign::detail::recurrent {

// "clusters of up to 8 back, lengths": ranks of a cluster at most, the pass, and what rows may have.
inline std::string cluster_name(int ranks, bool backward, SweepOptions options) {
  return "clusters of up to " + std::to_string(ranks) + (backward ? " back" : "") +
         (options == SweepOptions::kNone   ? ""
          : options == SweepOptions::kEnds ? ", lengths"
                                           : ", options");
}
template <class T, int kSteps, SweepOptions kOptions>
inline const cuda::Kernel kClusterForward{kKernels, cluster_name(kSteps / 2, false, kOptions).c_str(),
                                          cuda::type_name<T>(), cluster_forward_kernel<T, kSteps, kOptions>};
template <class T, int kParts, SweepOptions kOptions>
inline const cuda::Kernel kClusterBackward{kKernels, cluster_name(4 * kParts, true, kOptions).c_str(),
                                           cuda::type_name<T>(),
                                           cluster_backward_kernel<T, kParts, kOptions>};

// The kernel of up to kRanks blocks. A part of the depth has half of a block's units, and a warp has as many
// of the parts backward as it takes for eight warps to have all.
template <class T, int kRanks, SweepOptions kOptions>
ClusterKernel<T> cluster_kernel_of(bool backward) {
  constexpr std::size_t kRows = kOptions == SweepOptions::kNone ? 0 : sizeof(TileRows);
  constexpr int kSteps = kRanks * kBlockUnits / 16, kParts = kRanks * kBlockParts / kClusterWarps;
  if (backward) {
    return {&kClusterBackward<T, kParts, kOptions>, sizeof(OwnGradients<T>),
            sizeof(BackwardTile<kRanks>) + kRows};
  }
  return {&kClusterForward<T, kSteps, kOptions>, 0, sizeof(ForwardTile<T, kSteps>) + kRows};
}
// The kernel for calls with these options. Those with resets or zoneout have one size, of 16 blocks.
template <class T, SweepOptions kOptions>
ClusterKernel<T> cluster_kernel_with(int ranks, bool backward) {
  if constexpr (kOptions != SweepOptions::kAll) {
    if (ranks <= kMostRanks / 2) return cluster_kernel_of<T, kMostRanks / 2, kOptions>(backward);
  }
  return cluster_kernel_of<T, kMostRanks, kOptions>(backward);
}
// No kernel: there is no sweep on clusters.
template <class T>
ClusterKernel<T> cluster_kernel(int ranks, bool backward, const LstmProblem& p) {
  if constexpr (sizeof(T) == 4) {
    if (!is_plain(p) || p.layer_norm || ranks > kFloatRanks) return {};
    return cluster_kernel_of<T, kFloatRanks, SweepOptions::kNone>(backward);
  } else {
    const bool has_more = p.resets || p.zoneout_hidden > 0 || p.zoneout_cell > 0;
    if (p.layer_norm) return has_more ? ClusterKernel<T>{} : NormSweeps<T>::of(backward);
    if (is_plain(p)) return cluster_kernel_with<T, SweepOptions::kNone>(ranks, backward);
    return has_more ? cluster_kernel_with<T, SweepOptions::kAll>(ranks, backward)
                    : cluster_kernel_with<T, SweepOptions::kEnds>(ranks, backward);
  }
}

template <class T>
class ClusterWay final : public Way<T> {
 public:
  explicit ClusterWay(const Question& question) {
    const LstmProblem& p = question.p;
    ranks_ = std::max(cuda::div_up(p.hidden, kBlockUnits), kFewestRanks);
    this->refusal = plan(question);
    if (this->refusal) return;
    share_out(question);
    this->needs.kept = sizeof(T) == 2 && !p.layer_norm;
    // Layers overlap while the clusters of two find place beside each other.
    if (resident_ >= 2 * clusters_)
      this->on_streams = {static_cast<double>(question.tuning.cluster_chunk_start), 6 * p.layers};
    if (has_few_steps(question)) this->pays = false;
  }

  [[nodiscard]] std::string describe() const override {
    return " of " + std::to_string(ranks_) + " blocks, " + std::to_string(clusters_) + " of " +
           std::to_string(resident_) + " that fit";
  }

  bool enqueue(Queue& queue, const LayerSweep<T>& sweep) const override {
    if constexpr (sizeof(T) == 8) {
      return false;
    } else {
      const LstmProblem& p = sweep.p;
      const int directions = directions_of(p);
      if (!queue.status().ok() || (sizeof(T) == 2 && !takes_words(directions, sweep.step))) return false;
      ClusterParams<T> params{
          {sweep.step.cell[0], sweep.step.cell[1]}, ranks_, slices_, tiles_, sweep.places};
      const bool normalises_back = p.layer_norm && sweep.backward;
      cuda::LaunchConfig config{.blocks = clusters_ * ranks_, .threads = kClusterThreads};
      config.cluster = ranks_;
      config.shared_bytes = kernel_.fixed_bytes + tiles_ * kernel_.tile_bytes;
      for (int d = 0; d < directions; ++d) {
        draw_kept(queue, params.cell[d], sweep.backward, sweep.places);
        if (normalises_back) params.cell[d].across = multiply_across(queue, p, params.cell[d]);
      }
      if (!queue.try_launch(*kernel_.kernel, config, params).ok()) return false;
      for (int d = 0; d < directions && normalises_back; ++d) normalise_back(queue, params.cell[d], true);
      return true;
    }
  }

 private:
  // Why there are no clusters; null: there are.
  const char* plan(const Question& question) {
    const LstmProblem& p = question.p;
    if constexpr (sizeof(T) == 8) {
      return "float64 has no sweep on clusters";
    } else {
      if (p.projection > 0 || p.hidden % kWarpUnits != 0 || ranks_ > kMostRanks) {
        return "it serves up to 512 units, a multiple of 4, without a projection";
      }
      if (sizeof(T) == 4 && question.batch_invariant()) return "float32 has other bits on clusters";
      if (!question.device().has_clusters) return "clusters need compute capability 9.0";
      kernel_ = cluster_kernel<T>(ranks_, question.backward, p);
      if (!kernel_.kernel)
        return "it serves float32 up to 128 units without options, and layer norm in 16-bit types without "
               "resets and zoneout";
      cuda::LaunchConfig config{.blocks = 0, .threads = kClusterThreads};
      config.cluster = ranks_;
      config.shared_bytes = kernel_.fixed_bytes + kernel_.tile_bytes;
      if (config.shared_bytes > most_bytes(question) ||
          !cuda::resident_clusters(kernel_.kernel->function(), config, &resident_).ok() || resident_ == 0) {
        return "the device has no place for such a cluster";
      }
      return nullptr;
    }
  }
  static std::size_t most_bytes(const Question& question) {
    return static_cast<std::size_t>(std::max(question.device().shared_bytes_per_block, 0));
  }
  // Clusters that find no place wait until others have ended. A step takes as long as about 2 tiles' work and
  // the work of its own tiles.
  void share_out(const Question& question) {
    const LstmProblem& p = question.p;
    const int all_tiles = cuda::div_up(p.batch, 8), directions = directions_of(p);
    const int most_tiles =
        static_cast<int>((most_bytes(question) - kernel_.fixed_bytes) / kernel_.tile_bytes);
    int best = 0, in_turn = 0;
    for (int n = 1; n <= std::min(most_tiles, all_tiles); ++n) {
      const int rounds = cuda::div_up(directions * cuda::div_up(all_tiles, n), resident_);
      if (best == 0 || (n + 2) * rounds < best) best = (n + 2) * rounds, tiles_ = n, in_turn = n * rounds;
    }
    const int tiles = sizeof(T) == 4 ? question.tuning.float_product_tiles : question.tuning.product_tiles;
    this->pays = in_turn < static_cast<Offset>(tiles) * directions || !takes_products<T>(question);
    slices_ = cuda::div_up(all_tiles, tiles_);
    // Tiles of rows that end early leave place in time, and other clusters find place beside.
    if ((p.lengths || p.row_starts) && directions * slices_ <= resident_) {
      slices_ = std::min(all_tiles, resident_ / directions);
    }
    clusters_ = directions * slices_;
  }
  // R^T of R h normalised, of all rows, in the place of the gradient with respect to R h, which comes after
  // the sweep.
  static const T* multiply_across(Queue& queue, const LstmProblem& p, const CudaCell<T>& cell) {
    const Offset hidden = cell.hidden, gates = 4 * hidden;
    queue.multiply(p.dtype, Extents{cell.at.rows, hidden, gates}, matrix(cell.norm_h, gates),
                   transposed(cell.hh_across, cell.gates_stride), cell.dz_h, hidden);
    return cell.dz_h;
  }

  ClusterKernel<T> kernel_{};
  int ranks_;         // blocks of a cluster
  int slices_ = 0;    // of the batch, each of which has a cluster for each direction
  int tiles_ = 1;     // of 8 rows, of a slice
  int clusters_ = 0;  // all directions together have so many
  int resident_ = 0;  // so many are resident at once
};

}  // namespace warpalign::detail::recurrent
