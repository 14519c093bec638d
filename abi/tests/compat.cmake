# The compatibility matrix: hosts and connectors of other versions against one another and against
# the tree's, each pair also with the tree's layer (docs/conformance.md) between them. Everything
# old is built from abi/frozen. Included by CMakeLists.txt.
set(frozen "${CMAKE_SOURCE_DIR}/abi/frozen/v1.0")

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

# Headers of major 2: the frozen ones under other names.
set(major2 "${CMAKE_CURRENT_BINARY_DIR}/major2")
string(REPLACE "#define KVC_MAJOR 1u" "#define KVC_MAJOR 2u" header2 "${header}")
string(REPLACE "kvc_plugin_entry_v1" "kvc_plugin_entry_v2" header2 "${header2}")
file(CONFIGURE OUTPUT "${major2}/kvc/kvc.h" CONTENT "${header2}" @ONLY)
configure_file("${frozen}/include/kvc/kvc_calls.def" "${major2}/kvc/kvc_calls.def" COPYONLY)
configure_file("${frozen}/include/kvc/kvc_util.h" "${major2}/kvc/kvc_util.h" COPYONLY)
# The loader names statuses by it.
configure_file("${CMAKE_SOURCE_DIR}/abi/include/kvc/kvc.hpp" "${major2}/kvc/kvc.hpp" COPYONLY)
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

# A connector and a host of 2.0; the host is the tree's loader.
add_library(kvc_compat_connector_2_0 MODULE "${frozen}/samples/connector.c")
compat_target(kvc_compat_connector_2_0 "${major2}")
target_compile_definitions(kvc_compat_connector_2_0 PRIVATE
  kvc_plugin_entry_v1=kvc_plugin_entry_v2)
add_executable(kvc_compat_host_2_0 compat_host_2_0.cc
  "${CMAKE_SOURCE_DIR}/host_stub/loader/loader.cc")
target_include_directories(kvc_compat_host_2_0 SYSTEM BEFORE PRIVATE "${major2}")
target_link_libraries(kvc_compat_host_2_0 PRIVATE kvc_flags kvc_core Boost::filesystem fmt::fmt
  ${CMAKE_DL_LIBS})

# compat(name library RC SAYS command..): the command gets the library's path at its end.
function(compat name library rc says)
  kvc_expect(abi_compat_${name} LABEL abi TIMEOUT 120 RC ${rc} SAYS "${says}"
    COMMAND ${ARGN} "$<TARGET_FILE:${library}>")
endfunction()
# through(name library RC SAYS command..): the same with the layer in place of the library, which
# the layer loads. A run that is right has no finding.
function(through name library rc says)
  set(findings "${CMAKE_CURRENT_BINARY_DIR}/compat_${name}.jsonl")
  set(empty "")
  if(rc STREQUAL "zero")
    set(empty EMPTY "${findings}")
  endif()
  kvc_expect(abi_compat_${name}_through_the_layer LABEL abi TIMEOUT 120 RC ${rc} SAYS "${says}"
    ${empty} COMMAND "${CMAKE_COMMAND}" -E env "KVC_LAYER_NEXT=$<TARGET_FILE:${library}>"
    "KVC_LAYER_FINDINGS=${findings}" ${ARGN} "$<TARGET_FILE:kvc_validate>")
endfunction()
# Everything that a host may meet. What a host says of what it refuses is its own; the layer says
# the rule.
function(both name library rc says rule)
  compat(${name} ${library} ${rc} "${says}" ${ARGN})
  through(${name} ${library} ${rc} "${rule}" ${ARGN})
endfunction()
set(run "$<TARGET_FILE:kvc-run>" --model "${CMAKE_SOURCE_DIR}/config/examples/models/llama.toml"
  --trace "gen:chat?requests=20" --connector)
set(served "run 2: 0 external")
foreach(host old minor1 tree)
  if(host STREQUAL "old")
    set(command "$<TARGET_FILE:kvc_host_v1.0>")
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
    set(no_trim "trim: absent.*") # the layer, too, has no slot of a later minor
  endif()
  set(fine "${no_trim}${served}")
  both(${host}_host_old_plugin kvc_connector_v1.0 zero "${fine}" "${fine}" ${command})
  both(${host}_host_minor1_plugin kvc_compat_trim zero "${trim}${served}" "${fine}" ${command})
  both(${host}_host_minor1_plugin_without_it kvc_compat_no_trim zero "${fine}" "${fine}" ${command})
  both(${host}_host_plugin_of_both_majors kvc_compat_v2 zero "${served}" "${fine}" ${command})
  both(${host}_host_plugin_of_major_2 kvc_compat_v2_only nonzero "kvc_plugin_entry_v1" "KVC-L-001"
    ${command})
  both(${host}_host_short_table kvc_compat_short_table nonzero "required slot progress" "KVC-L-003"
    ${command})
  both(${host}_host_long_table kvc_compat_long_table nonzero "(room|of a table)" "KVC-L-006"
    ${command})
  both(${host}_host_null_slot kvc_compat_null_slot nonzero "required slot complete" "KVC-L-004"
    ${command})
  both(${host}_host_empty_capability kvc_compat_empty_capability nonzero "slot pump_scheduler"
    "KVC-L-005" ${command})
endforeach()
both(old_host_simple_cpu kvc_simple_cpu zero "run 2: 192 external" "run 2: 192 external"
  "$<TARGET_FILE:kvc_host_v1.0>")
both(old_host_minimal_connector kvc_minimal_connector zero "run 2: 0 external" "run 2: 0 external"
  "$<TARGET_FILE:kvc_host_v1.0>")
both(minor1_host_simple_cpu kvc_simple_cpu zero "trim: absent.*run 2: 192 external"
  "trim: absent.*run 2: 192 external" "$<TARGET_FILE:kvc_compat_host_1_1>")

# A host of 2.0 takes what is of 2.0 and refuses all else by the name of the rule, the layer too.
set(host_2_0 "$<TARGET_FILE:kvc_compat_host_2_0>")
set(refused "exports kvc_plugin_entry_v1 but not kvc_plugin_entry_v2 .KVC-L-001.")
compat(major2_host_major2_plugin kvc_compat_connector_2_0 zero "loaded by a host of 2.0"
  ${host_2_0})
compat(major2_host_old_plugin kvc_connector_v1.0 nonzero "${refused}" ${host_2_0})
compat(major2_host_minor1_plugin kvc_compat_trim nonzero "${refused}" ${host_2_0})
compat(major2_host_simple_cpu kvc_simple_cpu nonzero "${refused}" ${host_2_0})
compat(major2_host_minimal_connector kvc_minimal_connector nonzero "${refused}" ${host_2_0})
through(major2_host_old_plugin kvc_connector_v1.0 nonzero "${refused}" ${host_2_0})
through(major2_host_major2_plugin kvc_compat_connector_2_0 nonzero "${refused}" ${host_2_0})
both(old_host_major2_plugin kvc_compat_connector_2_0 nonzero "kvc_plugin_entry_v1" "KVC-L-001"
  "$<TARGET_FILE:kvc_host_v1.0>")
