# The compatibility matrix: hosts and connectors of other versions against one another and against
# the tree's. Everything old is built from abi/frozen. Included by CMakeLists.txt.
set(frozen "${CMAKE_SOURCE_DIR}/abi/frozen/v0.9")

# A header of minor 1: the frozen one with one optional slot at the end of the table.
set(minor1 "${CMAKE_CURRENT_BINARY_DIR}/minor1")
file(READ "${frozen}/include/kvc/kvc.h" header)
string(REPLACE "#define KVC_MINOR 0u" "#define KVC_MINOR 1u" header1 "${header}")
string(REPLACE "} kvc_plugin_api;" "#if KVC_TARGET_MINOR >= 1
  /* [sched] since 1.1 opt, KVC_CAP_TRIM */
  kvc_status (*trim)(kvc_sched *s, uint64_t bytes) KVC_NOTHROW;
#endif
} kvc_plugin_api;
#define KVC_CAP_TRIM (UINT64_C(1) << 6)" header1 "${header1}")
file(READ "${frozen}/include/kvc/kvc_calls.def" calls)
string(REPLACE "KVC_HOST_SLOT(log," "#if KVC_TARGET_MINOR >= 1
KVC_SLOT(trim, sched, sched, 0, 1, opt, KVC_CAP_TRIM)
#endif
KVC_HOST_SLOT(log," calls1 "${calls}")
if(header1 STREQUAL header OR calls1 STREQUAL calls)
  message(FATAL_ERROR "the frozen headers are not as compat.cmake expects")
endif()
file(CONFIGURE OUTPUT "${minor1}/kvc/kvc.h" CONTENT "${header1}" @ONLY)
file(CONFIGURE OUTPUT "${minor1}/kvc/kvc_calls.def" CONTENT "${calls1}" @ONLY)
configure_file("${frozen}/include/kvc/kvc_util.h" "${minor1}/kvc/kvc_util.h" COPYONLY)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${frozen}/include/kvc/kvc.h"
  "${frozen}/include/kvc/kvc_calls.def")

# compat_target(name include): one of compat_plugin.c or compat_host.c
function(compat_target name include)
  target_link_libraries(${name} PRIVATE kvc_flags ${CMAKE_DL_LIBS})
  target_include_directories(${name} SYSTEM PRIVATE "${include}")
  target_include_directories(${name} PRIVATE "${frozen}/samples")
  target_compile_options(${name} PRIVATE -Wno-missing-prototypes)
endfunction()
foreach(what trim no_trim v2 v2_only short_table long_table null_slot empty_capability)
  add_library(kvc_compat_${what} MODULE compat_plugin.c)
  string(TOUPPER ${what} upper)
  target_compile_definitions(kvc_compat_${what} PRIVATE COMPAT_${upper})
  if(what MATCHES "trim")
    compat_target(kvc_compat_${what} "${minor1}")
  else()
    compat_target(kvc_compat_${what} "${frozen}/include")
  endif()
endforeach()
add_executable(kvc_compat_host_1_1 compat_host.c)
compat_target(kvc_compat_host_1_1 "${minor1}")

# compat(name library RC SAYS command..): the command gets the library's path at its end.
function(compat name library rc says)
  kvc_expect(abi_compat_${name} LABEL abi TIMEOUT 120 RC ${rc} SAYS "${says}"
    COMMAND ${ARGN} "$<TARGET_FILE:${library}>")
endfunction()
set(run "$<TARGET_FILE:kvc-run>" --model "${CMAKE_SOURCE_DIR}/config/examples/models/llama.toml"
  --trace "gen:chat?requests=20" --connector)
set(served "run 2: 0 external")
foreach(host old minor1 tree)
  if(host STREQUAL "old")
    set(command "$<TARGET_FILE:kvc_host_v0.9>")
  elseif(host STREQUAL "minor1")
    set(command "$<TARGET_FILE:kvc_compat_host_1_1>")
  else()
    set(command "${run}")
    set(served "leaks: slots 0, holds 0")
  endif()
  set(trim "")
  set(no_trim "")
  if(host STREQUAL "minor1")
    set(trim "trim: there.*")
    set(no_trim "trim: absent.*")
  endif()
  compat(${host}_host_old_plugin kvc_connector_v0.9 zero "${no_trim}${served}" ${command})
  compat(${host}_host_minor1_plugin kvc_compat_trim zero "${trim}${served}" ${command})
  compat(${host}_host_minor1_plugin_without_it kvc_compat_no_trim zero "${no_trim}${served}"
    ${command})
  compat(${host}_host_plugin_of_both_majors kvc_compat_v2 zero "${served}" ${command})
  compat(${host}_host_plugin_of_major_2 kvc_compat_v2_only nonzero "kvc_plugin_entry_v1" ${command})
  compat(${host}_host_short_table kvc_compat_short_table nonzero "required slot progress"
    ${command})
  compat(${host}_host_long_table kvc_compat_long_table nonzero "(room|of a table)" ${command})
  compat(${host}_host_null_slot kvc_compat_null_slot nonzero "required slot complete" ${command})
  compat(${host}_host_empty_capability kvc_compat_empty_capability nonzero "slot pump_scheduler"
    ${command})
endforeach()
compat(old_host_simple_cpu kvc_simple_cpu zero "run 2: 192 external"
  "$<TARGET_FILE:kvc_host_v0.9>")
compat(old_host_minimal_connector kvc_minimal_connector zero "run 2: 0 external"
  "$<TARGET_FILE:kvc_host_v0.9>")
compat(minor1_host_simple_cpu kvc_simple_cpu zero "trim: absent.*run 2: 192 external"
  "$<TARGET_FILE:kvc_compat_host_1_1>")
