# A build in less time, where WINNOW_QUICK_BUILD is on, as in ci/test: headers of the standard library and of other
# projects that each source of a target reads are compiled once for it, and its sources are compiled some at a time. A
# build without it is what finds an include that is missing, and `ci/test --full` makes one; clang-tidy reads what was
# changed one source at a time, too.
option(WINNOW_QUICK_BUILD "Precompile headers, and compile sources some at a time" OFF)

# winnow_quick_build(<target> [HEADERS <header>...] [REUSE_FROM <other target>] [ALONE <source>...]
#                    [OPTIONS <option>...])
# HEADERS: precompiled beside those of the standard library that nearly every file has. ALONE: compiled by itself, for a
# name of an anonymous namespace that another source has, too. OPTIONS: further options of compilation of a release, as
# -O0 where no run spends its time; with all cases everything is optimized as a release is.
function(winnow_quick_build target)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "REUSE_FROM" "HEADERS;ALONE;OPTIONS")
    if(NOT WINNOW_QUICK_BUILD)
        return()
    endif()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
    get_target_property(sources ${target} SOURCES)
    list(FILTER sources INCLUDE REGEX "\\.c$")
    set_source_files_properties(${arg_ALONE} ${sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    target_compile_options(${target} PRIVATE -Wno-shadow) # of what another source has
    if(NOT WINNOW_FULL_SWEEPS)
        foreach(option IN LISTS arg_OPTIONS)
            target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${option}>)
        endforeach()
    endif()
    # g++ 12 warns of what the library's own strings do where its headers come precompiled; elsewhere it does not.
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow)
    endif()
    if(arg_REUSE_FROM)
        target_precompile_headers(${target} REUSE_FROM ${arg_REUSE_FROM})
        return()
    endif()
    set(headers "")
    foreach(header algorithm functional memory optional span string vector ${arg_HEADERS})
        list(APPEND headers "$<$<COMPILE_LANGUAGE:CXX>:<${header}$<ANGLE-R>>")
    endforeach()
    target_precompile_headers(${target} PRIVATE ${headers})
endfunction()
