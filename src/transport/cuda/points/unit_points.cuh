// Costs from points on matrix units: squared distances in float32, with one to three binary16 numbers per
// coordinate. Points are rounded and packed once per problem, and all passes use the same rounded points.
// Problems with coordinates that are not finite take the path of points.cuh, and with three terms so do
// passes whose logits differ by so many bits that an error of a product would be seen (kMostBits).
#pragma once

#include "transport/cuda/points/point_sums.cuh"
#include "transport/cuda/points/unit_tiles.cuh"
#include "transport/cuda/solve/kernels.cuh"

namespace warpalign::detail::transport {

// kMostTerms: 1; or 3, which serves two and three terms (SolveParams::terms).
template <int kMostTerms>
class UnitPoints : public PointSums<float> {
 public:
  using Base = PointSums<float>;
  static constexpr const char* name() {
    return kMostTerms == 1 ? "points, one product on units" : "points, split products on units";
  }
  // With more terms a warp's factors and sums need more registers than two blocks leave.
  static constexpr int kBlocks = kMostTerms == 1 ? 2 : 1;

  __device__ __forceinline__ UnitPoints(const SolveParams<float>& p, Team& team, const Side<float>& rows,
                                        const Side<float>& columns)
      : Base(p, team, rows, columns), waits_(team) {}

  static std::size_t shared_bytes(const SolveLayout& layout) {
    using Largest = UnitPass<kMostTerms, 1, kUnitPiece>;
    static_assert(sizeof(typename Largest::Shared) >= sizeof(typename UnitPass<kMostTerms, 1, 0>::Shared));
    return std::max(Base::shared_bytes(layout), kScratchBytes + sizeof(typename Largest::Shared));
  }

  // Rounds and packs the points, which can be read after the team's next barrier. Returns the largest norm of
  // this thread's points.
  __device__ __attribute__((noinline)) float prepare() {
    find_centre();
    waits_.barrier();
    Top top;
    for (const Side<float>* const of : {&rows_, &columns_}) raise_to_coordinates(*of, top);
    top = waits_.joined(top);
    scale_ = 0;
    if (!(top.size <= FLT_MAX)) return 0;
    constexpr int kBits = 13;  // of the largest coordinate, so that squares and sums cannot overflow float32
    const int exponent = top.size > 0 ? max(ilogbf(top.size), -100) : 0;
    scale_ = exp2(static_cast<double>(kBits - exponent));
    Top norm;
    with_terms([&]<int kTerms>() {
      pack<kTerms>(rows_, norm);
      pack<kTerms>(columns_, norm);
    });
    return norm.size;
  }
  __device__ __forceinline__ void take_extent(float norm) { norm_top_ = static_cast<double>(norm); }

  template <PassKind kKind>
  __device__ __forceinline__ void run(const Pass& pass, PlanSums& sums) const {
    if (scale_ == 0 || bits(pass) > most_bits()) return this->template run_tiles<kKind>(pass, sums);
    constexpr PassKind kColumns = kKind == PassKind::kEvaluate ? PassKind::kSums : kKind;
    if (pass.rows && pass.columns && is_one_set()) {
      of_any_width<kKind, Makes::kOwn>(pass, true, sums);
      columns_.parts = rows_.parts;  // a set with itself: the columns' sums are the rows'
      return;
    }
    if constexpr (kKind != PassKind::kLargest) {
      if (pass.rows && pass.columns && p_.symmetric_iterations > 0)
        return of_any_width<kKind, Makes::kBoth>(pass, true, sums);
    }
    if (pass.rows) of_any_width<kKind, Makes::kOwn>(pass, true, sums);
    if (pass.columns) of_any_width<kColumns, Makes::kOwn>(pass, false, sums);
  }

  // Called after a pass that has computed the sums of both sides.
  __device__ __forceinline__ void write_gradients(const Pass& pass) const {
    if (scale_ == 0 || bits(pass) > most_bits()) return Base::write_gradients(pass);
    const bool of_rows = rows_.p.grad_points, copies = of_rows && columns_.p.grad_points && is_one_set();
    const bool of_columns = columns_.p.grad_points && !copies;
    if (!of_rows && !of_columns) return;
    waits_.barrier();
    if (of_rows) gradient_of(pass, true);
    if (of_rows && of_columns) waits_.barrier();  // the parts use the same memory
    if (of_columns) gradient_of(pass, false);
    if (p_.terms == 3) {
      waits_.barrier();
      if (of_rows) gradient_of_near(pass, true);
      if (of_columns) gradient_of_near(pass, false);
    }
    if (copies) copy_gradients();
  }

 private:
  using Makes = UnitMakes;
  struct Top {
    float size = 0;
    float unused = 0;

    __device__ __forceinline__ void join(const Top& other) { size = larger(size, other.size); }
  };

  // Three terms have an error of some 2^-32 of the bits by which logits may differ, two and one more.
  static constexpr double kMostBits = 1 << 14;
  [[nodiscard]] __device__ __forceinline__ double most_bits() const {
    return p_.terms == 3 ? kMostBits : CUDART_INF;
  }
  // k times the largest squared norm: a quarter of the most bits that costs take from a logit.
  [[nodiscard]] __device__ __forceinline__ double bits(const Pass& pass) const {
    return pass.k * norm_top_ / (scale_ * scale_);
  }

  // For each tile of a side's points: whether some are so near to the other side's that their gradients are
  // made again, from differences.
  [[nodiscard]] __device__ __forceinline__ int* near(const Side<float>& side) const {
    return side.p.near + side.team * cuda::div_up(side.p.length, kUnitGradientPoints);
  }

  // Gradients from differences, of tiles with near points.
  __device__ __forceinline__ void gradient_of_near(const Pass& pass, bool of_rows) const {
    const Side<float>& side = of_rows ? rows_ : columns_;
    this->gradient_of_side(pass, of_rows, side.p.grad_points, static_cast<float>(p_.cost_scale),
                           typename Base::One{},
                           [&](int i) { return i < side.count && near(side)[i / kUnitGradientPoints] != 0; });
  }

  // Whether both sides are one set: then they have the same potentials, sums and gradients.
  [[nodiscard]] __device__ __forceinline__ bool is_one_set() const {
    return columns_.p.partials == rows_.p.partials;
  }
  __device__ __forceinline__ void copy_gradients() const {
    waits_.barrier();
    const std::int64_t first = rows_.row_of_batch() * p_.dim, step = std::int64_t{team_.blocks} * blockDim.x;
    for (std::int64_t n = std::int64_t{team_.rank} * blockDim.x + threadIdx.x;
         n < std::int64_t{rows_.p.length} * p_.dim; n += step) {
      columns_.p.grad_points[first + n] = rows_.p.grad_points[first + n];
    }
  }

  // Calls body.template operator()<kTerms>().
  template <class Body>
  __device__ __forceinline__ void with_terms(const Body& body) const {
    if constexpr (kMostTerms == 1) {
      body.template operator()<1>();
    } else if (p_.terms == 3) {
      body.template operator()<3>();
    } else {
      body.template operator()<2>();
    }
  }

  [[nodiscard]] __device__ __forceinline__ int blocks_of_features() const { return unit_blocks(p_.dim); }
  [[nodiscard]] __device__ __forceinline__ float* centre() const {
    return p_.centres + static_cast<std::int64_t>(rows_.team) * p_.dim;
  }
  [[nodiscard]] __device__ __forceinline__ std::int64_t packed_rows(const Side<float>& side) const {
    return unit_rows(side.p.length, p_.dim);
  }
  [[nodiscard]] __device__ __forceinline__ UnitRow* packed(const Side<float>& side, int term) const {
    return static_cast<UnitRow*>(side.p.packed) +
           (static_cast<std::int64_t>(side.team) * p_.terms + term) * packed_rows(side);
  }
  [[nodiscard]] __device__ __forceinline__ double* norms(const Side<float>& side) const {
    return side.p.norms + static_cast<std::int64_t>(side.team) * side.p.length;
  }

  // A coordinate relative to the centre, exactly.
  [[nodiscard]] __device__ __forceinline__ double relative(const Side<float>& side, int i, int d) const {
    return static_cast<double>(*feature(side.p.points, side.b, i, d)) - static_cast<double>(centre()[d]);
  }

  // Calls body(n, lane) for n < count, each n by one warp of the team.
  template <class Body>
  __device__ __forceinline__ void by_warps(int count, const Body& body) const {
    const int warps = static_cast<int>(blockDim.x) / 32;
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    for (int n = warp * team_.blocks + team_.rank; n < count; n += team_.blocks * warps) body(n, lane);
  }

  // The centre: the mean of 32 points of each side.
  __device__ __forceinline__ void find_centre() const {
    by_warps(p_.dim, [&](int d, int lane) {
      double sum = 0;
      for (const Side<float>* const of : {&rows_, &columns_}) {
        const auto i = static_cast<int>(static_cast<std::int64_t>(of->count) * lane / 32);
        sum += static_cast<double>(*feature(of->p.points, of->b, i, d));
      }
      sum = cuda::reduce_sum(sum);
      if (lane == 0) centre()[d] = static_cast<float>(sum / 64);
    });
  }

  __device__ __forceinline__ void raise_to_coordinates(const Side<float>& side, Top& top) const {
    // The indices are incremented, because a division for each coordinate would take most of the time.
    const int step = team_.blocks * static_cast<int>(blockDim.x);
    const int first = team_.rank * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
    const int points = step / p_.dim, features = step % p_.dim;
    int d = first % p_.dim;
#pragma unroll 4
    for (int i = first / p_.dim; i < side.count; i += points) {
      top.size = larger(top.size, static_cast<float>(abs(relative(side, i, d))));
      d += features;
      if (d >= p_.dim) d -= p_.dim, ++i;
    }
  }

  // A warp owns 16 points, a lane 8 of every 16 features of one point. Missing points and features are 0.
  template <int kTerms>
  __device__ __attribute__((noinline)) void pack(const Side<float>& side, Top& top) const {
    const int blocks = blocks_of_features();
    const double grid = unit_grid(p_.dim);
    by_warps(cuda::div_up(side.count, kPointsStage) * (kPointsStage / 16), [&](int group, int lane) {
      const int i = group * 16 + lane % 16;
      if (kTerms == 3 && side.p.grad_points && i % kUnitGradientPoints == 0)
        near(side)[i / kUnitGradientPoints] = 0;
      double norm = 0;
      for (int block = 0; block < blocks; ++block) {
        const int d = block * 16 + lane / 16 * 8;
        UnitRow parts[kTerms];
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          double x[2];
          for (int e = 0; e < 2; ++e) {
            const bool exists = i < side.count && d + 2 * v + e < p_.dim;
            x[e] = exists ? scale_ * relative(side, i, d + 2 * v + e) : 0.0;
          }
          unit_split(x, grid, v, parts);
          norm += unit_norm(v, parts);
        }
        const std::int64_t n = (static_cast<std::int64_t>(group) * blocks + block) * 32 + lane;
        for (int term = 0; term < kTerms; ++term) packed(side, term)[n] = parts[term];
      }
      norm += cuda::shuffle_xor(norm, 16);
      if (i >= side.count) return;
      if (lane < 16) norms(side)[i] = norm;
      top.size = larger(top.size, static_cast<float>(norm) * 1.000001f);
    });
  }
  // Calls body.template operator()<the UnitPass for the points' width>().
  template <bool kGradient, class Body>
  __device__ __forceinline__ void with_units(const Body& body) const {
    with_terms([&]<int kTerms>() {
      constexpr int kFrags = kGradient ? 1 : unit_fragments(kTerms, false);
      switch (blocks_of_features()) {
        case 2:
          return body.template operator()<UnitPass<kTerms, kFrags, 2>>();
        case kUnitPiece:
          return body.template operator()<UnitPass<kTerms, kFrags, kUnitPiece>>();
        default:
          constexpr int kFragsOfPieces = kGradient ? 1 : unit_fragments(kTerms, true);
          return body.template operator()<UnitPass<kTerms, kFragsOfPieces, 0>>();
      }
    });
  }
  template <PassKind kKind, Makes kMakes>
  __device__ __forceinline__ void of_any_width(const Pass& pass, bool of_rows, PlanSums& sums) const {
    with_units<false>([&]<class Units>() { pass_over<Units, kKind, kMakes>(pass, of_rows, sums); });
  }
  __device__ __forceinline__ void gradient_of(const Pass& pass, bool of_rows) const {
    with_units<true>([&]<class Units>() { gradient_over<Units>(pass, of_rows); });
  }

  [[nodiscard]] __device__ __forceinline__ UnitSide unit_side(const Side<float>& side, const double* at,
                                                              double lambda) const {
    return {{packed(side, 0), packed(side, p_.terms > 1 ? 1 : 0), packed(side, p_.terms - 1)},
            norms(side),
            at,
            side.p.weights ? side.p.weights + side.row_of_batch() : nullptr,
            static_cast<float>(side.uniform),
            !side.product,
            lambda,
            side.count,
            blocks_of_features()};
  }

  template <class Units>
  [[nodiscard]] static __device__ __forceinline__ typename Units::Shared& shared_of() {
    return *reinterpret_cast<typename Units::Shared*>(cuda::dynamic_shared() + kScratchBytes);
  }
  // Thread 0 sets the block's work, after all threads have ended the previous one.
  template <class Units, class Change>
  static __device__ __forceinline__ void describe(const Change& change) {
    __syncthreads();
    if (threadIdx.x == 0) change(shared_of<Units>().work);
    __syncthreads();
  }
  template <class Units>
  __device__ __forceinline__ void describe_pass(const Pass& pass, bool of_rows, const Side<float>& own,
                                                const Side<float>& other) const {
    const double inverse = 1 / (scale_ * scale_);
    // A float32 number, because the products' factor is one: the factors of norms and products agree.
    const auto factor = static_cast<double>(static_cast<float>(pass.k * inverse));
    const UnitPassNumbers numbers{factor, rounder_of<float>(pass.largest + factor * norm_top_),
                                  rounder_of<float>(norm_top_ * inverse), static_cast<float>(inverse)};
    describe<Units>([&](auto& work) {
      work.own = unit_side(own, of_rows ? pass.rows_at : pass.columns_at, of_rows ? pass.lambda : 0.0);
      work.other = unit_side(other, of_rows ? pass.columns_at : pass.rows_at, of_rows ? 0.0 : pass.lambda);
      work.numbers = numbers;
      work.factor = static_cast<float>(2 * factor);
      work.piece = 0;
      work.parts = own.partials(0);
      work.part_stride = own.p.length;
      work.part_count = own.parts;
      work.writes_plan = p_.plan;
      work.is_one_set = is_one_set();
    });
  }

  template <class Units, PassKind kKind, Makes kMakes>
  __device__ __attribute__((noinline)) void pass_over(const Pass& pass, bool of_rows, PlanSums& sums) const {
    const Side<float>& own = of_rows ? rows_ : columns_;
    const Side<float>& other = of_rows ? columns_ : rows_;
    describe_pass<Units>(pass, of_rows, own, other);
    const auto write = [&](int i, int j, float mass) { write_plan(pass, i, j, mass); };
    this->share_steps(own, other, Units::kOwn, kPointsStage, kKind == PassKind::kLargest,
                      [&](int tile, int part, int first, int last) {
                        describe<Units>([&](auto& work) {
                          work.own_begin = tile * Units::kOwn;
                          work.first_stage = first;
                          work.last_stage = last;
                          work.own_sums = own.partials(part);
                          work.other_sums = kMakes == Makes::kBoth ? other.partials(tile) : nullptr;
                        });
                        Units::template run<kKind, kMakes>(shared_of<Units>(), sums, write);
                      });
    if (kMakes == Makes::kBoth) other.parts = cuda::div_up(own.count, Units::kOwn);
  }

  // Writes gradients with respect to one side's points. A task is a tile of points and 64 features. Its steps
  // are divided as those of sums. The block with a task's first step writes to the gradient. The following
  // blocks write their parts to the workspace, which are added after a barrier of the team.
  template <class Units>
  __device__ __attribute__((noinline)) void gradient_over(const Pass& pass, bool of_rows) const {
    static_assert(Units::kOwn == kUnitGradientPoints);
    const Side<float>& own = of_rows ? rows_ : columns_;
    const Side<float>& other = of_rows ? columns_ : rows_;
    describe_pass<Units>(pass, of_rows, own, other);
    const int pieces = unit_pieces(p_.dim);
    const float scale = static_cast<float>(2 * p_.cost_scale / scale_);
    float* const to = own.p.grad_points + own.row_of_batch() * p_.dim;
    const auto final = [&](float v) { return pass.is_nan ? static_cast<float>(CUDART_NAN) : scale * v; };
    const int blocks =
        gradient_blocks(own.p.length, other.p.length, p_.dim, team_.blocks, p_.layout.sharing_steps);
    const StepShare share(cuda::div_up(own.count, Units::kOwn) * pieces,
                          cuda::div_up(other.count, kPointsStage), blocks);
    share.each(team_.rank, [&](int task, int, int first, int last) {
      const int begin = task / pieces * Units::kOwn, piece = task % pieces;
      describe<Units>([&](auto& work) {
        work.own_begin = begin;
        work.piece = piece;
        work.first_stage = first;
        work.last_stage = last;
        work.near = near(own) + begin / Units::kOwn;
      });
      const bool is_whole = first == 0 && last == share.stages();
      float* const part = gradient_part(team_.rank);
      PlanSums unused;
      Units::template run<PassKind::kSums, Makes::kGradient>(
          shared_of<Units>(), unused, [&](int i, int d, float v) {
            if (first > 0) {
              part[(i - begin) * kUnitFeatures + d - piece * kUnitFeatures] = v;
            } else if (i < own.count && d < p_.dim) {
              to[static_cast<std::int64_t>(i) * p_.dim + d] = is_whole ? final(v) : v;
            }
          });
    });
    for_padding(own, team_, [&](int i) {
      for (int d = 0; d < p_.dim; ++d) to[static_cast<std::int64_t>(i) * p_.dim + d] = 0;
    });
    if (blocks == share.tiles()) return;  // each block has one task
    waits_.barrier();
    // The number of a task's elements that a block adds at a time.
    const int chunk = static_cast<int>(blockDim.x), chunks = kGradientPart / chunk;
    for (int n = team_.rank; n < share.tiles() * chunks; n += team_.blocks) {
      const int task = n / chunks, parts = share.parts(task), rank = share.first_rank(task);
      const int number = n % chunks * chunk + static_cast<int>(threadIdx.x);
      const int i = task / pieces * Units::kOwn + number / kUnitFeatures;
      const int d = task % pieces * kUnitFeatures + number % kUnitFeatures;
      if (parts == 1 || i >= own.count || d >= p_.dim) continue;
      float& sum = to[static_cast<std::int64_t>(i) * p_.dim + d];
      float all = sum;
#pragma unroll 8
      for (int k = 1; k < parts; ++k) all += gradient_part(rank + k)[number];
      sum = final(all);
    }
  }
  [[nodiscard]] __device__ __forceinline__ float* gradient_part(int rank) const {
    return p_.gradient_parts +
           (static_cast<std::int64_t>(rows_.team) * p_.gradient_blocks + rank) * kGradientPart;
  }

  Team& waits_;
  double scale_ = 0;     // 0: matrix units are not used
  double norm_top_ = 0;  // the largest norm of a rounded point
};

}  // namespace warpalign::detail::transport
