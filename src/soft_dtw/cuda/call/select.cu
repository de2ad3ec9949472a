#include <algorithm>

#include "soft_dtw/cuda/call/select.h"
#include "soft_dtw/tuning.h"

namespace warpalign::detail::soft_dtw {
namespace {

// Few pairs may be swept from both ends, if there is room for all strips of both sweeps. With more than
// kMostMeetingFeatures features, a warp that makes gradients has several blocks of features, and sums grad_y
// in the caller's memory.
bool may_meet(const Need& need) {
  return need.may_sweep_from_both_ends() && !need.batch_invariant && !need.holds_cells &&
         need.dim <= kMostMeetingFeatures && need.n >= kShortestMeeting;
}
// The number of a sweep's strips that are at work at the same time. A strip begins 39 steps after the strip
// on its left. With a band it also begins as many rows later as the band descends over a strip's columns, and
// ends when the band has left it. One more is counted, because blocks take whole panels.
double strips_at_work(const Need& need, int columns_per_lane) {
  const double strips = strips_of(need.m, columns_per_lane);
  if (need.rows_in_band >= need.n) return strips;
  const double descent = 32.0 * columns_per_lane * need.n / need.m;
  return std::min(strips, 1 + (need.rows_in_band + descent + 31) / (descent + 31 + kGroup));
}
bool has_room_for_both_ends(const Need& need, int columns_per_lane, int strips_of_multiprocessor,
                            DeviceTraits device) {
  const double strips = 2.0 * need.batch * strips_at_work(need, columns_per_lane);
  return need.batch < device.multiprocessors &&
         strips <= static_cast<double>(strips_of_multiprocessor) * device.multiprocessors;
}

// The fewer strips there are, the more warps each one has. key: of a kernel without helpers, with 2 columns
// per lane, whose sweeps meet.
KernelKey with_helpers(const KernelKey& key, const Need& need, DeviceTraits device) {
  for (const CrewKind crew : {CrewKind::kTwoHelpers, CrewKind::kOneHelper}) {
    KernelKey helped = key;
    helped.crew = crew;
    const SweepKernel* const kernel = need.gradient ? kernel_of(helped) : nullptr;
    if (!kernel) break;
    const int most = std::min(device.shared_bytes_per_block / shared_bytes_of_strip(kernel->sizes),
                              kernel->sizes.most_strips);
    if (has_room_for_both_ends(need, 2, most, device)) return helped;
  }
  return key;
}

// The kernel for bands and penalties that sweeps from both ends, if the device holds its strips; else `key`.
// There is one for 1 feature and one for 2 to 4, as the time of few pairs is that of a chain of cells, and
// gradients always have two helpers.
KernelKey with_both_ends(const KernelKey& key, const Need& need, DeviceTraits device) {
  if (!may_meet(need) || !has_room_for_both_ends(need, 2, cuda_tuning(device).meeting_strips, device)) {
    return key;
  }
  KernelKey meeting = key;
  meeting.meets = true;
  meeting.features = need.dim == 1 ? 1 : kMostFewFeatures;
  meeting = with_helpers(meeting, need, device);
  return kernel_of(meeting) ? meeting : key;
}

// Some crews for few strips exist only in kernels whose sweeps may start from both ends. Such a kernel also
// sweeps from one end, with results that are bitwise identical to those of a kernel that supports nothing
// else.
const SweepKernel* kernel_or_meeting_one(KernelKey key) {
  if (const SweepKernel* const kernel = kernel_of(key)) return kernel;
  key.meets = true;
  return kernel_of(key);
}

Sweeps sweeps_of(const Need& need) { return need.gradient ? Sweeps::kBoth : Sweeps::kForward; }

KernelKey few_features_key(const Need& need, DeviceTraits device) {
  KernelKey key{Arithmetic::kFloat32,
                CostSource::kFewFeatures,
                need.options,
                sweeps_of(need),
                CrewKind::kNone,
                false,
                2,
                need.dim <= 2 ? need.dim : kMostFewFeatures};
  if (need.options == Options::kPaths) return with_both_ends(key, need, device);
  if (need.options == Options::kAll) {
    key.columns_per_lane = 1;
    key.sweeps = Sweeps::kAsAsked;
    return key;
  }
  // Wide lanes do more work per instruction of overhead, narrow ones finish a single pair sooner, above all
  // where sweeps meet.
  const bool meets =
      may_meet(need) && has_room_for_both_ends(need, 2, cuda_tuning(device).meeting_strips, device);
  const double warps_of_two = static_cast<double>(need.batch) * strips_of(need.m, 2);
  const bool fills_device =
      warps_of_two >= double(cuda_tuning(device).wide_lanes_warps) * device.multiprocessors;
  const bool is_wide = need.m > 64 && !need.gradient && fills_device && !meets;
  key.columns_per_lane = need.m <= 32 ? 1 : is_wide ? 4 : 2;
  if (key.columns_per_lane != 2 || !meets) return key;
  key.meets = true;
  return with_helpers(key, need, device);
}

KernelKey panel_key(const Need& need, DeviceTraits device) {
  const KernelKey key{
      Arithmetic::kFloat32, CostSource::kPanel, need.options, sweeps_of(need), CrewKind::kNone, false, 2, 0};
  if (!need.may_sweep_from_both_ends() || need.batch_invariant || need.n < kShortestMeeting ||
      !has_room_for_both_ends(need, 2, cuda_tuning(device).meeting_strips, device)) {
    return key;
  }
  KernelKey meeting = key;
  meeting.meets = true;
  return with_helpers(meeting, need, device);
}

// A strip with more warps, or registers, is faster. Few strips get them, and strips of many features. Results
// are bitwise identical, except for sums over columns in grad_x.
KernelKey tiles_key(const Need& need, DeviceTraits device) {
  KernelKey key{
      Arithmetic::kFloat32, CostSource::kTiles, need.options, sweeps_of(need), CrewKind::kSmall, false, 1, 0};
  if (need.options == Options::kPaths) return key;
  if (need.options == Options::kAll) {
    key.crew = CrewKind::kFrugal;
    return key;
  }
  const double strips = static_cast<double>(need.batch) * strips_of(need.m, 1) / device.multiprocessors;
  const CudaTuning tuning = cuda_tuning(device);
  const int meeting = need.gradient ? tuning.meeting_large_crew_strips : tuning.meeting_small_crew_strips;
  KernelKey sooner = key;
  sooner.crew = need.gradient ? CrewKind::kLarge : CrewKind::kForwardTwo;
  sooner.meets = may_meet(need) && has_room_for_both_ends(need, 1, meeting, device);
  const bool is_better = strips <= tuning.large_crew_strips && !(need.gradient && need.batch_invariant);
  if (!is_better) return key;
  const SweepKernel* const kernel = kernel_or_meeting_one(sooner);
  const bool fits = kernel && shared_bytes_of_strip(kernel->sizes) <= device.shared_bytes_per_block;
  return fits ? sooner : key;
}

KernelKey key_for(const Need& need, DeviceTraits device) {
  if (need.arithmetic != Arithmetic::kFloat32) {  // with all options
    const bool is_dual = need.arithmetic == Arithmetic::kDual;
    const Sweeps sweeps = is_dual ? Sweeps::kAsAsked : sweeps_of(need);
    return {need.arithmetic, CostSource::kTiles, Options::kAll, sweeps, CrewKind::kFrugal, false, 1, 0};
  }
  if (need.in_panel) return panel_key(need, device);
  const bool in_tiles =
      need.way ? source_of(*need.way) == CostSource::kTiles : need.holds_cells || need.dim > kMostFewFeatures;
  return in_tiles ? tiles_key(need, device) : few_features_key(need, device);
}

Selection laid_out(const KernelKey& key, const Need& need, bool rerun, std::size_t scratch_limit,
                   DeviceTraits device) {
  const SweepKernel* const kernel = kernel_or_meeting_one(key);
  if (!kernel) return {};
  const LayoutRequest request{need.batch, need.n,        need.m,
                              need.dim,   need.gradient, key.meets,
                              rerun,      scratch_limit, cuda_tuning(device).fewest_panel_strips};
  return {kernel, layout_for(kernel->sizes, request, device)};
}

}  // namespace

Selection select(const Need& need, DeviceTraits device) {
  return laid_out(key_for(need, device), need, false, 0, device);
}

Selection select_rerun(const Need& need, std::size_t scratch_limit, DeviceTraits device) {
  Need in_float64 = need;
  in_float64.arithmetic = Arithmetic::kFloat64;
  in_float64.in_panel = false;
  return laid_out(key_for(in_float64, device), in_float64, true, scratch_limit, device);
}

}  // namespace warpalign::detail::soft_dtw
