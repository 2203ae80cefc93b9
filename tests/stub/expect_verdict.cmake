# cmake -D CONFORMANCE= -D BROKEN= -D REFERENCE= -D DEFECT= -D FILTER= -P expect_verdict.cmake
# Runs the suite on the broken backend and expects it to be convicted: status 1, and a summary that says so.
set(ENV{WINNOW_DEFECT} ${DEFECT})
set(until_first_failure "")
if(NOT DEFECT STREQUAL "none")
    set(until_first_failure --gtest_fail_fast)
endif()
execute_process(COMMAND ${CONFORMANCE} --backend ${BROKEN} --reference ${REFERENCE} --cases 0
                        --filter "${FILTER}" --gtest_brief=1 ${until_first_failure}
                RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(DEFECT STREQUAL "none")
    if(NOT status STREQUAL "0" OR NOT output MATCHES " 0 failed: CONFORMS")
        message(FATAL_ERROR "the stub without a defect should conform; status ${status}\n${output}")
    endif()
else()
    if(NOT status STREQUAL "1" OR NOT output MATCHES "DOES NOT CONFORM")
        message(FATAL_ERROR "the defect ${DEFECT} was not found; status ${status}\n${output}")
    endif()
    message(STATUS "${DEFECT}: convicted")
endif()
