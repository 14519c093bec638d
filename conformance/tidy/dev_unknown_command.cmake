# ./dev with a command that it does not know, or with arguments that nobody reads: exit code 1, the
# error first, then where help is.
execute_process(COMMAND "${DEV}" bogus RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
set(right "dev: no command 'bogus'\n./dev help lists the commands\n")
if(NOT code EQUAL 1 OR NOT out STREQUAL "" OR NOT err STREQUAL right)
  message(FATAL_ERROR "exit code ${code}, stdout \"${out}\", stderr \"${err}\"")
endif()
foreach(line "setup --cuda x" "demo x" "test-all x" "tidy x" "help x" "fuzz 1 x" "fmt --check x"
    "record-vllm a x")
  separate_arguments(words UNIX_COMMAND "${line}")
  list(GET words 0 name)
  execute_process(COMMAND "${DEV}" ${words} RESULT_VARIABLE code OUTPUT_VARIABLE out
    ERROR_VARIABLE err)
  set(right "dev: ${name} does not take 'x'; ./dev help lists what it does\n")
  if(NOT code EQUAL 1 OR NOT out STREQUAL "" OR NOT err STREQUAL right)
    message(FATAL_ERROR "${line}: exit code ${code}, stdout \"${out}\", stderr \"${err}\"")
  endif()
endforeach()
