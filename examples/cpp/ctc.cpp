// CTC from C++: losses and gradients of two utterances, the frames of their labels, and the labels that a
// beam search finds, on threads, in memory that the caller owns.
#include <warpalign/ctc.h>
#include <warpalign/ctc_decode.h>
#include <warpalign/thread_pool.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <vector>

// Memory at the alignment that a workspace on the host needs.
struct AlignedDelete {
  void operator()(std::byte* data) const { ::operator delete(data, kAlignment); }
  static constexpr std::align_val_t kAlignment{warpalign::workspace_alignment(warpalign::Device::kHost)};
};
using Scratch = std::unique_ptr<std::byte, AlignedDelete>;

Scratch scratch_of(std::size_t bytes) {
  return Scratch(static_cast<std::byte*>(::operator new(bytes, AlignedDelete::kAlignment)));
}

// Ends the program where a call was refused.
void expect(const warpalign::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", to_string(status).c_str());
  std::exit(EXIT_FAILURE);
}

// Prints the labels of the best prefix of each utterance, and its log-probability.
void decode(const warpalign::CtcProblem& problem, const warpalign::Execution& execution) {
  constexpr std::int32_t kBeams = 4;
  const std::size_t utterances = problem.batch, frames = problem.frames;
  std::vector<warpalign::CtcHypothesis> prefixes(utterances * kBeams);
  std::vector<warpalign::CtcNode> nodes(utterances * frames * kBeams);
  warpalign::CtcBeam beam;
  beam.beams = kBeams;
  beam.threshold = std::numeric_limits<double>::infinity();
  beam.nodes = nodes.data();
  beam.capacity = problem.frames;  // room for so many frames; a stream needs room for all of its frames
  beam.after = prefixes.data();
  const std::size_t bytes = warpalign::ctc_beam_workspace_bytes(problem, beam, execution);
  const Scratch scratch = scratch_of(bytes);
  expect(warpalign::ctc_beam(problem, beam, {scratch.get(), bytes}, execution));

  std::vector<std::int64_t> tokens(utterances * frames), token_frames(tokens.size()), lengths(utterances);
  std::vector<double> scores(utterances);
  warpalign::CtcBeamLabels best;
  best.batch = problem.batch;
  best.beams = kBeams;
  best.hypotheses = prefixes.data();
  best.nodes = nodes.data();
  best.capacity = best.longest = problem.frames;
  best.tokens = tokens.data();
  best.token_frames = token_frames.data();
  best.lengths = lengths.data();
  best.scores = scores.data();
  expect(warpalign::ctc_beam_labels(best, execution));
  for (std::size_t b = 0; b < utterances; ++b) {
    std::printf("decoded, log-probability %.6f:", scores[b]);
    for (std::int64_t k = 0; k < lengths[b]; ++k) {
      std::printf(" %d at frame %d", static_cast<int>(tokens[b * frames + k]),
                  static_cast<int>(token_frames[b * frames + k]));
    }
    std::printf("\n");
  }
}

int main() {
  // Two utterances (B = 2) of at most four frames and two labels, three classes of which 0 is blank. All
  // logits are 0: every class has the probability 1/3.
  constexpr std::int32_t kUtterances = 2, kFrames = 4, kClasses = 3, kLabels = 2;
  const std::vector<float> logits(kUtterances * kFrames * kClasses);
  const std::vector<std::int64_t> targets = {1, 2, /**/ 1, -99}, frames = {4, 3}, labels = {2, 1};

  warpalign::CtcProblem problem;
  problem.batch = kUtterances;
  problem.frames = kFrames;
  problem.classes = kClasses;
  problem.labels = kLabels;
  problem.logits = warpalign::StridedTensorOf<3>::contiguous(logits.data(), {kUtterances, kFrames, kClasses});
  problem.targets = targets.data();  // int32 or int64
  problem.logit_lengths = frames.data();
  problem.target_lengths = labels.data();

  warpalign::ThreadPool pool;  // a thread per core; without a pool, the calling thread does everything
  const warpalign::Execution execution = warpalign::Execution::host(pool.parallel_for());

  // The first call: losses, and what the second one needs.
  std::vector<float> loss(kUtterances), gradient(logits.size());
  const Scratch saved = scratch_of(warpalign::ctc_saved_bytes(problem, execution));
  const warpalign::CtcOutputs outputs{loss.data(), saved.get()};
  std::size_t bytes = warpalign::ctc_loss_workspace_bytes(problem, outputs, execution);
  Scratch scratch = scratch_of(bytes);
  expect(warpalign::ctc_loss(problem, outputs, {scratch.get(), bytes}, execution));

  // The second call: the gradient of the sum of both losses. It could take the logits' memory.
  warpalign::CtcGradient wanted;
  wanted.saved = saved.get();
  wanted.logits = gradient.data();
  for (int axis = 0; axis < 3; ++axis) wanted.logits_stride[axis] = problem.logits.stride[axis];
  bytes = warpalign::ctc_gradient_workspace_bytes(problem, wanted, execution);
  scratch = scratch_of(bytes);
  expect(warpalign::ctc_gradient(problem, wanted, {scratch.get(), bytes}, execution));

  std::vector<std::int32_t> spans(2 * kUtterances * kLabels);
  warpalign::CtcAlignment alignment;  // what stays null is not written
  alignment.spans = spans.data();
  bytes = warpalign::ctc_align_workspace_bytes(problem, alignment, execution);
  scratch = scratch_of(bytes);
  expect(warpalign::ctc_align(problem, alignment, {scratch.get(), bytes}, execution));

  for (int b = 0; b < kUtterances; ++b) {
    std::printf("loss %.6f, gradient of class 1 at the first frame %.6f\n", loss[b],
                gradient[b * kFrames * kClasses + 1]);
    for (int k = 0; k < labels[b]; ++k) {
      const std::int32_t* const span = &spans[2 * (b * kLabels + k)];
      std::printf("  label %d: frames %d to %d\n", static_cast<int>(targets[b * kLabels + k]), span[0],
                  span[1]);
    }
  }
  decode(problem, execution);
  return EXIT_SUCCESS;
}
