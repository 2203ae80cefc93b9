# What cmake/embed_kernels.cmake embeds and what it refuses, on folders that are made up here.
#
#   cmake -DSCRIPT=<embed_kernels.cmake> -DWORK_DIR=<a folder that may be deleted> -P embed_kernels_test.cmake
cmake_minimum_required(VERSION 3.25)

# Begins an empty folder.
macro(begin)
    file(REMOVE_RECURSE "${WORK_DIR}")
    file(MAKE_DIRECTORY "${WORK_DIR}/kernels")
endmacro()

function(kernel_file name content)
    file(WRITE "${WORK_DIR}/kernels/${name}" "${content}")
endfunction()

macro(embed)
    execute_process(
        COMMAND "${CMAKE_COMMAND}" "-DKERNEL_DIR=${WORK_DIR}/kernels" "-DOUTPUT=${WORK_DIR}/table.cpp" -P "${SCRIPT}"
        RESULT_VARIABLE code
        OUTPUT_VARIABLE text
        ERROR_VARIABLE text)
    string(REGEX REPLACE "[ \n]+" " " text "${text}") # CMake wraps its messages
endmacro()

function(expect_refused what)
    embed()
    if(code EQUAL 0)
        message(FATAL_ERROR "not refused: ${what}")
    endif()
    string(FIND "${text}" "${what}" at)
    if(at EQUAL -1)
        message(FATAL_ERROR "refused, but not because of \"${what}\": ${text}")
    endif()
    if(EXISTS "${WORK_DIR}/table.cpp")
        message(FATAL_ERROR "refused (${what}), but a table was written")
    endif()
endfunction()

function(expect_embedded)
    embed()
    if(NOT code EQUAL 0)
        message(FATAL_ERROR "refused: ${text}")
    endif()
    file(READ "${WORK_DIR}/table.cpp" table)
    foreach(part IN LISTS ARGN)
        string(FIND "${table}" "${part}" at)
        if(at EQUAL -1)
            message(FATAL_ERROR "the table lacks ${part}:\n${table}")
        endif()
    endforeach()
endfunction()

begin()
kernel_file(one.cl "#include \"shared.h\"\nkernel void one() { f[0]; \"x\\n\"; }\n")
kernel_file(shared.h "#pragma once\nint shared;\n")
kernel_file(sub/two.cl "  #  include \"shared.h\"\nkernel void two() {}")
expect_embedded("std::array<KernelSource, 2>" "{\"one.cl\", {" "{\"two.cl\", {" "int shared"
                "#line 1 \\\"kernels/shared.h\\\"" "#line 2 \\\"kernels/one.cl\\\""
                "f[0]" "\\\"x\\\\n\\\"" "kernel void two() {}")
file(READ "${WORK_DIR}/table.cpp" table)
foreach(absent "#pragma" "include \\\"shared.h")
    string(FIND "${table}" "${absent}" at)
    if(NOT at EQUAL -1)
        message(FATAL_ERROR "the table contains ${absent}:\n${table}")
    endif()
endforeach()
# The hash, by which programs are found on disk, follows a header's text.
string(REGEX MATCHALL "\"[0-9a-f]+\"}" hashes "${table}")
kernel_file(shared.h "#pragma once\nint changed;\n")
expect_embedded("int changed")
file(READ "${WORK_DIR}/table.cpp" table)
string(REGEX MATCHALL "\"[0-9a-f]+\"}" new_hashes "${table}")
list(LENGTH hashes count)
if(NOT count EQUAL 2)
    message(FATAL_ERROR "expected two hashes: ${table}")
endif()
foreach(hash IN LISTS hashes)
    if(hash IN_LIST new_hashes)
        message(FATAL_ERROR "the hash ${hash} survived a change of its header")
    endif()
endforeach()

begin()
kernel_file(one.cl "kernel void one() {}\n")
kernel_file(sub/one.cl "kernel void other() {}\n")
expect_refused("two kernel files are named one.cl")

begin()
kernel_file(one.cl "// first\n#include \"absent.h\"\n")
expect_refused("kernels/one.cl:2 includes \"absent.h\", which does not exist")

begin()
kernel_file(one.cl "#include \"a.h\"\n#include \"b.h\"\n")
kernel_file(a.h "int a;\n")
kernel_file(b.h "#include \"a.h\"\n")
expect_refused("kernels/b.h:1 includes \"a.h\", which one.cl has included already")

begin()
kernel_file(one.cl "#include \"a.h\"\n")
kernel_file(a.h "#include \"a.h\"\n")
expect_refused("kernels/a.h:1 includes \"a.h\", which one.cl has included already")

# A header may say that it is to be included again and again.
begin()
kernel_file(one.cl "#define N a\n#include \"many.h\"\n#undef N\n#define N b\n#include \"many.h\"\n")
kernel_file(many.h "#pragma winnow repeatable\nint N;\n")
set(body "#line 1 \\\"kernels/many.h\\\"\\n\"\n    \"\\n\"\n    \"int N;")
expect_embedded("#define N a\\n\"\n    \"${body}" "#define N b\\n\"\n    \"${body}")

begin()
kernel_file(one.cl "#include \"many.h\"\n")
kernel_file(many.h "#pragma winnow repeatable\n#include \"many.h\"\n")
expect_refused("kernels/many.h:2 includes \"many.h\", in which it lies itself")

# It includes its like alone.
begin()
kernel_file(one.cl "#include \"many.h\"\n#include \"many.h\"\n")
kernel_file(many.h "#pragma winnow repeatable\n#include \"more.h\"\n")
kernel_file(more.h "#pragma winnow repeatable\nint more;\n")
expect_embedded("#line 3 \\\"kernels/many.h\\\"" "int more")

begin()
kernel_file(one.cl "#include \"many.h\"\n")
kernel_file(many.h "#pragma winnow repeatable\n#include \"once.h\"\n")
kernel_file(once.h "int once;\n")
expect_refused("kernels/many.h:2 is repeatable and includes \"once.h\", which is not")

# A name may stand for a file.
begin()
kernel_file(one.cl "#define CODE \"code.h\"\n#include \"each.h\"\n")
kernel_file(each.h "#include CODE\n")
kernel_file(code.h "int code;\n")
expect_embedded("#line 1 \\\"kernels/code.h\\\"" "int code")

begin()
kernel_file(one.cl "#include CODE\n")
expect_refused("kernels/one.cl:1 includes CODE, which names no file")

file(REMOVE_RECURSE "${WORK_DIR}")
