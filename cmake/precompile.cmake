# Headers of the standard library and of other projects that each source of a target reads are compiled once for it.
# Only where WINNOW_PRECOMPILE is on, as in ci/test: a build without it is what finds an include that is missing, and
# `ci/test --full` makes one. clang-tidy reads what was changed without precompiled headers, too.
option(WINNOW_PRECOMPILE "Precompile headers of the standard library and of other projects" OFF)

# winnow_precompile(<target> [<header> ...]), beside those of the standard library that nearly every file has.
# winnow_precompile(<target> REUSE_FROM <other target>)
function(winnow_precompile target)
    if(NOT WINNOW_PRECOMPILE)
        return()
    endif()
    # g++ 12 warns of what the library's own strings do where its headers come precompiled; elsewhere it does not.
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow)
    endif()
    if("${ARGV1}" STREQUAL "REUSE_FROM")
        target_precompile_headers(${target} REUSE_FROM ${ARGV2})
        return()
    endif()
    set(headers "")
    foreach(header algorithm functional memory optional span string vector ${ARGN})
        list(APPEND headers "$<$<COMPILE_LANGUAGE:CXX>:<${header}$<ANGLE-R>>")
    endforeach()
    target_precompile_headers(${target} PRIVATE ${headers})
endfunction()
