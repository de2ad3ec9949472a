// Time per cell of the soft-DTW CPU path. Names are <instruction set>/<what>/<dtype>/N/D/gamma/threads; every
// instruction set that the machine has is registered, and --benchmark_filter picks, for example
//
//   soft_dtw_cpu_benchmark --benchmark_filter='avx2/.*/float32/N:1024/D:1/' --benchmark_out=result.json
//
// ns_per_cell is wall time over B N M cells; with one thread that is time per cell and core.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cpu/isa.h"
#include "warpalign/soft_dtw.h"
#include "warpalign/thread_pool.h"

namespace {

using warpalign::cpu::Isa;

struct Case {
  Isa isa;
  bool gradient;
  int batch;
  int length;  // N = M
  int dim;
  double gamma;
  int threads;
};

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

template <typename T>
std::vector<T> normal(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<T> distribution;
  std::vector<T> values(count);
  for (T& value : values) value = distribution(generator);
  return values;
}

template <typename T>
void soft_dtw(benchmark::State& state, const Case& c) {
  warpalign::cpu::override_isa(c.isa);
  warpalign::ThreadPool pool(c.threads);
  const auto execution = warpalign::Execution::host(pool.parallel_for());
  const std::int64_t elements = static_cast<std::int64_t>(c.length) * c.dim;
  const std::vector<T> x = normal<T>(c.batch * elements, 1);
  const std::vector<T> y = normal<T>(c.batch * elements, 2);
  std::vector<T> value(c.batch);
  std::vector<T> grad_x(x.size());
  std::vector<T> grad_y(y.size());

  warpalign::SoftDtwProblem problem;
  problem.dtype = sizeof(T) == 4 ? warpalign::DType::kFloat32 : warpalign::DType::kFloat64;
  problem.batch = c.batch;
  problem.n = problem.m = c.length;
  problem.dim = c.dim;
  problem.x = {x.data(), {elements, c.dim, 1}};
  problem.y = {y.data(), {elements, c.dim, 1}};
  problem.gamma = c.gamma;
  warpalign::SoftDtwOutputs outputs;
  outputs.value = value.data();
  if (c.gradient) {
    outputs.grad_x = grad_x.data();
    outputs.grad_y = grad_y.data();
  }
  constexpr std::size_t kAlignment = 256;
  const std::size_t bytes = warpalign::soft_dtw_workspace_bytes(problem, outputs, execution);
  const std::unique_ptr<void, Free> memory(
      std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment));

  const auto begin = std::chrono::steady_clock::now();
  for (auto _ : state) {
    const warpalign::Status status = warpalign::soft_dtw(problem, outputs, {memory.get(), bytes}, execution);
    if (!status.ok()) {
      state.SkipWithError(status.message);
      break;
    }
    benchmark::ClobberMemory();
  }
  const auto elapsed = std::chrono::steady_clock::now() - begin;
  warpalign::cpu::clear_isa_override();
  const double cells = static_cast<double>(c.batch) * c.length * c.length * state.iterations();
  state.counters["ns_per_cell"] = std::chrono::duration<double, std::nano>(elapsed).count() / cells;
  state.counters["workspace_KiB"] = static_cast<double>(bytes) / 1024;
}

void add(const char* dtype, const Case& c) {
  const std::string name =
      std::string(warpalign::cpu::isa_name(c.isa)) + (c.gradient ? "/gradient/" : "/forward/") + dtype +
      "/N:" + std::to_string(c.length) + "/D:" + std::to_string(c.dim) +
      (c.gamma == 1.0 ? "/gamma:1" : "/gamma:0.01") + "/threads:" + std::to_string(c.threads);
  const auto function = std::string_view(dtype) == "float32" ? &soft_dtw<float> : &soft_dtw<double>;
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { function(state, c); })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

void add_all(Isa isa, int all_threads) {
  constexpr int kManyPairs = 1024;  // of 32 x 32, where what a pair costs beside its cells shows
  for (const bool gradient : {false, true}) {
    for (const int dim : {1, 8, 64}) {
      add("float32", {isa, gradient, kManyPairs, 32, dim, 1.0, 1});
      for (const int length : {128, 512, 1024, 2048}) {
        add("float32", {isa, gradient, 1, length, dim, 1.0, 1});
        if (all_threads > 1) add("float32", {isa, gradient, 4 * all_threads, length, dim, 1.0, all_threads});
      }
    }
    add("float32", {isa, gradient, 1, 1024, 1, 0.01, 1});
    add("float64", {isa, gradient, 1, 1024, 1, 1.0, 1});
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const Isa best = warpalign::cpu::best_isa();
  benchmark::AddCustomContext("instruction set", warpalign::cpu::isa_name(best));
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  for (const Isa isa : {Isa::kAvx512, Isa::kAvx2, Isa::kBaseline}) {
    if (isa <= best) add_all(isa, threads);
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
