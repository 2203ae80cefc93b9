# cmake -D CC=x86_64-w64-mingw32-gcc -D OBJDUMP=... -D SOURCE=<tree> -D WORK=<folder> -P windows.cmake: headers and
# loader compile for Windows, structs have the same layout there, a host links, and a backend exports winnow_get_api.
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
