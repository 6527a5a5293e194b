# Settings that every target shares: language level, warnings, sanitizers, ccache.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
# There are no modules; CMake from 3.28 on would scan every file for them before compiling it.
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # One compiler cache serves every checkout: paths are relative to its own root.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE_PROGRAM})
endif()
# A compiler that is older than mold rejects its name, even if mold is installed.
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM AND NOT MUSTER_SANITIZE)
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=mold MUSTER_LINKS_WITH_MOLD)
  if(MUSTER_LINKS_WITH_MOLD)
    add_link_options(-fuse-ld=mold)
  endif()
endif()

add_library(muster_settings INTERFACE)
target_include_directories(muster_settings INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
# Not for CUDA's compiler, which names these flags differently: cmake/MusterCuda.cmake.
target_compile_options(muster_settings INTERFACE
  "$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Wall;-Wextra;-Wshadow;-Wnon-virtual-dtor;-Woverloaded-virtual;-Wimplicit-fallthrough;-fno-omit-frame-pointer>")
# Makes __FILE__ a path in the tree, so that messages and objects are the same for every checkout
# and the compiler cache is shared.
target_compile_options(muster_settings INTERFACE "$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=>")
if(MUSTER_WERROR)
  target_compile_options(muster_settings INTERFACE "$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Werror>")
endif()
if(MUSTER_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "MUSTER_FUZZ needs clang: cmake --preset fuzz")
  endif()
  target_compile_options(muster_settings INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(MUSTER_SANITIZE)
  target_compile_options(muster_settings INTERFACE -fsanitize=${MUSTER_SANITIZE} -fno-sanitize-recover=all)
  # These checks instrument every use of a pointer, and double the compile time. A null pointer ends
  # the program anyway; bytes become values by memcpy.
  if(MUSTER_SANITIZE MATCHES "undefined")
    target_compile_options(muster_settings INTERFACE -fno-sanitize=null,alignment,object-size,vptr)
  endif()
  target_link_options(muster_settings INTERFACE -fsanitize=${MUSTER_SANITIZE})
endif()
