# Finds the CUDA compiler, sets CMAKE_CUDA_COMPILER and enables the language, only with
# MUSTER_CUDA=ON. The compiler comes from a toolkit (/usr/local/cuda, or PATH) or from the Python
# wheels, which need no GPU and no root: deploy/install-cuda.sh. Only CUDA's static runtime is
# linked: cuBLASLt, cuDNN and NCCL are loaded at run time if they are found.
option(MUSTER_CUDA "Build the CUDA backend" OFF)
set(MUSTER_CUDA_ROOT "$ENV{MUSTER_CUDA_ROOT}" CACHE PATH "Where CUDA's compiler is: a toolkit, or the folder that deploy/install-cuda.sh has filled")
# A100; H100 and H200 with their architecture-specific instructions; B200, and PTX for later
# devices.
set(MUSTER_CUDA_ARCHITECTURES "80-real;90a-real;100" CACHE STRING "What kernels are compiled for, as CMAKE_CUDA_ARCHITECTURES")
if(NOT MUSTER_CUDA)
  message(STATUS "CUDA: off, trainings compute on CPUs; -DMUSTER_CUDA=ON builds the GPU backend, with nvcc of a toolkit or of deploy/install-cuda.sh FOLDER (-DMUSTER_CUDA_ROOT=FOLDER)")
  return()
endif()

set(cuda_advice "run deploy/install-cuda.sh FOLDER and configure with -DMUSTER_CUDA_ROOT=FOLDER, or leave MUSTER_CUDA off")
find_program(MUSTER_NVCC nvcc NO_DEFAULT_PATH PATHS "${MUSTER_CUDA_ROOT}/nvidia/cu13/bin" "${MUSTER_CUDA_ROOT}/bin")
if(NOT MUSTER_NVCC AND NOT MUSTER_CUDA_ROOT)
  find_program(MUSTER_NVCC nvcc PATHS /usr/local/cuda/bin)
endif()
if(NOT MUSTER_NVCC)
  set(searched "MUSTER_CUDA_ROOT=${MUSTER_CUDA_ROOT}")
  if(NOT MUSTER_CUDA_ROOT)
    set(searched "PATH or in /usr/local/cuda/bin")
  endif()
  message(FATAL_ERROR "MUSTER_CUDA=ON, but there is no nvcc in ${searched}: ${cuda_advice}")
endif()
if(MUSTER_SANITIZE)
  message(FATAL_ERROR "MUSTER_CUDA=ON with MUSTER_SANITIZE=${MUSTER_SANITIZE}: kernels are checked by compute-sanitizer (tests/gpu/run.sh), and by the emulated backend's tests")
endif()

set(CMAKE_CUDA_COMPILER ${MUSTER_NVCC})
set(CMAKE_CUDA_ARCHITECTURES ${MUSTER_CUDA_ARCHITECTURES})
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
if(NOT CMAKE_CUDA_HOST_COMPILER)
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
endif()
if(CCACHE_PROGRAM AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
enable_language(CUDA)
# Debian 12's CMake lacks the C++20 flag of CUDA's compiler (supported since 12.0).
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.0)
  message(FATAL_ERROR "${MUSTER_NVCC} is CUDA ${CMAKE_CUDA_COMPILER_VERSION}; C++20 needs 12.0 or newer: ${cuda_advice}")
endif()
get_filename_component(cuda_root ${MUSTER_NVCC} DIRECTORY)
get_filename_component(cuda_root ${cuda_root} DIRECTORY)
find_path(MUSTER_CUBLASLT_INCLUDE_DIR cublasLt.h PATHS ${cuda_root}/include ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} NO_DEFAULT_PATH)
if(NOT MUSTER_CUBLASLT_INCLUDE_DIR)
  message(FATAL_ERROR "MUSTER_CUDA=ON, but there is no cublasLt.h beside ${MUSTER_NVCC}: ${cuda_advice}")
endif()
# cuDNN attention, if both headers are found; the library is loaded at run time, too.
find_path(MUSTER_CUDNN_INCLUDE_DIR cudnn.h PATHS ${MUSTER_CUDA_ROOT}/nvidia/cudnn/include ${cuda_root}/include /usr/include NO_DEFAULT_PATH)
find_path(MUSTER_CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h PATHS ${MUSTER_CUDA_ROOT}/include ${cuda_root}/include /usr/include NO_DEFAULT_PATH)
if(MUSTER_CUDNN_INCLUDE_DIR AND MUSTER_CUDNN_FRONTEND_INCLUDE_DIR)
  set(attention "by cuDNN (${MUSTER_CUDNN_INCLUDE_DIR}) where a run finds it")
else()
  set(attention "by built-in kernels alone: cudnn.h or cudnn_frontend.h is not there")
endif()
message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION} (${MUSTER_NVCC}) for ${MUSTER_CUDA_ARCHITECTURES}; attention ${attention}")

# Settings of every target with CUDA kernels.
add_library(muster_cuda_settings INTERFACE)
target_include_directories(muster_cuda_settings SYSTEM INTERFACE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} ${MUSTER_CUBLASLT_INCLUDE_DIR})
# Relaxed constexpr: kernels call constexpr functions of base/ and common/. Line tables let
# profilers show source lines.
target_compile_options(muster_cuda_settings INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-lineinfo;-Xcompiler=-Wall,-Wextra,-fno-omit-frame-pointer>")
if(MUSTER_WERROR)
  target_compile_options(muster_cuda_settings INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings;-Xcompiler=-Werror>")
endif()
target_link_libraries(muster_cuda_settings INTERFACE ${CMAKE_DL_LIBS})
