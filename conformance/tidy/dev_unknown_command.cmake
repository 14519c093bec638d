# ./dev with a command that it does not know: exit code 1, the error first, then where help is.
execute_process(COMMAND "${DEV}" bogus RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
set(right "dev: no command 'bogus'\n./dev help lists the commands\n")
if(NOT code EQUAL 1 OR NOT out STREQUAL "" OR NOT err STREQUAL right)
  message(FATAL_ERROR "exit code ${code}, stdout \"${out}\", stderr \"${err}\"")
endif()
