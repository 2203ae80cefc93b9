# What ci/parts.py adds to llama.cpp's configuration, so that the same sources give the same programs sooner: headers
# that each source has are read once a library, and small sources are compiled many at a time. Optimisation levels stay
# those of the build type, but with WINNOW_TEST_CODE (code for tests, where no run spends its time) and, lower still,
# WINNOW_TEXT_ALONE (for a single text): neither is for measuring.
function(winnow_optimise level)
    foreach(target ${ARGN})
        if(TARGET ${target})
            target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${level}>)
        endif()
    endforeach()
endfunction()

# winnow_at_once(<target> <regex>): its sources are compiled 12 at a time, but for those that match.
function(winnow_at_once target alone)
    if(NOT TARGET ${target})
        return()
    endif()
    get_target_property(sources ${target} SOURCES)
    get_target_property(folder ${target} SOURCE_DIR)
    list(FILTER sources INCLUDE REGEX "${alone}")
    list(TRANSFORM sources PREPEND "${folder}/" REGEX "^[^/]") # of absolute names none
    set_source_files_properties(${sources} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
endfunction()

function(winnow_lower_levels)
    winnow_optimise(-O0 mtmd cpp-httplib server-context llama-server-impl llama-common llama-bench-impl
                    llama-completion-impl llama-batched-bench-impl llama-batched-bench llama-parallel llama-lookahead
                    ggml-rpc test-backend-ops test-llama-archs)
    # Of ggml-base what is C++; where values are computed it is C, or in ggml-cpu.
    winnow_optimise(-O1 llama ggml ggml-base llama-perplexity-impl llama-quantize-impl)
    if(WINNOW_TEXT_ALONE) # no run is long, and what is fast in ggml is written with intrinsics
        winnow_optimise(-O0 llama)
        target_compile_options(ggml-base PRIVATE -O1)
        target_compile_options(ggml-cpu PRIVATE -O1)
    endif()
endfunction()

function(winnow_build_sooner)
    if(WINNOW_TEST_CODE)
        winnow_lower_levels()
    endif()
    set(headers <algorithm> <functional> <map> <memory> <regex> <string> <thread> <unordered_map> <vector>)
    target_precompile_headers(llama PRIVATE ${headers})
    foreach(target llama-common server-context llama-server-impl)
        if(TARGET ${target})
            target_precompile_headers(${target} PRIVATE <nlohmann/json.hpp> ${headers})
        endif()
    endforeach()
    if(NOT WINNOW_SOURCES_AT_ONCE)
        return()
    endif()
    # Models have a source each; what is beside them is not to be seen with the libraries' inside.
    winnow_at_once(mtmd "^[^/]+$")
    winnow_at_once(llama "^[^/]+$|models/gemma") # of which two have the same function in some releases
    winnow_at_once(llama-common "(^|/)json\\.cpp$")
    winnow_at_once(server-context "(^|/)server-context\\.cpp$")
    winnow_at_once(llama-server-impl "(^|/)server\\.cpp$")
endfunction()
cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL winnow_build_sooner)
