// The entry points of the transducer's paths, one set per device. api.cpp has checked the arguments; a path
// checks only what depends on the device.
#pragma once

#include "warpalign/kernel_launches.h"
#include "warpalign/transducer.h"
#include "warpalign/transducer_align.h"
#include "warpalign/transducer_band.h"
#include "warpalign/transducer_joint.h"

namespace warpalign::detail::transducer {

std::size_t saved_bytes_cpu(const TransducerProblem&, const Execution&);
std::size_t workspace_bytes_cpu(const TransducerProblem&, const TransducerOutputs&, const Execution&);
Status forward_cpu(const TransducerProblem&, const TransducerOutputs&, Workspace, const Execution&);
std::size_t gradient_workspace_bytes_cpu(const TransducerProblem&, const TransducerGradient&,
                                         const Execution&);
Status gradient_cpu(const TransducerProblem&, const TransducerGradient&, Workspace, const Execution&);

std::size_t joint_saved_bytes_cpu(const TransducerJointProblem&, const Execution&);
std::size_t joint_workspace_bytes_cpu(const TransducerJointProblem&, const TransducerOutputs&,
                                      const Execution&);
Status joint_forward_cpu(const TransducerJointProblem&, const TransducerOutputs&, Workspace,
                         const Execution&);
std::size_t joint_gradient_workspace_bytes_cpu(const TransducerJointProblem&, const TransducerJointGradient&,
                                               const Execution&);
Status joint_gradient_cpu(const TransducerJointProblem&, const TransducerJointGradient&, Workspace,
                          const Execution&);

std::size_t saved_bytes_cuda(const TransducerProblem&, const Execution&);
std::size_t workspace_bytes_cuda(const TransducerProblem&, const TransducerOutputs&, const Execution&);
Status forward_cuda(const TransducerProblem&, const TransducerOutputs&, Workspace, const Execution&);
std::size_t gradient_workspace_bytes_cuda(const TransducerProblem&, const TransducerGradient&,
                                          const Execution&);
std::size_t joint_saved_bytes_cuda(const TransducerJointProblem&, const Execution&);
std::size_t joint_workspace_bytes_cuda(const TransducerJointProblem&, const TransducerOutputs&,
                                       const Execution&);
Status joint_forward_cuda(const TransducerJointProblem&, const TransducerOutputs&, Workspace,
                          const Execution&);
std::size_t joint_gradient_workspace_bytes_cuda(const TransducerJointProblem&, const TransducerJointGradient&,
                                                const Execution&);
Status joint_gradient_cuda(const TransducerJointProblem&, const TransducerJointGradient&, Workspace,
                           const Execution&);
Status gradient_cuda(const TransducerProblem&, const TransducerGradient&, Workspace, const Execution&);

std::size_t align_workspace_bytes_cpu(const TransducerProblem&, const TransducerAlignment&, const Execution&);
Status align_cpu(const TransducerProblem&, const TransducerAlignment&, Workspace, const Execution&);
std::size_t align_workspace_bytes_cuda(const TransducerProblem&, const TransducerAlignment&,
                                       const Execution&);
Status align_cuda(const TransducerProblem&, const TransducerAlignment&, Workspace, const Execution&);

void band_cpu(const TransducerBandProblem&);
std::size_t band_workspace_bytes_cuda(const TransducerBandProblem&);
Status band_cuda(const TransducerBandProblem&, Workspace, const Execution&);

// See transducer_way() and transducer_joint_way().
const char* way_cuda(int index);
const char* joint_way_cuda(int index);
// See transducer_kernel_launches().
bool kernel_launches_cuda(int index, KernelLaunches& out);

}  // namespace warpalign::detail::transducer
