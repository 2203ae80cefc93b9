# cmake -D NM=nm -D OBJECT=file -P exports.cmake: a backend exports winnow_get_api and nothing else.
execute_process(COMMAND ${NM} -D --defined-only ${OBJECT} OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE "[^\n]* ([A-Za-z]) ([^\n]+)" "\\2" names "${listing}")
string(STRIP "${names}" names)
if(NOT names STREQUAL "winnow_get_api")
    message(FATAL_ERROR "${OBJECT} exports:\n${names}\nexpected winnow_get_api alone")
endif()
message(STATUS "${OBJECT} exports winnow_get_api alone")
