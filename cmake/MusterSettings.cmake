# Language level, warnings, sanitizers, ccache: the settings that every target shares.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
# There are no modules here; CMake from 3.28 on would look for them in every file before compiling it.
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # One compiler cache serves every checkout: paths count relative to its own root.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE_PROGRAM})
endif()
# A compiler that is older than mold refuses its name, even where it is installed.
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
# Not of CUDA's compiler, which has words of its own for these: cmake/MusterCuda.cmake.
target_compile_options(muster_settings INTERFACE
  "$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Wall;-Wextra;-Wshadow;-Wnon-virtual-dtor;-Woverloaded-virtual;-Wimplicit-fallthrough;-fno-omit-frame-pointer>")
# __FILE__ is a path in the tree: messages are the same from every checkout, and so are objects, of which one finds another's in the cache.
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
  # These check every use of a pointer, and double the time of compiling. A null one ends the program anyway; bytes become values by memcpy.
  if(MUSTER_SANITIZE MATCHES "undefined")
    target_compile_options(muster_settings INTERFACE -fno-sanitize=null,alignment,object-size,vptr)
  endif()
  target_link_options(muster_settings INTERFACE -fsanitize=${MUSTER_SANITIZE})
endif()
