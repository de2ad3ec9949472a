// The fused joint's kernels on a GPU, each timed alone: a training step is captured into a CUDA graph, and
// the launches of one kernel are replayed without the others.
//
//   transducer_cuda_joint [--quick]    --quick: one shape
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "core/half.h"
#include "harness/cuda_timing.h"
#include "warpalign/transducer_joint.h"

namespace {

using namespace warpalign;             // NOLINT: a program
using namespace warpalign::benchmark;  // NOLINT: what all of them share
using warpalign::detail::BFloat16;
using warpalign::detail::Float16;

struct Shape {
  DType dtype;
  int batch, frames, states, labels, hidden;
  bool big_blanks = false;  // of 2, 4 and 8 frames
};

// N(0, scale) values.
Memory normal(std::size_t count, float scale, DType dtype, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(0, scale);
  std::vector<unsigned char> host(count * size_of(dtype));
  for (std::size_t n = 0; n < count; ++n) {
    const float v = distribution(random);
    const auto put = [&](auto element) {
      std::memcpy(&host[n * sizeof(element)], &element, sizeof(element));
    };
    if (dtype == DType::kFloat32) put(v);
    if (dtype == DType::kFloat16) put(Float16::rounded(v));
    if (dtype == DType::kBFloat16) put(BFloat16::rounded(v));
  }
  return Memory(host);
}

// Prints the time of each kind of kernel in a step, captured as a graph.
void print_parts(cudaGraph_t step, cudaStream_t stream, int repeats) {
  // Parts of the kernels' names in the machine code.
  const struct {
    const char *label, *name;
  } parts[] = {{"hidden", "joint_hidden"},
               {"logits", "joint_logits"},
               {"weights", "joint_weights"},
               {"gradient", "joint_gradient"},
               {"outer", "joint_outer"},
               {"back", "joint_back"},
               {"add", "joint_add"},
               {"hidden", "wide_hidden"},
               {"logits", "wide_logits_kernelINS0_8BFloat16ELb0"},
               {"weights", "wide_weights"},
               {"gradient", "wide_logits_kernelINS0_8BFloat16ELb1"},
               {"outer", "wide_outer"},
               {"back", "wide_back"},
               {"add", "wide_add"},
               {"lattice", "lattice"}};
  for (const auto& part : parts) {
    const GraphPart alone = part_of(step, part.name, false);
    if (alone.kernels > 0) {
      std::printf(" | %s %.3f (%d)", part.label, median_ms(alone.graph, stream, repeats), alone.kernels);
    }
  }
}

void measure(const Shape& shape, cudaStream_t stream) {
  const Execution cuda = Execution::cuda(0, stream);
  const std::int64_t b = shape.batch, t = shape.frames, u = shape.states, h = shape.hidden, v = shape.labels;
  const float scale = 1 / std::sqrt(static_cast<float>(h));
  const Memory encoder = normal(b * t * h, 1, shape.dtype, 1),
               predictor = normal(b * u * h, 1, shape.dtype, 2),
               weight = normal(v * h, scale, shape.dtype, 3), bias = normal(v, 1, shape.dtype, 4);
  std::vector<int> targets;
  std::mt19937 random(5);
  const int blanks = shape.big_blanks ? 4 : 1;  // the last columns
  for (int n = 0; n < b * (u - 1); ++n) targets.push_back(static_cast<int>(random() % (v - blanks)));
  const Memory labels(targets), loss(b * 8), one(std::vector<float>{1});
  const std::size_t size = size_of(shape.dtype);
  const Memory to_encoder(b * t * h * size), to_predictor(b * u * h * size), to_weight(v * h * size),
      to_bias(v * size);
  TransducerJointProblem p;
  p.dtype = shape.dtype;
  p.hidden = shape.hidden;
  p.labels = shape.labels;
  p.encoder = {encoder.as(), {t * h, h, 1}};
  p.predictor = {predictor.as(), {u * h, h, 1}};
  p.weight = weight.as();
  p.bias = bias.as();
  p.lattice.batch = shape.batch;
  p.lattice.frames = shape.frames;
  p.lattice.states = shape.states;
  p.lattice.targets = labels.as<int>();
  p.lattice.target_stride = u - 1;
  p.lattice.blank = shape.labels - 1;
  for (int i = 0; i + 1 < blanks; ++i, ++p.lattice.durations) {
    p.lattice.duration[i] = 2 << i;
    p.lattice.big_blank_column[i] = p.lattice.blank - 1 - i;
    p.lattice.sigma = 0.05;
  }
  const std::size_t saved_bytes = transducer_joint_saved_bytes(p, cuda);
  const Memory saved(saved_bytes);
  const TransducerOutputs out{loss.as(), saved.as()};
  const TransducerJointGradient g{saved.as(),        one.as(),       0,           to_encoder.as(),
                                  to_predictor.as(), to_weight.as(), to_bias.as()};
  const std::size_t first = transducer_joint_workspace_bytes(p, out, cuda),
                    second = transducer_joint_gradient_workspace_bytes(p, g, cuda);
  // Parts of one call leave the other's memory alone.
  const Memory first_workspace(first), second_workspace(second);
  const auto call = [&](bool forward, bool backward) {
    return capture(stream, [&] {
      if (forward) expect(transducer_joint(p, out, {first_workspace.as(), first}, cuda), "joint");
      if (backward)
        expect(transducer_joint_gradient(p, g, {second_workspace.as(), second}, cuda), "gradient");
    });
  };
  constexpr int kRepeats = 5;
  const double forward = median_ms(call(true, false), stream, kRepeats);
  // The last whole step leaves in the workspace what parts of it need.
  const cudaGraph_t step = call(true, true);
  const double all = median_ms(step, stream, kRepeats);
  std::printf("%-4s %3d x %4d x %4d x %5d, H %4d%s | step %7.3f = first call %7.3f + second %7.3f",
              name_of(shape.dtype), shape.batch, shape.frames, shape.states, shape.labels, shape.hidden,
              shape.big_blanks ? ", big blanks" : "", all, forward, all - forward);
  print_parts(step, stream, kRepeats);
  int live = 0;
  expect(cudaMemcpy(&live, second_workspace.as(), sizeof(live), cudaMemcpyDeviceToHost), "copy");
  std::printf(" | live %.3f", live / static_cast<double>(b * t * u));
  std::printf(" | kept %.1f + %.1f MiB\n", static_cast<double>(saved_bytes) / (1 << 20),
              static_cast<double>(std::max(first, second)) / (1 << 20));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  cudaStream_t stream;
  expect(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  std::vector<Shape> shapes = {{DType::kBFloat16, 16, 400, 101, 1024, 640},
                               {DType::kBFloat16, 16, 400, 101, 1024, 640, true},
                               {DType::kFloat32, 4, 200, 51, 1024, 640}};
  if (quick) shapes.resize(1);
  for (const Shape& shape : shapes) measure(shape, stream);
  return 0;
}
