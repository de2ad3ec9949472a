# warpalign_options: what every target of this project is compiled with.
add_library(warpalign_options INTERFACE)
target_compile_options(warpalign_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Werror>
  # -ftz: a transition weight below 2^-126 is exactly 0 (docs/numerics.md).
  $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-ftz=true;--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra;-lineinfo;--compress-mode=size;-Xptxas=-v>)
if(WARPALIGN_SANITIZE)
  target_compile_options(warpalign_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${WARPALIGN_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer>)
  target_link_options(warpalign_options INTERFACE -fsanitize=${WARPALIGN_SANITIZE})
endif()
