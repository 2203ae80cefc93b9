# Debian's packages, as CPack makes them of a build with the prefix /usr: what ci/packages does.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "The authors of Winnow")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_HOMEPAGE "${WINNOW_HOMEPAGE}")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_PRE_BUILD_SCRIPTS "${CMAKE_CURRENT_LIST_DIR}/debian_copyright.cmake")
set(CPACK_WINNOW_SOURCE_DIR "${PROJECT_SOURCE_DIR}") # for that script, as each CPACK_... is

# winnow_package(<group> <name> <section> <description> COMPONENTS <component>... [DEPENDS <package>...]
#                [RECOMMENDS <package>...]): one package. DEPENDS are those beside the libraries that its files link.
set(groups "")
set(CPACK_COMPONENTS_ALL "")
macro(winnow_package group name section description)
    cmake_parse_arguments(package "" "" "COMPONENTS;DEPENDS;RECOMMENDS" ${ARGN})
    list(APPEND groups ${group})
    list(APPEND CPACK_COMPONENTS_ALL ${package_COMPONENTS})
    string(TOUPPER ${group} upper)
    set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name})
    set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
    set(CPACK_DEBIAN_${upper}_DESCRIPTION "${description}")
    list(JOIN package_DEPENDS ", " CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS)
    list(JOIN package_RECOMMENDS ", " CPACK_DEBIAN_${upper}_PACKAGE_RECOMMENDS)
    foreach(component IN LISTS package_COMPONENTS)
        set(group_of_${component} ${group})
    endforeach()
endmacro()

set(library libwinnow${PROJECT_VERSION_MAJOR})
set(same_library "${library} (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
winnow_package(libraries ${library} libs
    "The OpenCL backend and the reference backend of Winnow, which programs open when they run."
    COMPONENTS library RECOMMENDS "pocl-opencl-icd | opencl-icd")
winnow_package(development libwinnow-dev libdevel
    "The headers of Winnow's interface in C, and the loader that opens a backend, for CMake and pkg-config."
    COMPONENTS dev DEPENDS "${same_library}")
if(WINNOW_BUILD_TOOLS)
    set(plugin "")
    if(WINNOW_LLAMA_CPP_DIR)
        set(plugin winnow-ggml) # which `winnow run` needs
    endif()
    winnow_package(programs winnow-tools utils
        "The program winnow: what devices can do, what a cache takes, and what it costs in time."
        COMPONENTS tools DEPENDS "${same_library}" RECOMMENDS python3-venv ${plugin})
endif()
if(WINNOW_BUILD_LAB)
    winnow_package(lab winnow-lab science
        "The command winnow eval: what a configuration of a KV cache costs in quality, through llama.cpp."
        COMPONENTS lab RECOMMENDS ${plugin}
        DEPENDS "winnow-tools (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
endif()
if(WINNOW_LLAMA_CPP_DIR)
    winnow_package(plugin winnow-ggml libs
        "A ggml backend that llama.cpp loads, and that gives it Winnow's attention and caches."
        COMPONENTS ggml DEPENDS "${same_library}")
endif()
winnow_package(provider winnow-onnxruntime libs
    "An execution provider that ONNX Runtime loads, and that gives it Winnow's attention and caches."
    COMPONENTS onnxruntime DEPENDS "${same_library}")

include(CPack)
foreach(group IN LISTS groups)
    cpack_add_component_group(${group})
endforeach()
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
    cpack_add_component(${component} GROUP ${group_of_${component}})
endforeach()
