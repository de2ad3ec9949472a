# GoogleTest and Google Benchmark: the system's where it has them (Debian: libgtest-dev, libbenchmark-dev), else fetched.
# Either way, find_package(GTest) and find_package(benchmark) succeed in tests/cpp and benchmarks.
include(FetchContent)
set(BENCHMARK_ENABLE_TESTING OFF)
set(BENCHMARK_ENABLE_INSTALL OFF)
set(INSTALL_GTEST OFF)

FetchContent_Declare(GTest
  URL https://github.com/google/googletest/archive/refs/tags/v1.14.0.tar.gz
  URL_HASH SHA256=8ad598c73ad796e0d8280b082cebd82a630d73e73cd3c70057938a6501bba5d7
  DOWNLOAD_EXTRACT_TIMESTAMP ON
  FIND_PACKAGE_ARGS)
FetchContent_Declare(benchmark
  URL https://github.com/google/benchmark/archive/refs/tags/v1.8.3.tar.gz
  URL_HASH SHA256=6bc180a57d23d4d9515519f92b0c83d61b05b5bab188961f36ac7b06b0d9e9ce
  DOWNLOAD_EXTRACT_TIMESTAMP ON
  FIND_PACKAGE_ARGS)

function(provide name debian_package)
  find_package(${name} QUIET)
  string(TOUPPER ${name} upper)
  if(NOT ${name}_FOUND AND NOT FETCHCONTENT_SOURCE_DIR_${upper})  # cmake/aarch64-linux-gnu.cmake names sources
    message(NOTICE "${name} is not installed (Debian: apt-get install ${debian_package}): fetching it")
  endif()
  FetchContent_MakeAvailable(${name})
endfunction()

if(WARPALIGN_BUILD_TESTS)
  provide(GTest libgtest-dev)
endif()
if(WARPALIGN_BUILD_BENCHMARKS)
  provide(benchmark libbenchmark-dev)
endif()
