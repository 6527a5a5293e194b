# Finds Arrow C++ with Parquet, which no supported distribution packages. Sets MUSTER_PARQUET to ON
# or OFF; if ON, provides Arrow::arrow_shared and Parquet::parquet_shared. Apache's packages bring
# package files. pyarrow's wheel has the same libraries and headers without package files and
# without links to the versioned names: MUSTER_ARROW_ROOT names such a folder, or any prefix with
# Arrow in it.
set(arrow_advice "install libarrow-dev and libparquet-dev, or set MUSTER_ARROW_ROOT to the folder of a pyarrow wheel (CONTRIBUTING.md)")

if(NOT MUSTER_PARQUET MATCHES "^(ON|OFF|AUTO)$")
  message(FATAL_ERROR "MUSTER_PARQUET is ${MUSTER_PARQUET}; it may be ON, OFF or AUTO")
elseif(MUSTER_PARQUET STREQUAL OFF)
  return()
endif()

# muster_arrow_library(NAME TARGET): the library of MUSTER_ARROW_ROOT as an imported target.
function(muster_arrow_library name target)
  file(STRINGS ${MUSTER_ARROW_ROOT}/include/arrow/util/config.h version REGEX "#define ARROW_SO_VERSION ")
  string(REGEX REPLACE ".*\"(.*)\".*" "\\1" version "${version}")
  find_file(library NAMES lib${name}.so.${version} lib${name}.so PATHS ${MUSTER_ARROW_ROOT}
            PATH_SUFFIXES lib lib64 lib/${CMAKE_LIBRARY_ARCHITECTURE} NO_DEFAULT_PATH NO_CACHE)
  if(NOT library)
    message(FATAL_ERROR "MUSTER_ARROW_ROOT=${MUSTER_ARROW_ROOT} has headers of Arrow, but no lib${name}.so.${version} beside them or in lib")
  endif()
  add_library(${target} SHARED IMPORTED)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${library}
                        INTERFACE_INCLUDE_DIRECTORIES ${MUSTER_ARROW_ROOT}/include)
endfunction()

if(MUSTER_ARROW_ROOT)
  if(NOT EXISTS ${MUSTER_ARROW_ROOT}/include/parquet/file_reader.h)
    message(FATAL_ERROR "MUSTER_ARROW_ROOT=${MUSTER_ARROW_ROOT} has no include/parquet/file_reader.h")
  endif()
  muster_arrow_library(arrow Arrow::arrow_shared)
  muster_arrow_library(parquet Parquet::parquet_shared)
  target_link_libraries(Parquet::parquet_shared INTERFACE Arrow::arrow_shared)
  # Wheels of other years use another C++ ABI, whose std::string has other symbol names.
  include(CheckCXXSourceCompiles)
  if(NOT MUSTER_ARROW_CHECKED STREQUAL MUSTER_ARROW_ROOT)
    unset(MUSTER_ARROW_LINKS CACHE)
    set(MUSTER_ARROW_CHECKED "${MUSTER_ARROW_ROOT}" CACHE INTERNAL "The folder that MUSTER_ARROW_LINKS speaks of")
  endif()
  set(CMAKE_REQUIRED_LIBRARIES Parquet::parquet_shared)
  check_cxx_source_compiles("#include <parquet/file_reader.h>
    int main() { parquet::ParquetFileReader::OpenFile(std::string(\"/\"), false); }" MUSTER_ARROW_LINKS)
  unset(CMAKE_REQUIRED_LIBRARIES)
  if(NOT MUSTER_ARROW_LINKS)
    message(FATAL_ERROR "MUSTER_ARROW_ROOT=${MUSTER_ARROW_ROOT} has an Arrow that does not link with this compiler; see CMakeFiles/CMakeError.log")
  endif()
else()
  find_package(Arrow CONFIG QUIET)
  find_package(Parquet CONFIG QUIET)
endif()

if(TARGET Parquet::parquet_shared)
  set(MUSTER_PARQUET ON)
elseif(MUSTER_PARQUET STREQUAL AUTO)
  set(MUSTER_PARQUET OFF)
else()
  message(FATAL_ERROR "MUSTER_PARQUET=ON, but there is no Arrow C++ with Parquet: ${arrow_advice}")
endif()
