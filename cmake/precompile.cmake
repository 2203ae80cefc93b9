# Headers of the standard library and of other projects that a target's sources read again and again are compiled once
# for it. Only where WINNOW_PRECOMPILE is on, as in ci/test: a build without it is what finds an include that is missing.
option(WINNOW_PRECOMPILE "Precompile headers of the standard library and of other projects" OFF)

# winnow_precompile(<target> [<header> ...]), beside those of the standard library that nearly every file has.
function(winnow_precompile target)
    if(NOT WINNOW_PRECOMPILE)
        return()
    endif()
    set(headers "")
    foreach(header algorithm functional memory optional span string vector ${ARGN})
        list(APPEND headers "$<$<COMPILE_LANGUAGE:CXX>:<${header}$<ANGLE-R>>")
    endforeach()
    target_precompile_headers(${target} PRIVATE ${headers})
endfunction()
