// Logarithms between base e and base 2.
#pragma once

namespace warpalign::detail {

template <class Real>
inline constexpr Real kLog2E = static_cast<Real>(1.4426950408889634074);  // log2 of e
template <class Real>
inline constexpr Real kLn2 = static_cast<Real>(0.69314718055994530942);  // log of 2

}  // namespace warpalign::detail
