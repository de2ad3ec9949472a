// Ways by name, the cache of plans, and descriptions of the CPU path.
#include "core/ways.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/plan_cache.h"
#include "warpalign/neighbor_graph.h"
#include "warpalign/plan.h"
#include "warpalign/sinkhorn.h"
#include "warpalign/sinkhorn_normalize.h"
#include "warpalign/soft_dtw.h"
#include "warpalign/thread_pool.h"

namespace warpalign::test {
namespace {

using detail::check_serves;
using detail::check_way;
using detail::named_way;
using detail::PlanCache;

constexpr const char* kNames[] = {"one", "two", "three"};

Execution by(const char* way) {
  Execution execution;
  execution.way = way;
  return execution;
}

TEST(Ways, AreFoundByName) {
  EXPECT_EQ(named_way(by("two"), kNames), 1);
  EXPECT_EQ(named_way(by("four"), kNames), -1);
  for (const char* none : {static_cast<const char*>(nullptr), ""}) {
    EXPECT_EQ(named_way(by(none), kNames), -1);
    EXPECT_TRUE(check_way(by(none), kNames, "f()").ok());
  }
  EXPECT_TRUE(check_way(by("three"), kNames, "f()").ok());
  EXPECT_EQ(to_string(check_way(by("four"), kNames, "f()")),
            "way: f() has no way \"four\"; its ways are one, two, three");
  EXPECT_EQ(to_string(check_way(by("four"), {}, "f()")),
            "way: f() has no way \"four\"; its ways are none to choose from");
}

TEST(Ways, AnErrorSaysWhyAndWhichCan) {
  const auto odd_alone = [](int way) { return way % 2 == 1 ? nullptr : "it is even"; };
  EXPECT_TRUE(check_serves(1, kNames, odd_alone).ok());
  EXPECT_TRUE(check_serves(-1, kNames, odd_alone).ok());
  EXPECT_EQ(to_string(check_serves(2, kNames, odd_alone)),
            "way: three cannot serve this call: it is even; these ways can: two");
  const auto none = [](int) { return "it cannot"; };
  EXPECT_EQ(to_string(check_serves(0, kNames, none)),
            "way: one cannot serve this call: it cannot; no way can");
}

TEST(PlanCache, MakesAPlanOncePerKeyAndForgetsTheOldest) {
  PlanCache<int, int, 3> plans;
  int made = 0;
  const auto find = [&](int key) {
    return plans.find(key, [&] {
      ++made;
      return 10 * key;
    });
  };
  for (int round = 0; round < 2; ++round) {
    for (int key : {1, 2, 3}) EXPECT_EQ(find(key), 10 * key);
  }
  EXPECT_EQ(made, 3);
  EXPECT_EQ(find(4), 40);  // in the place of 1
  EXPECT_EQ(find(2), 20);
  EXPECT_EQ(made, 4);
  EXPECT_EQ(find(1), 10);
  EXPECT_EQ(made, 5);
}

struct Attempt {
  Status status;
};

TEST(PlanCache, KeepsNoFailure) {
  PlanCache<int, Attempt> plans;
  int made = 0;
  for (int k = 0; k < 2; ++k) {
    const Attempt attempt = plans.find(1, [&] {
      ++made;
      return Attempt{Status::device_error("busy")};
    });
    EXPECT_FALSE(attempt.status.ok());
  }
  EXPECT_EQ(made, 2);
}

// Aligned memory of floats.
struct Memory {
  explicit Memory(std::size_t bytes) : data(std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64)) {}
  ~Memory() { std::free(data); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* const data;
};

// Long pairs, which threads may share.
struct Pairs {
  static constexpr int kBatch = 2, kLength = 700;
  std::vector<float> x, y;
  SoftDtwProblem problem;

  Pairs() : x(kBatch * kLength), y(x.size()) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<float>(std::sin(0.1 * static_cast<double>(i)));
      y[i] = static_cast<float>(std::cos(0.07 * static_cast<double>(i)));
    }
    problem.batch = kBatch;
    problem.n = problem.m = kLength;
    problem.dim = 1;
    problem.x = {x.data(), {kLength, 1, 1}};
    problem.y = {y.data(), {kLength, 1, 1}};
  }
  // Values and gradients, one behind the other.
  std::vector<float> run(const Execution& execution, Status& status) {
    std::vector<float> results(kBatch + 2 * x.size(), -1.0F);
    SoftDtwOutputs out;
    out.value = results.data();
    out.grad_x = results.data() + kBatch;
    out.grad_y = results.data() + kBatch + x.size();
    const std::size_t bytes = soft_dtw_workspace_bytes(problem, out, execution);
    const Memory memory(bytes);
    status = soft_dtw(problem, out, {memory.data, bytes}, execution);
    return results;
  }
};

TEST(Ways, OfThreadsAreBothRight) {
  Pairs pairs;
  ThreadPool pool(3);
  Status status;
  Execution execution = Execution::host(pool.parallel_for());
  const std::vector<float> expected = pairs.run(execution, status);
  ASSERT_TRUE(status.ok());
  int ways = 0;
  for (; const char* const way = soft_dtw_way(Device::kHost, ways); ++ways) {
    execution.way = way;
    EXPECT_EQ(pairs.run(execution, status), expected) << way;  // the same bits
    EXPECT_TRUE(status.ok()) << to_string(status);
  }
  EXPECT_EQ(ways, 2);
  execution = Execution::host();
  execution.way = "within_items";
  pairs.run(execution, status);
  EXPECT_EQ(to_string(status),
            "way: within_items cannot serve this call: it takes two threads or more; these ways can: "
            "across_batch");
}

TEST(PlanDescription, OfThreadsNamesTheWayAndAllMemory) {
  Pairs pairs;
  ThreadPool pool(3);
  const Execution execution = Execution::host(pool.parallel_for());
  Status status;
  std::string text;
  {
    const PlanDescription description;
    const std::vector<float> results = pairs.run(execution, status);
    EXPECT_TRUE(status.ok());
    for (const float v : results) ASSERT_EQ(v, -1.0F);  // nothing has run
    text = description.text();
  }
  EXPECT_NE(text.find("soft_dtw on CPU, 3 threads"), std::string::npos) << text;
  EXPECT_NE(text.find("within_items: pairs are large, and few for the threads"), std::string::npos) << text;
  SoftDtwOutputs out;
  out.value = out.grad_x = out.grad_y = pairs.x.data();
  const std::string bytes = std::to_string(soft_dtw_workspace_bytes(pairs.problem, out, execution));
  std::string told = text.substr(text.find("memory") + 6);
  told = told.substr(0, told.find("bytes"));
  std::erase_if(told, [](char c) { return c == ' ' || c == ','; });
  EXPECT_EQ(told, bytes) << text;
  pairs.run(execution, status);  // calls run again
  EXPECT_TRUE(status.ok());
}

TEST(PlanDescription, OfFunctionsWithOneWayComputesNothing) {
  std::vector<float> logits(12, 0.5F), plan(12, -1.0F);
  NormalizeProblem normalize;
  normalize.batch = 1;
  normalize.n = 3;
  normalize.m = 4;
  normalize.logits = StridedTensor(logits.data(), {12, 4, 1});
  const Execution execution = Execution::host();
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> scratch(sinkhorn_normalize_workspace_bytes(normalize, execution) / 64 + 1);

  const std::int64_t begins[] = {0, 1, 2};
  const std::int32_t neighbors[] = {1, 0}, source = 0;
  const float lengths[] = {1.0F, 1.0F};
  GraphView graph;
  graph.nodes = 2;
  graph.row_begins = begins;
  graph.neighbors = neighbors;
  graph.lengths = lengths;
  std::vector<Line> more(shortest_paths_workspace_bytes(graph, 1, execution) / 64 + 1);
  std::vector<float> distances(2, -1.0F);

  const PlanDescription description;
  EXPECT_TRUE(
      sinkhorn_normalize(normalize, plan.data(), {scratch.data(), 64 * scratch.size()}, execution).ok());
  EXPECT_EQ(to_string(shortest_paths(graph, &source, 1, distances.data(), {more.data(), 64 * more.size()},
                                     execution)),
            "ok");
  EXPECT_EQ(plan, std::vector<float>(12, -1.0F));
  EXPECT_EQ(distances, std::vector<float>(2, -1.0F));
  const std::string text = description.text();
  EXPECT_NE(text.find("sinkhorn_normalize on CPU, 1 thread"), std::string::npos) << text;
  EXPECT_NE(text.find("shortest_paths on CPU, 1 thread"), std::string::npos) << text;
}

TEST(PlanDescription, OfAClassThatIsNotKnownSaysWhichOnesAre) {
  const PlanDescription description("9.9");
  EXPECT_EQ(to_string(description.status()),
            "device_class: expected a compute capability out of 7.5, 8.0, 8.6, 8.9, 9.0, 10.0 and 12.0");
}

TEST(Ways, OfSinkhornOnThreadsHaveTheSameBits) {
  constexpr int kPoints = 300;
  std::vector<float> points(2 * kPoints);
  for (std::size_t i = 0; i < points.size(); ++i) points[i] = static_cast<float>(std::sin(3.0 * i));
  SinkhornProblem p;
  p.batch = 2;
  p.n = p.m = kPoints;
  p.dim = 1;
  p.x = {points.data(), {kPoints, 1, 1}};
  p.y = {points.data(), {0, 1, 1}};
  p.max_iterations = 20;
  p.tolerance = 0;
  ThreadPool pool(2);
  std::vector<std::vector<float>> values;
  for (const char* way : {"", "across_batch", "within_items"}) {
    Execution execution = Execution::host(pool.parallel_for());
    execution.way = way;
    std::vector<float> value(2);
    SinkhornOutputs out;
    out.value = value.data();
    const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
    const Memory memory(bytes);
    const Status status = sinkhorn(p, out, {memory.data, bytes}, execution);
    EXPECT_TRUE(status.ok()) << to_string(status);
    values.push_back(value);
  }
  EXPECT_EQ(values[1], values[0]);
  EXPECT_EQ(values[2], values[0]);
}

}  // namespace
}  // namespace warpalign::test
