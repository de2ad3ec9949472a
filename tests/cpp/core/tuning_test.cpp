// Rows of thresholds by class of device, and forced thresholds. Operators' tests have those that are in use.
#include "core/tuning.h"

#include <gtest/gtest.h>

#include <string>

#include "soft_dtw/tuning.h"

namespace warpalign::detail {
namespace {

struct Row {
  int device_class;
  int rows;
  int columns;
};
constexpr Row kRows[] = {{80, 1, 10}, {90, 2, 20}, {120, 3, 30}};

TEST(Tuning, TheNearestClassIsTheHighestOneThatIsNotAbove) {
  constexpr std::span<const Row> kAll = kRows;
  for (const auto& [device, nearest] : {std::pair{0, 80},
                                        {75, 80},
                                        {80, 80},
                                        {89, 80},
                                        {90, 90},
                                        {103, 90},
                                        {120, 120},
                                        {121, 120},
                                        {200, 120}}) {
    EXPECT_EQ(nearest_row(kAll, device).device_class, nearest) << device;
  }
  EXPECT_EQ(nearest_row(kAll.first(1), 120).device_class, 80);
}

TEST(Tuning, AForcedThresholdHoldsForEveryClass) {
  TuningField<Row> fields[] = {{"rows", &Row::rows}, {"columns", &Row::columns}};
  EXPECT_FALSE(force_threshold("row", 5, fields));
  EXPECT_FALSE(force_threshold("", 5, fields));
  EXPECT_TRUE(force_threshold("columns", 0, fields));
  EXPECT_EQ(tuned(kRows, fields, 90).columns, 0);
  EXPECT_EQ(tuned(kRows, fields, 120).columns, 0);
  EXPECT_EQ(tuned(kRows, fields, 90).rows, 2);
  EXPECT_TRUE(force_threshold("columns", kMeasuredThreshold, fields));
  EXPECT_EQ(tuned(kRows, fields, 90).columns, 20);
}

TEST(Tuning, ListsFollowEachOther) {
  TuningField<Row> first[] = {{"rows", &Row::rows}}, second[] = {{"columns", &Row::columns}};
  Threshold read{};
  EXPECT_TRUE(force_threshold("columns", 7, first, second));
  ASSERT_TRUE(read_threshold(0, &read, first, second));
  EXPECT_EQ(read.name, std::string("rows"));
  EXPECT_EQ(read.forced, kMeasuredThreshold);
  ASSERT_TRUE(read_threshold(1, &read, first, second));
  EXPECT_EQ(read.name, std::string("columns"));
  EXPECT_EQ(read.forced, 7);
  for (const int index : {-1, 2, 3}) EXPECT_FALSE(read_threshold(index, &read, first, second)) << index;
}

// Through the public header: each name once, and forced in the operator's own rows.
TEST(Tuning, ThePublicFunctionsForceTheOperatorsThresholds) {
  Threshold read{};
  int count = 0;
  for (; soft_dtw_threshold(count, &read); ++count) {
    const std::string name = read.name;
    EXPECT_TRUE(force_soft_dtw_threshold(name.c_str(), 3));
    ASSERT_TRUE(soft_dtw_threshold(count, &read));
    EXPECT_EQ(read.forced, 3);
    EXPECT_TRUE(force_soft_dtw_threshold(name.c_str(), kMeasuredThreshold));
  }
  EXPECT_EQ(count, static_cast<int>(std::size(soft_dtw::cuda_tuning_fields) +
                                    std::size(soft_dtw::cpu_tuning_fields)));
  EXPECT_FALSE(force_soft_dtw_threshold("no such threshold", 3));
  EXPECT_TRUE(force_soft_dtw_threshold("help_cells", 1));
  EXPECT_EQ(soft_dtw::cpu_tuning(cpu::Isa::kAvx2).help_cells, 1);
  EXPECT_TRUE(force_soft_dtw_threshold("help_cells", kMeasuredThreshold));
}

}  // namespace
}  // namespace warpalign::detail
