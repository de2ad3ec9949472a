// A call of warpalign::soft_dtw that is right in every way, for a test of the contract to spoil in one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "host_buffer.h"
#include "warpalign/soft_dtw.h"

namespace warpalign::test::soft_dtw {

inline constexpr int kBatch = 3, kN = 4, kM = 5, kDim = 2;

struct Call {
  HostBuffer x{std::vector<float>(kBatch * kN * kDim, 1.0f)};
  HostBuffer y{std::vector<float>(kBatch * kM * kDim, 2.0f)};
  HostBuffer cost{std::vector<float>(kBatch * kN * kM, 1.0f)};
  std::vector<std::int32_t> x_lengths = {kN, 1, 2}, y_lengths = {1, kM, 3};
  HostBuffer value{kBatch * 4}, grad_x{kBatch * kN * kDim * 4}, grad_y{kBatch * kM * kDim * 4},
      alignment{kBatch * kN * kM * 4};
  HostBuffer scratch{1 << 20};
  SoftDtwProblem problem;
  SoftDtwOutputs out{value.data(), grad_x.data(), grad_y.data(), alignment.data()};
  Workspace workspace{scratch.data(), 1 << 20};
  Execution execution = Execution::host();

  Call() {
    problem.batch = kBatch;
    problem.n = kN;
    problem.m = kM;
    problem.dim = kDim;
    problem.x = {x.data(), {kN * kDim, kDim, 1}};
    problem.y = {y.data(), {kM * kDim, kDim, 1}};
    problem.x_lengths = x_lengths.data();
    problem.y_lengths = y_lengths.data();
  }
  void use_cost() {
    problem.x = problem.y = {};
    problem.dim = 0;
    problem.cost = {cost.data(), {kN * kM, kM, 1}};
    out.grad_x = out.grad_y = nullptr;
  }
  [[nodiscard]] Status run() const { return warpalign::soft_dtw(problem, out, workspace, execution); }
  [[nodiscard]] bool untouched() const {
    return value.untouched() && grad_x.untouched() && grad_y.untouched() && alignment.untouched() &&
           scratch.untouched();
  }
};

inline void* shifted(void* data, std::ptrdiff_t bytes) { return static_cast<char*>(data) + bytes; }

}  // namespace warpalign::test::soft_dtw
