// The entry points of the paths of warpalign/ctc_head.h. api_head.cpp has checked the arguments. B and T are
// at least 1.
#pragma once

#include "warpalign/ctc_head.h"

namespace warpalign::detail::ctc {

void head_labels_cpu(const CtcProblem&, const CtcHeadLabels&);
Status head_emissions_cpu(const CtcProblem&, const CtcHeadRows&, const CtcHeadEmissions&, const Execution&);
std::size_t head_gradient_workspace_bytes_cpu(const CtcProblem&, const Execution&);
Status head_gradient_cpu(const CtcProblem&, const CtcHeadRows&, const CtcHeadGradient&, Workspace,
                         const Execution&);

Status head_labels_cuda(const CtcProblem&, const CtcHeadLabels&, const Execution&);
Status head_emissions_cuda(const CtcProblem&, const CtcHeadRows&, const CtcHeadEmissions&, const Execution&);
std::size_t head_gradient_workspace_bytes_cuda(const CtcProblem&, const CtcHeadRows&, const Execution&);
Status head_gradient_cuda(const CtcProblem&, const CtcHeadRows&, const CtcHeadGradient&, Workspace,
                          const Execution&);

}  // namespace warpalign::detail::ctc
