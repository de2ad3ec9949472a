// The LSTM: a stack of recurrent layers in one or both directions, with soft or hard activations. Value and
// gradients.
//
// One layer and direction. W is (4H, I), R is (4H, P), b = b_ih + b_hh has 4H entries, all in gate order
// i, f, g, o. P is the projection, or H without one. Steps t = 0 ... L-1, and L-1 ... 0 in the reverse
// direction; L is the row's length. t-1 below stands for the step that came before in the direction's order.
//
//   z = W x[t] + R h[t-1] + b          i, f, o = s(z_i), s(z_f), s(z_o)          g = u(z_g)
//   c~ = f c[t-1] + i g                h~ = o u(c~), with a projection W_hr (o u(c~))
//   c[t] = c~                          h[t] = h~
//   soft: s = logistic function, u = tanh
//   hard: s(z) = min(1, max(0, slope z + offset)), u(z) = min(1, max(-1, z)). Their derivatives are slope and
//         1 strictly inside the rails, and 0 at the rails and beyond them.
//   zoneout: c[t] = m c[t-1] + (1 - m) c~, m ~ Bernoulli(p) in training and m = p in evaluation; h[t] the
//         same with a mask and a p of its own. h~ comes from c~. Nothing is divided by 1 - p.
//   layer norm: z = LN(W x; gamma_ih) + LN(R h; gamma_hh) + b over all 4H entries together,
//         h~ = o u(LN(c~; gamma_c, beta_c)), LN(v; gamma, beta) = gamma (v - mean) / sqrt(var + eps) + beta
//         with the biased variance. The carried c is not normalised.
//   dropout (training): the output of each layer but the last is multiplied by mask / (1 - p).
//   weight dropout (training): R is multiplied by mask / (1 - p), one mask for all steps and rows.
//
// Masks come from Philox4x32-10 with the seed as key. Counter: (t, b, unit / 4, layer 8 + direction 4 + kind)
// with kinds 0 zoneout of h, 1 zoneout of c, 3 dropout. For R: (row, 0, column / 4, the same with kind 2).
// Word unit mod 4 (column mod 4) decides: m is 1, or the entry is dropped, where word < p 2^32.
//
// Sources: Hochreiter and Schmidhuber, "Long short-term memory", 1997, with the forget gate of Gers et al.,
// 2000; projection: Sak et al., arXiv 1402.1128; zoneout: Krueger et al., arXiv 1606.01305; layer norm: Ba et
// al., arXiv 1607.06450; weight dropout: Merity et al., arXiv 1708.02182.
#pragma once

#include <cstddef>
#include <cstdint>

#include "warpalign/dtype.h"
#include "warpalign/execution.h"
#include "warpalign/status.h"
#include "warpalign/tensor.h"

namespace warpalign {

enum class LstmActivation : std::int32_t { kSoft = 0, kHard = 1 };

// One layer and direction, contiguous, of the problem's dtype. I is the problem's input for layer 0, else P
// times the number of directions.
struct LstmWeights {
  const void* ih = nullptr;  // (4H, I)
  const void* hh = nullptr;  // (4H, P)
  // (4H,) each; null: 0.
  const void* bias_ih = nullptr;
  const void* bias_hh = nullptr;
  const void* hr = nullptr;  // (P, H), with a projection
  // Layer norm: (4H,), (4H,), (H,), (H,).
  const void* ln_ih = nullptr;
  const void* ln_hh = nullptr;
  const void* ln_cell = nullptr;
  const void* ln_cell_bias = nullptr;
};

// CUDA streams that the caller lends: no two are equal, and none is the execution's own. Work there begins
// behind what the execution's stream has, and ends before what it is given after the call.
struct LstmStreams {
  void* const* streams = nullptr;  // `count` of cudaStream_t
  int count = 0;
  // `count` of Execution::matrix_product that enqueue on these streams; null: layers whose steps are such
  // products run in turn.
  const MatrixProduct* products = nullptr;
};

// Pointers live on the execution's device, but for `weights` itself, an array of the host's. Data is aligned
// to the size of its elements.
struct LstmProblem {
  // Half types have half operands, and float32 sums, gates and cells. h is rounded to dtype at each step. On
  // CUDA a step of float32 may be three products of TF32, whose errors are of float32's class. With
  // Precision::kMedium it may be one, but not with batch_invariant.
  DType dtype = DType::kFloat32;
  std::int32_t steps = 1;       // T >= 1
  std::int32_t batch = 0;       // B >= 0
  std::int32_t input = 1;       // I >= 1
  std::int32_t hidden = 1;      // H >= 1
  std::int32_t projection = 0;  // 0: none, else 1 <= P < H
  std::int32_t layers = 1;      // L >= 1
  bool bidirectional = false;   // D = 2 directions, else 1
  StridedTensor x;              // (T, B, I); packed: (N, I), with stride[1] from row to row; stride[0] unused
  const LstmWeights* weights =
      nullptr;  // L D of them: layer 0 forward, layer 0 reverse, layer 1 forward, ...
  // What lstm_pack() has made of these weights; null: each call makes it, or reads the weights as they are.
  // For calls of few steps. Not in training with weight dropout; lstm_backward() does not look at it.
  const void* packed_weights = nullptr;
  // CUDA only: layers of a stack run at once on them, where that is faster. One for each layer is enough.
  LstmStreams side_streams;
  // (L D, B, P) of dtype and (L D, B, H) of cell_dtype, contiguous; null: 0.
  const void* h0 = nullptr;
  const void* c0 = nullptr;
  DType cell_dtype =
      DType::kFloat32;  // of c0, c_n, c_all and their gradients: dtype, or float32 for half types
  // (B,), 0 to T each; null: all have T steps. A row of length 0 hands (h0, c0) on. Not with row_starts.
  // Host execution returns an error for any other length. CUDA execution clamps it.
  const std::int32_t* lengths = nullptr;
  // Packed: (T + 1,), rows row_starts[t] ... row_starts[t+1] - 1 of x are those of step t for b = 0, 1, ...
  // So row_starts[0] = 0, row_starts[T] = N, and no step has more rows than the one before, or than B.
  const std::int32_t* row_starts = nullptr;
  std::int64_t packed_rows = 0;  // N
  // (T, B), packed (N,): where not 0, the state before that step is (h0, c0) again, in either direction.
  const std::uint8_t* resets = nullptr;

  LstmActivation activation = LstmActivation::kSoft;
  double hard_slope = 0.125;  // > 0
  double hard_offset = 0.5;   // in (0, 1)
  bool layer_norm = false;
  double layer_norm_eps = 1e-5;  // > 0
  // Probabilities in [0, 1). Dropouts act in training alone.
  double dropout = 0.0;
  double weight_dropout = 0.0;
  double zoneout_hidden = 0.0;
  double zoneout_cell = 0.0;
  bool training = false;
  // The tape has no gates: the backward pass makes those of a quarter of the steps at a time again, or of all
  // steps with two directions, packed rows and resets. On CUDA they may differ from the forward pass' by the
  // rounding of a product.
  bool recompute = false;
  const std::uint64_t* seed = nullptr;  // one number; wanted in training if a probability is above 0
};

// Where results go. Contiguous; null: not wanted. Nothing may overlap, but without a tape h_n may be
// LstmProblem::h0, and c_n LstmProblem::c0: the state is then updated in place. A NaN in x, h0 or c0 stays in
// its row.
struct LstmOutputs {
  // (T, B, D P), packed (N, D P), of dtype: h of the last layer; 0 beyond a length. Wanted with a tape.
  void* y = nullptr;
  void* h_n = nullptr;    // (L D, B, P) of dtype: h after each row's last step
  void* c_n = nullptr;    // (L D, B, H) of cell_dtype
  void* h_all = nullptr;  // (L D, T, B, P), packed (L D, N, P), of dtype: h of all layers; 0 beyond a length
  void* c_all = nullptr;  // (L D, T, B, H), packed (L D, N, H), of cell_dtype
  // lstm_tape_bytes() bytes, aligned as a workspace is: what lstm_backward() needs beside y, in the device's
  // own layout.
  void* tape = nullptr;
};

// Bytes of LstmProblem::packed_weights. Depends on dtype, sizes and kinds alone.
std::size_t lstm_packed_bytes(const LstmProblem& problem, const Execution& execution);

// Writes problem.weights to `packed` in the device's own layout, lstm_packed_bytes() bytes, aligned as a
// workspace is. Reads dtype, sizes, kinds and weights of the problem.
Status lstm_pack(const LstmProblem& problem, void* packed, const Execution& execution);

// Bytes of LstmOutputs::tape. Depends on the problem's sizes and kinds alone, not on its pointers.
std::size_t lstm_tape_bytes(const LstmProblem& problem, const Execution& execution);

// Bytes of workspace of lstm(). Outputs matter by whether y, tape and c_all are null, and whether h_n is h0.
std::size_t lstm_workspace_bytes(const LstmProblem& problem, const LstmOutputs& outputs,
                                 const Execution& execution);

// Host execution: results are there on return. On any status but ok nothing has been written.
Status lstm(const LstmProblem& problem, const LstmOutputs& outputs, Workspace workspace,
            const Execution& execution);

// What lstm() has left for lstm_backward(), as it left it.
struct LstmKept {
  const void* tape = nullptr;
  const void* y = nullptr;
};

// The gradients by lstm()'s outputs, in their shapes and dtypes, contiguous; null: 0.
struct LstmIncoming {
  const void* y = nullptr;
  const void* h_n = nullptr;
  const void* c_n = nullptr;
  const void* h_all = nullptr;
  const void* c_all = nullptr;
};

// Where the gradients by one layer's and direction's weights go, in the weights' shapes and dtype; null: not
// wanted. The gradient by bias_ih is that by bias_hh.
struct LstmWeightGradients {
  void* ih = nullptr;
  void* hh = nullptr;
  void* bias = nullptr;  // (4H,)
  void* hr = nullptr;
  void* ln_ih = nullptr;
  void* ln_hh = nullptr;
  void* ln_cell = nullptr;
  void* ln_cell_bias = nullptr;
};

// Where gradients go. Contiguous; null: not wanted. Nothing may overlap.
struct LstmGradients {
  void* x = nullptr;                             // (T, B, I), packed (N, I), of dtype; 0 beyond a length
  void* h0 = nullptr;                            // (L D, B, P) of dtype
  void* c0 = nullptr;                            // (L D, B, H) of cell_dtype
  const LstmWeightGradients* weights = nullptr;  // L D of them, an array of the host's
  // CUDA only: lstm_backward()'s tape again, if no other call reads it after this one. Gradients then take
  // the place of what is used up, and the workspace is smaller.
  void* spent_tape = nullptr;
};

std::size_t lstm_backward_workspace_bytes(const LstmProblem& problem, const LstmGradients& gradients,
                                          const Execution& execution);

// kept: of the same problem on the same device. It is read only, so that it serves any number of calls,
// unless gradients.spent_tape says otherwise.
Status lstm_backward(const LstmProblem& problem, const LstmKept& kept, const LstmIncoming& incoming,
                     const LstmGradients& gradients, Workspace workspace, const Execution& execution);

}  // namespace warpalign
