# What the build needs of others, and the oldest version of each that it accepts: the oldest that was tried. The table
# of docs/building.md has the same versions, and tests/system/requirements_test.py holds it to this file.
set(oldest_GNU 12)
set(oldest_Clang 14)
set(oldest_OpenCL 3.0)
set(oldest_libxxhash 0.8.1)
set(oldest_nlohmann_json 3.11)
set(oldest_CLI11 2.1)

if(DEFINED oldest_${CMAKE_CXX_COMPILER_ID} AND
   CMAKE_CXX_COMPILER_VERSION VERSION_LESS oldest_${CMAKE_CXX_COMPILER_ID})
    message(FATAL_ERROR "${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}. Winnow "
                        "needs g++ ${oldest_GNU} or clang ${oldest_Clang}, or a newer one: name it in "
                        "CMAKE_CXX_COMPILER.")
endif()

find_package(OpenCL ${oldest_OpenCL} REQUIRED)
find_path(WINNOW_CLHPP_DIR CL/opencl.hpp HINTS ${OpenCL_INCLUDE_DIRS})
mark_as_advanced(WINNOW_CLHPP_DIR)
if(NOT WINNOW_CLHPP_DIR)
    message(FATAL_ERROR "There is no CL/opencl.hpp in ${OpenCL_INCLUDE_DIRS}. Install the C++ headers of OpenCL "
                        "(clhpp; on Debian opencl-clhpp-headers), or name their folder in WINNOW_CLHPP_DIR.")
endif()
if(NOT WINNOW_CLHPP_DIR IN_LIST OpenCL_INCLUDE_DIRS)
    target_include_directories(OpenCL::OpenCL SYSTEM INTERFACE "${WINNOW_CLHPP_DIR}")
endif()
find_package(PkgConfig REQUIRED)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash>=${oldest_libxxhash})
find_package(nlohmann_json ${oldest_nlohmann_json} REQUIRED)
if(WINNOW_BUILD_TOOLS)
    find_package(CLI11 ${oldest_CLI11} REQUIRED)
endif()
