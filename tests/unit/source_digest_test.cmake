# That the hash of cmake/source_digest.cmake is another one for other sources, and the same for the same.
#
#   cmake -DSCRIPT=<source_digest.cmake> -DWORK_DIR=<a folder that may be deleted> -P source_digest_test.cmake
cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE "${WORK_DIR}")
file(MAKE_DIRECTORY "${WORK_DIR}/sources")
set(seen "")

function(digest result)
    execute_process(
        COMMAND "${CMAKE_COMMAND}" "-DFOLDER=${WORK_DIR}/sources" "-DOUTPUT=${WORK_DIR}/digest.cpp" -P "${SCRIPT}"
        RESULT_VARIABLE code
        ERROR_VARIABLE text)
    if(NOT code EQUAL 0)
        set(${result} "refused: ${text}" PARENT_SCOPE)
        return()
    endif()
    file(READ "${WORK_DIR}/digest.cpp" made)
    if(NOT made MATCHES "return \"([0-9a-f]+)\";")
        message(FATAL_ERROR "there is no hash in ${made}")
    endif()
    set(${result} "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

# After a change: none of the hashes before.
macro(expect_another what)
    digest(now)
    if(now IN_LIST seen)
        message(FATAL_ERROR "the hash stays what it was: ${what}")
    endif()
    list(APPEND seen "${now}")
endmacro()

digest(none)
if(NOT none MATCHES "^refused: .*there are no sources")
    message(FATAL_ERROR "a folder without sources is not refused: ${none}")
endif()
file(WRITE "${WORK_DIR}/sources/a.cpp" "int a;\n")
expect_another("a first file")
file(WRITE "${WORK_DIR}/sources/b.hpp" "int b;\n")
expect_another("a header")
file(WRITE "${WORK_DIR}/sources/b.hpp" "int c;\n")
expect_another("another text")
file(RENAME "${WORK_DIR}/sources/b.hpp" "${WORK_DIR}/sources/c.hpp")
expect_another("another name")
file(WRITE "${WORK_DIR}/sources/notes.md" "nothing that is compiled\n")
digest(again)
if(NOT again STREQUAL now)
    message(FATAL_ERROR "the hash of the same sources is another one")
endif()
