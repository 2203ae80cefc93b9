# cmake -D CONFORMANCE= -D BROKEN= -D REFERENCE= -D DEFECT= -D FILTER= -P expect_verdict.cmake
# Runs the suite on the broken backend and expects it to be convicted: status 1, and a summary that says so. Without the
# defect the same backend has to be acquitted, of the very cases that convicted it.
function(judge defect filter)
    set(ENV{WINNOW_DEFECT} ${defect})
    execute_process(COMMAND ${CONFORMANCE} --backend ${BROKEN} --reference ${REFERENCE} --cases 0
                            --filter "${filter}" --gtest_brief=1 --gtest_fail_fast
                    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
    set(status ${status} PARENT_SCOPE)
    set(output "${output}" PARENT_SCOPE)
endfunction()

judge(${DEFECT} "${FILTER}")
if(NOT status STREQUAL "1" OR NOT output MATCHES "DOES NOT CONFORM")
    message(FATAL_ERROR "the defect ${DEFECT} was not found; status ${status}\n${output}")
endif()
string(REGEX MATCHALL "\\[  FAILED  \\] [^ ,\n]+\\.[^ ,\n]+" failed "${output}")
string(REPLACE "[  FAILED  ] " "" failed "${failed}")
list(REMOVE_DUPLICATES failed)
list(JOIN failed ":" cases)
if(NOT cases) # convicted by what the backend never did
    set(cases "${FILTER}")
endif()
judge(none "${cases}")
if(output MATCHES " [1-9][0-9]* passed, 0 skipped, 0 failed: DOES NOT CONFORM") # by cases that call next to nothing
    set(cases "${FILTER}")
    judge(none "${cases}")
endif()
if(NOT status STREQUAL "0" OR NOT output MATCHES " [1-9][0-9]* passed, [0-9]+ skipped, 0 failed: a part")
    message(FATAL_ERROR "without ${DEFECT} the stub should conform in ${cases}; status ${status}\n${output}")
endif()
message(STATUS "${DEFECT}: convicted by ${cases}, which acquits the stub without it")
