// The LSTM's steps of float32 by one product of TF32 for each of float32.
#include "recurrent/cuda/tiled_steps.cuh"

namespace warpalign::detail::recurrent {

template const Tf32UnitStep& unit_step<1, CellTask<float>, float>(bool is_wide);
template const Tf32UnitStep& unit_step<1, RawTask<float>, float>(bool is_wide);
template const Tf32UnitStep& unit_step<1, ProjectTask<float>, float>(bool is_wide);
template const Tf32UnitStep& unit_step<1, CarryTask<float>, float>(bool is_wide);
template const Tf32UnitStep& unit_step<1, PullTask<float>, float>(bool is_wide);
template void sweep_by_tiles<1>(Queue& queue, const LstmProblem& p, StepParams<float>& params, Places places);

}  // namespace warpalign::detail::recurrent
