# Run by CPack before it makes Debian's packages of staged folders: gives each package its
# share/doc/<package>/copyright, with the licence of Winnow and those of what is compiled into it.
set(text "Winnow is under the Apache License, Version 2.0, whose text is in /usr/share/common-licenses/Apache-2.0.\n")
string(APPEND text "Parts of other projects are compiled into its files. Their licences follow.\n")
foreach(name cli11 ggml nlohmann_json onnxruntime opencl_headers) # the others are packages of their own
    file(READ "${CPACK_WINNOW_SOURCE_DIR}/licenses/${name}.txt" licence)
    string(APPEND text "\n----\n\n${licence}")
endforeach()
file(GLOB folders LIST_DIRECTORIES ON "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/*")
foreach(folder IN LISTS folders)
    get_filename_component(group "${folder}" NAME)
    string(TOUPPER "CPACK_DEBIAN_${group}_PACKAGE_NAME" name)
    file(WRITE "${folder}/usr/share/doc/${${name}}/copyright" "${text}")
endforeach()
