# Compiler flags of this project, in one place. Results must not depend on the compiler's taste: no fast-math, no
# contraction (an FMA is written where it is meant).
function(deepinfer_flags target)
  set_target_properties(${target} PROPERTIES
    C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE DI_BUILDING_SHARED) # the shared library shows what is DI_API
  target_compile_options(${target} PRIVATE
    -ffp-contract=off -fno-math-errno -fno-trapping-math -fstack-protector-strong
    -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wpointer-arith
    -Wcast-qual -Wwrite-strings -Wundef -Wvla -Wconversion -Wno-sign-conversion -Wformat=2 -Wdouble-promotion
    -Wframe-larger-than=16384)
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wlogical-op -Wduplicated-cond -Wcast-align=strict)
  endif()
  if(DEEPINFER_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(DEEPINFER_SANITIZE)
    target_compile_definitions(${target} PRIVATE DI_SANITIZED) # resolvers of clones run before a sanitizer is ready
    target_compile_options(${target} PRIVATE -fsanitize=${DEEPINFER_SANITIZE} -fno-sanitize-recover=all
                                             -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${DEEPINFER_SANITIZE})
  endif()
  if(DEEPINFER_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()
