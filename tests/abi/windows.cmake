# cmake -D CC=x86_64-w64-mingw32-gcc -D OBJDUMP=... -D SOURCE=<tree> -D WORK=<folder> -P windows.cmake: headers and
# loader compile for Windows, structs have the same layout there, hosts that load and that link a backend are built, and
# a backend exports winnow_get_api.
file(MAKE_DIRECTORY "${WORK}")
set(compile ${CC} -std=c99 -Wall -Wextra -pedantic -Werror "-I${SOURCE}/plugin_api")
set(loader "${SOURCE}/plugin_api/winnow_loader.c")
execute_process(COMMAND ${compile} -c "${SOURCE}/tests/abi/layout.c" -o "${WORK}/layout.obj"
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${compile} "${SOURCE}/hosts/c/winnow_host.c" "${loader}" -o "${WORK}/host.exe"
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${compile} -shared "${SOURCE}/tests/abi/windows_backend.c" -o "${WORK}/winnow_none.dll"
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${OBJDUMP} -p "${WORK}/winnow_none.dll" OUTPUT_VARIABLE tables COMMAND_ERROR_IS_FATAL ANY)
if(NOT tables MATCHES "Ordinal/Name Pointer. Table[^\n]*\n[^\n]*winnow_get_api")
    message(FATAL_ERROR "the backend does not export winnow_get_api:\n${tables}")
endif()

set(host "${SOURCE}/tests/abi/windows_host.c")
execute_process(COMMAND ${compile} "${host}" "${WORK}/winnow_none.dll" -o "${WORK}/linking_host.exe"
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${OBJDUMP} -p "${WORK}/linking_host.exe" OUTPUT_VARIABLE tables COMMAND_ERROR_IS_FATAL ANY)
if(NOT tables MATCHES "DLL Name: winnow_none.dll[^\n]*\n[^\n]*\n[^\n]*winnow_get_api")
    message(FATAL_ERROR "the host does not import winnow_get_api:\n${tables}")
endif()
# With 32 bits conventions differ, and the default is another than C's here: callbacks without WINNOW_CALL do not fit.
foreach(source windows_host windows_backend)
    execute_process(COMMAND ${compile} -m32 -mrtd -c "${SOURCE}/tests/abi/${source}.c" -o "${WORK}/${source}_32.obj"
                    COMMAND_ERROR_IS_FATAL ANY)
endforeach()
file(READ "${host}" text)
string(REPLACE "WINNOW_CALL " "" text "${text}")
file(WRITE "${WORK}/windows_host.c" "${text}")
execute_process(COMMAND ${compile} -m32 -mrtd -c "${WORK}/windows_host.c" -o "${WORK}/windows_host.obj"
                RESULT_VARIABLE result ERROR_VARIABLE errors)
string(REGEX MATCHALL "incompatible-pointer-types" mismatches "${errors}")
list(LENGTH mismatches count)
if(result EQUAL 0 OR count LESS 5)
    message(FATAL_ERROR "callbacks of another convention fit ${count} of 5 times:\n${errors}")
endif()
# No slot and no callback of the headers is without it.
foreach(header winnow winnow_cache winnow_opencl)
    file(READ "${SOURCE}/plugin_api/${header}.h" text)
    if(text MATCHES "\\(\\*[^)]*\\)\\([^\n]*")
        message(FATAL_ERROR "${header}.h has a function without WINNOW_CALL: ${CMAKE_MATCH_0}")
    endif()
endforeach()
