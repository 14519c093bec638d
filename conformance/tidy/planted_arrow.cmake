# cmake -DTIDY=kvc-tidy -DSCRATCH=folder -P planted_arrow.cmake
file(REMOVE_RECURSE "${SCRATCH}")
file(WRITE "${SCRATCH}/plugin/core/units.h" "#pragma once\n#include <cstdint>\n")
file(WRITE "${SCRATCH}/plugin/coordinator/pool.h"
  "#pragma once\n#include \"plugin/core/units.h\"\n")
execute_process(COMMAND "${TIDY}" --arrows "${SCRATCH}" RESULT_VARIABLE good)
if(NOT good EQUAL 0)
  message(FATAL_ERROR "a tree with good arrows is refused (exit ${good})")
endif()
file(WRITE "${SCRATCH}/plugin/core/planted.h"
  "#pragma once\n#include \"plugin/coordinator/pool.h\"\n")
execute_process(COMMAND "${TIDY}" --arrows "${SCRATCH}" RESULT_VARIABLE bad ERROR_VARIABLE text)
if(NOT bad EQUAL 1)
  message(FATAL_ERROR "a bad include is not refused (exit ${bad})")
endif()
if(NOT text MATCHES "plugin/core/planted.h:2: plugin/core may not include plugin/coordinator")
  message(FATAL_ERROR "the refusal does not name file, line and arrow: ${text}")
endif()
