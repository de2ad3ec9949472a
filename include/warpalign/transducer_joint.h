// Transducer losses of a joint network's logits, which are never in memory as a whole.
//
// Utterance b has encoder rows e[t,j], 0 <= t < T, predictor rows g[u,j], 0 <= u <= U, 0 <= j < H. All
// utterances share weights w[k,j] and a bias c[k]. TDT has D columns of durations after the V columns of
// labels.
//
//   h[t,u,j] = act(e[t,j] + g[u,j]) m[t,u,j] / (1 - p),   m = 1 without dropout
//   x[t,u,k] = c[k] + sum_j h[t,u,j] w[k,j],        0 <= k < V
//   z[t,u,d] = c[V+d] + sum_j h[t,u,j] w[V+d,j],    0 <= d < D
//
// Losses and their gradients with respect to x and z are those of warpalign/transducer.h, including penalties
// and clamp. With G = d loss / d (x, z), V + D columns:
//
//   dh[t,u,j] = act'(e[t,j] + g[u,j]) m[t,u,j] / (1 - p) sum_k G[t,u,k] w[k,j]
//   d loss / d e[t,j] = sum_u dh[t,u,j],   d loss / d g[u,j] = sum_t dh[t,u,j]
//   d loss / d w[k,j] = sum over b, t, u of G[t,u,k] h[t,u,j]
//   d loss / d c[k] = sum over b, t, u of G[t,u,k]
//
// Dropout's mask m[t,u,j] of utterance b is 0 where word j % 4 of Philox4x32-10 is below p 2^32: counter
// (t, b, j / 4, u), the seed as key. So both calls and every device have the same mask.
//
// Pruned losses: with a band, paths only go through nodes (t, u) with band[t] <= u < band[t] + s. Other nodes
// have no arcs, and their logits are not computed: B T s nodes in place of B T (U+1).
//
// Rows of G whose S is below 2^-40 (float64: is 0) are taken as 0, and their logits are not computed again.
//
// Source: Graves, Mohamed and Hinton, "Speech recognition with deep recurrent neural networks", 2013, section
// 3.2, for the joint network; Kuang et al., "Pruned RNN-T for fast, memory-efficient ASR training", arXiv
// 2206.13236, section 3, for the band.
#pragma once

#include <cstddef>
#include <cstdint>

#include "warpalign/activation.h"
#include "warpalign/transducer.h"

namespace warpalign {

// Pointers live on the execution's device, aligned to the size of their elements.
struct TransducerJointProblem {
  // The type of encoder, predictor, weight, bias and their gradients. On the CPU half types are widened, and
  // everything is float32. On CUDA (compute capability 8.0 and later) matrix units multiply half types and
  // add in float32. h and the gradients by logits are rounded to the half type, as where they are in memory.
  // Logits are too, but for 8 labels or more on compute capability 9.0; there dh is rounded, one number a
  // node. Execution::precision decides how CUDA (compute capability 8.0 and later) multiplies float32: for
  // 8 labels or more on compute capability 9.0, h, W and G are then sums of three (kHighest) or two
  // bfloat16 numbers. On the CPU every precision is kHighest.
  DType dtype = DType::kFloat32;
  std::int32_t hidden = 1;  // H >= 1
  std::int32_t labels = 1;  // V >= 1
  // (B, T, H) and (B, U+1, H), with any strides >= 0 but the last, which is 1. Padding is never read.
  StridedTensor encoder;
  StridedTensor predictor;
  const void* weight = nullptr;  // (V + D, H), contiguous; D = 0 but for TDT
  const void* bias = nullptr;    // (V + D,), contiguous; null: 0
  Activation activation = Activation::kRelu;
  TransducerLattice lattice;  // T = lattice.frames, U + 1 = lattice.states
  // (B, T), contiguous: the first state of each frame's band. Null: all nodes. A value below 0, or above U +
  // 1 - band_states, counts as the nearest of them. Values of padded frames are ignored.
  const std::int32_t* band = nullptr;
  std::int32_t band_states = 0;  // s, 1 to U + 1, with a band
  // Dropout of h: the probability p that a number is dropped, 0 <= p < 1. seed: one number on the execution's
  // device, needed if p > 0; the same in both calls.
  double dropout = 0;
  const std::uint64_t* seed = nullptr;
  // The most bytes of workspace, at least 0: nodes go through it in chunks. A GPU's list of all nodes, 4
  // bytes each, is not included. A limit that is too small is raised to the least that works. Gradients with
  // respect to weight and bias are sums over chunks, so that their rounding depends on the limit.
  std::int64_t workspace_limit = std::int64_t{128} << 20;
};

// Bytes of TransducerOutputs::saved, as for transducer(); some 12 a node for plain RNN-T. On CUDA RNN-T with
// a band of at most 8 states saves these states alone, except in float64.
std::size_t transducer_joint_saved_bytes(const TransducerJointProblem& problem, const Execution& execution);

// An upper bound of transducer_joint_saved_bytes() on every device of a kind, a multiple of each device's
// workspace_alignment().
std::size_t transducer_joint_most_saved_bytes(const TransducerJointProblem& problem, Device device);

std::size_t transducer_joint_workspace_bytes(const TransducerJointProblem& problem,
                                             const TransducerOutputs& outputs, const Execution& execution);

// Computes losses, and the data for transducer_joint_gradient(). Outputs are as those of transducer(). CUDA
// execution returns unsupported for half types before compute capability 8.0, and for 2^31 nodes or more.
Status transducer_joint(const TransducerJointProblem& problem, const TransducerOutputs& outputs,
                        Workspace workspace, const Execution& execution);

// The arguments and outputs of the second call. Gradients are contiguous, of problem.dtype; each may be null.
// None may overlap anything else.
struct TransducerJointGradient {
  const void* saved = nullptr;  // as transducer_joint() left it, for the same problem on the same device
  // (B,), of the loss's dtype: the gradient by each loss. grad_loss_stride 0: one for all.
  const void* grad_loss = nullptr;
  std::int64_t grad_loss_stride = 1;
  void* encoder = nullptr;    // (B, T, H); 0 in padding
  void* predictor = nullptr;  // (B, U+1, H); 0 in padding, and in states that are in no frame's band
  void* weight = nullptr;     // (V + D, H)
  void* bias = nullptr;       // (V + D,)
};

std::size_t transducer_joint_gradient_workspace_bytes(const TransducerJointProblem& problem,
                                                      const TransducerJointGradient& gradient,
                                                      const Execution& execution);

// Gradients of sum_b grad_loss[b] loss[b]. An utterance whose loss is NaN makes its own gradients with
// respect to encoder and predictor NaN, and those with respect to weight and bias.
//
// Results are deterministic, and bitwise identical for any number of threads. Losses and gradients with
// respect to encoder and predictor do not depend on the rest of the batch.
Status transducer_joint_gradient(const TransducerJointProblem& problem,
                                 const TransducerJointGradient& gradient, Workspace workspace,
                                 const Execution& execution);

}  // namespace warpalign
