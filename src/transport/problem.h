// What the paths of one operator share: the entry points behind the public headers. Arguments have been
// checked by api_*.cpp; a path checks only what it alone can know.
#pragma once

#include "warpalign/sinkhorn.h"

namespace warpalign::detail::transport {

std::size_t sinkhorn_cpu_workspace_bytes(const SinkhornProblem&, const SinkhornOutputs&, const Execution&);
Status sinkhorn_cpu(const SinkhornProblem&, const SinkhornOutputs&, Workspace, const Execution&);
std::size_t sinkhorn_cuda_workspace_bytes(const SinkhornProblem&, const SinkhornOutputs&, const Execution&);
Status sinkhorn_cuda(const SinkhornProblem&, const SinkhornOutputs&, Workspace, const Execution&);

std::size_t sinkhorn_jvp_cpu_workspace_bytes(const SinkhornProblem&, const SinkhornTangents&,
                                             const SinkhornOutputs&, const Execution&);
Status sinkhorn_jvp_cpu(const SinkhornProblem&, const SinkhornTangents&, const SinkhornOutputs&, Workspace,
                        const Execution&);

}  // namespace warpalign::detail::transport
