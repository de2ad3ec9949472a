// The transducer's CPU path: rows of logits become arc weights, a lattice per utterance turns those into
// posteriors, and posteriors become gradients. Threads share rows, then utterances.
#define WARPALIGN_SIMD_NAMESPACE warpalign::detail::transducer::host
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/arena.h"
#include "core/visit_dtype.h"
#include "cpu/dispatch.h"
#include "cpu/simd.h"
#include "transducer/arcs.h"
#include "transducer/cpu_diagonals.inl"
#include "transducer/cpu_kernel.h"
#include "transducer/problem.h"

namespace warpalign::detail::transducer {
namespace {

using host::Diagonals;

constexpr double kLog2E = 1.4426950408889634074;
constexpr double kLn2 = 0.69314718055994530942;
// Elements of logits that a worker takes at a time: large against its bookkeeping, small against a batch.
constexpr std::int64_t kChunk = 1 << 16;
// A row whose S is below this has no entry above 2^-40 G: it is written as 0.
constexpr double kDeadRow = 0x1p-40;

const CpuKernels& kernels() {
  return cpu::with_selected_isa([](auto isa) -> const CpuKernels& { return kernels_for(isa); });
}

// How the elements of type T are computed with.
template <class T>
struct Arithmetic {
  using Real = float;
  static const CpuRowKernels<float>& rows(const CpuKernels& k) {
    if constexpr (std::is_same_v<T, Float16>) return k.rows16;
    if constexpr (std::is_same_v<T, BFloat16>) return k.rows_b16;
    return k.rows32;
  }
  static const CpuLatticeKernels<float>& lattice(const CpuKernels& k) { return k.lattice32; }
};
template <>
struct Arithmetic<double> {
  using Real = double;
  static const CpuRowKernels<double>& rows(const CpuKernels& k) { return k.rows64; }
  static const CpuLatticeKernels<double>& lattice(const CpuKernels& k) { return k.lattice64; }
};

std::size_t real_size(DType dtype) { return dtype == DType::kFloat64 ? sizeof(double) : sizeof(float); }

std::int64_t nodes_at_most(const TransducerProblem& p) {
  const TransducerLattice& l = p.lattice;
  return p.packed ? p.packed_rows : static_cast<std::int64_t>(l.batch) * l.frames * l.states;
}

std::size_t saved_elements(const TransducerProblem& p) {
  return static_cast<std::size_t>(nodes_at_most(p)) * (1 + slots_of(p.lattice)) +
         static_cast<std::size_t>(p.lattice.batch) * 2 * kCpuPad;
}

// One utterance's sizes and places.
struct Utterance {
  std::int32_t index;
  std::int32_t frames;  // T_b
  std::int32_t labels;  // U_b
  std::int64_t nodes;
  std::int64_t first_row;    // packed
  std::int64_t saved_begin;  // elements
  const std::int32_t* targets;
  bool without_durations;

  [[nodiscard]] std::int32_t states() const { return labels + 1; }
  // y_u, -1 for u = 0.
  [[nodiscard]] std::int32_t label_before(std::int32_t u) const { return u > 0 ? targets[u - 1] : -1; }
};

// The batch's utterances, from lengths on the host.
class Batch {
 public:
  // Two numbers an utterance.
  static std::size_t elements(const TransducerProblem& p) {
    return 2 * static_cast<std::size_t>(p.lattice.batch);
  }

  Batch(const TransducerProblem& p, std::int64_t* memory)
      : p_(p), first_node_(memory), first_target_(memory + p.lattice.batch) {
    std::int64_t nodes = 0, targets = 0;
    for (int b = 0; b < p.lattice.batch; ++b) {
      first_node_[b] = nodes;
      first_target_[b] = p.lattice.flat_targets ? targets : b * p.lattice.target_stride;
      nodes += static_cast<std::int64_t>(frames_of(b)) * (labels_of(b) + 1);
      targets += labels_of(b);
      longest_ = std::max(longest_, frames_of(b));
      most_states_ = std::max(most_states_, labels_of(b) + 1);
      shorter_ = std::max(shorter_, std::min(frames_of(b), labels_of(b) + 1));
    }
  }

  [[nodiscard]] Utterance operator[](int b) const {
    const std::int64_t nodes = static_cast<std::int64_t>(frames_of(b)) * (labels_of(b) + 1);
    const TransducerLattice& l = p_.lattice;
    return {b,
            frames_of(b),
            labels_of(b),
            nodes,
            first_node_[b],
            first_node_[b] * (1 + slots_of(l)) + std::int64_t{2} * kCpuPad * b,
            l.targets + first_target_[b],
            l.tdt && l.without_durations && l.without_durations[b] != 0};
  }
  [[nodiscard]] std::int32_t longest() const { return longest_; }
  [[nodiscard]] std::int32_t most_states() const { return most_states_; }

 private:
  [[nodiscard]] std::int32_t frames_of(int b) const {
    return p_.lattice.logit_lengths ? p_.lattice.logit_lengths[b] : p_.lattice.frames;
  }
  [[nodiscard]] std::int32_t labels_of(int b) const {
    return p_.lattice.target_lengths ? p_.lattice.target_lengths[b] : p_.lattice.states - 1;
  }

  const TransducerProblem& p_;
  std::int64_t* const first_node_;
  std::int64_t* const first_target_;
  std::int32_t longest_ = 0;
  std::int32_t most_states_ = 1;
  std::int32_t shorter_ = 1;
};

// An utterance's part of saved memory: lse in rows' order, then each slot's array in the lattice's order.
template <class Real>
struct Saved {
  Real* lse;
  Real* slots;
  std::int64_t stride;

  Saved(void* saved, const Utterance& u)
      : lse(static_cast<Real*>(saved) + u.saved_begin), slots(lse + u.nodes + kCpuPad), stride(u.nodes) {}
};

// Arcs of an utterance.
struct Family {
  ArcTable table;
  Penalties<double> penalties;

  Family(const TransducerLattice& l, const Utterance& u)
      : table(u.without_durations ? plain_arc_table(l) : arc_table(l)),
        penalties(penalties_of<double>(l, std::log(l.star_penalty), u.without_durations)) {}

  [[nodiscard]] ArcTerm<double> term(const Utterance& utterance, std::int32_t slot, std::int32_t t,
                                     std::int32_t u) const {
    if (!table.is_label(slot)) return blank_term(penalties, utterance.label_before(u));
    return label_term(penalties, t, utterance.frames, utterance.targets[u]);
  }
};

// Row (t, u) of logits, or of their gradient.
template <class T>
T* row_at(void* data, const std::int64_t* stride, bool packed, const Utterance& utterance, std::int32_t t,
          std::int32_t u) {
  if (packed) {
    return static_cast<T*>(data) +
           (utterance.first_row + static_cast<std::int64_t>(t) * utterance.states() + u) * stride[2];
  }
  return static_cast<T*>(data) + utterance.index * stride[0] + t * stride[1] + u * stride[2];
}
template <class T>
const T* row_at(const StridedTensorOf<4>& tensor, bool packed, const Utterance& utterance, std::int32_t t,
                std::int32_t u) {
  return row_at<const T>(const_cast<void*>(tensor.data), tensor.stride, packed, utterance, t, u);
}

// Runs body(worker) for every worker.
template <class Body>
void run_workers(const Execution& execution, int workers, Body&& body) {
  if (workers == 1) return body(0);
  const auto task = [](void* state, int worker) {
    (*static_cast<std::remove_reference_t<Body>*>(state))(worker);
  };
  execution.parallel_for.run(execution.parallel_for.context, workers, task, &body);
}

int threads_of(const Execution& execution) {
  return execution.parallel_for.run ? std::max(execution.parallel_for.threads, 1) : 1;
}

// Calls body(utterance, first frame, last frame + 1) for all frames of the batch, by all threads.
template <class Body>
void for_frames(const TransducerProblem& p, const Batch& batch, bool with_padding, const Execution& execution,
                Body&& body) {
  const std::int64_t frames = with_padding && !p.packed ? p.lattice.frames : batch.longest();
  const std::int64_t states = p.packed ? batch.most_states() : p.lattice.states;
  const std::int64_t chunk =
      std::clamp<std::int64_t>(kChunk / (states * p.labels), 1, std::max<std::int64_t>(frames, 1));
  const std::int64_t chunks = (frames + chunk - 1) / chunk;
  const std::int64_t all = chunks * p.lattice.batch;
  if (all == 0) return;
  std::atomic<std::int64_t> next{0};
  run_workers(execution, static_cast<int>(std::min<std::int64_t>(threads_of(execution), all)), [&](int) {
    const host::FlushToZero flush;
    for (std::int64_t task = next++; task < all; task = next++) {
      const Utterance utterance = batch[static_cast<int>(task / chunks)];
      const std::int64_t begin = task % chunks * chunk;
      const std::int64_t end = std::min(begin + chunk, with_padding && !p.packed ? frames : utterance.frames);
      if (begin < end) body(utterance, static_cast<std::int32_t>(begin), static_cast<std::int32_t>(end));
    }
  });
}

// lse and arc weights of frames first .. last - 1. Returns whether a NaN or +inf is among them.
template <class T>
bool weigh_frames(const TransducerProblem& p, const Utterance& utterance, void* saved, std::int32_t first,
                  std::int32_t last) {
  using Real = typename Arithmetic<T>::Real;
  const CpuRowKernels<Real>& rows = Arithmetic<T>::rows(kernels());
  const Saved<Real> memory(saved, utterance);
  const Family family(p.lattice, utterance);
  const ArcTable& table = family.table;
  const Diagonals grid(utterance.frames, utterance.states());
  const bool timed = p.lattice.tdt && !utterance.without_durations;
  constexpr double kInf = std::numeric_limits<double>::infinity();
  bool is_nan = false;
  for (std::int32_t t = first; t < last; ++t) {
    for (std::int32_t u = 0; u <= utterance.labels; ++u) {
      const T* const x = row_at<T>(p.logits, p.packed, utterance, t, u);
      const T* const z = timed ? row_at<T>(p.duration_logits, p.packed, utterance, t, u) : nullptr;
      const double lse = p.log_probs ? 0 : rows.lse(x, p.labels);
      const double duration_lse = p.log_probs || !timed ? 0 : rows.lse(z, p.lattice.durations);
      is_nan |= std::isnan(lse) || std::isnan(duration_lse);
      memory.lse[static_cast<std::int64_t>(t) * utterance.states() + u] = static_cast<Real>(lse);
      // log-probability of a column; a row of -inf has no other.
      const auto score = [](const T* row, std::int32_t column, double sum) {
        // Arcs with a duration exist only where there are duration logits.
        // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage)
        return sum == -kInf ? -kInf : static_cast<double>(static_cast<Real>(row[column])) - sum;
      };
      Real* const place = memory.slots + grid.origin(t + u) + (grid.by_state ? u : t);
      for (std::int32_t slot = 0; slot < table.arcs(); ++slot) {
        double weight = 0;
        if (arc_end(table, slot, t, u, utterance.frames, utterance.labels).exists) {
          const ArcTerm<double> term = family.term(utterance, slot, t, u);
          weight = term.constant;
          if (term.scored) {
            weight += score(x, table.is_label(slot) ? utterance.targets[u] : table.column[slot], lse);
            if (table.duration[slot] >= 0) weight += score(z, table.duration[slot], duration_lse);
          }
          is_nan |= std::isnan(weight) || weight == kInf;
        }
        place[slot * memory.stride] = static_cast<Real>(weight * kLog2E);
      }
    }
  }
  return is_nan;
}

// One worker's rings.
struct Rings {
  std::int64_t stride;
  std::int32_t depth;

  explicit Rings(const TransducerProblem& p)
      : stride(std::min(p.lattice.frames, p.lattice.states) + std::int64_t{2} * kCpuPad),
        depth(std::max(arc_table(p.lattice).longest, 1) + 2) {}
  [[nodiscard]] std::size_t elements() const { return 2 * static_cast<std::size_t>(stride) * depth; }
};

// The value, and posteriors in place of the weights if they are wanted.
template <class Real>
double solve(const TransducerProblem& p, const Utterance& utterance, bool is_nan, void* saved,
             bool want_posteriors, const Rings& rings, double* ring_memory,
             const CpuLatticeKernels<Real>& lattice) {
  const Saved<Real> memory(saved, utterance);
  const Family family(p.lattice, utterance);
  const std::int32_t arcs = family.table.arcs();
  const auto fill = [&](Real value) { std::fill(memory.slots, memory.slots + arcs * memory.stride, value); };
  if (utterance.frames == 0) return std::numeric_limits<double>::infinity();
  if (is_nan) {
    fill(std::numeric_limits<Real>::quiet_NaN());
    return std::numeric_limits<double>::quiet_NaN();
  }
  std::fill(memory.slots - kCpuPad, memory.slots, Real(0));
  std::fill(memory.slots + arcs * memory.stride, memory.slots + arcs * memory.stride + kCpuPad, Real(0));
  const CpuLattice<Real> job{utterance.frames,
                             utterance.states(),
                             arcs,
                             family.table.blanks,
                             rings.depth,
                             family.table.frames,
                             memory.slots,
                             memory.stride,
                             ring_memory,
                             ring_memory + rings.stride * rings.depth,
                             rings.stride};
  const CpuOutcome outcome = lattice.forward(job, want_posteriors);
  if (!(outcome.exponent > kCpuNoPath)) {
    if (want_posteriors) fill(Real(0));
    return std::numeric_limits<double>::infinity();
  }
  if (want_posteriors) lattice.reverse(job, outcome);
  return -(outcome.exponent + std::log2(outcome.mantissa)) * kLn2;
}

struct ForwardMemory {
  std::int64_t* batch;
  std::int32_t* is_nan;
  double* rings;
  void* saved;  // where none is wanted

  ForwardMemory(const TransducerProblem& p, const TransducerOutputs& out, const Execution& execution,
                Arena& arena)
      : batch(arena.take<std::int64_t>(Batch::elements(p))),
        is_nan(arena.take<std::int32_t>(p.lattice.batch)),
        rings(arena.take<double>(Rings(p).elements() * workers(p, execution))),
        saved(arena.take<std::byte>(out.saved ? 0 : saved_elements(p) * real_size(p.dtype))) {}

  static int workers(const TransducerProblem& p, const Execution& execution) {
    return std::clamp(threads_of(execution), 1, std::max(p.lattice.batch, 1));
  }
};

template <class T>
void forward(const TransducerProblem& p, const TransducerOutputs& out, const ForwardMemory& memory,
             const Execution& execution) {
  using Real = typename Arithmetic<T>::Real;
  const Batch batch(p, memory.batch);
  void* const saved = out.saved ? out.saved : memory.saved;
  std::fill_n(memory.is_nan, p.lattice.batch, 0);
  for_frames(p, batch, false, execution,
             [&](const Utterance& utterance, std::int32_t first, std::int32_t last) {
               if (weigh_frames<T>(p, utterance, saved, first, last)) {
                 std::atomic_ref(memory.is_nan[utterance.index]).store(1, std::memory_order_relaxed);
               }
             });
  const Rings rings(p);
  std::atomic<int> next{0};
  run_workers(execution, ForwardMemory::workers(p, execution), [&](int worker) {
    const host::FlushToZero flush;
    double* const own = memory.rings + worker * rings.elements();
    for (int b = next++; b < p.lattice.batch; b = next++) {
      double loss = solve<Real>(p, batch[b], memory.is_nan[b] != 0, saved, out.saved != nullptr, rings, own,
                                Arithmetic<T>::lattice(kernels()));
      if (p.lattice.zero_infinity && loss == std::numeric_limits<double>::infinity()) loss = 0;
      static_cast<Real*>(out.loss)[b] = static_cast<Real>(loss);
    }
  });
}

// Gradients of one row, of label or of duration logits.
template <class T>
class RowGradient {
 public:
  using Real = typename Arithmetic<T>::Real;

  RowGradient(double upstream, double clamp, bool log_probs)
      : upstream_(upstream),
        clip_(clamp > 0 ? clamp : std::numeric_limits<double>::infinity()),
        log_probs_(log_probs) {}

  void clear() { columns_ = 0; }
  void add(std::int32_t column, double g) {
    for (int k = 0; k < columns_; ++k) {
      if (column_[k] == column) {
        g_[k] += g;
        return;
      }
    }
    column_[columns_] = column;
    g_[columns_++] = g;
  }
  void write(const T* x, T* out, std::int32_t columns, double lse, double scored) const {
    CpuRowGradient<Real> row{};
    row.lse = static_cast<Real>(lse);
    row.scored = static_cast<Real>(scored);
    row.upstream = static_cast<Real>(upstream_);
    row.clip = static_cast<Real>(clip_);
    row.log_probs = log_probs_;
    row.columns = columns_;
    for (int k = 0; k < columns_; ++k) {
      row.column[k] = column_[k];
      row.g[k] = static_cast<Real>(g_[k]);
    }
    Arithmetic<T>::rows(kernels()).gradient(x, out, columns, row);
  }

 private:
  double upstream_;
  double clip_;
  bool log_probs_;
  int columns_ = 0;
  std::int32_t column_[kCpuColumns] = {};
  double g_[kCpuColumns] = {};
};

template <class T>
void fill_row(T* row, std::int32_t columns, bool with_nan) {
  using Real = typename Arithmetic<T>::Real;
  if (!row) return;
  if (!with_nan) {
    std::memset(row, 0, static_cast<std::size_t>(columns) * sizeof(T));
  } else if constexpr (std::is_same_v<T, double>) {
    std::fill(row, row + columns, std::numeric_limits<double>::quiet_NaN());
  } else {
    std::fill(row, row + columns, rounded_to<T>(std::numeric_limits<Real>::quiet_NaN()));
  }
}

template <class T>
void write_gradients(const TransducerProblem& p, const TransducerGradient& gradient,
                     const Utterance& utterance, std::int32_t first, std::int32_t last) {
  using Real = typename Arithmetic<T>::Real;
  const TransducerLattice& l = p.lattice;
  const Saved<Real> memory(const_cast<void*>(gradient.saved), utterance);
  const Family family(l, utterance);
  const ArcTable& table = family.table;
  const Diagonals grid(std::max(utterance.frames, 1), utterance.states());
  const double upstream =
      static_cast<const Real*>(gradient.grad_loss)[utterance.index * gradient.grad_loss_stride];
  const bool timed = l.tdt && !utterance.without_durations;
  RowGradient<T> labels(upstream, l.clamp, p.log_probs), durations(upstream, 0, p.log_probs);
  const std::int32_t states = p.packed ? utterance.states() : l.states;
  for (std::int32_t t = first; t < last; ++t) {
    for (std::int32_t u = 0; u < states; ++u) {
      T* const out = row_at<T>(gradient.logits, gradient.logits_stride, p.packed, utterance, t, u);
      T* const duration_out = l.tdt ? row_at<T>(gradient.duration_logits, gradient.duration_logits_stride,
                                                p.packed, utterance, t, u)
                                    : nullptr;
      if (t >= utterance.frames || u > utterance.labels) {
        fill_row(out, p.labels, false);
        fill_row(duration_out, l.durations, false);
        continue;
      }
      const Real* const place = memory.slots + grid.origin(t + u) + (grid.by_state ? u : t);
      labels.clear();
      durations.clear();
      double scored = 0;
      for (std::int32_t slot = 0; slot < table.arcs(); ++slot) {
        const bool is_label = table.is_label(slot);
        if ((is_label && u == utterance.labels) || !family.term(utterance, slot, t, u).scored) continue;
        const double g = static_cast<double>(place[slot * memory.stride]) * (is_label ? 1 + l.fastemit : 1);
        scored += g;
        labels.add(is_label ? utterance.targets[u] : table.column[slot], g);
        if (timed) durations.add(table.duration[slot], g);
      }
      const bool is_nan = std::isnan(place[0]);
      const bool is_dead = std::is_same_v<T, double> ? scored == 0 : scored < kDeadRow;
      if (is_nan || is_dead) {
        fill_row(out, p.labels, is_nan);
        fill_row(duration_out, l.durations, is_nan);
        continue;
      }
      labels.write(row_at<T>(p.logits, p.packed, utterance, t, u), out, p.labels,
                   memory.lse[static_cast<std::int64_t>(t) * utterance.states() + u], scored);
      if (!timed) {
        fill_row(duration_out, l.durations, false);
        continue;
      }
      const T* const z = row_at<T>(p.duration_logits, p.packed, utterance, t, u);
      const double lse = p.log_probs ? 0 : Arithmetic<T>::rows(kernels()).lse(z, l.durations);
      durations.write(z, duration_out, l.durations, lse, scored);
    }
  }
}

}  // namespace

std::size_t saved_bytes_cpu(const TransducerProblem& p, const Execution& /*execution*/) {
  return saved_elements(p) * real_size(p.dtype);
}

std::size_t workspace_bytes_cpu(const TransducerProblem& p, const TransducerOutputs& out,
                                const Execution& execution) {
  Arena arena;
  static_cast<void>(ForwardMemory(p, out, execution, arena));
  return arena.used();
}

Status forward_cpu(const TransducerProblem& p, const TransducerOutputs& out, Workspace workspace,
                   const Execution& execution) {
  Arena arena(workspace.data);
  const ForwardMemory memory(p, out, execution, arena);
  visit_dtype(p.dtype, [&](auto type) { forward<typename decltype(type)::Type>(p, out, memory, execution); });
  return {};
}

std::size_t gradient_workspace_bytes_cpu(const TransducerProblem& p, const TransducerGradient& /*gradient*/,
                                         const Execution& /*execution*/) {
  Arena arena;
  arena.take<std::int64_t>(Batch::elements(p));
  return arena.used();
}

Status gradient_cpu(const TransducerProblem& p, const TransducerGradient& gradient, Workspace workspace,
                    const Execution& execution) {
  Arena arena(workspace.data);
  const Batch batch(p, arena.take<std::int64_t>(Batch::elements(p)));
  visit_dtype(p.dtype, [&](auto type) {
    for_frames(p, batch, true, execution,
               [&](const Utterance& utterance, std::int32_t first, std::int32_t last) {
                 write_gradients<typename decltype(type)::Type>(p, gradient, utterance, first, last);
               });
  });
  return {};
}

}  // namespace warpalign::detail::transducer
