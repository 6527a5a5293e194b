# muster_library(NAME [COLD] SOURCES … [DEPS …])  a static library of this tree
#   COLD: nothing in it takes long at run time, so it is optimised less, and compiles in two thirds
#   of the time, or in half of it with sanitizers.
# muster_program(NAME SOURCES … [DEPS …])       a program in bin/
# muster_test(NAME SOURCES … [DEPS …] [LABELS …] [TIMEOUT s] [SHARDS n])
#   a GoogleTest program. A unity build compiles its files as one, so no two may define the same
#   name. Labels: unit (the default), scenarios, simulation, e2e; `tsan` marks tests that the thread
#   sanitizer build runs, too.
# muster_gtest(NAME LABELS … TIMEOUT s [SHARDS n])
#   runs a GoogleTest program as a test of CTest. SHARDS: as n tests, NAME.1 to NAME.n, with every
#   nth case each, for programs that take longer than 25 s. A shard's results are in test-results.
# muster_script_tests(FILE [BY_CLASS] LABELS … [TIMEOUT s])
#   each test method of FILE (Python's unittest) as one CTest test. BY_CLASS: each class, as its
#   methods share something that starts slowly, such as a browser.
if(MUSTER_TESTS)
  add_custom_target(muster_tsan_tests)
  # Product code is optimised and fully instrumented. Tests are most of the code in a full build:
  # less instrumentation halves their compile time, and still checks each use of memory. The thread
  # sanitizer also tracks calls, which disables inlining. Linked last, these flags override the
  # shared settings.
  add_library(muster_test_settings INTERFACE)
  if(MUSTER_SANITIZE AND NOT MUSTER_SANITIZE STREQUAL "thread")
    target_compile_options(muster_test_settings INTERFACE -O0 -fno-sanitize=undefined)
  endif()
  if(CMAKE_UNITY_BUILD)
    # Names of one file may shadow those of another.
    target_compile_options(muster_test_settings INTERFACE -Wno-shadow)
  endif()
endif()

function(muster_library name)
  cmake_parse_arguments(ARG "COLD" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  if(ARG_COLD AND MUSTER_SANITIZE)
    target_compile_options(${name} PRIVATE -O0)
  elseif(ARG_COLD)
    target_compile_options(${name} PRIVATE -O1)
  endif()
  target_link_libraries(${name} PUBLIC muster_settings ${ARG_DEPS})
endfunction()

function(muster_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE muster_settings ${ARG_DEPS})
endfunction()

# The tests' user cache: measurements of this machine, which tests share, apart from the user's own.
set(test_cache ${CMAKE_BINARY_DIR}/test-cache)

function(muster_gtest name)
  cmake_parse_arguments(ARG "" "TIMEOUT;SHARDS" "LABELS" ${ARGN})
  if(NOT ARG_SHARDS)
    set(ARG_SHARDS 1)
  endif()
  if(MUSTER_SANITIZE)
    # Sanitizer builds are many times as slow; the timeout only ends hanging tests.
    math(EXPR ARG_TIMEOUT "4 * ${ARG_TIMEOUT}")
  endif()
  list(JOIN ARG_LABELS "+" labels)  # CTest matches labels by regular expression
  foreach(shard RANGE 1 ${ARG_SHARDS})
    set(test ${name})
    if(ARG_SHARDS GREATER 1)
      set(test ${name}.${shard})
    endif()
    math(EXPR index "${shard} - 1")
    add_test(NAME ${test} COMMAND ${name})
    # The longest programs run first, so that no processor waits for the last one.
    set_tests_properties(${test} PROPERTIES LABELS ${labels} TIMEOUT ${ARG_TIMEOUT} COST ${ARG_SHARDS}
      ENVIRONMENT "XDG_CACHE_HOME=${test_cache};GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${index};GTEST_OUTPUT=xml:${CMAKE_BINARY_DIR}/test-results/${test}.xml")
  endforeach()
endfunction()

function(muster_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;SHARDS" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  if(NOT MUSTER_SANITIZE)
    target_compile_options(${name} PRIVATE -O1)
  endif()
  target_link_libraries(${name} PRIVATE muster_settings GTest::gmock_main GTest::gtest muster_test_paths ${ARG_DEPS} muster_test_settings)
  muster_gtest(${name} LABELS ${ARG_LABELS} TIMEOUT ${ARG_TIMEOUT} SHARDS ${ARG_SHARDS})
  if("tsan" IN_LIST ARG_LABELS)
    add_dependencies(muster_tsan_tests ${name})
  endif()
endfunction()

function(muster_script_tests file)
  cmake_parse_arguments(ARG "BY_CLASS" "TIMEOUT" "LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 180)
  endif()
  list(JOIN ARG_LABELS "+" labels)
  get_filename_component(stem ${file} NAME_WE)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(STRINGS ${file} lines REGEX "^class [A-Za-z0-9]+|^    def test_[a-z0-9_]+")
  foreach(line IN LISTS lines)
    set(name)
    if(line MATCHES "^class ([A-Za-z0-9]+)")
      set(class ${CMAKE_MATCH_1})
      if(ARG_BY_CLASS)
        set(name ${stem}.${class})
      endif()
    elseif(line MATCHES "def (test_[a-z0-9_]+)" AND NOT ARG_BY_CLASS)
      set(name ${stem}.${class}.${CMAKE_MATCH_1})
    endif()
    if(name)
      add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} -B -m unittest -v ${name}
               WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
      set_tests_properties(${name} PROPERTIES LABELS ${labels} TIMEOUT ${ARG_TIMEOUT}
        SKIP_REGULAR_EXPRESSION "OK .skipped=1"
        ENVIRONMENT "MUSTER_BIN_DIR=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};MUSTER_SOURCE_DIR=${CMAKE_SOURCE_DIR};XDG_CACHE_HOME=${test_cache}")
    endif()
  endforeach()
endfunction()
