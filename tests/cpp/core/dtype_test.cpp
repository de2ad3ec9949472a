// DType, its sizes, and the visitors that turn it into a C++ type.
#include "warpalign/dtype.h"

#include <gtest/gtest.h>

#include <type_traits>

#include "core/visit_dtype.h"

namespace warpalign::detail {
namespace {

template <class Expected>
constexpr auto kIs = [](auto type) { return std::is_same_v<typename decltype(type)::Type, Expected>; };

TEST(DTypes, NumbersAreFixed) {  // they are part of the binary interface
  EXPECT_EQ(static_cast<int>(DType::kFloat32), 0);
  EXPECT_EQ(static_cast<int>(DType::kFloat64), 1);
  EXPECT_EQ(static_cast<int>(DType::kFloat16), 2);
  EXPECT_EQ(static_cast<int>(DType::kBFloat16), 3);
}

TEST(DTypes, VisitorsGiveTheType) {
  EXPECT_TRUE(visit_dtype(DType::kFloat32, kIs<float>));
  EXPECT_TRUE(visit_dtype(DType::kFloat64, kIs<double>));
  EXPECT_TRUE(visit_dtype(DType::kFloat16, kIs<Float16>));
  EXPECT_TRUE(visit_dtype(DType::kBFloat16, kIs<BFloat16>));
  EXPECT_TRUE(visit_float32_float64(DType::kFloat32, kIs<float>));
  EXPECT_TRUE(visit_float32_float64(DType::kFloat64, kIs<double>));
}

TEST(DTypes, SizeIsTheTypes) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    const auto size = [](auto type) { return sizeof(typename decltype(type)::Type); };
    EXPECT_EQ(size_of(dtype), visit_dtype(dtype, size));
  }
  EXPECT_EQ(size_of(static_cast<DType>(4)), 0u);
}

}  // namespace
}  // namespace warpalign::detail
