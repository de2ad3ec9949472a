// Sampled alignments on the CPU: threads share the pairs (sample.h).
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/arena.h"
#include "cpu/describe.h"
#include "cpu/team.h"
#include "soft_dtw/band.h"
#include "soft_dtw/cpu_pack.h"
#include "soft_dtw/problem.h"
#include "soft_dtw/sample.h"

namespace warpalign::detail::soft_dtw {
namespace {

// The memory of a pair at work.
struct SampleMemory {
  SampleBorders borders;
  SampleCell* tile;
  double* x;  // a row for each feature, and two for the cosine's steps of length 0
  double* y;
  double* x_weight;
  double* y_weight;
  double* x_norms;
  double* y_norms;
  std::int64_t x_stride, y_stride;

  SampleMemory(const SoftDtwProblem& p, Arena& arena)
      : borders{arena.take<SampleState>(static_cast<std::size_t>(sample_tiles(p.n)) * p.m),
                arena.take<SampleState>(static_cast<std::size_t>(sample_tiles(p.m)) * p.n)},
        tile(arena.take<SampleCell>(kSampleTile * kSampleTile)),
        x_stride(std::int64_t{sample_tiles(p.n)} * kSampleTile),
        y_stride(std::int64_t{sample_tiles(p.m)} * kSampleTile) {
    const std::size_t features = p.cost.data ? 0 : p.dim + (is_cosine(p) ? 2 : 0);
    x = arena.take<double>(features * x_stride);
    y = arena.take<double>(features * y_stride);
    x_weight = arena.take<double>(p.x_mask || p.y_mask ? x_stride : 0);
    y_weight = arena.take<double>(p.x_mask || p.y_mask ? y_stride : 0);
    x_norms = arena.take<double>(is_cosine(p) ? x_stride : 0);
    y_norms = arena.take<double>(is_cosine(p) ? y_stride : 0);
  }
};

template <class Storage>
class PairSampler {
 public:
  PairSampler(const SoftDtwProblem& p, const SoftDtwSamples& out, int b, const SampleMemory& memory)
      : p_(p),
        out_(out),
        b_(b),
        n_(p.x_lengths ? p.x_lengths[b] : p.n),
        m_(p.y_lengths ? p.y_lengths[b] : p.m),
        features_(p.dim),
        memory_(memory),
        scale_(gamma_of(p, b), p.step_penalty) {
    if (!p.cost.data) pack();
  }

  void run() {
    std::int64_t* const lengths = out_.lengths + std::int64_t{b_} * out_.paths_per_pair;
    std::fill_n(lengths, out_.paths_per_pair, has_paths() ? 1 : 0);
    const std::int64_t longest = std::int64_t{p_.n} + p_.m - 1;
    for (int s = 0; s < out_.paths_per_pair; ++s) {
      std::int64_t* const path = path_of(s);
      std::fill_n(path, 2 * longest, std::int64_t{-1});
      if (lengths[s] == 0) continue;
      path[0] = n_ - 1;
      path[1] = m_ - 1;
    }
    for (std::int64_t next = last_tile(lengths); next >= 0; next = last_tile(lengths)) draw_in(next, lengths);
    // Paths have been written from their ends.
    for (int s = 0; s < out_.paths_per_pair; ++s) {
      std::int64_t* const path = path_of(s);
      for (std::int64_t low = 0, high = lengths[s] - 1; low < high; ++low, --high) {
        std::swap(path[2 * low], path[2 * high]);
        std::swap(path[2 * low + 1], path[2 * high + 1]);
      }
    }
  }

 private:
  void pack() {
    pack_series<Storage>(p_.x, b_ * p_.x.stride[0], n_, p_.dim, false, memory_.x_stride, memory_.x);
    pack_series<Storage>(p_.y, b_ * p_.y.stride[0], m_, p_.dim, false, memory_.y_stride, memory_.y);
    if (p_.x_mask || p_.y_mask) {
      const std::uint8_t* const x = p_.x_mask ? p_.x_mask + std::int64_t{b_} * p_.n : nullptr;
      const std::uint8_t* const y = p_.y_mask ? p_.y_mask + std::int64_t{b_} * p_.m : nullptr;
      pack_weights(x, n_, false, memory_.x_stride, memory_.x_weight);
      pack_weights(y, m_, false, memory_.y_stride, memory_.y_weight);
      clear_missing(memory_.x_weight, memory_.x_stride, p_.dim, memory_.x);
      clear_missing(memory_.y_weight, memory_.y_stride, p_.dim, memory_.y);
    }
    if (!is_cosine(p_)) return;
    normalize_steps(memory_.x, memory_.x_stride, p_.dim, memory_.x_norms);
    normalize_steps(memory_.y, memory_.y_stride, p_.dim, memory_.y_norms);
    add_own_direction(memory_.x, memory_.x_stride, p_.dim, 0, memory_.x_norms);
    add_own_direction(memory_.y, memory_.y_stride, p_.dim, 1, memory_.y_norms);
    features_ = p_.dim + 2;
  }

  // Adds term(x - y) of every feature to the costs of row i of a tile. All 32 columns are computed: padding
  // repeats the last step.
  template <class Term>
  void add_terms(int i, int column0, double (&costs)[kSampleTile], const Term& term) const {
    for (int k = 0; k < features_; ++k) {
      const double x = memory_.x[k * memory_.x_stride + i];
      const double* const y = memory_.y + k * memory_.y_stride + column0;
      for (int c = 0; c < kSampleTile; ++c) costs[c] += term(x - y[c]);
    }
  }

  void costs_of_row(int i, int column0, int columns, double (&costs)[kSampleTile]) const {
    if (p_.cost.data) {
      const Storage* const from = element<Storage>(p_.cost, b_) + i * p_.cost.stride[1];
      for (int c = 0; c < columns; ++c)
        costs[c] = static_cast<double>(from[(column0 + c) * p_.cost.stride[2]]);
      return;
    }
    std::fill_n(costs, kSampleTile, 0.0);
    switch (metric_of(p_.cost_kind)) {
      case Metric::kAbsolute:
        add_terms(i, column0, costs, [](double t) { return std::abs(t); });
        break;
      case Metric::kHuber:
        add_terms(i, column0, costs, [](double t) {
          const double size = std::abs(t);
          return size <= 1 ? 0.5 * t * t : size - 0.5;
        });
        break;
      case Metric::kSquared:
      case Metric::kNorm:
        add_terms(i, column0, costs, [](double t) { return t * t; });
        break;
    }
    for (int c = 0; c < columns; ++c) {
      if (metric_of(p_.cost_kind) == Metric::kNorm) costs[c] = std::sqrt(costs[c]);
      if (is_cosine(p_)) costs[c] *= 0.5;
      if (p_.x_mask || p_.y_mask) costs[c] *= memory_.x_weight[i] * memory_.y_weight[column0 + c];
    }
  }

  // Computes a tile from what is kept beside it: keeps its last row and column, or its cells' chances.
  // Returns whether all costs were numbers above -inf.
  bool compute(std::int64_t tile, bool chances) {
    const int row0 = static_cast<int>(tile / sample_tiles(m_)) * kSampleTile;
    const int column0 = static_cast<int>(tile % sample_tiles(m_)) * kSampleTile;
    const int rows = std::min(kSampleTile, n_ - row0), columns = std::min(kSampleTile, m_ - column0);
    SampleState above[kSampleTile + 1];  // the row above, from the column before the tile on
    for (int c = 0; c <= columns; ++c) above[c] = memory_.borders.at(row0 - 1, column0 + c - 1, n_, m_);
    bool fine = true;
    for (int r = 0; r < rows; ++r) {
      const int i = row0 + r;
      const IndexRange inside = band_columns(p_.band, i, n_, m_);
      double costs[kSampleTile] = {};
      if (inside.begin < column0 + columns && inside.end > column0) costs_of_row(i, column0, columns, costs);
      SampleState diagonal = above[0];
      SampleState left = above[0] = memory_.borders.at(i, column0 - 1, n_, m_);
      for (int c = 0; c < columns; ++c) {
        SampleParts parts;
        SampleState z = sample_advance(costs[c], scale_, above[c + 1], left, diagonal, &parts);
        if (column0 + c < inside.begin || column0 + c >= inside.end) {
          z = sample_dead();
        } else {
          fine &= costs[c] > -HUGE_VAL;
        }
        if (chances) memory_.tile[r * kSampleTile + c].chances = sample_chances(parts);
        diagonal = above[c + 1];
        left = above[c + 1] = z;
      }
      end_ = left;
      if (!chances && columns == kSampleTile)
        memory_.borders.columns[std::int64_t{column0 / kSampleTile} * n_ + i] = above[columns];
    }
    if (!chances && rows == kSampleTile)
      std::copy_n(above + 1, columns, memory_.borders.rows + std::int64_t{row0 / kSampleTile} * m_ + column0);
    return fine;
  }

  bool has_paths() {
    bool fine = true;
    const std::int64_t tiles = std::int64_t{sample_tiles(n_)} * sample_tiles(m_);
    for (std::int64_t tile = 0; tile < tiles; ++tile) fine &= compute(tile, false);
    return fine && end_.exponent > kSampleNoPath;
  }

  [[nodiscard]] std::int64_t* path_of(int s) const {
    return out_.paths + (std::int64_t{b_} * out_.paths_per_pair + s) * 2 * (std::int64_t{p_.n} + p_.m - 1);
  }
  // Where a path is that has been written from its end; -1 for one that is done.
  [[nodiscard]] std::int64_t tile_of(int s, const std::int64_t* lengths) const {
    if (lengths[s] == 0) return -1;
    const std::int64_t* const cell = path_of(s) + 2 * (lengths[s] - 1);
    if (cell[0] == 0 && cell[1] == 0) return -1;
    return cell[0] / kSampleTile * sample_tiles(m_) + cell[1] / kSampleTile;
  }
  // The tile of the largest number that holds a path; -1: all paths are done.
  [[nodiscard]] std::int64_t last_tile(const std::int64_t* lengths) const {
    std::int64_t last = -1;
    for (int s = 0; s < out_.paths_per_pair; ++s) last = std::max(last, tile_of(s, lengths));
    return last;
  }

  void draw_in(std::int64_t tile, std::int64_t* lengths) {
    compute(tile, true);
    for (int s = 0; s < out_.paths_per_pair; ++s) {
      if (tile_of(s, lengths) != tile) continue;
      std::int64_t* cell = path_of(s) + 2 * (lengths[s] - 1);
      SampleDraws draws(out_.seed, b_, s);
      SamplePlace place{static_cast<std::int32_t>(cell[0]), static_cast<std::int32_t>(cell[1]),
                        static_cast<std::int32_t>(lengths[s] - 1)};
      const int row0 = place.i / kSampleTile * kSampleTile, column0 = place.j / kSampleTile * kSampleTile;
      while (place.i >= row0 && place.j >= column0 && place.i + place.j > 0) {
        const int at = (place.i - row0) * kSampleTile + place.j - column0;
        sample_step(memory_.tile[at].chances, draws, place);
        cell += 2;
        cell[0] = place.i;
        cell[1] = place.j;
      }
      lengths[s] = place.steps + 1;
    }
  }

  const SoftDtwProblem& p_;
  const SoftDtwSamples& out_;
  const int b_, n_, m_;
  int features_;
  const SampleMemory memory_;
  const SampleScale scale_;
  SampleState end_{};  // the last cell of the tile computed last
};

cpu::Team sample_team(const SoftDtwProblem& p, const Execution& execution) {
  cpu::Team team = cpu::Team::of(p.batch, execution, 1);
  Arena arena;
  static_cast<void>(SampleMemory(p, arena));
  team.item_bytes = cpu::rounded_to_worker(arena.used());
  return team;
}

}  // namespace

std::size_t sample_workspace_bytes_cpu(const SoftDtwProblem& p, const SoftDtwSamples& /*samples*/,
                                       const Execution& execution) {
  return sample_team(p, execution).bytes();
}

Status sample_cpu(const SoftDtwProblem& p, const SoftDtwSamples& out, Workspace workspace,
                  const Execution& execution) {
  const cpu::Team team = sample_team(p, execution);
  if (cpu::is_described("soft_dtw_sample", team.bytes(), execution)) return {};
  cpu::run_team(team, workspace, execution, [&](int b, const cpu::ItemMemory& memory) {
    Arena arena(memory.item);
    visit_float32_float64(p.dtype, [&](auto type) {
      PairSampler<typename decltype(type)::Type>(p, out, b, SampleMemory(p, arena)).run();
    });
  });
  return {};
}

}  // namespace warpalign::detail::soft_dtw
