# Which layout of versions/ a source tree of llama.cpp has.
set(winnow_ggml_layouts 0.25.3 0.20.0 0.16.0 0.15.1 0.10.0 0.9.8) # newest first

# winnow_ggml_version(<out> <tree>): the version of ggml.
function(winnow_ggml_version out tree)
    foreach(file ggml/CMakeLists.txt ggml/src/ggml-backend-impl.h)
        if(NOT EXISTS ${tree}/${file})
            message(FATAL_ERROR "${tree} is no source tree of llama.cpp: no ${file} in it. Expected of "
                                "WINNOW_LLAMA_CPP_DIR, and of each in WINNOW_FURTHER_LLAMA_CPP_DIRS")
        endif()
    endforeach()
    file(STRINGS ${tree}/ggml/CMakeLists.txt lines REGEX "^set\\(GGML_VERSION_(MAJOR|MINOR|PATCH) ")
    string(REGEX REPLACE "[^0-9;]" "" parts "${lines}")
    list(JOIN parts "." version)
    if(NOT version MATCHES "^[0-9]+\\.[0-9]+\\.[0-9]+$")
        message(FATAL_ERROR "cannot read ggml's version from ${tree}/ggml/CMakeLists.txt, expected GGML_VERSION_MAJOR, "
                            "_MINOR and _PATCH; versions before 0.9.8 cannot be served")
    endif()
    set(${out} ${version} PARENT_SCOPE)
endfunction()

# winnow_ggml_layout(<out> <versions out> <version> <tree>): its layout, and all versions that then are known to have
# it. Of a version that stands in no file of versions/ the compiler finds the layout: the newest whose facts hold.
function(winnow_ggml_layout out versions_out version tree)
    set(why "")
    foreach(layout IN LISTS winnow_ggml_layouts)
        file(STRINGS ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/versions/${layout}.hpp line REGEX "\\.versions = ")
        string(REGEX MATCHALL "[0-9]+\\.[0-9]+\\.[0-9]+" versions "${line}")
        set(versions_of_${layout} ${versions})
        if(version IN_LIST versions)
            set(${out} ${layout} PARENT_SCOPE)
            set(${versions_out} ${versions} PARENT_SCOPE)
            return()
        endif()
    endforeach()
    set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
    foreach(layout IN LISTS winnow_ggml_layouts)
        string(SHA256 place "${layout} ${tree}")
        try_compile(fits ${CMAKE_CURRENT_BINARY_DIR}/layouts/${place}
            SOURCES ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/layout_facts.cpp
            CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${tree}/ggml/include;${tree}/ggml/src"
            COMPILE_DEFINITIONS "-DWINNOW_GGML_LAYOUT=\"versions/${layout}.hpp\""
            CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON
            OUTPUT_VARIABLE output)
        set(it_fits ${fits})
        unset(fits CACHE)
        if(it_fits)
            set(${out} ${layout} PARENT_SCOPE)
            set(${versions_out} ${versions_of_${layout}} ${version} PARENT_SCOPE)
            return()
        endif()
        string(REGEX MATCHALL "[^\n]*error[^\n]*\n[^\n]*" errors "${output}")
        list(JOIN errors "\n" errors)
        string(APPEND why "\nnot that of ${layout}:\n${errors}\n")
    endforeach()
    message(FATAL_ERROR "${tree}: ggml ${version} has none of the layouts that hosts/ggml/versions knows.${why}")
endfunction()
