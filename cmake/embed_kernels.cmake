# Turns the OpenCL C of kernels/ into one C++ table, so that the shared object carries its kernels.
#
#   cmake -DKERNEL_DIR=<kernels/> -DOUTPUT=<file.cpp> -P embed_kernels.cmake
#
# Every KERNEL_DIR/**/*.cl becomes one entry (file name, source, hash). #include "x.h" is replaced by that file of
# KERNEL_DIR, and #line directives keep the compiler's messages pointing at the real file. #include NAME stands for the
# file that a #define NAME "x.h" named before, there or in a file that includes it. Refused: an include that does not
# exist, two kernels of one file name, and a header that one kernel would include twice (its text would be there twice;
# include it once, from the .cl), unless it has a line "#pragma winnow repeatable"; such a header includes its like
# alone, so that all that is repeated says so. Everything is handled as text, line by line, because CMake's lists would
# break at semicolons and brackets.
cmake_minimum_required(VERSION 3.25)

foreach(required KERNEL_DIR OUTPUT)
    if(NOT DEFINED ${required})
        message(FATAL_ERROR "embed_kernels.cmake needs -D${required}=...")
    endif()
endforeach()

# Appends `file` with its includes resolved to `resolved`, and names each file in `included`; both live in the
# caller's scope.
function(resolve_includes file includer)
    file(RELATIVE_PATH name "${KERNEL_DIR}" "${file}")
    if(NOT EXISTS "${file}")
        message(FATAL_ERROR "${includer} includes \"${name}\", which does not exist in ${KERNEL_DIR}")
    endif()
    file(READ "${file}" rest)
    if(NOT rest MATCHES "(^|\n)#pragma winnow repeatable\n")
        if(in_repeatable)
            message(FATAL_ERROR "${includer} is repeatable and includes \"${name}\", which is not")
        endif()
        if("${name}" IN_LIST included)
            message(FATAL_ERROR "${includer} includes \"${name}\", which ${kernel_name} has included already")
        endif()
        list(APPEND included "${name}")
        set(is_repeatable FALSE)
    else()
        if("${name}" IN_LIST open)
            message(FATAL_ERROR "${includer} includes \"${name}\", in which it lies itself")
        endif()
        list(APPEND open "${name}") # of this call and those below it
        set(is_repeatable TRUE)
    endif()
    string(APPEND resolved "#line 1 \"kernels/${name}\"\n")
    set(line_number 0)
    while(NOT rest STREQUAL "")
        math(EXPR line_number "${line_number} + 1")
        string(FIND "${rest}" "\n" end)
        if(end EQUAL -1)
            set(line "${rest}")
            set(rest "")
        else()
            string(SUBSTRING "${rest}" 0 ${end} line)
            math(EXPR end "${end} + 1")
            string(SUBSTRING "${rest}" ${end} -1 rest)
        endif()
        if(line MATCHES "^[ \t]*#[ \t]*define[ \t]+([A-Za-z0-9_]+)[ \t]+\"([^\"]+)\"$")
            set("header_of_${CMAKE_MATCH_1}" "${CMAKE_MATCH_2}")
        endif()
        set(header "")
        if(line MATCHES "^[ \t]*#[ \t]*include[ \t]*\"([^\"]+)\"")
            set(header "${CMAKE_MATCH_1}")
        elseif(line MATCHES "^[ \t]*#[ \t]*include[ \t]*([A-Za-z0-9_]+)$")
            set(header "${header_of_${CMAKE_MATCH_1}}")
            if(header STREQUAL "")
                message(FATAL_ERROR "kernels/${name}:${line_number} includes ${CMAKE_MATCH_1}, which names no file")
            endif()
        endif()
        if(NOT header STREQUAL "")
            set(in_repeatable "${is_repeatable}")
            resolve_includes("${KERNEL_DIR}/${header}" "kernels/${name}:${line_number}")
            math(EXPR next_line "${line_number} + 1")
            string(APPEND resolved "#line ${next_line} \"kernels/${name}\"\n")
        elseif(line MATCHES "^[ \t]*#[ \t]*pragma[ \t]+(once|winnow)")
            string(APPEND resolved "\n") # meant for the host or for this script
        else()
            string(APPEND resolved "${line}\n")
        endif()
    endwhile()
    set(resolved "${resolved}" PARENT_SCOPE)
    set(included "${included}" PARENT_SCOPE)
endfunction()

file(GLOB_RECURSE kernel_files "${KERNEL_DIR}/*.cl")
list(SORT kernel_files)

set(definitions "")
set(rows "")
set(names "")
set(count 0)
foreach(kernel_file IN LISTS kernel_files)
    get_filename_component(kernel_name "${kernel_file}" NAME)
    if(kernel_name IN_LIST names)
        message(FATAL_ERROR "two kernel files are named ${kernel_name}; the name is what a launcher asks for")
    endif()
    list(APPEND names "${kernel_name}")

    set(resolved "")
    set(included "")
    resolve_includes("${kernel_file}" "the build")
    string(SHA256 hash "${resolved}")

    # One string literal a line: no limit on the length of a raw string is reached, and the generated file can be read.
    string(REPLACE "\\" "\\\\" literal "${resolved}")
    string(REPLACE "\"" "\\\"" literal "${literal}")
    string(REPLACE "?" "\\?" literal "${literal}")
    string(REPLACE "\n" "\\n\"\n    \"" literal "${literal}")
    string(APPEND definitions "const char source_${count}[] =\n    \"${literal}\";\n\n")
    string(APPEND rows "    {\"${kernel_name}\", {source_${count}, sizeof source_${count} - 1}, \"${hash}\"},\n")
    math(EXPR count "${count} + 1")
endforeach()

file(CONFIGURE OUTPUT "${OUTPUT}" @ONLY CONTENT
"// Generated by cmake/embed_kernels.cmake from kernels/; do not edit.
#include <array>

#include \"opencl/kernel_sources.hpp\"

namespace winnow::opencl {
namespace {

@definitions@const std::array<KernelSource, @count@> table{{
@rows@}};

} // namespace

std::span<const KernelSource> kernel_sources() { return table; }

} // namespace winnow::opencl
")
