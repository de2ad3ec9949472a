// Alignments of a batch, in Buffers, and what they are held to.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "testing.h"
#include "transducer/reference_align.h"
#include "warpalign/transducer_align.h"

namespace warpalign::test {

// One utterance's results. Posteriors are those of rows (t, u); of groups (big blanks or durations) row by
// row.
struct Alignment {
  double score;
  std::vector<std::int32_t> frames, durations, blanks;  // blanks: (T_b,)
  std::vector<double> blank, label;
  std::vector<std::vector<double>> groups;
};

struct AlignmentRun {
  Status status;
  std::vector<Alignment> all;
  bool padding_is_empty = true;
};

template <class Buffer>
AlignmentRun align_on(const TransducerBatch& batch, const Execution& execution, bool want_posteriors = true) {
  const BatchMemory<Buffer> memory(batch);
  const TransducerProblem& p = memory.problem;
  const bool wide = batch.dtype == DType::kFloat64, tdt = p.lattice.tdt;
  const std::size_t real = wide ? 8 : 4, cases = batch.cases.size(), rows = memory.map.rows();
  const std::size_t groups = p.lattice.durations, labels = memory.vectors.targets.size();
  const std::size_t blank_count = batch.packed ? rows : cases * batch.frames;
  const Buffer score(cases * real), frames(labels * 4), durations(labels * 4), blanks(blank_count * 4);
  const std::size_t posterior_bytes = want_posteriors ? rows * real : 0;
  const Buffer blank(posterior_bytes), label(posterior_bytes), grouped(groups * posterior_bytes);
  TransducerAlignment out;
  out.score = score.data();
  out.frames = static_cast<std::int32_t*>(frames.data());
  out.durations = static_cast<std::int32_t*>(durations.data());
  out.blanks = static_cast<std::int32_t*>(blanks.data());
  if (want_posteriors) {
    out.blank_posteriors = blank.data();
    out.label_posteriors = label.data();
    if (groups > 0) (tdt ? out.duration_posteriors : out.big_blank_posteriors) = grouped.data();
  }
  AlignmentRun run;
  {
    const std::size_t needed = transducer_align_workspace_bytes(p, out, execution);
    const Buffer workspace(needed);
    run.status = transducer_align(p, out, {workspace.data(), needed}, execution);
    if (!run.status.ok()) return run;
  }
  const auto reals = [&](const Buffer& buffer, std::size_t count) {
    if (wide) return buffer.template read<double>(count);
    const auto narrow = buffer.template read<float>(count);
    return std::vector<double>(narrow.begin(), narrow.end());
  };
  const auto scores = reals(score, cases);
  const auto all_frames = frames.template read<std::int32_t>(labels);
  const auto all_durations = durations.template read<std::int32_t>(labels);
  const auto all_blanks = blanks.template read<std::int32_t>(blank_count);
  const std::size_t count = want_posteriors ? rows : 0;
  const auto by_blank = reals(blank, count), by_label = reals(label, count),
             by_group = reals(grouped, groups * count);
  std::size_t flat = 0;
  for (std::size_t b = 0; b < cases; ++b) {
    const auto& one = batch.cases[b].problem;
    const int u_b = one.states() - 1;
    Alignment a{scores[b], {}, {}, std::vector<std::int32_t>(one.frames, -1), {}, {}, {}};
    a.groups.resize(count > 0 ? groups : 0);
    for (int u = 0; u < (batch.flat_targets ? u_b : batch.states - 1); ++u, ++flat) {
      if (u < u_b) {
        a.frames.push_back(all_frames[flat]);
        a.durations.push_back(all_durations[flat]);
      } else {
        run.padding_is_empty &= all_frames[flat] == -1 && all_durations[flat] == -1;
      }
    }
    for (int t = 0; t < (batch.packed ? one.frames : batch.frames); ++t) {
      if (!batch.packed) {
        const std::int32_t m = all_blanks[b * batch.frames + t];
        if (t < one.frames)
          a.blanks[t] = m;
        else
          run.padding_is_empty &= m == -1;
      }
      for (int u = 0; u < (batch.packed ? one.states() : batch.states); ++u) {
        const std::size_t row = memory.map.row(b, t, u);
        if (batch.packed && all_blanks[row] != -1) {
          EXPECT_EQ(a.blanks[t], -1) << "two blanks leave frame " << t;
          a.blanks[t] = all_blanks[row];
        }
        if (count == 0) continue;
        const bool exists = t < one.frames && u <= u_b;
        const auto keep = [&](std::vector<double>& to, double v) {
          if (exists)
            to.push_back(v);
          else
            run.padding_is_empty &= v == 0;
        };
        keep(a.blank, by_blank[row]);
        keep(a.label, by_label[row]);
        for (std::size_t k = 0; k < groups; ++k) keep(a.groups[k], by_group[k * rows + row]);
      }
    }
    run.all.push_back(std::move(a));
  }
  return run;
}

// Posteriors of the reference's arcs, in Alignment's form.
inline Alignment expected_posteriors(const reference::Transducer& p,
                                     const reference::TransducerResult& result) {
  const std::size_t nodes = result.arcs.size();
  Alignment a{0, {}, {}, {}, std::vector<double>(nodes), std::vector<double>(nodes), {}};
  a.groups.assign(p.durations.size(), std::vector<double>(nodes));
  for (std::size_t node = 0; node < nodes; ++node) {
    if (std::isnan(result.loss)) {
      a.blank[node] = a.label[node] = kNan;
      continue;
    }
    for (const auto& arc : result.arcs[node]) {
      std::size_t group = p.durations.size();
      for (std::size_t k = 0; k < p.durations.size(); ++k) {
        const bool big_blank = !p.tdt && !arc.is_label && arc.frames > 1 && arc.frames == p.durations[k];
        if (p.tdt ? arc.duration == static_cast<int>(k) : big_blank) group = k;
      }
      if (group < p.durations.size()) a.groups[group][node] += arc.posterior;
      if (p.tdt || group == p.durations.size()) (arc.is_label ? a.label : a.blank)[node] += arc.posterior;
    }
  }
  return a;
}

// The weight of an alignment's path, as the reference weighs its arcs; -inf: it is none.
inline double weigh_path(const reference::Transducer& p, const reference::TransducerResult& result,
                         const Alignment& a) {
  double sum = 0;
  int t = 0, u = 0;
  while (t < p.frames) {
    const bool is_label = u < p.states() - 1 && a.frames[u] == t;
    const int frames = is_label ? a.durations[u] : a.blanks[t];
    const reference::TransducerArc* found = nullptr;
    for (const auto& arc : result.arcs[t * p.states() + u]) {
      const bool fits = arc.is_label == is_label && arc.frames == frames;
      if (fits && (!found || arc.weight > found->weight)) found = &arc;
    }
    if (!found) return -kInf;
    sum += found->weight;
    t += frames;
    u += is_label;
  }
  return u == p.states() - 1 ? sum : -kInf;
}

// Holds a run to the float64 reference on the rounded logits.
//
// Score: 4 epsilon |score| + 2 (T + U) epsilon, as a loss, and (T + U) rounding errors of float64: a score is
// a sum of T + U numbers. The path must weigh as much, whichever it is. Posteriors: within 2e-5, and 1e-9 for
// float64.
inline void expect_aligned(const TransducerBatch& batch, const AlignmentRun& run) {
  ASSERT_TRUE(run.status.ok()) << run.status.argument << ": " << run.status.message << " "
                               << run.status.value;
  EXPECT_TRUE(run.padding_is_empty);
  const double epsilon = batch.dtype == DType::kFloat64 ? 2.3e-16 : 1.2e-7;
  const double limit = batch.dtype == DType::kFloat64 ? 1e-9 : 2e-5;
  for (std::size_t b = 0; b < batch.cases.size(); ++b) {
    SCOPED_TRACE("utterance " + std::to_string(b));
    const auto& one = batch.cases[b];
    const auto result = reference::transducer(one.problem, one.logits(), one.duration_logits());
    const auto best = reference::best_path(one.problem, result);
    const Alignment& a = run.all[b];
    if (std::isnan(best.score)) {
      EXPECT_TRUE(std::isnan(a.score));
    } else if (std::isinf(best.score)) {
      EXPECT_EQ(a.score, best.score);
    } else {
      const double steps = one.problem.frames + one.problem.states();
      const double tolerance = (4 * epsilon + 2.3e-16 * steps) * std::abs(best.score) + 2 * steps * epsilon;
      EXPECT_NEAR(a.score, best.score, tolerance);
      EXPECT_NEAR(weigh_path(one.problem, result, a), best.score, tolerance);
    }
    if (!std::isfinite(best.score)) {
      EXPECT_EQ(a.frames, best.frames);
      EXPECT_EQ(a.durations, best.durations);
      EXPECT_EQ(a.blanks, best.blanks);
    }
    if (a.blank.empty()) continue;
    const Alignment expected = expected_posteriors(one.problem, result);
    const auto compare = [&](const std::vector<double>& got, const std::vector<double>& wanted,
                             const char* name) {
      ASSERT_EQ(got.size(), wanted.size()) << name;
      for (std::size_t n = 0; n < wanted.size(); ++n) {
        if (std::isnan(wanted[n])) {
          ASSERT_TRUE(std::isnan(got[n])) << name << n;
        } else {
          ASSERT_NEAR(got[n], wanted[n], limit) << name << n;
        }
      }
    };
    compare(a.blank, expected.blank, "blank ");
    compare(a.label, expected.label, "label ");
    if (std::isnan(result.loss)) continue;
    for (std::size_t k = 0; k < a.groups.size(); ++k) compare(a.groups[k], expected.groups[k], "group ");
  }
}

}  // namespace warpalign::test
