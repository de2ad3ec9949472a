// Times of the CPU path: value alone, and value with gradients, over lengths, features and threads.
//
//   soft_dtw_cpu_benchmark                                  the best instruction set of this machine
//   WARPALIGN_ISA=baseline soft_dtw_cpu_benchmark           another one: baseline, avx2 or avx512
//   soft_dtw_cpu_benchmark --benchmark_filter=512           Google Benchmark's own options
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cpu/isa.h"
#include "warpalign/soft_dtw.h"
#include "warpalign/thread_pool.h"

namespace warpalign {
namespace {

template <typename T>
std::vector<T> series(int batch, int length, int dim, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  std::vector<T> out(static_cast<std::size_t>(batch) * length * dim);
  for (T& v : out) v = static_cast<T>(normal(generator));
  return out;
}

// range(0): N = M; range(1): D; range(2): threads; range(3): radius of a band, -1: none; range(4): pairs.
template <typename T, bool with_gradient>
void soft_dtw_cpu(benchmark::State& state) {
  const int length = static_cast<int>(state.range(0)), dim = static_cast<int>(state.range(1)),
            threads = static_cast<int>(state.range(2)), batch = static_cast<int>(state.range(4));
  const std::vector<T> x = series<T>(batch, length, dim, 1), y = series<T>(batch, length, dim, 2);
  std::vector<T> value(batch), grad_x(x.size()), grad_y(y.size());

  SoftDtwProblem problem;
  problem.dtype = sizeof(T) == 4 ? DType::kFloat32 : DType::kFloat64;
  problem.batch = batch;
  problem.n = problem.m = length;
  problem.dim = dim;
  if (state.range(3) >= 0)
    problem.band = {BandKind::kSakoeChiba, static_cast<std::int32_t>(state.range(3)), 2.0};
  problem.x = {x.data(), {static_cast<std::int64_t>(length) * dim, dim, 1}};
  problem.y = {y.data(), {static_cast<std::int64_t>(length) * dim, dim, 1}};
  SoftDtwOutputs out;
  out.value = value.data();
  if (with_gradient) {
    out.grad_x = grad_x.data();
    out.grad_y = grad_y.data();
  }
  ThreadPool pool(threads);
  const Execution execution = Execution::host(threads > 1 ? pool.parallel_for() : ParallelFor{});
  const std::size_t bytes = soft_dtw_workspace_bytes(problem, out, execution);
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };
  const std::unique_ptr<void, Free> workspace(std::aligned_alloc(256, (bytes / 256 + 1) * 256));

  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    if (!soft_dtw(problem, out, {workspace.get(), bytes}, execution).ok()) {
      state.SkipWithError("soft_dtw refused the problem");
      break;
    }
    benchmark::DoNotOptimize(value.data());
    benchmark::ClobberMemory();
  }
  // Not Counter::kInvert, which would print nanoseconds with the unit of seconds.
  const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
  const double cells = static_cast<double>(batch) * length * length * static_cast<double>(state.iterations());
  state.counters["ns_per_cell"] = elapsed.count() / cells;
}

void register_all() {
  const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::vector<int> thread_counts = {1};
  if (all > 1) thread_counts.push_back(all);
  const auto add = [&](const char* name, void (*function)(benchmark::State&), const std::vector<int>& lengths,
                       int radius = -1, bool one_pair = false) {
    for (int threads : thread_counts) {
      if (one_pair && threads == 1) continue;
      for (int length : lengths) {
        for (int dim : {1, 8, 64}) {
          benchmark::RegisterBenchmark(name, function)
              ->Args({length, dim, threads, radius, one_pair ? 1 : threads})
              ->ArgNames({"N", "D", "threads", "band", "pairs"})
              ->UseRealTime()
              ->Unit(benchmark::kMicrosecond);
        }
      }
    }
  };
  add("value/float32", &soft_dtw_cpu<float, false>, {128, 512, 1024, 2048});
  add("gradient/float32", &soft_dtw_cpu<float, true>, {128, 512, 1024, 2048});
  for (int radius : {16, 64, 256}) {
    add("value/float32", &soft_dtw_cpu<float, false>, {2048}, radius);
    add("gradient/float32", &soft_dtw_cpu<float, true>, {2048}, radius);
  }
  add("value/float32", &soft_dtw_cpu<float, false>, {512, 1024, 2048, 8192}, -1, true);
  add("gradient/float32", &soft_dtw_cpu<float, true>, {512, 1024, 2048, 8192}, -1, true);
  add("value/float64", &soft_dtw_cpu<double, false>, {512});
  add("gradient/float64", &soft_dtw_cpu<double, true>, {512});
}

// Takes WARPALIGN_ISA from the environment; false where it is no name that this machine can run.
bool choose_isa() {
  const char* wanted = std::getenv("WARPALIGN_ISA");
  if (!wanted) return true;
  for (int isa = 0; isa <= static_cast<int>(cpu::best_isa()); ++isa) {
    if (std::strcmp(wanted, cpu::isa_name(static_cast<cpu::Isa>(isa))) != 0) continue;
    cpu::override_isa(static_cast<cpu::Isa>(isa));
    return true;
  }
  return false;
}

}  // namespace
}  // namespace warpalign

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  if (!warpalign::choose_isa()) {
    std::fprintf(stderr, "WARPALIGN_ISA: this machine has %s and what stands below it\n",
                 warpalign::cpu::isa_name(warpalign::cpu::best_isa()));
    return 1;
  }
  benchmark::AddCustomContext("instruction set", warpalign::cpu::isa_name(warpalign::cpu::selected_isa()));
  benchmark::AddCustomContext("hardware threads", std::to_string(std::thread::hardware_concurrency()));
  warpalign::register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
